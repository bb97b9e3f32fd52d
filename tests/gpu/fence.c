/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence - the fence check: is memory that changes hands ever touched too early, or too late?
 * Usage:      fence [--threads 4] [--streams 3] [--lifetimes N] [--bytes-max N] [--seed 1] [--kind 0]
 *             [--delay-us N] [--depth N] [--devices 1] [--blas 0]
 *             --streams: made by each thread, beside legacy and per-thread. --kind: of last users, only
 *             that one (1 is the first of FENCE_KIND_LIST). --depth: groups between two waits of a thread.
 *             --bytes-max: one block in WIDE_ONE_IN is drawn up to there, the others up to 2 MiB (1 MiB on
 *             the software driver), all of them evenly over doublings.
 * What:       a lifetime is a block: filled with a hash of its seed and the offset by a kernel, verified by one
 *             on the stream of its last user, freed without any synchronisation by this thread or another.
 *             What is allocated next is in turn many parts of what was freed, and few blocks of joint sizes;
 *             it is filled at once on the stream that was idle longest. Natively the free waits, so no word
 *             can be wrong. Threads and their streams come and go. A long run says on stderr how far it is.
 * Not here:   kinds of last users (fence_use.c), the shares (fence_shares.c).
 * Exit code:  1 for a wrong word, a violation that the software driver saw, or, under libcupola.so, from
 *             BAR_LIFETIMES (and BAR_OF_THREAD a thread) on and with all kinds, shares that show too
 *             little: memory that is never split, joined or moved proves nothing.
 * Threads:    --threads workers in rounds; between rounds everything is waited for and the words are read.
 */
#include "tests/gpu/fence_use.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX   64
#define ROUND_GROUPS  1024 /* of a worker */
#define CELLS         16   /* groups on the way from one thread to another, for each device */
#define WIDE_ONE_IN   64
#define BAR_LIFETIMES 10000
#define BAR_OF_THREAD 2000 /* each thread begins with memory that nobody had */
#define PROGRESS_S    5
#define MIN_BYTES     UINT64_C(512)
#define SPAN_BYTES    (UINT64_C(32) << 10)

static struct {
    uint64_t threads, streams, lifetimes, bytes_max, seed, kind, delay_us, depth, devices, blas;
} options = {0};

static uint64_t mid_max; /* of most blocks */
static unsigned group_max;
static fence_worker_t workers[THREADS_MAX];
static fence_group_t *cells[DEV_DEVICES_MAX][CELLS]; /* exchanged atomically */

static uint64_t now_ns(void)
{
    return (uint64_t)(dev_now_s() * 1e9);
}

/* ---- sizes ---- */

/* Evenly over the doublings from least to max, in between or just so. */
static uint64_t draw_between(fence_worker_t *worker, uint64_t least, uint64_t max)
{
    unsigned doublings = 63 - (unsigned)__builtin_clzll(max / least);
    uint64_t low = least << cup_rng_below(&worker->rng, doublings);
    return cup_rng_below(&worker->rng, 8) ? low + (cup_rng_below(&worker->rng, low) & ~UINT64_C(7)) : low;
}

/* Four of five are large enough for allocators to cut and join them; small ones stay in slabs. */
static uint64_t draw_fresh(fence_worker_t *worker)
{
    if (cup_rng_below(&worker->rng, WIDE_ONE_IN) == 0)
        return draw_between(worker, MIN_BYTES, options.bytes_max);
    return draw_between(worker, cup_rng_below(&worker->rng, 5) ? SPAN_BYTES : MIN_BYTES, mid_max);
}

/* A half to a twelfth of the largest block of the group freed last: seldom as large as any hole. */
static uint64_t draw_part(fence_worker_t *worker)
{
    uint64_t largest = 0;
    for (unsigned i = 0; i < DEV_BATCH_MAX; i++)
        if (worker->recent[i] > largest && worker->recent[i] <= mid_max)
            largest = worker->recent[i];
    uint64_t part = largest >> (1 + cup_rng_below(&worker->rng, 3));
    if (part < SPAN_BYTES)
        return draw_fresh(worker);
    return (part - cup_rng_below(&worker->rng, part / 3)) & ~UINT64_C(7);
}

/* The joint size of two blocks freed last, side by side perhaps. */
static uint64_t draw_joint(fence_worker_t *worker, unsigned place)
{
    uint64_t bytes = worker->recent[place], next = worker->recent[(place + 1) % DEV_BATCH_MAX];
    return bytes && next && bytes + next <= mid_max ? bytes + next : draw_fresh(worker);
}

static uint64_t draw_bytes(fence_worker_t *worker, unsigned place)
{
    uint64_t bytes = worker->recent[place];
    switch (cup_rng_below(&worker->rng, 8)) {
    case 0:
        return bytes && bytes <= mid_max ? bytes : draw_fresh(worker);
    case 1:
        return draw_fresh(worker);
    default:
        return worker->is_cutting ? draw_part(worker) : draw_joint(worker, place);
    }
}

