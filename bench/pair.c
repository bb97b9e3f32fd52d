/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair - what one allocation and its free cost in a loop: pair-dlsym, pair-link, pair-static, pair-shared.
 * What:       CSV, one row per size and number of threads; nanoseconds a pair, as each thread sees it.
 * Not here:   work on the device: nothing is in flight (sweep.c).
 * Invariants: the threads of a row start together; a row's time is the mean over its threads of their own
 *             time.
 * Threads:    1 ... --threads, doubling.
 */
#include "bench/dev.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 64

static const uint64_t sizes[] = {512, 4 << 10, 64 << 10, 1 << 20, 16 << 20};

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    uint64_t bytes, pairs;
    double time_s;
} worker_t;

static void loop_pairs(uint64_t bytes, uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++)
        dev_free(dev_alloc(bytes));
}

static void *run_worker(void *argument)
{
    worker_t *worker = argument;
    dev_join();
    loop_pairs(worker->bytes, worker->pairs / 10 + 1);
    pthread_barrier_wait(worker->start);
    double start = dev_now_s();
    loop_pairs(worker->bytes, worker->pairs);
    worker->time_s = dev_now_s() - start;
    return NULL;
}

static void time_row(uint64_t bytes, unsigned threads, uint64_t pairs)
{
    worker_t workers[MAX_THREADS];
    pthread_barrier_t start;
    double sum_s = 0;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (worker_t){.start = &start, .bytes = bytes, .pairs = pairs};
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i])) {
            fprintf(stderr, "pair: cannot start thread %u\n", i);
            exit(1);
        }
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        sum_s += workers[i].time_s;
    }
    pthread_barrier_destroy(&start);
    printf("%s,%llu,%u,%llu,%.1f\n", DEV_DOOR_NAME, (unsigned long long)bytes, threads,
           (unsigned long long)pairs, sum_s / threads / (double)pairs * 1e9);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint64_t max_threads = 0, pairs = 0;
    const dev_option_t options[] = {{"--threads", &max_threads}, {"--pairs", &pairs}};
    dev_options(argc, argv, options, 2);
    dev_open();
    max_threads = max_threads ? max_threads : 8;
    max_threads = max_threads < MAX_THREADS ? max_threads : MAX_THREADS;
    pairs = pairs ? pairs : dev_is_simulated() ? 1000 : 5000;
    printf("door,size_bytes,threads,pairs,pair_ns\n");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (unsigned threads = 1; threads <= max_threads; threads *= 2)
            time_row(sizes[i], threads, pairs);
    return 0;
}
