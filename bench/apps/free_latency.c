/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_latency - how long a free takes while a kernel that still writes to the block is in flight, and
 * whether whoever gets the address next can notice that the free did not wait.
 * What:       per round: a kernel waits 5 ms on one stream and only then writes the block; the block is
 *             freed at once (timed). Then the same size is asked for until the same address comes back; its
 *             new owner, on another stream, counts the words that the old kernel had not written yet, fills
 *             it, and all is checked at the end.
 * Not here:   a free's cost with nothing in flight (sweep.c).
 * Invariants: early words (the old kernel had not finished) and overwritten words (it finished later) are 0,
 *             or the run fails; it fails too when no address ever came back, for then nothing was shown.
 * Threads:    one, two streams.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define ROUNDS    5
#define HELD      256             /* blocks at other addresses, held while the old one is waited for */
#define PAUSE_US  200             /* between two tries: HELD of them outlast the kernel ten times */
#define OLD_SEED  UINT64_C(0x01d) /* in the block before the slow kernel writes */
#define LATE_SEED UINT64_C(0x1a7e)
#define NEW_SEED  UINT64_C(0x4e3)

typedef struct latency {
    CUstream old_stream, new_stream;
    CUdeviceptr counts; /* words that differ from: old pattern, new pattern */
    uint64_t bytes, kernel_us;
    double free_s[ROUNDS];
    uint64_t early, overwritten, returned;
} latency_t;

/* Frees a block whose last writer is in flight; returns its address. */
static CUdeviceptr free_in_flight(latency_t *run, int round)
{
    CUdeviceptr block = dev_alloc(run->bytes);
    dev_fill(block, run->bytes, OLD_SEED, run->old_stream);
    dev_sync();
    dev_late_fill(block, run->bytes, LATE_SEED, run->kernel_us, run->old_stream);
    double start = dev_now_s();
    dev_free(block);
    run->free_s[round] = dev_now_s() - start;
    return block;
}

/* Allocates until address comes back, or 0 after HELD others, which are held meanwhile and freed after. */
static CUdeviceptr take_address(const latency_t *run, CUdeviceptr address)
{
    const struct timespec pause = {.tv_nsec = PAUSE_US * 1000};
    CUdeviceptr held[HELD], block = 0;
    int count = 0;
    while (!block && count < HELD) {
        CUdeviceptr got = dev_alloc(run->bytes);
        if (got == address) {
            block = got;
        } else {
            held[count++] = got;
            nanosleep(&pause, NULL);
        }
    }
    while (count)
        dev_free(held[--count]);
    return block;
}

static void own_block(latency_t *run, CUdeviceptr block)
{
    uint64_t counts[2];
    dev_zero(run->counts, sizeof counts, run->new_stream);
    dev_verify(block, run->bytes, OLD_SEED, run->counts, run->new_stream);
    dev_fill(block, run->bytes, NEW_SEED, run->new_stream);
    dev_sync();
    dev_verify(block, run->bytes, NEW_SEED, run->counts + 8, run->new_stream);
    dev_sync();
    dev_read(counts, run->counts, sizeof counts);
    run->early += run->bytes / 8 - counts[0];
    run->overwritten += counts[1];
    run->returned++;
}

int main(int argc, char **argv)
{
    latency_t run = {0};
    const dev_option_t options[] = {{"--bytes", &run.bytes}, {"--kernel-us", &run.kernel_us}};
    dev_options(argc, argv, options, 2);
    dev_open();
    run.bytes = run.bytes ? run.bytes & ~UINT64_C(7) : 1 << 20;
    run.kernel_us = run.kernel_us ? run.kernel_us : 5000;
    run.old_stream = dev_stream();
    run.new_stream = dev_stream();
    run.counts = dev_alloc(16);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr block = take_address(&run, free_in_flight(&run, round));
        if (block) {
            own_block(&run, block);
            dev_free(block);
        }
        dev_sync();
    }
    double free_s = dev_median(run.free_s, ROUNDS);
    printf("free_us=%.1f kernel_us=%" PRIu64 " rounds=%d address_came_back=%" PRIu64 " early_words=%" PRIu64
           " overwritten_words=%" PRIu64 "\n",
           free_s * 1e6, run.kernel_us, ROUNDS, run.returned, run.early, run.overwritten);
    dev_report("free_latency", free_s, ROUNDS, hash_word(hash_word(HASH_START, run.early), run.overwritten));
    return run.early || run.overwritten || !run.returned;
}
