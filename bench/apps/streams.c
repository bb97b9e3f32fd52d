/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams - pipelines on several streams, by one thread and by several, each block tagged and checked.
 * Usage:      streams [--rounds N] [--least N] [--bytes N] [--groups N] [--async 0]
 *             --least, --bytes: of blocks, evenly over the doublings between them. --groups: of a kernel.
 *             --async 1: stream-ordered memory whose pool gives nothing back, as an author can do who
 *             rewrites the program.
 * What:       four models, a line each: 1x4 and 4x4, threads x streams in turn; runs-1 and runs-3, threads
 *             that stay up to RUN_MAX rounds on one of four streams, then switch. A round allocates a
 *             block, fills it, and verifies and frees the one that its stream filled LIVE rounds before. A
 *             stream is waited for every WAIT_EACH rounds, as ordinary programs do; a free never is waited
 *             for on purpose.
 * Models:     items that go through a pipeline: a frame, a batch of images, the activations of a layer take
 *             a buffer of 256 KiB to 8 MiB each, and a kernel goes over it to write it and one to read it. It
 *             takes a quarter of the GPU (33 of the 132 groups that an H200 runs side by side, one on each
 *             multiprocessor): several streams are worth having only where one leaves room for the others.
 *             So kernels take microseconds to some tens of them. With --least 4k --bytes 1m --groups 132
 *             most kernels are shorter than their launch: what is measured then is three launches.
 * Not here:   anything that knows about cupola.
 * Invariants: sizes and contents depend on model, thread and round alone, so every run must print the same
 *             hash. A word that is not its owner's fails the run.
 * Threads:    as the model says; streams are not shared.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS     4
#define THREADS_MAX 4
#define LIVE        4
#define RUN_MAX     60
#define WAIT_EACH   32
#define HEAD_BYTES  UINT64_C(4096) /* of each block, hashed */
#define PASSES      4              /* the first warms up */

typedef struct model {
    const char *name;
    unsigned threads;
    bool has_runs;
} model_t;

static const model_t models[] = {
    {"1x4", 1, false}, {"4x4", 4, false}, {"runs-1", 1, true}, {"runs-3", 3, true}};
#define MODELS (sizeof models / sizeof models[0])

static uint64_t rounds, least_bytes, max_bytes, groups, is_async;

/* A stream and what is live on it: round number r in slot r % LIVE. */
typedef struct lane {
    CUstream stream;
    uint64_t rounds;
    CUdeviceptr blocks[LIVE];
    uint64_t tags[LIVE];
} lane_t;

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    lane_t lanes[STREAMS];
    CUdeviceptr words; /* two for each lane: wrong words, hash */
    uint64_t seed;
    bool has_runs;
} worker_t;

/* Evenly over the doublings from least_bytes to max_bytes, a multiple of 8. */
static uint64_t tag_bytes(uint64_t tag)
{
    uint64_t random = hash_word(HASH_START, tag);
    uint64_t octaves = 63 - (uint64_t)__builtin_clzll(max_bytes / least_bytes);
    uint64_t low = least_bytes << random % octaves;
    return low + (((random >> 8) % low) & ~UINT64_C(7));
}

static void retire_block(worker_t *worker, lane_t *lane, unsigned slot)
{
    CUdeviceptr block = lane->blocks[slot], words = worker->words + 16 * (uint64_t)(lane - worker->lanes);
    uint64_t bytes = tag_bytes(lane->tags[slot]);
    if (!block)
        return;
    dev_verify(block, bytes, lane->tags[slot], words, lane->stream);
    dev_hash(block, bytes < HEAD_BYTES ? bytes : HEAD_BYTES, words + 8, lane->stream);
    if (is_async)
        dev_free_async(block, lane->stream);
    else
        dev_free(block);
    lane->blocks[slot] = 0;
}

static void run_lane_round(worker_t *worker, lane_t *lane, uint64_t tag)
{
    unsigned slot = lane->rounds % LIVE;
    retire_block(worker, lane, slot);
    uint64_t bytes = tag_bytes(tag);
    CUdeviceptr block = is_async ? dev_alloc_async(bytes, lane->stream) : dev_alloc(bytes);
    dev_fill(block, bytes, tag, lane->stream);
    lane->blocks[slot] = block;
    lane->tags[slot] = tag;
    if (++lane->rounds % WAIT_EACH == 0)
        dev_stream_sync(lane->stream);
}

