/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_spot - where in the spans of a pool one block is, and what is known of it there.
 * What:       the span, and the block where that is a slab; from an address to it.
 * Not here:   changing it (pool.c).
 * Threads:    the pool's lock.
 */
#ifndef CUP_ALLOCATOR_POOL_SPOT_H
#define CUP_ALLOCATOR_POOL_SPOT_H
#include "allocator/pool_fields.h"
#include "allocator/spanmap.h"

typedef struct cup_spot {
    cup_span_t *span;
    uint32_t block; /* of a slab */
} cup_spot_t;

static inline uint64_t cup_spot_occupied_bytes(cup_spot_t spot)
{
    return spot.span->state == CUP_SPAN_SLAB ? spot.span->slab->block_bytes : spot.span->size_bytes;
}

static inline uint64_t cup_spot_requested_bytes(cup_spot_t spot)
{
    return spot.span->state == CUP_SPAN_SLAB ? cup_slab_requested(spot.span->slab, spot.block)
                                             : spot.span->requested_bytes;
}

static inline cup_addr_t cup_spot_base(cup_spot_t spot)
{
    return spot.span->state == CUP_SPAN_SLAB ? cup_slab_addr(spot.span, spot.block) : spot.span->base;
}

static inline bool cup_spot_is_live(cup_spot_t spot)
{
    if (spot.span->state != CUP_SPAN_SLAB)
        return spot.span->state == CUP_SPAN_BLOCK;
    return spot.block < spot.span->slab->blocks && cup_slab_bit(spot.span->slab->live, spot.block);
}

static inline uint64_t cup_spot_serial(cup_spot_t spot)
{
    return spot.span->state == CUP_SPAN_SLAB ? spot.span->slab->serial[spot.block] : spot.span->serial;
}

/* Of a block that is not free. */
static inline uint8_t *cup_spot_marks(cup_spot_t spot)
{
    return spot.span->state == CUP_SPAN_SLAB ? &spot.span->slab->marks[spot.block] : &spot.span->marks;
}

static inline bool cup_spot_is_quarantined(cup_spot_t spot)
{
    if (spot.span->state != CUP_SPAN_SLAB)
        return spot.span->state == CUP_SPAN_HELD;
    return spot.block < spot.span->slab->blocks && !cup_slab_bit(spot.span->slab->live, spot.block) &&
           !cup_slab_bit(spot.span->slab->free, spot.block) && (*cup_spot_marks(spot) & CUP_MARK_HOLDS);
}

static inline cup_spot_t cup_spot_in(cup_span_t *span, cup_addr_t addr)
{
    return (cup_spot_t){span, span->state == CUP_SPAN_SLAB ? cup_slab_block(span, addr) : 0};
}

/* The chunk of this pool that contains addr: its plain fields are this lock's. */
static inline cup_chunk_t *cup_spot_own_chunk_locked(cup_pool_t *pool, cup_addr_t addr)
{
    cup_chunk_t *chunk = cup_spanmap_chunk(addr);
    return chunk && cup_chunk_pool(chunk) == pool ? chunk : NULL;
}

/* The block that starts at addr, live or in quarantine; live. */
static inline bool cup_spot_find_start_locked(cup_pool_t *pool, cup_addr_t addr, cup_spot_t *out_spot)
{
    cup_chunk_t *chunk = cup_spot_own_chunk_locked(pool, addr);
    if (!chunk)
        return false;
    cup_span_t *span = chunk->is_dedicated ? chunk->first : cup_spanmap_at(addr);
    if (!span)
        return false;
    cup_spot_t spot = cup_spot_in(span, addr);
    if (!(cup_spot_is_live(spot) || cup_spot_is_quarantined(spot)) || cup_spot_base(spot) != addr)
        return false;
    *out_spot = spot;
    return true;
}

static inline bool cup_spot_find_live_locked(cup_pool_t *pool, cup_addr_t addr, cup_spot_t *out_spot)
{
    return cup_spot_find_start_locked(pool, addr, out_spot) && cup_spot_is_live(*out_spot);
}

#endif /* CUP_ALLOCATOR_POOL_SPOT_H */