/* ---- one group ---- */

static CUdeviceptr alloc_block(uint64_t *bytes)
{
    CUdeviceptr base;
    while (!dev_try_alloc(*bytes, &base)) {
        if (*bytes <= MIN_BYTES) {
            fputs("fence: the device is full\n", stderr);
            exit(1);
        }
        *bytes = *bytes / 2 < MIN_BYTES ? MIN_BYTES : (*bytes / 2) & ~UINT64_C(7);
    }
    return base;
}

/* The stream that was idle longest, now and then any. */
static unsigned draw_stream(fence_worker_t *worker)
{
    unsigned best = 0;
    if (cup_rng_below(&worker->rng, 4) == 0)
        return (unsigned)cup_rng_below(&worker->rng, worker->stream_count);
    for (unsigned i = 1; i < worker->stream_count; i++)
        if (worker->streams[i].used_at < worker->streams[best].used_at)
            best = i;
    return best;
}

static fence_group_t *begin_group(fence_worker_t *worker)
{
    fence_group_t *group = calloc(1, sizeof *group);
    if (!group)
        exit(1);
    bool is_programmatic = worker->fill_at_once >= 0;
    group->stream = is_programmatic ? (unsigned)worker->fill_at_once : draw_stream(worker);
    group->stream_id = worker->streams[group->stream].id;
    worker->fill_at_once = -1;
    worker->is_cutting = !worker->is_cutting;
    group->batch.count = 1 + cup_rng_below(&worker->rng, worker->is_cutting ? group_max : group_max / 3);
    for (unsigned i = 0; i < group->batch.count; i++) {
        dev_block_t *block = &group->batch.blocks[i];
        block->bytes = draw_bytes(worker, i);
        block->base = alloc_block(&block->bytes);
        block->seed = cup_rng_next(&worker->rng);
        fence_log_add(&worker->log,
                      (fence_event_t){now_ns(), block->base, block->bytes, group->stream_id, false});
    }
    worker->streams[group->stream].used_at = ++worker->step;
    dev_batch_fill(&group->batch, worker->streams[group->stream].handle, is_programmatic);
    return group;
}

static void free_group(fence_worker_t *worker, fence_group_t *group)
{
    for (unsigned i = 0; i < DEV_BATCH_MAX; i++)
        worker->recent[i] = i < group->batch.count ? group->batch.blocks[i].bytes : 0;
    for (unsigned i = 0; i < group->batch.count; i++) {
        const dev_block_t *block = &group->batch.blocks[i];
        fence_log_add(&worker->log,
                      (fence_event_t){now_ns(), block->base, block->bytes, group->stream_id, true});
        dev_free(block->base);
    }
    worker->lifetimes += group->batch.count;
    free(group);
}

static fence_kind_t draw_kind(fence_worker_t *worker)
{
    static const unsigned chances[FENCE_KIND_COUNT] = {
        [FENCE_verify] = 30, [FENCE_copy] = 12,         [FENCE_set] = 12,      [FENCE_fill] = 12,
        [FENCE_graph] = 4,   [FENCE_programmatic] = 15, [FENCE_destroyed] = 5, [FENCE_exited] = 3,
        [FENCE_peer] = 8,    [FENCE_cublas] = 8};
    if (options.kind)
        return (fence_kind_t)(options.kind - 1);
    for (;;) {
        fence_kind_t kind = (fence_kind_t)cup_rng_below(&worker->rng, FENCE_KIND_COUNT);
        bool is_there = (kind != FENCE_peer || options.devices > 1) && (kind != FENCE_cublas || worker->blas);
        if (is_there && cup_rng_below(&worker->rng, 30) < chances[kind])
            return kind;
    }
}

/* The last use, then the free: of this group, or of one that another thread has used for the last time. */
static void end_group(fence_worker_t *worker, fence_group_t *group)
{
    fence_use(worker, group, draw_kind(worker));
    if (cup_rng_below(&worker->rng, 8) == 0) {
        fence_use_after(worker);
        fence_group_t **cell = &cells[worker->device][cup_rng_below(&worker->rng, CELLS)];
        group = __atomic_exchange_n(cell, group, __ATOMIC_ACQ_REL);
    }
    if (group)
        free_group(worker, group);
    fence_use_after(worker);
}

/* A user in between, perhaps on another stream. */
static void use_some_group(fence_worker_t *worker)
{
    fence_group_t *group = worker->live[cup_rng_below(&worker->rng, FENCE_LIVE)];
    if (!group)
        return;
    fence_move(worker, group, draw_stream(worker));
    fence_verify(worker, group, FENCE_verify, 0);
}

/* ---- threads and rounds ---- */