static void run_rounds(worker_t *worker)
{
    uint64_t random = worker->seed, run_left = 0;
    unsigned at = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        if (run_left == 0) {
            random = hash_word(random, round);
            at = worker->has_runs ? random % STREAMS : (at + 1) % STREAMS;
            run_left = worker->has_runs ? 1 + (random >> 8) % RUN_MAX : 1;
        }
        run_left--;
        run_lane_round(worker, &worker->lanes[at], hash_word(worker->seed, round));
    }
    for (unsigned i = 0; i < STREAMS; i++)
        for (unsigned slot = 0; slot < LIVE; slot++)
            retire_block(worker, &worker->lanes[i], slot);
    for (unsigned i = 0; i < STREAMS; i++)
        dev_stream_sync(worker->lanes[i].stream);
}

static void *run_worker(void *argument)
{
    worker_t *worker = argument;
    dev_join();
    pthread_barrier_wait(worker->start);
    run_rounds(worker);
    return NULL;
}

/* One pass of all threads: seconds from their common start to the end of the last one's work. */
static double run_pass(worker_t *workers, unsigned threads)
{
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].start = &start;
        dev_zero(workers[i].words, 16 * STREAMS, NULL);
    }
    dev_sync();
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i])) {
            fprintf(stderr, "streams: cannot start thread %u\n", i);
            exit(1);
        }
    pthread_barrier_wait(&start);
    double start_s = dev_now_s();
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    double time_s = dev_now_s() - start_s;
    pthread_barrier_destroy(&start);
    return time_s;
}

static uint64_t collect_hash(const worker_t *workers, unsigned threads, uint64_t hash)
{
    for (unsigned i = 0; i < threads; i++) {
        uint64_t words[2 * STREAMS], wrong = 0;
        dev_read(words, workers[i].words, sizeof words);
        for (unsigned lane = 0; lane < STREAMS; lane++) {
            wrong += words[2 * lane];
            hash = hash_word(hash, words[2 * lane + 1]);
        }
        if (wrong) {
            fprintf(stderr, "streams: %" PRIu64 " words were not what their owner had written\n", wrong);
            exit(1);
        }
    }
    return hash;
}

static void run_model(const model_t *model, worker_t *workers)
{
    double times[PASSES];
    uint64_t hash = HASH_START;
    char name[64];
    for (unsigned i = 0; i < model->threads; i++) {
        workers[i].has_runs = model->has_runs;
        workers[i].seed = hash_word((uint64_t)(model - models), i);
    }
    for (unsigned pass = 0; pass < PASSES; pass++) {
        times[pass] = run_pass(workers, model->threads);
        hash = collect_hash(workers, model->threads, hash);
    }
    snprintf(name, sizeof name, "streams%s-%s", is_async ? "-async" : "", model->name);
    dev_report(name, dev_median(times + 1, PASSES - 1), PASSES - 1, hash);
}

/* The software driver runs kernels on the CPU: smaller blocks there. */
static void fill_in_options(void)
{
    bool is_simulated = dev_is_simulated();
    rounds = rounds ? rounds : is_simulated ? 100 : 1000;
    least_bytes = (least_bytes ? least_bytes : is_simulated ? 4 << 10 : 256 << 10) & ~UINT64_C(7);
    max_bytes = max_bytes ? max_bytes : is_simulated ? 64 << 10 : 8 << 20;
    groups = groups ? groups : 33;
    if (least_bytes == 0 || max_bytes / 2 < least_bytes || groups > 1024) {
        fputs("streams: --least is at least 8 and at most half of --bytes, --groups at most 1024\n", stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static worker_t workers[THREADS_MAX];
    const dev_option_t options[] = {{"--rounds", &rounds},
                                    {"--least", &least_bytes},
                                    {"--bytes", &max_bytes},
                                    {"--groups", &groups},
                                    {"--async", &is_async}};
    dev_options(argc, argv, options, sizeof options / sizeof options[0]);
    dev_open();
    fill_in_options();
    dev_limit_groups((unsigned)groups);
    if (is_async)
        dev_open_async();
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        workers[i].words = dev_alloc(16 * STREAMS);
        for (unsigned lane = 0; lane < STREAMS; lane++)
            workers[i].lanes[lane].stream = dev_stream();
    }
    for (size_t i = 0; i < MODELS; i++)
        run_model(&models[i], workers);
    return 0;
}
