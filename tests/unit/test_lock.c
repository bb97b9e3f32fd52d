/* SPDX-License-Identifier: Apache-2.0 */
/* lock - mutual exclusion, and in debug builds the order of ranks. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "tests/support/unit.h"

enum { THREADS = 4, ROUNDS = 20000 };

static cup_lock_t counter_lock = CUP_LOCK_INIT(CUP_LOCK_POOL);
static uint64_t counter;

static void *count_up(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        cup_lock_acquire(&counter_lock);
        uint64_t seen = counter;
        if (i % 64 == 0)
            sched_yield(); /* lets a thread that was not kept out get in between */
        counter = seen + 1;
        cup_lock_release(&counter_lock);
    }
    return unused;
}

TEST(lock, excludes)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(counter, THREADS * ROUNDS);
}

/* A child takes two locks in the given order; returns its wait status. */
static int take_in_child(cup_lock_rank_t first, cup_lock_rank_t second)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        cup_lock_t a, b;
        cup_lock_init(&a, first);
        cup_lock_init(&b, second);
        cup_lock_acquire(&a);
        cup_lock_acquire(&b);
        cup_lock_release(&b);
        cup_lock_release(&a);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

TEST(lock, ranks_rise)
{
    CHECK_EQ(take_in_child(CUP_LOCK_REGISTRY, CUP_LOCK_POOL), 0);
    CHECK_EQ(take_in_child(CUP_LOCK_POOL, CUP_LOCK_STORE), 0);
}

TEST(lock, wrong_order_traps_in_debug_only)
{
    int falling = take_in_child(CUP_LOCK_POOL, CUP_LOCK_REGISTRY);
    int same = take_in_child(CUP_LOCK_POOL, CUP_LOCK_POOL);
#ifdef NDEBUG
    CHECK_EQ(falling, 0);
    CHECK_EQ(same, 0);
#else
    CHECK(falling != 0);
    CHECK(same != 0);
#endif
}
