/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads - many threads allocate at once: with a stream each, on one stream, and with blocks that are
 *           freed by another thread than the one that got them.
 * What:       threads CASE. Every block is tagged and looked at before its free: nobody was handed what
 *             another one has.
 * Threads:    16; TSan watches.
 */
#include "tests/reports/report.h"
#include <pthread.h>

enum { THREADS = 16, SLOTS = 64 };

static const uint64_t g_bytes[] = {255, 1023, 2559, 3583, 5635, 11007, 26899, 43263, 1865471};
#define SIZES (sizeof g_bytes / sizeof g_bytes[0])

static CUstream g_stream[THREADS];
static int g_rounds;

/* A block on its way from one thread to the next. */
typedef struct {
    CUdeviceptr at;
    uint64_t bytes;
    unsigned tag;
} parcel_t;

static struct {
    pthread_mutex_t lock;
    parcel_t parcel;
} g_slot[SLOTS];

static void *own_blocks(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    cup_rng_t rng = {cup_rng_seed(32) + number};

    report_join();
    for (int i = 0; i < g_rounds; i++) {
        uint64_t bytes = g_bytes[cup_rng_below(&rng, SIZES)];
        CUdeviceptr block = report_alloc(bytes);

        if (i % 16 == 0) {
            report_tag(block, bytes, (unsigned)(number * 16 + number), g_stream[number]);
            report_look(block, bytes, (unsigned)(number * 16 + number), g_stream[number]);
        }
        report_free(block);
    }
    return NULL;
}

/* Takes what lies in a random slot, looks at it and frees it; puts a block of its own there. */
static void *passed_blocks(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    cup_rng_t rng = {cup_rng_seed(132) + number};

    report_join();
    for (int i = 0; i < g_rounds; i++) {
        size_t slot = cup_rng_below(&rng, SLOTS);
        parcel_t mine = {.bytes = g_bytes[cup_rng_below(&rng, SIZES)], .tag = (unsigned)cup_rng_next(&rng)},
                 other;

        mine.at = report_alloc(mine.bytes);
        report_tag(mine.at, mine.bytes, mine.tag, g_stream[number]);
        MUST(cuStreamSynchronize(g_stream[number]));
        pthread_mutex_lock(&g_slot[slot].lock);
        other = g_slot[slot].parcel;
        g_slot[slot].parcel = mine;
        pthread_mutex_unlock(&g_slot[slot].lock);
        if (other.at) {
            report_look(other.at, other.bytes, other.tag, g_stream[number]);
            report_free(other.at);
        }
    }
    return NULL;
}

static void run(void *(*body)(void *), bool has_streams, int rounds)
{
    pthread_t thread[THREADS];

    g_rounds = REPORT_ROUNDS(rounds);
    report_open();
    for (int i = 0; i < THREADS; i++)
        g_stream[i] = has_streams || i == 0 ? report_stream() : g_stream[0];
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < SLOTS; i++)
        if (g_slot[i].parcel.at)
            report_free(g_slot[i].parcel.at);
    report_close((uint64_t)THREADS * (uint64_t)g_rounds, 128 * MIB, 60);
    report_counter("live_blocks", 0, 0);
}

static void own_streams(void)
{
    run(own_blocks, true, 2000);
}

static void one_stream(void)
{
    run(own_blocks, false, 1000);
}

static void passed_on(void)
{
    for (int i = 0; i < SLOTS; i++)
        REQUIRE(pthread_mutex_init(&g_slot[i].lock, NULL) == 0);
    run(passed_blocks, true, 300);
}

#define THREADS_LIST(X) X(own_streams) X(one_stream) X(passed_on)

CASES_MAIN(THREADS_LIST)
