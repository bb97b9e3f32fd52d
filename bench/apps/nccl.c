/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl - all-reduces between devices, and between them what a program does meanwhile: it allocates, fills and
 * frees buffers of changing sizes while kernels of NCCL on all devices wait for each other.
 * What:       one process and one thread for all devices (--threads 1, group calls), a thread for each
 *             (--threads 2), or a process for each (--processes 2). A round allocates what goes in and what
 *             comes out, reduces, allocates and frees others beside it, and checks every word that came, on
 *             the host. With --sweep 1: bandwidth by size, CSV rows. With --late 1 nothing is freed before
 *             the reduction has ended: for where the driver's own free would wait for ever.
 * Not here:   NCCL's functions (nccl_api.c); anything that knows about cupola.
 * Invariants: seeds and sizes depend on round and rank alone. A sum of 64-bit words is exact, so each has
 *             one right value. No progress for --timeout seconds ends the program with code 3.
 * Threads:    a crew is the ranks that one thread drives; crews share nothing but the options.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "bench/apps/nccl_api.h"
#include "tests/softcuda/pattern.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BESIDE      4 /* blocks that come and go during a reduction */
#define TRIALS      5 /* medians of, in the sweep */
#define SKEW_US     2000
#define HANG_CODE   3
#define SALT_SIZE   1 /* what a random number is for */
#define SALT_BESIDE 2
#define SALT_SKEW   3

static struct {
    uint64_t threads, processes, devices, rounds, bytes, timeout, sweep, late;
    uint64_t rank, id_fd, result_fd; /* of a member of --processes: rank + 1, and pipes */
} asked;

typedef struct rank {
    int number; /* of the rank, and of its device */
    nccl_comm_t comm;
    CUstream stream, side;
    CUdeviceptr from, to; /* of this round */
    CUdeviceptr beside[BESIDE], words;
    char *host;
    uint64_t host_bytes, wrong;
} rank_t;

typedef struct result {
    uint64_t rounds, wrong;
    double us_per_round, busbw_gbs;
} result_t;

typedef struct crew {
    rank_t ranks[DEV_DEVICES_MAX];
    int count;
    nccl_id_t id;
    result_t result;
} crew_t;

#define OK(call) nccl_check(nccl.call, #call)

/* ---- no hang ---- */

static void give_up(int number)
{
    static const char line[] = "nccl: no progress: what was submitted waits for ever\n";
    (void)number;
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(HANG_CODE);
}

/* Whoever gets on puts the end off. Ranks that wait for each other all stop, if one does. */
static void get_on(void)
{
    alarm((unsigned)asked.timeout);
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t round, int rank, uint64_t salt)
{
    return softcuda_splitmix64(softcuda_splitmix64(round * DEV_DEVICES_MAX + (uint64_t)rank) ^ salt << 56);
}

/* Log-uniform from 8 bytes to most, a multiple of 8. */
static uint64_t size_of(uint64_t number, uint64_t most)
{
    int top = 63 - __builtin_clzll(most);
    uint64_t base = UINT64_C(8) << number % (uint64_t)(top - 2);
    uint64_t size = base + (number >> 8) % base;
    return (size < most ? size : most) & ~UINT64_C(7);
}

/* Of what all ranks put in. */
static uint64_t sum_word(const uint64_t *seeds, uint64_t i)
{
    uint64_t sum = 0;
    for (uint64_t rank = 0; rank < asked.devices; rank++)
        sum += softcuda_fill_word(seeds[rank], i);
    return sum;
}

/* ---- a round ---- */

static void prepare(rank_t *rank, uint64_t round, uint64_t bytes)
{
    rank->from = dev_alloc(bytes);
    rank->to = dev_alloc(bytes);
    dev_fill(rank->from, bytes, mix(round, rank->number, 0), rank->stream);
}

static void reduce(crew_t *crew, uint64_t bytes)
{
    OK(ncclGroupStart());
    for (int i = 0; i < crew->count; i++) {
        rank_t *rank = &crew->ranks[i];
        dev_join_device(rank->number);
        OK(ncclAllReduce((const void *)rank->from, (void *)rank->to, bytes / 8, NCCL_UINT64, NCCL_SUM,
                         rank->comm, rank->stream));
    }
    OK(ncclGroupEnd());
}

