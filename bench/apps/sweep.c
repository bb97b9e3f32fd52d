/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep - what an allocation and a free cost by size, with the GPU idle and with a kernel in flight.
 * What:       one CSV row per size (512 B ... 64 MiB) and state, medians; the last lines sum the medians per
 *             state.
 * Not here:   threads (pair.c).
 * Invariants: one block per size and state is filled and hashed on the device, so that outputs can be
 *             compared.
 * Threads:    one, one stream.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <stdio.h>

enum { IDLE, BUSY, STATES };
static const char *const state_names[STATES] = {"idle", "busy"};

#define MAX_PAIRS 1000
#define SPIN_US   200 /* the kernel in flight: natively a free waits for its end */

typedef struct sweep {
    CUstream stream;
    CUdeviceptr out; /* one word for dev_hash */
    uint64_t pairs[STATES];
    double total_s[STATES];
    uint64_t hash[STATES];
} sweep_t;

static void time_pairs(sweep_t *sweep, int state, uint64_t bytes)
{
    static double alloc_s[MAX_PAIRS], free_s[MAX_PAIRS];
    int pairs = (int)sweep->pairs[state];
    for (int i = 0; i < pairs; i++) {
        if (state == BUSY)
            dev_spin(SPIN_US, sweep->stream);
        double start = dev_now_s();
        CUdeviceptr block = dev_alloc(bytes);
        double middle = dev_now_s();
        dev_free(block);
        double end = dev_now_s();
        alloc_s[i] = middle - start;
        free_s[i] = end - middle;
        if (state == BUSY)
            dev_stream_sync(sweep->stream);
    }
    double alloc = dev_median(alloc_s, pairs), release = dev_median(free_s, pairs);
    printf("%llu,%s,%d,%.3f,%.3f\n", (unsigned long long)bytes, state_names[state], pairs, alloc * 1e6,
           release * 1e6);
    sweep->total_s[state] += alloc + release;
}

static void hash_block(sweep_t *sweep, int state, uint64_t bytes)
{
    uint64_t word = 0;
    CUdeviceptr block = dev_alloc(bytes);
    dev_zero(sweep->out, 8, sweep->stream);
    dev_fill(block, bytes, bytes, sweep->stream);
    dev_hash(block, bytes, sweep->out, sweep->stream);
    dev_free(block);
    dev_stream_sync(sweep->stream);
    dev_read(&word, sweep->out, sizeof word);
    sweep->hash[state] = hash_word(sweep->hash[state], word);
}

int main(int argc, char **argv)
{
    sweep_t sweep = {.hash = {HASH_START, HASH_START}};
    uint64_t pairs = 0, max_bytes = 0;
    const dev_option_t options[] = {{"--pairs", &pairs}, {"--bytes", &max_bytes}};
    dev_options(argc, argv, options, 2);
    dev_open();
    pairs = pairs ? pairs : dev_is_simulated() ? 100 : 500;
    pairs = pairs < MAX_PAIRS ? pairs : MAX_PAIRS;
    max_bytes = max_bytes ? max_bytes : 64 << 20;
    sweep.pairs[IDLE] = pairs;
    sweep.pairs[BUSY] = pairs < 10 ? 1 : pairs / 10;
    sweep.stream = dev_stream();
    sweep.out = dev_alloc(8);
    printf("size_bytes,state,pairs,alloc_us,free_us\n");
    for (uint64_t bytes = 512; bytes <= max_bytes; bytes *= 2) {
        for (int state = 0; state < STATES; state++) {
            time_pairs(&sweep, state, bytes);
            hash_block(&sweep, state, bytes);
        }
    }
    dev_report("sweep-idle", sweep.total_s[IDLE], sweep.pairs[IDLE], sweep.hash[IDLE]);
    dev_report("sweep-busy", sweep.total_s[BUSY], sweep.pairs[BUSY], sweep.hash[BUSY]);
    return 0;
}
