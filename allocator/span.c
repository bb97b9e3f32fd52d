/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span - how: a doubly linked list per chunk; structs come from the pool's stock, filled before anything
 * changed.
 */
#include "allocator/span.h"

cup_store_t cup_span_store = CUP_STORE_INIT(cup_span_t, 64);
cup_store_t cup_chunk_store = CUP_STORE_INIT(cup_chunk_t, 16);

void cup_chunk_init(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes, bool is_dedicated)
{
    atomic_store_explicit(&chunk->base, base, memory_order_relaxed);
    atomic_store_explicit(&chunk->size_bytes, size_bytes, memory_order_relaxed);
    cup_chunk_set_pool(chunk, NULL);
    chunk->first = NULL;
    chunk->range = NULL;
    chunk->is_dedicated = is_dedicated;
    chunk->is_idle = false;
}

/* Everything but the link, which the stock has consumed. */
static cup_span_t *take_span(cup_stock_t *spans, cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes)
{
    cup_span_t *span = cup_stock_take(spans);
    CUP_ASSERT(span->state == CUP_SPAN_VOID);
    span->base = base;
    span->size_bytes = size_bytes;
    span->requested_bytes = 0;
    span->chunk = chunk;
    span->prev = span->next = NULL;
    span->slab = NULL;
    return span;
}

cup_span_t *cup_span_cover(cup_chunk_t *chunk, cup_stock_t *spans)
{
    CUP_ASSERT(!chunk->first);
    chunk->first = take_span(spans, chunk, cup_chunk_base(chunk), cup_chunk_bytes(chunk));
    return chunk->first;
}

cup_span_t *cup_span_split(cup_span_t *span, uint64_t head_bytes, cup_stock_t *spans)
{
    CUP_ASSERT(head_bytes > 0 && head_bytes < span->size_bytes);
    CUP_ASSERT(head_bytes % CUP_SIZE_GRANULE == 0);
    cup_span_t *rest = take_span(spans, span->chunk, span->base + head_bytes, span->size_bytes - head_bytes);
    span->size_bytes = head_bytes;
    rest->prev = span;
    rest->next = span->next;
    if (rest->next)
        rest->next->prev = rest;
    span->next = rest;
    return rest;
}

void cup_span_merge_next(cup_span_t *span, cup_stock_t *spans)
{
    cup_span_t *gone = span->next;
    CUP_ASSERT(gone && gone->base == cup_span_end(span));
    span->size_bytes += gone->size_bytes;
    span->next = gone->next;
    if (span->next)
        span->next->prev = span;
    cup_span_retire(gone, spans);
}

void cup_span_retire(cup_span_t *span, cup_stock_t *spans)
{
    CUP_ASSERT(span->state != CUP_SPAN_VOID);
    span->state = CUP_SPAN_VOID;
    span->chunk = NULL;
    cup_stock_put(spans, span);
}
