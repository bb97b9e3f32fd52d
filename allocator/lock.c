/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock - how: a pthread mutex; debug builds keep a bit per held rank in the thread and trap on a wrong
 * order. Release builds carry no thread-local word at all.
 */
#include "allocator/lock.h"

#include "allocator/assert.h"

#ifndef NDEBUG
static __thread unsigned held_ranks __attribute__((tls_model("initial-exec")));

static void note_acquire(const cup_lock_t *lock)
{
    CUP_ASSERT(lock->rank < CUP_LOCK_COUNT);
    CUP_ASSERT(held_ranks >> lock->rank == 0);
    held_ranks |= 1u << lock->rank;
}

static void note_release(const cup_lock_t *lock)
{
    CUP_ASSERT(held_ranks & (1u << lock->rank));
    held_ranks &= ~(1u << lock->rank);
}
#else
static void note_acquire(const cup_lock_t *lock)
{
    (void)lock;
}

static void note_release(const cup_lock_t *lock)
{
    (void)lock;
}
#endif

void cup_lock_init(cup_lock_t *lock, cup_lock_rank_t rank)
{
    CUP_ASSERT(rank < CUP_LOCK_COUNT);
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

/* The order is checked before the wait: a wrong order that would deadlock traps instead. */
void cup_lock_acquire(cup_lock_t *lock)
{
    note_acquire(lock);
    pthread_mutex_lock(&lock->mutex);
}

void cup_lock_release(cup_lock_t *lock)
{
    note_release(lock);
    pthread_mutex_unlock(&lock->mutex);
}

bool cup_lock_try(cup_lock_t *lock)
{
    if (pthread_mutex_trylock(&lock->mutex) != 0)
        return false;
    note_acquire(lock);
    return true;
}
