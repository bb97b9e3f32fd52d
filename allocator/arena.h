/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena - the spans of all shared chunks of a pool, or of one range: best fit, split, coalesce.
 * What:       the smallest free span that fits, the lowest address among equals; the front is cut off for
 *             alignment, the tail for size; a span given back merges with both neighbours at once.
 * Not here:   reserving and releasing chunks (pool.c), memory of ranges (range.h). A chunk may be added at
 *             any time: nothing here assumes its size or how many there are.
 * Invariants: the tree holds exactly the FREE spans of its chunks or its range; free_bytes is their sum.
 * Threads:    the pool's lock.
 */
#ifndef CUP_ALLOCATOR_ARENA_H
#define CUP_ALLOCATOR_ARENA_H
#include "allocator/tree.h"

typedef struct cup_arena {
    cup_tree_t free;
    uint64_t free_bytes;
} cup_arena_t;

/* How many spans each call can take from the stock. */
#define CUP_ARENA_ADD_SPANS  2
#define CUP_ARENA_TAKE_SPANS 2

/* A covered and published shared chunk: its guard and the rest, free. */
void cup_arena_add(cup_arena_t *arena, cup_chunk_t *chunk, cup_stock_t *spans);

/* True when the chunk is one free span beside its guard. */
bool cup_arena_is_whole(const cup_chunk_t *chunk);

/* Takes a whole chunk out; it has no span then. */
void cup_arena_remove(cup_arena_t *arena, cup_chunk_t *chunk, cup_stock_t *spans);

/* A BLOCK span of exactly size_bytes (whole granules) at a multiple of align; NULL when none fits. */
cup_span_t *cup_arena_take(cup_arena_t *arena, uint64_t size_bytes, uint64_t align, cup_stock_t *spans);

/* The same from inside one FREE span, exactly at base. */
cup_span_t *cup_arena_carve(cup_arena_t *arena, cup_span_t *span, cup_addr_t base, uint64_t size_bytes,
                            cup_stock_t *spans);

/* The span becomes free, merged with its free neighbours. Takes nothing from the stock. */
void cup_arena_give(cup_arena_t *arena, cup_span_t *span, cup_stock_t *spans);

#endif /* CUP_ALLOCATOR_ARENA_H */
