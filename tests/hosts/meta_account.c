/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_account - the bookkeeping allocator against its contract and against jemalloc's statistics.
 * What:       contents, alignment, errno, the live count (a law over seeded sizes), failure at every N, many
 *             threads starting at once; in plain builds the bytes are found in the statistics of the
 *             embedded jemalloc.
 * Not here:   forks (fork_storm.c), the embedding itself (tests/lint).
 */
#include "allocator/meta.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(cond)                                                                                \
    do {                                                                                             \
        if (!(cond)) {                                                                               \
            fprintf(stderr, "%s:%d: not so: %s (seed %u)\n", __FILE__, __LINE__, #cond, first_seed); \
            _Exit(1);                                                                                \
        }                                                                                            \
    } while (0)

#ifdef CUP_SANITIZED /* several times as slow */
enum { BLOCKS = 300, THREADS = 8 };
#else
enum { BLOCKS = 2000, THREADS = 8 };
#endif
static unsigned first_seed = 1;

typedef struct {
    unsigned char *memory;
    size_t size_bytes;
} block_t;

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* 1 byte to 1 MiB, every power of two as likely. */
static size_t random_size(unsigned *seed)
{
    unsigned exponent = next_random(seed) % 21;
    return ((size_t)1 << exponent) - next_random(seed) % (1u << exponent);
}

static bool is_zero(const block_t *block)
{
    return block->memory[0] == 0 && memcmp(block->memory, block->memory + 1, block->size_bytes - 1) == 0;
}

static void fill_block(block_t *block, unsigned *seed)
{
    block->size_bytes = random_size(seed);
    errno = 4711;
    block->memory = cup_meta_alloc(block->size_bytes);
    REQUIRE(block->memory != NULL && errno == 4711);
    REQUIRE((uintptr_t)block->memory % 16 == 0);
    REQUIRE(is_zero(block));
    memset(block->memory, 0xa5, block->size_bytes);
}

static void drop_block(block_t *block)
{
    errno = 4711;
    cup_meta_free(block->memory, block->size_bytes);
    REQUIRE(errno == 4711);
    *block = (block_t){0};
}

/* jemalloc's own count of our arena: the only one that holds more than its start-up. Plain builds only. */
#ifdef CUP_SANITIZED
static uint64_t counted_bytes(void)
{
    return cup_meta_live_bytes();
}
#else
int cup_je_mallctl(const char *name, void *out_old, size_t *old_bytes, void *new_value, size_t new_bytes);

static uint64_t read_arena(unsigned arena, const char *what)
{
    char name[64];
    uint64_t value = 0;
    size_t bytes = sizeof value;
    snprintf(name, sizeof name, "stats.arenas.%u.%s", arena, what);
    return cup_je_mallctl(name, &value, &bytes, NULL, 0) == 0 ? value : 0;
}

static uint64_t counted_bytes(void)
{
    uint64_t epoch = 1, sum = 0;
    unsigned arenas = 0;
    size_t bytes = sizeof arenas;
    REQUIRE(cup_je_mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    REQUIRE(cup_je_mallctl("arenas.narenas", &arenas, &bytes, NULL, 0) == 0);
    for (unsigned arena = 1; arena < arenas; arena++) /* 0 is jemalloc's own: nothing of ours may be there */
        sum += read_arena(arena, "small.allocated") + read_arena(arena, "large.allocated");
    return sum;
}
#endif

static void check_law(unsigned seed)
{
    static block_t blocks[BLOCKS];
    uint64_t expected = cup_meta_live_bytes(), before = expected, counted_before = counted_bytes();
    for (int step = 0; step < 4 * BLOCKS; step++) {
        block_t *block = &blocks[next_random(&seed) % BLOCKS];
        expected -= block->size_bytes;
        drop_block(block);
        if (next_random(&seed) % 4 != 0)
            fill_block(block, &seed);
        expected += block->size_bytes;
        REQUIRE(cup_meta_live_bytes() == expected);
    }
    uint64_t counted = counted_bytes() - counted_before;
    REQUIRE(cup_meta_held_bytes() >= expected);
    /* size classes waste at most a fifth above 64 bytes; the small ones weigh little here */
    REQUIRE(counted >= expected - before && counted <= (expected - before) * 5 / 4 + 64 * BLOCKS);
    for (int i = 0; i < BLOCKS; i++)
        drop_block(&blocks[i]);
    REQUIRE(cup_meta_live_bytes() == before);
    REQUIRE(counted_bytes() == counted_before);
}

static void check_failures(void)
{
    for (uint64_t nth = 1; nth <= 20; nth++) {
        cup_meta_fail_nth(nth);
        for (uint64_t call = 1; call <= 25; call++) {
            uint64_t live = cup_meta_live_bytes();
            void *memory = cup_meta_alloc(100);
            REQUIRE((memory == NULL) == (call == nth));
            REQUIRE(cup_meta_live_bytes() == live + (memory != NULL ? 100 : 0));
            cup_meta_free(memory, 100);
        }
    }
    cup_meta_fail_nth(1);
    cup_meta_fail_nth(0);
    void *memory = cup_meta_alloc(1);
    REQUIRE(memory != NULL);
    cup_meta_free(memory, 1);
}

static pthread_barrier_t barrier;

static void *start_at_once(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    block_t block = {0};
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 200; i++) {
        fill_block(&block, &seed);
        drop_block(&block);
    }
    return NULL;
}

/* The first allocations of the process, so that creating the arena is raced. */
static void check_start(void)
{
    pthread_t threads[THREADS];
    REQUIRE(cup_meta_live_bytes() == 0 && cup_meta_held_bytes() == 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, start_at_once, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    REQUIRE(cup_meta_live_bytes() == 0);
    REQUIRE(counted_bytes() == 0);
}

int main(int argc, char **argv)
{
    first_seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1;
    printf("seeds %u to %u\n", first_seed, first_seed + 4);
    check_start();
    check_failures();
    for (unsigned i = 0; i < 5; i++)
        check_law(first_seed + i);
#ifndef CUP_SANITIZED /* there it is a report */
    REQUIRE(cup_meta_alloc(SIZE_MAX) == NULL && cup_meta_live_bytes() == 0);
#endif
    return 0;
}
