/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors - one small program behind each door to the driver: doors-dlsym, -link, -static, -shared.
 * What:       rounds of allocate and fill; every block is checked and hashed on its own stream just before
 *             its free, LIVE rounds later. Prints the mismatches and a hash, exits 1 when there are any.
 * Not here:   times that mean anything; the door itself (dev.c).
 * Invariants: a block's contents depend on its round alone.
 * Threads:    one, four streams.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <stdio.h>

#define STREAMS 4
#define LIVE    16

typedef struct doors {
    CUstream streams[STREAMS];
    CUdeviceptr blocks[LIVE]; /* by round % LIVE; 0: none */
    CUdeviceptr hashes;       /* one word per round */
    CUdeviceptr mismatches;
} doors_t;

static uint64_t round_bytes(uint64_t round)
{
    uint64_t random = hash_word(HASH_START, round);
    uint64_t low = UINT64_C(512) << random % 10;
    return low + (((random >> 8) % low) & ~UINT64_C(7));
}

static void retire_block(doors_t *doors, uint64_t round)
{
    CUstream stream = doors->streams[round % STREAMS];
    CUdeviceptr *block = &doors->blocks[round % LIVE];
    uint64_t bytes = round_bytes(round);
    dev_verify(*block, bytes, round, doors->mismatches + 8 * (round % STREAMS), stream);
    dev_hash(*block, bytes, doors->hashes + 8 * round, stream);
    dev_free(*block);
    *block = 0;
}

static void run_rounds(doors_t *doors, uint64_t rounds)
{
    for (uint64_t round = 0; round < rounds; round++) {
        if (round >= LIVE)
            retire_block(doors, round - LIVE);
        CUdeviceptr block = dev_alloc(round_bytes(round));
        dev_fill(block, round_bytes(round), round, doors->streams[round % STREAMS]);
        doors->blocks[round % LIVE] = block;
        if (round % 64 == 63)
            dev_sync(); /* the fence of an ordinary program */
    }
    for (uint64_t round = rounds > LIVE ? rounds - LIVE : 0; round < rounds; round++)
        retire_block(doors, round);
    dev_sync();
}

static uint64_t sum_mismatches(const doors_t *doors)
{
    uint64_t words[STREAMS], sum = 0;
    dev_read(words, doors->mismatches, sizeof words);
    for (int i = 0; i < STREAMS; i++)
        sum += words[i];
    return sum;
}

int main(int argc, char **argv)
{
    doors_t doors = {0};
    uint64_t rounds = 0;
    const dev_option_t options[] = {{"--rounds", &rounds}};
    dev_options(argc, argv, options, 1);
    dev_open();
    rounds = rounds ? rounds : dev_is_simulated() ? 500 : 2000;
    for (int i = 0; i < STREAMS; i++)
        doors.streams[i] = dev_stream();
    doors.hashes = dev_alloc(8 * rounds);
    doors.mismatches = dev_alloc(8 * STREAMS);
    dev_zero(doors.hashes, 8 * rounds, NULL);
    dev_zero(doors.mismatches, 8 * STREAMS, NULL);
    dev_sync();
    double start = dev_now_s();
    run_rounds(&doors, rounds);
    double time_s = dev_now_s() - start;
    uint64_t mismatches = sum_mismatches(&doors);
    uint64_t *hashes = dev_host_alloc(8 * rounds);
    dev_read(hashes, doors.hashes, 8 * rounds);
    printf("mismatches=%llu\n", (unsigned long long)mismatches);
    dev_report(DEV_DOOR_NAME, time_s, rounds, hash_bytes(HASH_START, hashes, 8 * rounds));
    dev_free(doors.hashes);
    dev_free(doors.mismatches);
    return mismatches != 0;
}
