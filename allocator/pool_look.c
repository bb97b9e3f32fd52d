/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_look - how: what is asked of a pool; the map first, without a lock, then what it points to, under
 * the pool's.
 */
#include "allocator/pool_spot.h"

cup_pool_t *cup_pool_owner(cup_addr_t addr)
{
    cup_chunk_t *chunk = cup_spanmap_chunk(addr);
    return chunk ? cup_chunk_pool(chunk) : NULL;
}

void *cup_pool_self(const cup_pool_t *pool)
{
    return atomic_load_explicit(&pool->self, memory_order_relaxed);
}

static const cup_span_t *first_backed_locked(const cup_pool_fields_t *f)
{
    for (int i = 0; i < CUP_RANGE_COUNT; i++) {
        const cup_span_t *span = f->range[i].chunk ? f->range[i].chunk->first : NULL;
        while (span && (span->state == CUP_SPAN_HOLE || span->state == CUP_SPAN_BUSY))
            span = span->next;
        if (span)
            return span;
    }
    return NULL;
}

bool cup_pool_any_chunk(cup_pool_t *pool, cup_addr_t *out_base)
{
    cup_lock_acquire(&pool->lock);
    cup_chunk_t *chunk = TAILQ_FIRST(&pool->f.chunks);
    const cup_span_t *span = chunk ? chunk->first : first_backed_locked(&pool->f);
    if (span)
        *out_base = span->base;
    cup_lock_release(&pool->lock);
    return span != NULL;
}

static bool describe_locked(cup_pool_t *pool, cup_addr_t addr, cup_block_info_t *out_info)
{
    cup_chunk_t *chunk = cup_spot_own_chunk_locked(pool, addr);
    if (!chunk)
        return false;
    cup_span_t *span = chunk->is_dedicated ? chunk->first : cup_spanmap_below(addr, cup_chunk_base(chunk));
    if (!span || addr - span->base >= span->size_bytes)
        return false; /* a hole of a range, or memory on its way */
    cup_spot_t spot = cup_spot_in(span, addr);
    if (!cup_spot_is_live(spot) || addr - cup_spot_base(spot) >= cup_spot_requested_bytes(spot))
        return false;
    *out_info = (cup_block_info_t){.pool = pool,
                                   .base = cup_spot_base(spot),
                                   .size_bytes = cup_spot_requested_bytes(spot),
                                   .serial = cup_spot_serial(spot),
                                   .marks = *cup_spot_marks(spot),
                                   .is_dedicated = chunk->is_dedicated};
    return true;
}

#define FIND_TRIES 4

/* Between the look and the lock the chunk may have gone to another pool: look again, but not for ever. */
bool cup_pool_find(cup_addr_t addr, cup_block_info_t *out_info)
{
    bool is_found = false, is_owner = false;
    for (int tries = 0; tries < FIND_TRIES && !is_owner; tries++) {
        cup_pool_t *pool = cup_pool_owner(addr);
        if (!pool)
            return false;
        cup_lock_acquire(&pool->lock);
        is_owner = cup_spot_own_chunk_locked(pool, addr) != NULL;
        is_found = is_owner && describe_locked(pool, addr, out_info);
        cup_lock_release(&pool->lock);
    }
    return is_found;
}

bool cup_pool_is_inherited(cup_addr_t addr)
{
    cup_block_info_t info;
    cup_pool_t *pool = cup_pool_owner(addr);
    if (!pool)
        return false;
    if (!cup_lock_try(&pool->lock))
        return true;
    bool is_base = describe_locked(pool, addr, &info) && info.base == addr;
    cup_lock_release(&pool->lock);
    return is_base;
}

void cup_pool_stat(cup_pool_t *pool, cup_pool_stat_t *out_stat)
{
    cup_pool_fields_t *f = &pool->f;
    cup_lock_acquire(&pool->lock);
    *out_stat = f->stat;
    out_stat->idle_bytes =
        f->arena.free_bytes + f->stat.cached_dedicated_bytes + f->slab_free_bytes + f->kept_bytes;
    for (int i = 0; i < CUP_RANGE_COUNT; i++) {
        out_stat->idle_bytes += f->range[i].arena.free_bytes;
        out_stat->holes_bytes += f->range[i].ever_bytes - f->range[i].backed_bytes;
    }
    out_stat->reserves = atomic_load_explicit(&f->reserves, memory_order_relaxed);
    out_stat->releases = atomic_load_explicit(&f->releases, memory_order_relaxed);
    cup_lock_release(&pool->lock);
}
