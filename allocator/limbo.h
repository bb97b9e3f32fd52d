/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limbo - freed blocks that wait for their stamp, first in, first out.
 * What:       a ring whose capacity is made when a block is handed out, so that its free never allocates.
 * Invariants: capacity >= live blocks + blocks here. Stamps mostly rise; a lower one behind a higher one
 *             only waits longer, never shorter.
 * Threads:    the pool's lock; cup_limbo_oldest is an atomic look from any thread.
 */
#ifndef CUP_ALLOCATOR_LIMBO_H
#define CUP_ALLOCATOR_LIMBO_H
#include <stdatomic.h>

#include "allocator/types.h"

typedef struct cup_limbo_entry {
    cup_addr_t addr;
    cup_point_t stamp; /* never 0: such a block is complete at once */
} cup_limbo_entry_t;

typedef struct cup_limbo {
    cup_limbo_entry_t *ring;
    uint64_t capacity; /* 0 or a power of two */
    uint64_t head;     /* of the next to leave; counts up for ever, as does head + count */
    uint64_t count;
    _Atomic(cup_point_t) oldest; /* stamp of the head; 0 when empty */
} cup_limbo_t;

cup_status_t cup_limbo_reserve_slow(cup_limbo_t *limbo, uint64_t blocks);

/* Room for this many blocks. Errors: CUP_ERR_NOMEM; nothing changed then. */
static inline cup_status_t cup_limbo_reserve(cup_limbo_t *limbo, uint64_t blocks)
{
    return limbo->capacity >= blocks ? CUP_OK : cup_limbo_reserve_slow(limbo, blocks);
}

/* Never fails: the room was made. */
void cup_limbo_push(cup_limbo_t *limbo, cup_addr_t addr, cup_point_t stamp);

/* The next block whose stamp is complete, if the head is. */
bool cup_limbo_try_pop(cup_limbo_t *limbo, cup_point_t completed, cup_addr_t *out_addr);

static inline cup_point_t cup_limbo_oldest(cup_limbo_t *limbo)
{
    return atomic_load_explicit(&limbo->oldest, memory_order_relaxed);
}

void cup_limbo_fini(cup_limbo_t *limbo);

#endif /* CUP_ALLOCATOR_LIMBO_H */
