/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena - how: one tree by (size, address). Spans of nearly the size may not fit once aligned, so a few
 * candidates are tried in order and then the first that is large enough for any alignment: bounded work,
 * best fit but for that bound.
 */
#include "allocator/arena.h"

#include "allocator/spanmap.h"

#define FIT_TRIES 4

static void insert_free(cup_arena_t *arena, cup_span_t *span)
{
    span->state = CUP_SPAN_FREE;
    arena->free_bytes += span->size_bytes;
    cup_tree_insert(&arena->free, span);
}

static void remove_free(cup_arena_t *arena, cup_span_t *span)
{
    CUP_ASSERT(span->state == CUP_SPAN_FREE && arena->free_bytes >= span->size_bytes);
    arena->free_bytes -= span->size_bytes;
    cup_tree_remove(&arena->free, span);
}

/* A span's map entry is where it starts, so it moves with splits and merges and nothing else. */
static cup_span_t *split(cup_span_t *span, uint64_t head_bytes, cup_stock_t *spans)
{
    cup_span_t *rest = cup_span_split(span, head_bytes, spans);
    cup_spanmap_set(rest->base, CUP_SIZE_GRANULE, rest);
    return rest;
}

static void merge_next(cup_span_t *span, cup_stock_t *spans)
{
    cup_spanmap_set(span->next->base, CUP_SIZE_GRANULE, NULL);
    cup_span_merge_next(span, spans);
}

void cup_arena_add(cup_arena_t *arena, cup_chunk_t *chunk, cup_stock_t *spans)
{
    cup_span_t *guard = cup_span_cover(chunk, spans);
    cup_spanmap_set(guard->base, CUP_SIZE_GRANULE, guard);
    guard->state = CUP_SPAN_GUARD;
    insert_free(arena, split(guard, CUP_SPAN_GUARD_BYTES, spans));
}

bool cup_arena_is_whole(const cup_chunk_t *chunk)
{
    const cup_span_t *rest = chunk->first->next;
    return rest->state == CUP_SPAN_FREE && !rest->next;
}

void cup_arena_remove(cup_arena_t *arena, cup_chunk_t *chunk, cup_stock_t *spans)
{
    CUP_ASSERT(cup_arena_is_whole(chunk));
    cup_span_t *guard = chunk->first;
    remove_free(arena, guard->next);
    merge_next(guard, spans);
    cup_spanmap_set(guard->base, CUP_SIZE_GRANULE, NULL);
    cup_span_retire(guard, spans);
    chunk->first = NULL;
}

static cup_addr_t align_up(cup_addr_t addr, uint64_t align)
{
    return (addr + align - 1) & ~(align - 1);
}

static bool fits(const cup_span_t *span, uint64_t size_bytes, uint64_t align)
{
    cup_addr_t end;
    return !__builtin_add_overflow(align_up(span->base, align), size_bytes, &end) &&
           end <= cup_span_end(span);
}

static cup_span_t *find_fit(const cup_arena_t *arena, uint64_t size_bytes, uint64_t align)
{
    cup_span_t *span = cup_tree_find(&arena->free, size_bytes, 0);
    for (int tries = 1; span && !fits(span, size_bytes, align); tries++) {
        if (tries == FIT_TRIES)
            return cup_tree_find(&arena->free, size_bytes + align - CUP_SIZE_GRANULE, 0);
        span = cup_tree_next(&arena->free, span);
    }
    return span;
}

cup_span_t *cup_arena_carve(cup_arena_t *arena, cup_span_t *span, cup_addr_t base, uint64_t size_bytes,
                            cup_stock_t *spans)
{
    CUP_ASSERT(base >= span->base && base + size_bytes <= cup_span_end(span));
    remove_free(arena, span);
    if (base > span->base) {
        cup_span_t *front = span;
        span = split(front, base - front->base, spans);
        insert_free(arena, front);
    }
    if (span->size_bytes > size_bytes)
        insert_free(arena, split(span, size_bytes, spans));
    span->state = CUP_SPAN_BLOCK;
    return span;
}

cup_span_t *cup_arena_take(cup_arena_t *arena, uint64_t size_bytes, uint64_t align, cup_stock_t *spans)
{
    CUP_ASSERT(size_bytes > 0 && size_bytes % CUP_SIZE_GRANULE == 0 && align >= CUP_SIZE_GRANULE);
    CUP_ASSERT(spans->count >= CUP_ARENA_TAKE_SPANS);
    cup_span_t *span = find_fit(arena, size_bytes, align);
    return span ? cup_arena_carve(arena, span, align_up(span->base, align), size_bytes, spans) : NULL;
}

void cup_arena_give(cup_arena_t *arena, cup_span_t *span, cup_stock_t *spans)
{
    CUP_ASSERT(span->state == CUP_SPAN_BLOCK || span->state == CUP_SPAN_LIMBO);
    if (span->next && span->next->state == CUP_SPAN_FREE) {
        remove_free(arena, span->next);
        merge_next(span, spans);
    }
    if (span->prev && span->prev->state == CUP_SPAN_FREE) {
        span = span->prev;
        remove_free(arena, span);
        merge_next(span, spans);
    }
    insert_free(arena, span);
}
