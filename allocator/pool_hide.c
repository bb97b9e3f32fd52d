/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_hide - how: the chunks and spans stay as they are; only the map forgets them, and can be told again.
 * A pool that is taken apart while it is hidden leaves the map alone, because by then its addresses may be
 * another pool's.
 */
#include "allocator/pool_parts.h"
#include "allocator/spanmap.h"

/* The entries that a span has in the map: all of a slab's, the first one of the others (spanmap.h). */
static uint64_t entries_bytes(const cup_span_t *span)
{
    return span->state == CUP_SPAN_SLAB ? span->size_bytes : CUP_SIZE_GRANULE;
}

static void hide_chunk_locked(cup_chunk_t *chunk)
{
    for (cup_span_t *span = chunk->is_dedicated ? NULL : chunk->first; span; span = span->next)
        cup_spanmap_set(span->base, entries_bytes(span), NULL);
    cup_spanmap_withdraw(chunk);
}

static void show_chunk_locked(cup_chunk_t *chunk)
{
    cup_spanmap_publish(chunk);
    for (cup_span_t *span = chunk->is_dedicated ? NULL : chunk->first; span; span = span->next)
        cup_spanmap_set(span->base, entries_bytes(span), span);
}

static void set_hidden(cup_pool_t *pool, bool is_hidden, void (*change)(cup_chunk_t *))
{
    cup_pool_fields_t *f = &pool->f;
    cup_chunk_t *chunk;
    cup_lock_acquire(&pool->lock);
    if (f->is_hidden != is_hidden)
        TAILQ_FOREACH(chunk, &f->chunks, all)
    change(chunk);
    f->is_hidden = is_hidden;
    cup_lock_release(&pool->lock);
}

void cup_pool_hide(cup_pool_t *pool)
{
    set_hidden(pool, true, hide_chunk_locked);
}

void cup_pool_show(cup_pool_t *pool)
{
    set_hidden(pool, false, show_chunk_locked);
}

bool cup_pool_hides(cup_pool_t *pool, cup_addr_t addr)
{
    bool is_ours = false;
    cup_chunk_t *chunk;
    cup_lock_acquire(&pool->lock);
    if (pool->f.is_hidden)
        TAILQ_FOREACH(chunk, &pool->f.chunks, all)
    is_ours |= addr - cup_chunk_base(chunk) < cup_chunk_bytes(chunk);
    cup_lock_release(&pool->lock);
    return is_ours;
}

/* Bins, trees and lists go with the pool's fields. */
void cup_pool_forget_hidden_locked(cup_pool_fields_t *f)
{
    cup_chunk_t *chunk;
    while ((chunk = TAILQ_FIRST(&f->chunks))) {
        for (cup_span_t *span = chunk->first, *next; span; span = next) {
            next = span->next;
            if (span->state == CUP_SPAN_SLAB)
                cup_stock_put(&f->slabs, span->slab);
            span->slab = NULL;
            cup_span_retire(span, &f->spans);
        }
        chunk->first = NULL;
        cup_chunk_set_pool(chunk, NULL);
        TAILQ_REMOVE(&f->chunks, chunk, all);
        cup_store_put(&cup_chunk_store, chunk);
    }
}