/* What a program does while a reduction runs, or waits for a rank that comes later. */
static void work_beside(rank_t *rank, uint64_t round)
{
    for (int i = 0; i < BESIDE; i++) {
        uint64_t seed = mix(round * BESIDE + (uint64_t)i, rank->number, SALT_BESIDE);
        uint64_t bytes = size_of(seed, asked.bytes / 4);
        rank->beside[i] = dev_alloc(bytes);
        dev_fill(rank->beside[i], bytes, seed, rank->side);
        dev_verify(rank->beside[i], bytes, seed, rank->words, rank->side);
        if (!asked.late)
            dev_free(rank->beside[i]);
    }
    if (!asked.late)
        dev_free(rank->from);
}

static void end_round(rank_t *rank)
{
    dev_stream_sync(rank->stream);
    if (!asked.late)
        return;
    for (int i = 0; i < BESIDE; i++)
        dev_free(rank->beside[i]);
    dev_free(rank->from);
}

static void check(rank_t *rank, uint64_t round, uint64_t bytes)
{
    const uint64_t *words = (const uint64_t *)(const void *)rank->host;
    uint64_t seeds[DEV_DEVICES_MAX];
    for (int i = 0; i < (int)asked.devices; i++)
        seeds[i] = mix(round, i, 0);
    for (uint64_t at = 0; at < bytes; at += rank->host_bytes) {
        uint64_t piece = bytes - at < rank->host_bytes ? bytes - at : rank->host_bytes;
        dev_read(rank->host, rank->to + at, piece);
        for (uint64_t i = 0; i < piece / 8; i++)
            rank->wrong += words[i] != sum_word(seeds, at / 8 + i);
    }
}

/* Where each rank has a thread of its own they come at different times: the early one's kernel waits. */
static void come_late(const crew_t *crew, uint64_t round)
{
    if (crew->count == 1)
        usleep((useconds_t)(mix(round, crew->ranks[0].number, SALT_SKEW) % SKEW_US));
}

static double run_round(crew_t *crew, uint64_t round, uint64_t bytes)
{
    double start_s = dev_now_s(), time_s;
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        prepare(&crew->ranks[i], round, bytes);
    }
    come_late(crew, round);
    reduce(crew, bytes);
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        work_beside(&crew->ranks[i], round);
    }
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        end_round(&crew->ranks[i]);
    }
    time_s = dev_now_s() - start_s;
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        check(&crew->ranks[i], round, bytes);
        dev_free(crew->ranks[i].to);
    }
    return time_s;
}

/* What goes over each link, as nccl-tests count it. */
static double busbw_gbs(double bytes, double time_s)
{
    return bytes * 2 * (double)(asked.devices - 1) / (double)asked.devices / time_s / 1e9;
}

static void run_rounds(crew_t *crew)
{
    double *times = calloc(asked.rounds, sizeof *times), bytes_all = 0, time_all_s = 0;
    for (uint64_t round = 0; times && round < asked.rounds; round++) {
        uint64_t bytes = size_of(mix(round, 0, SALT_SIZE), asked.bytes);
        get_on();
        times[round] = run_round(crew, round, bytes);
        bytes_all += (double)bytes;
        time_all_s += times[round];
    }
    if (times) {
        crew->result.rounds = asked.rounds;
        crew->result.us_per_round = dev_median(times, (int)asked.rounds) * 1e6;
        crew->result.busbw_gbs = busbw_gbs(bytes_all, time_all_s);
    }
    free(times);
}

/* ---- bandwidth by size ---- */

static void sync_crew(crew_t *crew)
{
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        dev_stream_sync(crew->ranks[i].stream);
    }
}

static double time_reductions(crew_t *crew, uint64_t bytes, int calls)
{
    double start_s = dev_now_s();
    for (int i = 0; i < calls; i++)
        reduce(crew, bytes);
    sync_crew(crew);
    return (dev_now_s() - start_s) / calls;
}

static void sweep_size(crew_t *crew, uint64_t bytes)
{
    const int calls = dev_is_simulated() ? 2 : 20;
    double times[TRIALS], median_s;
    get_on();
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        prepare(&crew->ranks[i], bytes, bytes); /* the size is the seed */
    }
    time_reductions(crew, bytes, calls); /* warms up */
    for (int trial = 0; trial < TRIALS; trial++)
        times[trial] = time_reductions(crew, bytes, calls);
    for (int i = 0; i < crew->count; i++) {
        dev_join_device(crew->ranks[i].number);
        check(&crew->ranks[i], bytes, bytes);
        dev_free(crew->ranks[i].from);
        dev_free(crew->ranks[i].to);
    }
    median_s = dev_median(times, TRIALS);
    if (crew->ranks[0].number == 0)
        printf("allreduce,%llu,%.2f,%.3f\n", (unsigned long long)bytes, median_s * 1e6,
               busbw_gbs((double)bytes, median_s));
}

