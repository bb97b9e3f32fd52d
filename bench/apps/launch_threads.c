/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch_threads - do threads that free and launch slow each other down?
 * What:       nanoseconds a turn of one of 1, 4 and 16 threads, each with a stream of its own: a launch past every
 *             preload, a launch, a pair of allocation and free, and both. Medians over batches; a line each.
 * Not here:   the GPU's time: batches are short enough never to fill a launch queue, and the wait behind each
 *             is not timed. Natively a free waits for the launches of all threads.
 * Invariants: the kinds take turns, batch by batch. There is no output to compare: the hash is constant.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH       200
#define BATCHES_MAX 200
#define THREADS_MAX 16
#define BYTES       4096

enum { BARE, LAUNCH, PAIR, BOTH, KINDS };
static const char *const kind_names[KINDS] = {"bare-launch", "launch", "pair", "pair+launch"};
static const unsigned thread_counts[] = {1, 4, THREADS_MAX};
#define COUNTS (sizeof thread_counts / sizeof thread_counts[0])

static struct {
    pthread_barrier_t start, end;
    unsigned threads;
    int kind; /* KINDS: the threads end */
    CUstream stream[THREADS_MAX];
} g;

static void run_batch(CUstream stream)
{
    for (int i = 0; i < BATCH; i++) {
        if (g.kind == PAIR || g.kind == BOTH)
            dev_free(dev_alloc(BYTES));
        if (g.kind != PAIR)
            dev_spin(0, stream);
    }
}

static void *work(void *stream)
{
    dev_join();
    for (;;) {
        pthread_barrier_wait(&g.start);
        if (g.kind == KINDS)
            return NULL;
        run_batch(stream);
        pthread_barrier_wait(&g.end);
        dev_stream_sync(stream);
        pthread_barrier_wait(&g.end);
    }
}

/* Seconds a turn, from the common start to the end of the slowest thread. */
static double time_batch(int kind)
{
    double start_s, end_s;
    g.kind = kind;
    dev_launch_bare(kind == BARE);
    start_s = dev_now_s();
    pthread_barrier_wait(&g.start);
    pthread_barrier_wait(&g.end);
    end_s = dev_now_s();
    pthread_barrier_wait(&g.end);
    dev_launch_bare(false);
    return (end_s - start_s) / BATCH;
}

static void report(unsigned threads, double batch_s[KINDS][BATCHES_MAX], unsigned batches)
{
    char name[64];
    for (int kind = 0; kind < KINDS; kind++) {
        snprintf(name, sizeof name, "launch_threads-%s-%u", kind_names[kind], threads);
        dev_report(name, dev_median(batch_s[kind], (int)batches), batches, HASH_START);
    }
}

static void run_threads(unsigned threads, unsigned batches)
{
    static double batch_s[KINDS][BATCHES_MAX];
    pthread_t thread[THREADS_MAX];
    pthread_barrier_init(&g.start, NULL, threads + 1);
    pthread_barrier_init(&g.end, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, g.stream[i])) {
            fprintf(stderr, "launch_threads: cannot start thread %u\n", i);
            exit(1);
        }
    for (int kind = 0; kind < KINDS; kind++)
        time_batch(kind); /* the first ones are slow */
    for (unsigned batch = 0; batch < batches; batch++)
        for (int kind = 0; kind < KINDS; kind++)
            batch_s[kind][batch] = time_batch(kind);
    g.kind = KINDS;
    pthread_barrier_wait(&g.start);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&g.start);
    pthread_barrier_destroy(&g.end);
    report(threads, batch_s, batches);
}

int main(int argc, char **argv)
{
    uint64_t batches = 0;
    const dev_option_t options[] = {{"--batches", &batches}};
    dev_options(argc, argv, options, 1);
    dev_open();
    batches = batches ? batches : dev_is_simulated() ? 3 : 30;
    batches = batches < BATCHES_MAX ? batches : BATCHES_MAX;
    dev_alloc(BYTES); /* lives on, or the driver would give back what it cuts the others from */
    for (unsigned i = 0; i < THREADS_MAX; i++)
        g.stream[i] = dev_stream();
    for (unsigned i = 0; i < COUNTS; i++)
        run_threads(thread_counts[i], (unsigned)batches);
    return 0;
}