static void end_all_groups(fence_worker_t *worker)
{
    for (unsigned i = 0; i < FENCE_LIVE; i++) {
        fence_group_t *group = worker->live[i];
        worker->live[i] = NULL; /* it is not to be moved any more: use_destroyed() */
        if (group)
            end_group(worker, group);
    }
    for (unsigned i = 0; i < CELLS; i++) {
        fence_group_t *group = __atomic_exchange_n(&cells[worker->device][i], NULL, __ATOMIC_ACQ_REL);
        if (group)
            free_group(worker, group);
    }
}

static void *run_round(void *argument)
{
    fence_worker_t *worker = argument;
    fence_worker_resume(worker);
    for (unsigned i = 1; i <= ROUND_GROUPS && worker->lifetimes < worker->wanted; i++) {
        fence_group_t **place = &worker->live[cup_rng_below(&worker->rng, FENCE_LIVE)];
        fence_group_t *old = *place;
        *place = NULL;
        if (old)
            end_group(worker, old);
        *place = begin_group(worker);
        if (cup_rng_below(&worker->rng, 4) == 0)
            use_some_group(worker);
        if (i % options.depth == 0)
            fence_worker_sync(worker);
    }
    if (worker->lifetimes >= worker->wanted)
        end_all_groups(worker);
    return NULL;
}

/* Waits for everything; adds up the wrong words of each kind. True when there are any. */
static bool read_wrong_words(uint64_t *out_words)
{
    bool is_wrong = false;
    memset(out_words, 0, FENCE_KIND_COUNT * sizeof *out_words);
    for (unsigned i = 0; i < options.devices; i++) {
        dev_join_device((int)i);
        dev_sync();
    }
    for (unsigned i = 0; i < options.threads; i++) {
        uint64_t words[FENCE_KIND_COUNT];
        dev_join_device((int)workers[i].device);
        dev_read(words, workers[i].wrong, sizeof words);
        for (unsigned kind = 0; kind < FENCE_KIND_COUNT; kind++) {
            out_words[kind] += words[kind];
            is_wrong |= words[kind] != 0;
        }
    }
    return is_wrong;
}

/* Every worker once, on threads of their own. True when none of them has more to do. */
static bool run_workers(fence_shares_t *shares)
{
    pthread_t threads[THREADS_MAX];
    fence_log_t *logs[THREADS_MAX];
    bool is_done = true;
    for (unsigned i = 0; i < options.threads; i++) {
        logs[i] = &workers[i].log;
        if (pthread_create(&threads[i], NULL, run_round, &workers[i]) != 0) {
            fputs("fence: no thread\n", stderr);
            exit(1);
        }
    }
    for (unsigned i = 0; i < options.threads; i++) {
        pthread_join(threads[i], NULL);
        is_done &= workers[i].lifetimes >= workers[i].wanted;
    }
    fence_shares_replay(logs, (unsigned)options.threads, shares);
    return is_done;
}

static void open_workers(void)
{
    for (unsigned i = 0; i < options.threads; i++) {
        fence_worker_t *worker = &workers[i];
        uint64_t slot_bytes = dev_is_simulated() ? 64 << 10 : 1 << 20;
        worker->rng.state = options.seed * THREADS_MAX + i;
        worker->device = i % (unsigned)options.devices;
        worker->other_device = (i + 1) % (unsigned)options.devices;
        worker->delay_us = options.delay_us;
        worker->wanted = options.lifetimes / options.threads + 1;
        worker->log.capacity = 2 * DEV_BATCH_MAX * (ROUND_GROUPS + FENCE_LIVE) + DEV_BATCH_MAX * CELLS;
        worker->log.events = malloc(worker->log.capacity * sizeof *worker->log.events);
        dev_join_device((int)worker->other_device);
        if (options.devices > 1)
            worker->far_shadow = dev_alloc(DEV_BATCH_MAX * slot_bytes);
        dev_join_device((int)worker->device);
        fence_worker_open(worker, (unsigned)options.streams, slot_bytes);
        if (options.blas && !fence_blas_open(worker)) {
            printf("skipped: no cuBLAS\n");
            exit(DEV_SKIP);
        }
    }
}