static void sweep(crew_t *crew)
{
    const uint64_t most = dev_is_simulated() ? 256 << 10 : 1 << 30;
    if (crew->ranks[0].number == 0)
        printf("op,bytes,us,busbw_GBs\n");
    for (uint64_t bytes = dev_is_simulated() ? 64 << 10 : 1 << 20; bytes <= most; bytes *= 4)
        sweep_size(crew, bytes);
    fflush(stdout);
}

/* ---- a crew ---- */

static void open_rank(rank_t *rank)
{
    dev_join_device(rank->number);
    rank->stream = dev_stream();
    rank->side = dev_stream();
    rank->words = dev_alloc(8);
    dev_zero(rank->words, 8, rank->side);
    rank->host_bytes = asked.bytes;
    rank->host = dev_host_alloc(rank->host_bytes);
}

static void open_crew(crew_t *crew)
{
    int devices[DEV_DEVICES_MAX];
    nccl_comm_t comms[DEV_DEVICES_MAX];
    get_on();
    for (int i = 0; i < crew->count; i++) {
        open_rank(&crew->ranks[i]);
        devices[i] = crew->ranks[i].number;
    }
    if (crew->count == (int)asked.devices)
        OK(ncclCommInitAll(comms, crew->count, devices));
    else
        OK(ncclCommInitRank(&comms[0], (int)asked.devices, crew->id, crew->ranks[0].number));
    for (int i = 0; i < crew->count; i++)
        crew->ranks[i].comm = comms[i];
}

static void close_crew(crew_t *crew)
{
    uint64_t wrong;
    get_on();
    for (int i = 0; i < crew->count; i++) {
        rank_t *rank = &crew->ranks[i];
        dev_join_device(rank->number);
        dev_stream_sync(rank->side);
        dev_read(&wrong, rank->words, sizeof wrong);
        dev_free(rank->words);
        crew->result.wrong += rank->wrong + wrong;
        OK(ncclCommDestroy(rank->comm));
    }
}

static void *run_crew(void *argument)
{
    crew_t *crew = argument;
    open_crew(crew);
    run_rounds(crew);
    if (asked.sweep)
        sweep(crew);
    close_crew(crew);
    return NULL;
}

/* ---- one process, several ---- */

static int report(const char *name, const result_t *result)
{
    printf("name=%s rounds=%llu wrong=%llu busbw_GBs=%.3f us_per_round=%.1f\n", name,
           (unsigned long long)result->rounds, (unsigned long long)result->wrong, result->busbw_gbs,
           result->us_per_round);
    return result->wrong != 0;
}

static void open_devices(void)
{
    signal(SIGALRM, give_up);
    dev_open();
    dev_open_devices((int)asked.devices);
    asked.rounds = asked.rounds ? asked.rounds : dev_is_simulated() ? 6 : 200;
    asked.bytes = (asked.bytes ? asked.bytes : dev_is_simulated() ? 256 << 10 : 64 << 20) & ~UINT64_C(7);
    asked.bytes = asked.bytes < 1024 ? 1024 : asked.bytes;
}

static int run_threads(void)
{
    static crew_t crews[DEV_DEVICES_MAX];
    pthread_t threads[DEV_DEVICES_MAX];
    result_t all;
    open_devices();
    OK(ncclGetUniqueId(&crews[0].id));
    for (int i = 0; i < (int)asked.devices; i++) {
        crews[i].id = crews[0].id;
        crews[i].count = 1;
        crews[i].ranks[0].number = i;
        if (pthread_create(&threads[i], NULL, run_crew, &crews[i]) != 0) {
            fprintf(stderr, "nccl: cannot start thread %d\n", i);
            return 1;
        }
    }
    for (int i = 0; i < (int)asked.devices; i++)
        pthread_join(threads[i], NULL);
    all = crews[0].result;
    for (int i = 1; i < (int)asked.devices; i++)
        all.wrong += crews[i].result.wrong;
    all.wrong += dev_violations();
    return report("nccl_threads", &all);
}

static int run_one_thread(void)
{
    static crew_t crew;
    open_devices();
    crew.count = (int)asked.devices;
    for (int i = 0; i < crew.count; i++)
        crew.ranks[i].number = i;
    run_crew(&crew);
    crew.result.wrong += dev_violations();
    return report("nccl", &crew.result);
}

/* A pipe holds what is written at once, whole: the id for each of the others, a result of each. */
static bool transfer(int fd, void *data, size_t bytes, bool is_write)
{
    if ((is_write ? write(fd, data, bytes) : read(fd, data, bytes)) == (ssize_t)bytes)
        return true;
    perror("nccl: pipe");
    return false;
}

