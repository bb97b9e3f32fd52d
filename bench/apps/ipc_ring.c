/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_ring - processes that write into each other's memory, round by round: the job of the CUDA sample
 * simpleIPC, with everything checked.
 * What:       member r works on device r % devices. In a round it fills a block of its own, copies it by a
 *             kernel into the inbox of member r + 1, and checks and hashes its own inbox on the GPU, and
 *             byte for byte on the host. What orders the two on the GPU are interprocess events alone: the
 *             barriers of the hosts only see to it that a record was called before its wait. Then, with
 *             --rows 1: what handles cost, bandwidth by pair, size and way, and how much device memory it
 *             takes to have one block in all members, shared or a copy each; CSV rows. With --kill N the
 *             last member is killed in round N, and the run is good if all others end with an error; with
 *             --kill_us or --kill_start_us it goes on, with opens and closes between rounds, until --victim is
 *             killed at that time. --used 1 prints how much device memory is in use, and nothing else.
 * Not here:   starting and losing members (ipc_group.c); anything that knows about cupola.
 * Invariants: seeds depend on round and member alone, so every run must return the same hash.
 * Threads:    one in each process.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "bench/bare.h"
#include "bench/apps/hash.h"
#include "bench/apps/ipc_group.h"
#include "tests/softcuda/pattern.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TRIALS 5 /* medians of */

/* What dev.h has not. */
#define ENTRY_LIST(X)        \
    X(cuDeviceGetCount)      \
    X(cuEventCreate)         \
    X(cuEventRecord)         \
    X(cuEventDestroy_v2)     \
    X(cuStreamQuery)         \
    X(cuStreamWaitEvent)     \
    X(cuIpcGetMemHandle)     \
    X(cuIpcOpenMemHandle_v2) \
    X(cuIpcCloseMemHandle)   \
    X(cuIpcGetEventHandle)   \
    X(cuIpcOpenEventHandle)  \
    X(cuMemHostRegister_v2)  \
    X(cuMemcpyDtoDAsync_v2)  \
    X(cuMemcpyHtoDAsync_v2)  \
    X(cuMemcpyPeerAsync)

#define DECLARE(entry) __typeof__(entry) *entry;
static struct {
    ENTRY_LIST(DECLARE)
} drv;

typedef struct ring {
    group_t group;
    group_board_t *board;
    group_member_t *self, *next, *before;
    int rank, count, device, next_device, devices; /* devices: of all members together */
    uint64_t bytes, rounds;
    CUdeviceptr source, inbox, remote; /* remote: the inbox of the next one */
    CUdeviceptr words;                 /* wrong words, hash */
    CUevent written, read;             /* ours */
    CUevent next_read, before_written; /* theirs */
    CUstream stream;
    char *host, *staging;
} ring_t;

#define OK(call) dev_check(drv.call, #call)

static void bind_entries(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define BIND(entry)                                          \
    drv.entry = library ? dlsym(library, #entry) : NULL;     \
    if (!drv.entry) {                                        \
        fprintf(stderr, "libcuda.so.1 has no " #entry "\n"); \
        exit(1);                                             \
    }
    ENTRY_LIST(BIND)
}

/* ---- the ring ---- */

static uint64_t seed_of(uint64_t round, int member)
{
    return round * GROUP_MAX + (uint64_t)member + 1;
}

static CUevent new_event(CUipcEventHandle *out_handle)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(out_handle, event));
    return event;
}

