/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock - ranked mutexes.
 * What:       a mutex that knows its rank; a thread may only take a lock of a higher rank than those it
 *             holds. Debug builds check the order, release builds are a plain pthread mutex.
 * Invariants: no lock is held across a driver call that can block.
 *
 * Ranks, outermost first:
 *   CUP_LOCK_REGISTRY   shim: contexts come and go
 *   CUP_LOCK_SHARE      shim: one export, or one import, at a time
 *   CUP_LOCK_CAPTURE    shim: captures in progress, contexts with order points
 *   CUP_LOCK_ORDER      shim: closing the order points of one context
 *   CUP_LOCK_STREAM     shim: a new stream
 *   CUP_LOCK_BACKING    shim: what one vmm backing has mapped, and who may reach it
 *   CUP_LOCK_PEER       shim: contexts with access to each other
 *   CUP_LOCK_NAME       shim: what was published under names
 *   CUP_LOCK_IPC        shim: what was exported, what was imported
 *   CUP_LOCK_POOL       everything inside one pool
 *   CUP_LOCK_SPANMAP    growing the span map (look-ups take none)
 *   CUP_LOCK_STORE      one type-stable store (store.h)
 *   CUP_LOCK_LOG        one line at a time
 */
#ifndef CUP_ALLOCATOR_LOCK_H
#define CUP_ALLOCATOR_LOCK_H
#include <pthread.h>
#include <stdbool.h>

typedef enum {
    CUP_LOCK_REGISTRY,
    CUP_LOCK_SHARE,
    CUP_LOCK_CAPTURE,
    CUP_LOCK_ORDER,
    CUP_LOCK_STREAM,
    CUP_LOCK_BACKING,
    CUP_LOCK_PEER,
    CUP_LOCK_NAME,
    CUP_LOCK_IPC,
    CUP_LOCK_POOL,
    CUP_LOCK_SPANMAP,
    CUP_LOCK_STORE,
    CUP_LOCK_LOG,
    CUP_LOCK_COUNT
} cup_lock_rank_t;

typedef struct cup_lock {
    pthread_mutex_t mutex;
    cup_lock_rank_t rank;
} cup_lock_t;

#define CUP_LOCK_INIT(rank)               \
    {                                     \
        PTHREAD_MUTEX_INITIALIZER, (rank) \
    }

void cup_lock_init(cup_lock_t *lock, cup_lock_rank_t rank);
void cup_lock_acquire(cup_lock_t *lock);
bool cup_lock_try(cup_lock_t *lock); /* false: somebody holds it */
void cup_lock_release(cup_lock_t *lock);

#endif /* CUP_ALLOCATOR_LOCK_H */