static int run_member(void)
{
    static crew_t crew;
    open_devices();
    crew.count = 1;
    crew.ranks[0].number = (int)asked.rank - 1;
    get_on();
    if (asked.rank == 1) {
        OK(ncclGetUniqueId(&crew.id));
        for (uint64_t i = 1; i < asked.devices; i++)
            if (!transfer((int)asked.id_fd, &crew.id, sizeof crew.id, true))
                return 1;
    } else if (!transfer((int)asked.id_fd, &crew.id, sizeof crew.id, false)) {
        return 1;
    }
    run_crew(&crew);
    crew.result.wrong += dev_violations();
    return !transfer((int)asked.result_fd, &crew.result, sizeof crew.result, true);
}

typedef struct pipes {
    int id[2], result[2];
} pipes_t;

#define MEMBER_OPTION_LIST(X) \
    X(devices) X(rounds) X(bytes) X(timeout) X(sweep) X(late) X(rank) X(id_fd) X(result_fd)

static pid_t start_member(uint64_t rank, const pipes_t *pipes)
{
    char numbers[16][24], *arguments[32] = {(char *)"nccl"};
    int count = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    asked.rank = rank + 1;
    asked.id_fd = (uint64_t)pipes->id[rank == 0];
    asked.result_fd = (uint64_t)pipes->result[1];
#define X(option)                                                                              \
    snprintf(numbers[count], sizeof numbers[count], "%llu", (unsigned long long)asked.option); \
    arguments[2 * count + 1] = (char *)"--" #option;                                           \
    arguments[2 * count + 2] = numbers[count];                                                 \
    count++;
    MEMBER_OPTION_LIST(X)
#undef X
    execv("/proc/self/exe", arguments);
    _exit(127);
}

/* One that fails leaves the others waiting: they are taken down. Returns the code of the first that failed. */
static int await_members(pid_t *members)
{
    int first_code = 0, status;
    for (uint64_t left = asked.devices; left > 0; left--) {
        pid_t ended = wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ended < 0)
            return 1;
        for (uint64_t i = 0; i < asked.devices; i++) {
            if (members[i] == ended)
                members[i] = 0;
            else if (code != 0 && first_code == 0 && members[i] > 0)
                kill(members[i], SIGKILL);
        }
        first_code = first_code ? first_code : code;
    }
    return first_code;
}

static int run_processes(void)
{
    pid_t members[DEV_DEVICES_MAX];
    result_t all = {0}, one;
    pipes_t pipes;
    int code;
    if (pipe(pipes.id) != 0 || pipe(pipes.result) != 0) {
        perror("nccl: pipe");
        return 1;
    }
    for (uint64_t i = 0; i < asked.devices; i++)
        members[i] = start_member(i, &pipes);
    code = await_members(members);
    if (code != 0)
        return code;
    for (uint64_t i = 0; i < asked.devices; i++) {
        if (!transfer(pipes.result[0], &one, sizeof one, false))
            return 1;
        all.rounds = one.rounds;
        all.wrong += one.wrong;
        all.busbw_gbs += one.busbw_gbs / (double)asked.devices;
        all.us_per_round += one.us_per_round / (double)asked.devices;
    }
    return report("nccl_processes", &all);
}

int main(int argc, char **argv)
{
    const dev_option_t options[] = {
        {"--threads", &asked.threads}, {"--processes", &asked.processes}, {"--devices", &asked.devices},
        {"--rounds", &asked.rounds},   {"--bytes", &asked.bytes},         {"--timeout", &asked.timeout},
        {"--sweep", &asked.sweep},     {"--late", &asked.late},           {"--rank", &asked.rank},
        {"--id_fd", &asked.id_fd},     {"--result_fd", &asked.result_fd}};
    dev_options(argc, argv, options, sizeof options / sizeof options[0]);
    asked.timeout = asked.timeout ? asked.timeout : 60;
    if (!asked.devices)
        asked.devices = asked.processes > 1 ? asked.processes : asked.threads > 1 ? asked.threads : 2;
    if (asked.devices < 2 || asked.devices > DEV_DEVICES_MAX) {
        fprintf(stderr, "nccl: from 2 to %d devices\n", DEV_DEVICES_MAX);
        return 2;
    }
    if (!nccl_load()) {
        printf("skipped: no NCCL (BENCH_NCCL names its library)\n");
        return DEV_SKIP;
    }
    if (asked.rank)
        return run_member();
    if (asked.processes > 1)
        return run_processes();
    return asked.threads > 1 ? run_threads() : run_one_thread();
}