static CUdeviceptr open_block(const CUipcMemHandle *handle)
{
    CUdeviceptr block;
    OK(cuIpcOpenMemHandle_v2(&block, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return block;
}

static void open_devices(ring_t *ring)
{
    int available = 0;
    dev_open();
    bind_entries();
    OK(cuDeviceGetCount(&available));
    ring->devices = ring->board->devices      ? (int)ring->board->devices
                    : available < ring->count ? available
                                              : ring->count;
    dev_open_peers(ring->devices);
    ring->device = ring->rank % ring->devices;
    ring->next_device = (ring->rank + 1) % ring->count % ring->devices;
    dev_join_device(ring->device);
}

static bool is_to_be_killed(const ring_t *ring)
{
    return ring->board->kill_us || ring->board->kill_start_us;
}

static void open_ring(ring_t *ring)
{
    group_board_t *board = ring->board;
    ring->count = (int)board->processes;
    ring->self = &board->members[ring->rank];
    ring->next = &board->members[(ring->rank + 1) % ring->count];
    ring->before = &board->members[(ring->rank + ring->count - 1) % ring->count];
    open_devices(ring);
    ring->rounds = is_to_be_killed(ring) ? 1 << 20
                   : board->rounds       ? board->rounds
                   : dev_is_simulated()  ? 6
                                         : 20;
    ring->bytes = (board->bytes ? board->bytes : dev_is_simulated() ? 256 << 10 : 64 << 20) & ~UINT64_C(7);
    ring->stream = dev_stream();
    ring->source = dev_alloc(ring->bytes);
    ring->inbox = dev_alloc(ring->bytes);
    ring->words = dev_alloc(16);
    ring->host = dev_host_alloc(ring->bytes);
    dev_zero(ring->words, 16, ring->stream);
    ring->self->hash = HASH_START;
    ring->written = new_event(&ring->self->written);
    ring->read = new_event(&ring->self->read);
    OK(cuIpcGetMemHandle(&ring->self->blocks[0], ring->inbox));
    group_wait(&ring->group);
    ring->remote = open_block(&ring->next->blocks[0]);
    OK(cuIpcOpenEventHandle(&ring->next_read, ring->next->read));
    OK(cuIpcOpenEventHandle(&ring->before_written, ring->before->written));
    group_wait(&ring->group);
    __atomic_store_n(&board->is_open, 1, __ATOMIC_RELEASE);
}

/* Nobody frees what another one has open. */
static void close_ring(ring_t *ring)
{
    OK(cuIpcCloseMemHandle(ring->remote));
    OK(cuEventDestroy_v2(ring->next_read));
    OK(cuEventDestroy_v2(ring->before_written));
    group_wait(&ring->group);
    OK(cuEventDestroy_v2(ring->written));
    OK(cuEventDestroy_v2(ring->read));
    dev_free(ring->source);
    dev_free(ring->inbox);
    dev_free(ring->words);
}

static void send_on(const ring_t *ring, uint64_t round)
{
    dev_fill(ring->source, ring->bytes, seed_of(round, ring->rank), ring->stream);
    if (round > 0)
        OK(cuStreamWaitEvent(ring->stream, ring->next_read, 0)); /* of the round before */
    dev_copy(ring->remote, ring->source, ring->bytes, ring->stream);
    OK(cuEventRecord(ring->written, ring->stream));
}

static void receive(const ring_t *ring, uint64_t round)
{
    uint64_t seed = seed_of(round, (ring->rank + ring->count - 1) % ring->count);
    OK(cuStreamWaitEvent(ring->stream, ring->before_written, 0));
    dev_verify(ring->inbox, ring->bytes, seed, ring->words, ring->stream);
    dev_zero(ring->words + 8, 8, ring->stream);
    dev_hash(ring->inbox, ring->bytes, ring->words + 8, ring->stream);
    dev_read_async(ring->host, ring->inbox, ring->bytes, ring->stream);
    OK(cuEventRecord(ring->read, ring->stream));
}

/* Not a wait in the driver: an event of a member that was killed before it came to it may never complete. */
static void await_stream(const ring_t *ring)
{
    const struct timespec pause = {0, 20000};
    double end_s = dev_now_s() + GROUP_TIMEOUT_S;
    CUresult result;
    while ((result = drv.cuStreamQuery(ring->stream)) == CUDA_ERROR_NOT_READY && dev_now_s() < end_s) {
        group_look(&ring->group);
        nanosleep(&pause, NULL);
    }
    dev_check(result, "cuStreamQuery");
}

/* What came, seen by the GPU and by the host. */
static void check(const ring_t *ring, uint64_t round)
{
    uint64_t seed = seed_of(round, (ring->rank + ring->count - 1) % ring->count), words[2];
    dev_read(words, ring->words, sizeof words);
    ring->self->wrong += softcuda_verify_region(ring->host, ring->bytes, seed);
    ring->self->wrong += words[1] != softcuda_hash_region(ring->host, ring->bytes);
    if (round + 1 == ring->rounds)
        ring->self->wrong += words[0]; /* of all rounds */
    ring->self->hash = hash_word(ring->self->hash, words[1]);
}

static double run_round(ring_t *ring, uint64_t round)
{
    double start = dev_now_s();
    send_on(ring, round);
    if (ring->board->kill_round == round + 1 && ring->rank == ring->count - 1)
        raise(SIGKILL);
    group_wait(&ring->group);
    receive(ring, round);
    group_wait(&ring->group);
    await_stream(ring);
    double end = dev_now_s();
    check(ring, round);
    return end - start;
}

/* ---- rows ---- */

static void print_row(const char *op, int from, int to, uint64_t bytes, double value, const char *unit)
{
    printf("%s,%d,%d,%llu,%.3f,%s\n", op, from, to, (unsigned long long)bytes, value, unit);
    fflush(stdout); /* of several processes */
}

/* What a handle costs: of a block, of others of the same process, of the first one again. */
#define COST_LIST(X) \
    X(get_first)     \
    X(get_next)      \
    X(get_again)     \
    X(open_first)    \
    X(open_next)     \
    X(open_again)    \
    X(close_again)   \
    X(close_last)

typedef enum {
#define X(name) COST_##name,
    COST_LIST(X)
#undef X
        COST_COUNT
} cost_t;

static const char *const cost_names[] = {
#define X(name) #name,
    COST_LIST(X)
#undef X
};

static double us_since(double start_s)
{
    return (dev_now_s() - start_s) * 1e6;
}

/* The first block, then the others, then the first again. False: there are no handles for these blocks. */
static bool time_gets(ring_t *ring, const CUdeviceptr *blocks, double *out_us)
{
    double next[GROUP_BLOCKS - 1], start;
    for (int i = 0; i <= GROUP_BLOCKS; i++) {
        int at = i % GROUP_BLOCKS;
        start = dev_now_s();
        if (drv.cuIpcGetMemHandle(&ring->self->blocks[at], blocks[at]) != CUDA_SUCCESS)
            return false;
        *(i == 0              ? &out_us[COST_get_first]
          : i == GROUP_BLOCKS ? &out_us[COST_get_again]
                              : &next[i - 1]) = us_since(start);
    }
    out_us[COST_get_next] = dev_median(next, GROUP_BLOCKS - 1);
    return true;
}

static void time_opens(const group_member_t *exporter, double *out_us)
{
    CUdeviceptr blocks[GROUP_BLOCKS + 1];
    double next[GROUP_BLOCKS - 1], start;
    for (int i = 0; i <= GROUP_BLOCKS; i++) {
        start = dev_now_s();
        blocks[i] = open_block(&exporter->blocks[i % GROUP_BLOCKS]);
        *(i == 0              ? &out_us[COST_open_first]
          : i == GROUP_BLOCKS ? &out_us[COST_open_again]
                              : &next[i - 1]) = us_since(start);
    }
    out_us[COST_open_next] = dev_median(next, GROUP_BLOCKS - 1);
    for (int i = GROUP_BLOCKS; i >= 0; i--) {
        start = dev_now_s();
        OK(cuIpcCloseMemHandle(blocks[i]));
        if (i == GROUP_BLOCKS || i == 0)
            out_us[i ? COST_close_again : COST_close_last] = us_since(start);
    }
}

/* Member 1 makes handles of its blocks, member 0 opens them; the others wait. */
static bool cost_once(ring_t *ring, uint64_t bytes, double *out_us)
{
    group_member_t *exporter = &ring->board->members[1];
    CUdeviceptr blocks[GROUP_BLOCKS] = {0}; /* of member 1 */
    if (ring->rank == 1) {
        for (int i = 0; i < GROUP_BLOCKS; i++)
            blocks[i] = dev_alloc(bytes);
        exporter->has_blocks = time_gets(ring, blocks, out_us);
    }
    group_wait(&ring->group);
    bool has_blocks = exporter->has_blocks;
    if (ring->rank == 0 && has_blocks)
        time_opens(exporter, out_us);
    group_wait(&ring->group);
    if (ring->rank == 1)
        for (int i = 0; i < GROUP_BLOCKS; i++)
            dev_free(blocks[i]);
    return has_blocks;
}

static void print_costs(ring_t *ring, uint64_t bytes)
{
    double us[COST_COUNT][TRIALS], once[COST_COUNT] = {0};
    bool has_blocks = true;
    for (int trial = 0; trial < TRIALS; trial++) {
        has_blocks &= cost_once(ring, bytes, once);
        for (int cost = 0; cost < COST_COUNT; cost++)
            us[cost][trial] = once[cost];
    }
    for (int cost = 0; cost < COST_COUNT; cost++)
        if (has_blocks && ring->rank == (cost < COST_open_first ? 1 : 0))
            print_row(cost_names[cost], 1, 0, bytes, dev_median(us[cost], TRIALS), "us");
    if (!has_blocks && ring->rank == 0)
        printf("# no handles of blocks of %llu bytes\n", (unsigned long long)bytes);
    fflush(stdout);
    group_wait(&ring->group);
}

/* ---- all rounds ---- */

static double run_rounds(ring_t *ring)
{
    double *times = calloc(ring->rounds, sizeof *times), unasked_us[COST_COUNT];
    for (uint64_t round = 0; times && round < ring->rounds; round++) {
        times[round] = run_round(ring, round);
        if (is_to_be_killed(ring) && round % 4 == 3)
            (void)cost_once(ring, 2 << 20, unasked_us);
    }
    double median = times ? dev_median(times, (int)ring->rounds) : 0;
    free(times);
    return median;
}

/* ---- bandwidth ---- */

typedef struct lane {
    ring_t *ring;
    CUdeviceptr local,
        twin; /* a second block here; one of ours on the next one's device, 0: the same device */
    uint64_t bytes;
} lane_t;

static void by_kernel(const lane_t *lane)
{
    dev_copy(lane->ring->remote, lane->ring->source, lane->bytes, lane->ring->stream);
}

static void by_copy(const lane_t *lane)
{
    OK(cuMemcpyDtoDAsync_v2(lane->ring->remote, lane->ring->source, lane->bytes, lane->ring->stream));
}

static void locally(const lane_t *lane)
{
    OK(cuMemcpyDtoDAsync_v2(lane->local, lane->ring->source, lane->bytes, lane->ring->stream));
}

static void to_twin(const lane_t *lane)
{
    const ring_t *ring = lane->ring;
    OK(cuMemcpyPeerAsync(lane->twin, dev_context(ring->next_device), ring->source, dev_context(ring->device),
                         lane->bytes, ring->stream));
}

/* The rival of sharing: each process gets a copy of its own, from memory of the host that all have pinned. */
static void by_upload(const lane_t *lane)
{
    OK(cuMemcpyHtoDAsync_v2(lane->local, lane->ring->staging, lane->bytes, lane->ring->stream));
}

/* One process alone: the way takes no other one's part. */
static void print_way(const lane_t *lane, const char *op, void (*way)(const lane_t *))
{
    double times[TRIALS];
    way(lane); /* warms up */
    dev_stream_sync(lane->ring->stream);
    for (int trial = 0; trial < TRIALS; trial++) {
        double start = dev_now_s();
        way(lane);
        dev_stream_sync(lane->ring->stream);
        times[trial] = dev_now_s() - start;
    }
    print_row(op, lane->ring->rank, (lane->ring->rank + 1) % lane->ring->count, lane->bytes,
              (double)lane->bytes / dev_median(times, TRIALS) / 1e9, "GB/s");
}

/* Out of one process into pinned memory that both share, and from there into the other: whole, not in
 * pieces that overlap. */
static void print_staged(const lane_t *lane, int from)
{
    ring_t *ring = lane->ring;
    int to = (from + 1) % ring->count;
    double times[TRIALS];
    for (int trial = 0; trial < TRIALS; trial++) {
        group_wait(&ring->group);
        double start = dev_now_s();
        if (ring->rank == from) {
            dev_read_async(ring->staging, ring->source, lane->bytes, ring->stream);
            dev_stream_sync(ring->stream);
        }
        group_wait(&ring->group);
        if (ring->rank == to) {
            OK(cuMemcpyHtoDAsync_v2(lane->local, ring->staging, lane->bytes, ring->stream));
            dev_stream_sync(ring->stream);
        }
        group_wait(&ring->group);
        times[trial] = dev_now_s() - start;
    }
    if (ring->rank == from)
        print_row("staged", from, to, lane->bytes, (double)lane->bytes / dev_median(times, TRIALS) / 1e9,
                  "GB/s");
}

static void print_bandwidth(const lane_t *lane)
{
    for (int from = 0; from < lane->ring->count; from++) {
        bool has_staging = !lane->ring->board->has_no_staging;
        if (lane->ring->rank == from) {
            print_way(lane, "ipc_kernel", by_kernel);
            print_way(lane, "ipc_copy", by_copy);
            print_way(lane, "local_copy", locally);
            if (lane->twin)
                print_way(lane, "peer_copy", to_twin);
            if (has_staging)
                print_way(lane, "own_upload", by_upload);
        }
        group_wait(&lane->ring->group);
        if (has_staging)
            print_staged(lane, from);
    }
}

static void open_lane(lane_t *lane)
{
    ring_t *ring = lane->ring;
    lane->local = dev_alloc(ring->bytes);
    if (ring->next_device != ring->device) {
        dev_join_device(ring->next_device);
        lane->twin = dev_alloc(ring->bytes);
        dev_join_device(ring->device);
    }
    ring->staging = group_staging(&ring->group, ring->bytes);
    if (drv.cuMemHostRegister_v2(ring->staging, ring->bytes, 0) != CUDA_SUCCESS)
        ring->board->has_no_staging = true;
    group_wait(&ring->group);
}

static void close_lane(const lane_t *lane)
{
    dev_free(lane->local);
    if (lane->twin) {
        dev_join_device(lane->ring->next_device);
        dev_free(lane->twin);
        dev_join_device(lane->ring->device);
    }
}

/* ---- memory ---- */

/* Bytes in use on all devices of the ring, by the driver's own figure: past whatever is preloaded. */
static uint64_t used_bytes(const ring_t *ring)
{
    CUresult (*get_info)(size_t *, size_t *) =
        (CUresult(*)(size_t *, size_t *))bare_symbol("libcuda.so.1", "cuMemGetInfo_v2");
    uint64_t used = 0;
    for (int device = 0; get_info && device < ring->devices; device++) {
        size_t left = 0, total = 0;
        dev_join_device(device);
        dev_check(get_info(&left, &total), "cuMemGetInfo");
        used += total - left;
    }
    dev_join_device(ring->device);
    return used;
}

static void print_used(ring_t *ring, const char *op, uint64_t bytes, uint64_t before)
{
    group_wait(&ring->group);
    if (ring->rank == 0)
        print_row(op, 0, ring->count - 1, bytes, ((double)used_bytes(ring) - (double)before) / (1 << 20),
                  "MiB");
    group_wait(&ring->group);
}

/*
 * One block of member 0 that all others open; then a block of each. What a pool keeps of the first is what the
 * second is made of, hence one figure from before for both.
 */
static void print_memory(ring_t *ring)
{
    const uint64_t bytes = dev_is_simulated() ? 8 << 20 : 256 << 20;
    uint64_t before = 0;
    CUdeviceptr block = 0;
    group_wait(&ring->group);
    if (ring->rank == 0) {
        before = used_bytes(ring);
        block = dev_alloc(bytes);
        OK(cuIpcGetMemHandle(&ring->self->blocks[0], block));
    }
    group_wait(&ring->group);
    if (ring->rank != 0)
        block = open_block(&ring->board->members[0].blocks[0]);
    print_used(ring, "memory_shared", bytes, before);
    if (ring->rank != 0)
        OK(cuIpcCloseMemHandle(block));
    group_wait(&ring->group);
    if (ring->rank == 0)
        dev_free(block);
    block = dev_alloc(bytes);
    print_used(ring, "memory_own", bytes, before);
    dev_free(block);
}

static void print_rows(ring_t *ring)
{
    static const uint64_t sizes[] = {64 << 10, 2 << 20, 32 << 20};
    const int step = dev_is_simulated() ? 4 : 2;
    lane_t lane = {.ring = ring};
    open_lane(&lane);
    if (ring->rank == 0) {
        printf("op,from,to,bytes,value,unit\n");
        fflush(stdout);
    }
    group_wait(&ring->group);
    for (size_t i = 0; i < (dev_is_simulated() ? 2 : 3); i++)
        print_costs(ring, sizes[i]);
    print_memory(ring);
    for (int shift = dev_is_simulated() ? 8 : 12; shift >= 0; shift -= step) {
        lane.bytes = (ring->bytes >> shift) & ~UINT64_C(7);
        if (lane.bytes > 0)
            print_bandwidth(&lane);
    }
    close_lane(&lane);
}

/* ---- a member, the supervisor ---- */

static int run_member(int fd, int rank)
{
    ring_t ring = {.group = group_join(fd, rank), .rank = rank};
    uint64_t hash = HASH_START, wrong = 0;
    ring.board = ring.group.board;
    open_ring(&ring);
    double time_s = run_rounds(&ring);
    if (ring.board->rows)
        print_rows(&ring);
    close_ring(&ring);
    ring.self->wrong += dev_violations();
    group_wait(&ring.group);
    for (int i = 0; i < ring.count; i++) {
        wrong += ring.board->members[i].wrong;
        hash = hash_word(hash, ring.board->members[i].hash);
    }
    if (wrong)
        fprintf(stderr, "ipc_ring: member %d: %llu words were not what was sent\n", rank,
                (unsigned long long)wrong);
    else if (rank == 0)
        dev_report("ipc_ring", time_s, ring.rounds, hash);
    return wrong != 0;
}

/* In a process that is there for this alone: what others have left behind. */
static int print_used_now(group_board_t *asked)
{
    ring_t ring = {.board = asked, .count = DEV_DEVICES_MAX};
    open_devices(&ring);
    printf("used=%llu devices=%d\n", (unsigned long long)used_bytes(&ring), ring.devices);
    return 0;
}

int main(int argc, char **argv)
{
    group_board_t asked = {0};
    uint64_t board = 0, member = 0, used = 0;
    const dev_option_t options[] = {{"--processes", &asked.processes},
                                    {"--devices", &asked.devices},
                                    {"--rounds", &asked.rounds},
                                    {"--bytes", &asked.bytes},
                                    {"--rows", &asked.rows},
                                    {"--kill", &asked.kill_round},
                                    {"--kill_us", &asked.kill_us},
                                    {"--kill_start_us", &asked.kill_start_us},
                                    {"--victim", &asked.victim},
                                    {"--used", &used},
                                    {"--board", &board},
                                    {"--member", &member}};
    dev_options(argc, argv, options, sizeof options / sizeof options[0]);
    if (board)
        return run_member((int)board, (int)member - 1);
    asked.processes = asked.processes ? asked.processes : 2;
    if (asked.processes < 2 || asked.processes > GROUP_MAX || asked.victim > asked.processes) {
        fprintf(stderr, "ipc_ring: --processes from 2 to %d, --victim one of them\n", GROUP_MAX);
        return 2;
    }
    if (used)
        return print_used_now(&asked);
    return group_run(&asked);
}
