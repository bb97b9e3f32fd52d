/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limbo - how: a power-of-two ring of 16-byte entries that doubles. It never shrinks: a program that once
 * had so many blocks may have them again, and 16 bytes a block is what its peak costs.
 */
#include "allocator/limbo.h"

#include "allocator/assert.h"
#include "allocator/meta.h"

#define FIRST_CAPACITY 256

cup_status_t cup_limbo_reserve_slow(cup_limbo_t *limbo, uint64_t blocks)
{
    uint64_t capacity = limbo->capacity ? limbo->capacity : FIRST_CAPACITY;
    while (capacity < blocks)
        capacity *= 2;
    cup_limbo_entry_t *ring = cup_meta_alloc(capacity * sizeof *ring);
    if (!ring)
        return CUP_ERR_NOMEM;
    for (uint64_t i = 0; i < limbo->count; i++) {
        uint64_t at = limbo->head + i;
        ring[at & (capacity - 1)] = limbo->ring[at & (limbo->capacity - 1)];
    }
    cup_meta_free(limbo->ring, limbo->capacity * sizeof *ring);
    limbo->ring = ring;
    limbo->capacity = capacity;
    return CUP_OK;
}

static void note_oldest(cup_limbo_t *limbo)
{
    cup_point_t oldest = limbo->count ? limbo->ring[limbo->head & (limbo->capacity - 1)].stamp : 0;
    atomic_store_explicit(&limbo->oldest, oldest, memory_order_relaxed);
}

void cup_limbo_push(cup_limbo_t *limbo, cup_addr_t addr, cup_point_t stamp)
{
    CUP_ASSERT(limbo->count < limbo->capacity);
    CUP_ASSERT(stamp != 0);
    limbo->ring[(limbo->head + limbo->count++) & (limbo->capacity - 1)] = (cup_limbo_entry_t){addr, stamp};
    note_oldest(limbo);
}

bool cup_limbo_try_pop(cup_limbo_t *limbo, cup_point_t completed, cup_addr_t *out_addr)
{
    if (!limbo->count)
        return false;
    cup_limbo_entry_t head = limbo->ring[limbo->head & (limbo->capacity - 1)];
    if (head.stamp > completed)
        return false;
    limbo->head++;
    limbo->count--;
    note_oldest(limbo);
    *out_addr = head.addr;
    return true;
}

void cup_limbo_fini(cup_limbo_t *limbo)
{
    cup_meta_free(limbo->ring, limbo->capacity * sizeof *limbo->ring);
    limbo->ring = NULL;
    limbo->capacity = limbo->count = 0;
    note_oldest(limbo);
}
