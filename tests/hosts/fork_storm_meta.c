/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_storm_meta - forks while threads are inside the bookkeeping allocator (storm.h says what must hold).
 * What:       the work is done by threads that come and go, so that a fork also meets jemalloc's list of
 *             threads while it is locked: a child that ran jemalloc's thread destructor would wait for ever.
 */
#define _GNU_SOURCE
#include "allocator/meta.h"
#include "storm.h"

static void allocate(unsigned seed)
{
    enum { BLOCKS = 8 };
    void *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        seed = seed * 1664525u + 1013904223u;
        sizes[i] = 1 + (seed >> 8) % 40000;
        blocks[i] = cup_meta_alloc(sizes[i]);
    }
    for (int i = 0; i < BLOCKS; i++)
        cup_meta_free(blocks[i], sizes[i]);
}

static void *short_life(void *seed)
{
    allocate((unsigned)(uintptr_t)seed);
    return NULL;
}

static void churn(unsigned seed)
{
    pthread_t thread;
    allocate(seed);
    if (pthread_create(&thread, NULL, short_life, (void *)(uintptr_t)seed) == 0)
        pthread_join(thread, NULL);
}

int main(void)
{
    return storm_run(churn) > 1 && cup_meta_live_bytes() == 0 ? 0 : 1;
}