static void fill_in_options(void)
{
    bool is_simulated = dev_is_simulated();
    options.threads = options.threads ? options.threads : 4;
    options.streams = options.streams ? options.streams : 3;
    options.lifetimes = options.lifetimes ? options.lifetimes : is_simulated ? 2000 : 200000;
    options.bytes_max = options.bytes_max ? options.bytes_max : is_simulated ? 1 << 20 : UINT64_C(1) << 30;
    options.seed = options.seed ? options.seed : cup_rng_seed(1);
    options.delay_us = options.delay_us ? options.delay_us : is_simulated ? 300 : 20;
    options.depth = options.depth ? options.depth : 16;
    options.devices = options.devices ? options.devices : 1;
    mid_max = is_simulated ? 1 << 20 : 2 << 20;
    mid_max = mid_max < options.bytes_max ? mid_max : options.bytes_max;
    group_max = is_simulated ? 8 : DEV_BATCH_MAX;
    if (options.threads > THREADS_MAX || options.streams > FENCE_STREAMS_MAX - 2 ||
        options.kind > FENCE_KIND_COUNT || options.devices > DEV_DEVICES_MAX ||
        options.bytes_max < 2 * SPAN_BYTES || (options.kind == FENCE_peer + 1 && options.devices < 2) ||
        (options.kind == FENCE_cublas + 1 && !options.blas)) {
        fputs("fence: an option is out of range\n", stderr);
        exit(2);
    }
}

/* ---- what came of it ---- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static bool is_share_low(const char *name, double share, double bar)
{
    if (share >= bar)
        return false;
    printf("too few %s: %.1f%% of the blocks, %.0f%% are asked for\n", name, share, bar);
    return true;
}

static bool are_shares_low(const fence_shares_t *shares)
{
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || !strstr(preload, "libcupola") || options.kind || shares->given < BAR_LIFETIMES ||
        shares->given < BAR_OF_THREAD * options.threads)
        return false;
    bool is_low = is_share_low("splits", percent(shares->split, shares->given), 20);
    is_low |= is_share_low("coalesced neighbours", percent(shares->coalesced, shares->given), 20);
    is_low |= is_share_low("reuses by another stream", percent(shares->other_stream, shares->given), 30);
    return is_low;
}

static uint64_t count_lifetimes(void)
{
    uint64_t lifetimes = 0;
    for (unsigned i = 0; i < options.threads; i++)
        lifetimes += workers[i].lifetimes;
    return lifetimes;
}

/* A line on stderr every PROGRESS_S. */
static void show_progress(double time_s, double *next_s)
{
    if (time_s < *next_s)
        return;
    *next_s = time_s + PROGRESS_S;
    fprintf(stderr, "fence: %" PRIu64 " of %" PRIu64 " lifetimes, %.0f s\n", count_lifetimes(),
            options.lifetimes, time_s);
}

static void report(const fence_shares_t *shares, const uint64_t *wrong, double time_s)
{
    uint64_t lifetimes = count_lifetimes(), words = 0;
    for (unsigned kind = 0; kind < FENCE_KIND_COUNT; kind++) {
        words += wrong[kind];
        if (wrong[kind])
            printf("%s: %" PRIu64 " words were not what their owner had written\n", fence_kind_names[kind],
                   wrong[kind]);
    }
    printf("name=fence threads=%" PRIu64 " streams=%" PRIu64 " seed=%" PRIu64
           " time_s=%.3f violations=%" PRIu64,
           options.threads, options.streams, options.seed, time_s, dev_violations());
    printf(" lifetimes=%" PRIu64 " wrong_words=%" PRIu64, lifetimes, words);
    printf(" reused_other_stream=%.1f%% split=%.1f%% coalesced=%.1f%% kinds=",
           percent(shares->other_stream, shares->given), percent(shares->split, shares->given),
           percent(shares->coalesced, shares->given));
    for (unsigned kind = 0, shown = 0; kind < FENCE_KIND_COUNT; kind++) {
        uint64_t blocks = 0;
        for (unsigned i = 0; i < options.threads; i++)
            blocks += workers[i].kinds[kind];
        if (blocks)
            printf("%s%s:%.1f%%", shown++ ? "," : "", fence_kind_names[kind], percent(blocks, lifetimes));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const dev_option_t list[] = {{"--threads", &options.threads},     {"--streams", &options.streams},
                                 {"--lifetimes", &options.lifetimes}, {"--bytes-max", &options.bytes_max},
                                 {"--seed", &options.seed},           {"--kind", &options.kind},
                                 {"--delay-us", &options.delay_us},   {"--depth", &options.depth},
                                 {"--devices", &options.devices},     {"--blas", &options.blas}};
    fence_shares_t shares = {0};
    uint64_t wrong[FENCE_KIND_COUNT];
    bool is_wrong = false, is_done = false;
    dev_options(argc, argv, list, sizeof list / sizeof list[0]);
    dev_open();
    fill_in_options();
    dev_open_peers((int)options.devices);
    open_workers();
    double start_s = dev_now_s(), next_s = PROGRESS_S;
    while (!is_done && !is_wrong) {
        is_done = run_workers(&shares);
        is_wrong = read_wrong_words(wrong) || dev_violations() != 0;
        if (!is_done)
            show_progress(dev_now_s() - start_s, &next_s);
    }
    report(&shares, wrong, dev_now_s() - start_s);
    bool is_low = are_shares_low(&shares);
    return is_wrong || is_low;
}
