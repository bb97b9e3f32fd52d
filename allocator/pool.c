/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - how: one lock; each operation plans (takes what it may need from host memory into stocks), then
 * commits (moves links and bits, which cannot fail). In the order of a block's life: create, alloc, grow,
 * free, complete, trim. Locking:    a provider call is always between two locked sections; a chunk that is
 * being reserved or released is in no structure, so nobody can see it, and spans of a range are BUSY
 * meanwhile (growth.h). Two threads may grow at once; each gets its own chunk or window. Trade-off:  one
 * lock for small and large blocks. A hot loop is to be served by thread caches above, not here.
 */
#include "allocator/pool.h"

#include <string.h>

#include "allocator/pool_parts.h"
#include "allocator/pool_spot.h"
#include "allocator/spanmap.h"

static cup_store_t pool_store = CUP_STORE_INIT(cup_pool_t, 1);

#define SERIAL_BATCH 4096

static _Atomic uint64_t g_serials; /* given to pools */

/* ---- create, destroy ---- */

cup_status_t cup_pool_create(const cup_pool_conf_t *conf, const cup_provider_t *provider,
                             cup_pool_t **out_pool)
{
    bool has_ranges = provider->range_reserve != NULL;
    if (has_ranges && (conf->range_bytes < cup_range_align(conf->handle_bytes) ||
                       conf->handle_bytes % CUP_CHUNK_ALIGN != 0))
        return CUP_ERR_INVALID;
    cup_pool_t *pool = cup_store_take(&pool_store);
    if (!pool)
        return CUP_ERR_NOMEM;
    if (!pool->has_lock)
        cup_lock_init(&pool->lock, CUP_LOCK_POOL);
    pool->has_lock = true;
    atomic_store_explicit(&pool->self, provider->self, memory_order_relaxed);
    cup_lock_acquire(&pool->lock);
    memset(&pool->f, 0, sizeof pool->f);
    pool->f.conf = *conf;
    pool->f.provider = *provider;
    pool->f.has_ranges = has_ranges;
    pool->f.spans.store = &cup_span_store;
    pool->f.slabs.store = &cup_slab_store;
    TAILQ_INIT(&pool->f.chunks);
    TAILQ_INIT(&pool->f.idle);
    cup_lock_release(&pool->lock);
    *out_pool = pool;
    return CUP_OK;
}

/*
 * The chunk has no span any more: it stops answering and leaves the pool's lists. The caller owns it then.
 */
static void unlink_chunk_locked(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    CUP_ASSERT(!chunk->first && !chunk->is_idle);
    cup_spanmap_withdraw(chunk);
    cup_chunk_set_pool(chunk, NULL);
    TAILQ_REMOVE(&f->chunks, chunk, all);
    f->stat.footprint_bytes -= cup_chunk_bytes(chunk);
    f->stat.chunks--;
}

void cup_pool_forget_slabs_locked(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    for (cup_span_t *span = chunk->first; span; span = span->next)
        if (span->state == CUP_SPAN_SLAB)
            cup_slab_close(&f->bins[span->slab->class_index], span, &f->slabs);
}

static void forget_spans_locked(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    cup_pool_forget_slabs_locked(f, chunk);
    for (cup_span_t *span = chunk->first, *next; span; span = next) {
        next = span->next;
        if (!chunk->is_dedicated)
            cup_spanmap_set(span->base, CUP_SIZE_GRANULE, NULL);
        cup_span_retire(span, &f->spans);
    }
    chunk->first = NULL;
    chunk->is_idle = false;
}

void cup_pool_destroy(cup_pool_t *pool)
{
    cup_pool_fields_t *f = &pool->f;
    cup_chunk_t *chunk;
    for (int i = 0; i < CUP_RANGE_COUNT; i++)
        if (f->range[i].chunk)
            cup_pool_give_range_back(pool, &f->range[i]);
    cup_lock_acquire(&pool->lock);
    if (f->is_hidden)
        cup_pool_forget_hidden_locked(f);
    while ((chunk = TAILQ_FIRST(&f->chunks))) {
        forget_spans_locked(f, chunk);
        unlink_chunk_locked(f, chunk);
        cup_store_put(&cup_chunk_store, chunk);
    }
    cup_stock_drain(&f->spans);
    cup_stock_drain(&f->slabs);
    cup_limbo_fini(&f->limbo);
    cup_lock_release(&pool->lock);
    cup_store_put(&pool_store, pool);
}

/* ---- plan ---- */

/* Returns false for what no span can serve: 0 and sizes whose rounding, up to a whole chunk, overflows. */
static bool route_request(const cup_pool_fields_t *f, uint64_t size_bytes, cup_pool_request_t *out_request)
{
    cup_pool_request_t request = {.requested_bytes = size_bytes, .align = CUP_SIZE_GRANULE};
    bool is_dedicated = !f->has_ranges && size_bytes >= f->conf.dedicated_bytes;
    uint64_t with_guard;
    if (size_bytes == 0 || __builtin_add_overflow(size_bytes, f->conf.redzone_bytes, &size_bytes) ||
        __builtin_add_overflow(size_bytes, 2 * CUP_CHUNK_ALIGN, &with_guard))
        return false;
    if (f->has_ranges && f->conf.is_isolating) {
        request.route = CUP_POOL_SPAN;
        request.align = CUP_CHUNK_ALIGN;
        (void)cup_size_round_up(size_bytes, CUP_CHUNK_ALIGN, &request.span_bytes);
    } else if (is_dedicated) {
        request.route = CUP_POOL_DEDICATED;
        request.align = CUP_CHUNK_ALIGN;
        (void)cup_size_round_up(size_bytes, CUP_CHUNK_ALIGN, &request.span_bytes);
    } else if (size_bytes <= CUP_SIZE_SMALL_MAX) {
        request.route = CUP_POOL_SMALL;
        request.class_index = cup_size_class_of(size_bytes);
        request.span_bytes = cup_size_classes[request.class_index].slab_bytes;
    } else {
        request.route = CUP_POOL_SPAN;
        request.align = cup_size_span_align(size_bytes);
        (void)cup_size_round_up(size_bytes, CUP_SIZE_GRANULE, &request.span_bytes);
    }
    *out_request = request;
    return true;
}

/* Gathers what a commit may need, so that it cannot fail; the pool stays as it is. */
cup_status_t cup_pool_prepare_locked(cup_pool_fields_t *f)
{
    uint64_t blocks = f->stat.live_blocks + f->stat.limbo_blocks + f->stat.quarantined_blocks;
    cup_status_t status = cup_limbo_reserve(&f->limbo, blocks + 1);
    if (status == CUP_OK)
        status = cup_stock_reserve(&f->spans, CUP_POOL_SPARE_SPANS);
    if (status == CUP_OK)
        status = cup_stock_reserve(&f->slabs, 1);
    return status;
}

/* ---- between alloc and free: idle chunks, kept slabs ---- */

static void note_busy(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    if (chunk->is_idle)
        TAILQ_REMOVE(&f->idle, chunk, idle);
    chunk->is_idle = false;
}

/* A wholly free chunk, shared or dedicated, waits at the young end of the idle list. */
static void note_idle(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    CUP_ASSERT(!chunk->is_idle);
    chunk->is_idle = true;
    TAILQ_INSERT_TAIL(&f->idle, chunk, idle);
}

static void give_span_locked(cup_pool_fields_t *f, cup_span_t *span)
{
    cup_chunk_t *chunk = span->chunk;
    cup_arena_give(chunk->range ? &chunk->range->arena : &f->arena, span, &f->spans);
    if (!chunk->range && cup_arena_is_whole(chunk))
        note_idle(f, chunk);
}

/*
 * The last slab of a class stays when its last block leaves, so that a loop that allocates and frees one
 * block does not make and unmake a slab each time. Kept slabs go back to the arena when that misses, before
 * a trim, and when nothing is live or in limbo: an empty pool is whole. Returns whether there was one.
 */
bool cup_pool_drop_kept_locked(cup_pool_fields_t *f)
{
    if (f->kept_bytes == 0)
        return false;
    for (uint32_t i = 0; i < CUP_SIZE_CLASS_COUNT; i++) {
        cup_span_t *span = f->bins[i].kept;
        if (!span)
            continue;
        f->bins[i].kept = NULL;
        f->kept_bytes -= span->size_bytes;
        cup_slab_close(&f->bins[i], span, &f->slabs);
        give_span_locked(f, span);
    }
    CUP_ASSERT(f->kept_bytes == 0);
    return true;
}

static void drop_kept_if_empty_locked(cup_pool_fields_t *f)
{
    if (f->stat.live_blocks == 0 && f->stat.limbo_blocks == 0)
        (void)cup_pool_drop_kept_locked(f);
}

static uint64_t capacity_bytes(const cup_slab_t *slab)
{
    return (uint64_t)slab->blocks * slab->block_bytes;
}

/* ---- alloc ---- */

static cup_span_t *take_site_locked(cup_pool_fields_t *f, const cup_pool_request_t *request)
{
    cup_range_t *range = cup_pool_range_for(f, request);
    cup_span_t *span = cup_spanmap_below(request->site, cup_chunk_base(range->chunk));
    return cup_arena_carve(&range->arena, span, request->site, request->span_bytes, &f->spans);
}

static cup_span_t *take_span_locked(cup_pool_fields_t *f, const cup_pool_request_t *request)
{
    if (request->site)
        return take_site_locked(f, request);
    cup_arena_t *arena = f->has_ranges ? &cup_pool_range_for(f, request)->arena : &f->arena;
    bool may_drop = arena != &f->range[CUP_RANGE_LARGE].arena; /* no kept slab is in the way there */
    cup_span_t *span = cup_arena_take(arena, request->span_bytes, request->align, &f->spans);
    if (!span && may_drop && cup_pool_drop_kept_locked(f))
        span = cup_arena_take(arena, request->span_bytes, request->align, &f->spans);
    if (span)
        note_busy(f, span->chunk);
    return span;
}

static void use_kept_locked(cup_pool_fields_t *f, cup_slab_bin_t *bin)
{
    f->kept_bytes -= bin->kept->size_bytes;
    f->slab_free_bytes += capacity_bytes(bin->kept->slab);
    bin->kept = NULL;
}

/* A pool takes serials from the process a batch at a time: each batch ends with a multiple of its size. */
static uint64_t next_serial_locked(cup_pool_fields_t *f)
{
    if (f->serial % SERIAL_BATCH == 0)
        f->serial = atomic_fetch_add_explicit(&g_serials, SERIAL_BATCH, memory_order_relaxed);
    return ++f->serial;
}

static bool take_small_locked(cup_pool_fields_t *f, const cup_pool_request_t *request, cup_addr_t *out_addr)
{
    cup_slab_bin_t *bin = &f->bins[request->class_index];
    if (!bin->lowest) {
        cup_span_t *span = take_span_locked(f, request);
        if (!span)
            return false;
        cup_slab_open(bin, span, request->class_index, &f->slabs);
        f->slab_free_bytes += capacity_bytes(span->slab);
    } else if (bin->lowest == bin->kept) {
        use_kept_locked(f, bin);
    }
    cup_span_t *span = bin->lowest;
    f->slab_free_bytes -= span->slab->block_bytes;
    *out_addr = cup_slab_take(bin, request->requested_bytes);
    uint32_t block = cup_slab_block(span, *out_addr);
    span->slab->serial[block] = next_serial_locked(f);
    span->slab->marks[block] = 0;
    return true;
}

/* A cached chunk serves if it is at most 1/8 too large; the rest of it serves nobody. */
static cup_span_t *take_cached_locked(cup_pool_fields_t *f, const cup_pool_request_t *request)
{
    cup_span_t *span = cup_tree_find(&f->cached, request->span_bytes, 0);
    if (!span || span->size_bytes - request->span_bytes > request->span_bytes / 8)
        return NULL;
    cup_tree_remove(&f->cached, span);
    f->stat.cached_dedicated_bytes -= span->size_bytes;
    span->state = CUP_SPAN_BLOCK;
    note_busy(f, span->chunk);
    return span;
}

/* Prepared before; changes nothing on a miss. */
cup_status_t cup_pool_commit_locked(cup_pool_fields_t *f, const cup_pool_request_t *request,
                                    cup_addr_t *out_addr)
{
    if (request->route == CUP_POOL_SMALL) {
        if (!take_small_locked(f, request, out_addr))
            return CUP_ERR_MISS;
    } else {
        cup_span_t *span =
            request->route == CUP_POOL_SPAN ? take_span_locked(f, request) : take_cached_locked(f, request);
        if (!span)
            return CUP_ERR_MISS;
        span->requested_bytes = request->requested_bytes;
        span->serial = next_serial_locked(f);
        span->marks = 0;
        *out_addr = span->base;
    }
    f->stat.live_blocks++;
    f->stat.live_bytes += request->requested_bytes;
    if (f->stat.live_peak_bytes < f->stat.live_bytes)
        f->stat.live_peak_bytes = f->stat.live_bytes;
    return CUP_OK;
}

cup_status_t cup_pool_alloc(cup_pool_t *pool, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_pool_request_t request;
    if (!route_request(&pool->f, size_bytes, &request))
        return size_bytes == 0 ? CUP_ERR_INVALID : CUP_ERR_MISS;
    cup_lock_acquire(&pool->lock);
    cup_status_t status = cup_pool_prepare_locked(&pool->f);
    if (status == CUP_OK)
        status = cup_pool_commit_locked(&pool->f, &request, out_addr);
    cup_lock_release(&pool->lock);
    return status;
}

/* ---- grow ---- */

static void cache_dedicated_locked(cup_pool_fields_t *f, cup_span_t *span)
{
    span->state = CUP_SPAN_FREE;
    cup_tree_insert(&f->cached, span);
    f->stat.cached_dedicated_bytes += span->size_bytes;
    note_idle(f, span->chunk);
}

/* Covered and prepared before: cannot fail. */
static void link_chunk_locked(cup_pool_t *pool, cup_chunk_t *chunk)
{
    cup_pool_fields_t *f = &pool->f;
    cup_chunk_set_pool(chunk, pool);
    cup_spanmap_publish(chunk);
    TAILQ_INSERT_TAIL(&f->chunks, chunk, all);
    if (chunk->is_dedicated) {
        cache_dedicated_locked(f, cup_span_cover(chunk, &f->spans));
    } else {
        cup_arena_add(&f->arena, chunk, &f->spans);
        note_idle(f, chunk);
    }
    f->stat.chunks++;
    f->stat.footprint_bytes += cup_chunk_bytes(chunk);
    if (f->stat.footprint_peak_bytes < f->stat.footprint_bytes)
        f->stat.footprint_peak_bytes = f->stat.footprint_bytes;
}

/* The smallest chunk in which the request surely fits, and the size by footprint if that is more. */
static uint64_t chunk_bytes_for(cup_pool_t *pool, const cup_pool_request_t *request, bool is_tight)
{
    if (request->route == CUP_POOL_DEDICATED)
        return request->span_bytes;
    uint64_t guard_bytes = request->align > CUP_SPAN_GUARD_BYTES ? request->align : CUP_SPAN_GUARD_BYTES;
    uint64_t least_bytes = 0;
    (void)cup_size_round_up(guard_bytes + request->span_bytes, CUP_CHUNK_ALIGN, &least_bytes);
    cup_lock_acquire(&pool->lock);
    uint64_t usual_bytes = cup_size_chunk_bytes(pool->f.stat.footprint_bytes);
    cup_lock_release(&pool->lock);
    return is_tight || least_bytes > usual_bytes ? least_bytes : usual_bytes;
}

static void release_memory(cup_pool_fields_t *f, cup_addr_t base, uint64_t size_bytes)
{
    atomic_fetch_add_explicit(&f->releases, 1, memory_order_relaxed);
    f->provider.release(f->provider.self, base, size_bytes);
}

/* No lock is held. A base that breaks the contract, or that the map cannot hold, is the driver's error. */
static cup_status_t reserve_chunk(cup_pool_t *pool, cup_chunk_t *chunk, uint64_t size_bytes,
                                  bool is_dedicated)
{
    cup_pool_fields_t *f = &pool->f;
    cup_addr_t base = 0;
    atomic_fetch_add_explicit(&f->reserves, 1, memory_order_relaxed);
    cup_status_t status = f->provider.reserve(f->provider.self, size_bytes, &base);
    if (status != CUP_OK)
        return status;
    status = base % CUP_CHUNK_ALIGN ? CUP_ERR_INVALID : cup_spanmap_cover(base, size_bytes, !is_dedicated);
    if (status != CUP_OK) {
        release_memory(f, base, size_bytes);
        return status == CUP_ERR_INVALID ? CUP_ERR_DRIVER : status;
    }
    cup_chunk_init(chunk, base, size_bytes, is_dedicated);
    return CUP_OK;
}

/*
 * Linked and served in one locked section: no other thread can take the memory that this request paid for.
 */
static cup_status_t link_and_commit(cup_pool_t *pool, cup_chunk_t *chunk, const cup_pool_request_t *request,
                                    cup_addr_t *out_addr)
{
    cup_lock_acquire(&pool->lock);
    cup_status_t status = cup_pool_prepare_locked(&pool->f);
    if (status == CUP_OK) {
        link_chunk_locked(pool, chunk);
        status = cup_pool_commit_locked(&pool->f, request, out_addr);
        CUP_ASSERT(status == CUP_OK);
    }
    cup_lock_release(&pool->lock);
    return status;
}

static cup_status_t grow_by_chunk(cup_pool_t *pool, const cup_pool_request_t *request, bool is_tight,
                                  cup_addr_t *out_addr)
{
    uint64_t chunk_bytes = chunk_bytes_for(pool, request, is_tight);
    cup_chunk_t *chunk = cup_store_take(&cup_chunk_store);
    if (!chunk)
        return CUP_ERR_NOMEM;
    cup_status_t status = reserve_chunk(pool, chunk, chunk_bytes, request->route == CUP_POOL_DEDICATED);
    bool is_reserved = status == CUP_OK;
    if (is_reserved)
        status = link_and_commit(pool, chunk, request, out_addr);
    if (is_reserved && status != CUP_OK)
        release_memory(&pool->f, cup_chunk_base(chunk), chunk_bytes);
    if (status != CUP_OK)
        cup_store_put(&cup_chunk_store, chunk);
    return status;
}

cup_status_t cup_pool_grow(cup_pool_t *pool, uint64_t size_bytes, bool is_tight, cup_addr_t *out_addr)
{
    cup_pool_request_t request;
    if (!route_request(&pool->f, size_bytes, &request))
        return CUP_ERR_INVALID;
    return pool->f.has_ranges ? cup_pool_grow_range(pool, &request, out_addr)
                              : grow_by_chunk(pool, &request, is_tight, out_addr);
}

/* ---- free ---- */

static void give_small_locked(cup_pool_fields_t *f, cup_spot_t spot)
{
    cup_slab_t *slab = spot.span->slab;
    cup_slab_bin_t *bin = &f->bins[slab->class_index];
    cup_slab_give(bin, spot.span, spot.block);
    f->slab_free_bytes += slab->block_bytes;
    if (slab->blocks_free < slab->blocks)
        return;
    f->slab_free_bytes -= capacity_bytes(slab);
    if (bin->open.count == 1) {
        bin->kept = spot.span;
        f->kept_bytes += spot.span->size_bytes;
    } else {
        cup_slab_close(bin, spot.span, &f->slabs);
        give_span_locked(f, spot.span);
    }
}

/* The block, not live any more, is complete: back to where it can be handed out. */
static void settle_locked(cup_pool_fields_t *f, cup_spot_t spot)
{
    if (spot.span->state == CUP_SPAN_SLAB)
        give_small_locked(f, spot);
    else if (spot.span->chunk->is_dedicated)
        cache_dedicated_locked(f, spot.span);
    else
        give_span_locked(f, spot.span);
    drop_kept_if_empty_locked(f);
}

static void end_life_locked(cup_pool_fields_t *f, cup_spot_t spot)
{
    CUP_ASSERT(f->stat.live_blocks > 0 && f->stat.live_bytes >= cup_spot_requested_bytes(spot));
    f->stat.live_blocks--;
    f->stat.live_bytes -= cup_spot_requested_bytes(spot);
    if (spot.span->state == CUP_SPAN_SLAB)
        cup_slab_retire(spot.span->slab, spot.block);
    else
        spot.span->state = CUP_SPAN_LIMBO;
}

static void enter_limbo_locked(cup_pool_fields_t *f, cup_spot_t spot, cup_addr_t addr, cup_point_t stamp)
{
    cup_limbo_push(&f->limbo, addr, stamp);
    f->stat.limbo_blocks++;
    f->stat.limbo_bytes += cup_spot_occupied_bytes(spot);
}

/* The block can be handed out, but its memory is not complete: a handle must not move under work that may still run. */
static void settle_early_locked(cup_pool_fields_t *f, cup_spot_t spot, cup_addr_t addr, cup_point_t stamp)
{
    if (spot.span->chunk->range)
        cup_range_note_free(spot.span->chunk->range, addr, cup_spot_occupied_bytes(spot), stamp);
    settle_locked(f, spot);
}

static void enter_quarantine_locked(cup_pool_fields_t *f, cup_spot_t spot)
{
    if (spot.span->state != CUP_SPAN_SLAB)
        spot.span->state = CUP_SPAN_HELD;
    f->stat.quarantined_blocks++;
    f->stat.quarantined_bytes += cup_spot_occupied_bytes(spot);
    drop_kept_if_empty_locked(f);
}

static void leave_quarantine_locked(cup_pool_fields_t *f, cup_spot_t spot, cup_addr_t addr, cup_point_t stamp,
                                    bool is_ordered)
{
    f->stat.quarantined_blocks--;
    f->stat.quarantined_bytes -= cup_spot_occupied_bytes(spot);
    if (spot.span->state != CUP_SPAN_SLAB)
        spot.span->state = CUP_SPAN_LIMBO;
    if (is_ordered)
        settle_early_locked(f, spot, addr, stamp);
    else if (stamp == 0)
        settle_locked(f, spot);
    else
        enter_limbo_locked(f, spot, addr, stamp);
}

static cup_status_t free_block(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp, bool is_ordered,
                               uint64_t *out_occupied_bytes)
{
    cup_pool_fields_t *f = &pool->f;
    cup_spot_t spot;
    cup_lock_acquire(&pool->lock);
    bool is_found = cup_spot_find_live_locked(pool, addr, &spot);
    if (is_found) {
        if (out_occupied_bytes)
            *out_occupied_bytes = cup_spot_occupied_bytes(spot);
        end_life_locked(f, spot);
        if (*cup_spot_marks(spot) & CUP_MARK_HOLDS)
            enter_quarantine_locked(f, spot);
        else if (is_ordered)
            settle_early_locked(f, spot, addr, stamp);
        else if (stamp == 0)
            settle_locked(f, spot);
        else
            enter_limbo_locked(f, spot, addr, stamp);
    }
    cup_lock_release(&pool->lock);
    return is_found ? CUP_OK : CUP_ERR_NOT_FOUND;
}

cup_status_t cup_pool_free(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp, uint64_t *out_occupied_bytes)
{
    return free_block(pool, addr, stamp, false, out_occupied_bytes);
}

cup_status_t cup_pool_free_ordered(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                                   uint64_t *out_occupied_bytes)
{
    return free_block(pool, addr, stamp, true, out_occupied_bytes);
}

/* ---- marks ---- */

cup_status_t cup_pool_mark(cup_pool_t *pool, cup_addr_t addr, unsigned marks)
{
    cup_spot_t spot;
    cup_lock_acquire(&pool->lock);
    bool is_found = cup_spot_find_live_locked(pool, addr, &spot);
    if (is_found)
        *cup_spot_marks(spot) |= (uint8_t)marks;
    cup_lock_release(&pool->lock);
    return is_found ? CUP_OK : CUP_ERR_NOT_FOUND;
}

static cup_status_t unmark(cup_pool_t *pool, cup_addr_t addr, unsigned marks, cup_point_t stamp,
                           bool is_ordered)
{
    cup_spot_t spot;
    cup_lock_acquire(&pool->lock);
    bool is_found = cup_spot_find_start_locked(pool, addr, &spot);
    if (is_found) {
        bool was_quarantined = cup_spot_is_quarantined(spot);
        *cup_spot_marks(spot) &= (uint8_t)~marks;
        if (was_quarantined && !(*cup_spot_marks(spot) & CUP_MARK_HOLDS))
            leave_quarantine_locked(&pool->f, spot, addr, stamp, is_ordered);
    }
    cup_lock_release(&pool->lock);
    return is_found ? CUP_OK : CUP_ERR_NOT_FOUND;
}

cup_status_t cup_pool_unmark(cup_pool_t *pool, cup_addr_t addr, unsigned marks, cup_point_t stamp)
{
    return unmark(pool, addr, marks, stamp, false);
}

cup_status_t cup_pool_unmark_ordered(cup_pool_t *pool, cup_addr_t addr, unsigned marks, cup_point_t stamp)
{
    return unmark(pool, addr, marks, stamp, true);
}

/* ---- complete ---- */

#define COMPLETE_BATCH 256 /* blocks that leave limbo under one hold of the lock */

static uint64_t complete_batch_locked(cup_pool_fields_t *f, cup_point_t completed)
{
    uint64_t left = 0;
    cup_addr_t addr;
    cup_point_t stamp = cup_limbo_oldest(&f->limbo);
    while (left < COMPLETE_BATCH && cup_limbo_try_pop(&f->limbo, completed, &addr)) {
        cup_chunk_t *chunk = cup_spanmap_chunk(addr);
        cup_spot_t spot = cup_spot_in(chunk->is_dedicated ? chunk->first : cup_spanmap_at(addr), addr);
        CUP_ASSERT(cup_spot_base(spot) == addr && !cup_spot_is_live(spot));
        f->stat.limbo_blocks--;
        f->stat.limbo_bytes -= cup_spot_occupied_bytes(spot);
        settle_early_locked(f, spot, addr, stamp);
        stamp = cup_limbo_oldest(&f->limbo);
        left++;
    }
    return left;
}

static void note_completed_locked(cup_pool_fields_t *f, cup_point_t completed)
{
    if (completed <= atomic_load_explicit(&f->completed, memory_order_relaxed))
        return;
    atomic_store_explicit(&f->completed, completed, memory_order_relaxed);
    for (int i = 0; i < CUP_RANGE_COUNT; i++)
        f->range[i].completed = completed;
}

static uint64_t leave_limbo(cup_pool_t *pool, cup_point_t completed)
{
    uint64_t total = 0, batch;
    do {
        cup_lock_acquire(&pool->lock);
        batch = complete_batch_locked(&pool->f, completed);
        cup_lock_release(&pool->lock);
        total += batch;
    } while (batch == COMPLETE_BATCH);
    return total;
}

/* The look before the lock keeps a poll that finds nothing new at two loads. */
uint64_t cup_pool_complete(cup_pool_t *pool, cup_point_t completed)
{
    cup_point_t oldest = cup_limbo_oldest(&pool->f.limbo);
    if (completed > atomic_load_explicit(&pool->f.completed, memory_order_relaxed)) {
        cup_lock_acquire(&pool->lock);
        note_completed_locked(&pool->f, completed);
        cup_lock_release(&pool->lock);
    }
    return oldest == 0 || oldest > completed ? 0 : leave_limbo(pool, completed);
}

uint64_t cup_pool_order_limbo(cup_pool_t *pool, cup_point_t ordered)
{
    return leave_limbo(pool, ordered);
}

cup_point_t cup_pool_oldest_stamp(cup_pool_t *pool)
{
    return cup_limbo_oldest(&pool->f.limbo);
}

/* ---- giving back ---- */

static void unlink_idle_locked(cup_pool_fields_t *f, cup_chunk_t *chunk)
{
    note_busy(f, chunk);
    if (chunk->is_dedicated) {
        f->stat.cached_dedicated_bytes -= chunk->first->size_bytes;
        cup_tree_remove(&f->cached, chunk->first);
        cup_span_retire(chunk->first, &f->spans);
        chunk->first = NULL;
    } else {
        cup_arena_remove(&f->arena, chunk, &f->spans);
    }
    unlink_chunk_locked(f, chunk);
}

static uint64_t trim_chunks(cup_pool_t *pool, uint64_t want_bytes)
{
    cup_pool_fields_t *f = &pool->f;
    cup_chunk_list_t doomed = TAILQ_HEAD_INITIALIZER(doomed);
    cup_chunk_t *chunk;
    uint64_t bytes = 0;
    cup_lock_acquire(&pool->lock);
    (void)cup_pool_drop_kept_locked(f);
    while (bytes < want_bytes && (chunk = TAILQ_FIRST(&f->idle))) {
        unlink_idle_locked(f, chunk);
        TAILQ_INSERT_TAIL(&doomed, chunk, idle);
        bytes += cup_chunk_bytes(chunk);
    }
    cup_lock_release(&pool->lock);
    while ((chunk = TAILQ_FIRST(&doomed))) {
        TAILQ_REMOVE(&doomed, chunk, idle);
        release_memory(f, cup_chunk_base(chunk), cup_chunk_bytes(chunk));
        cup_store_put(&cup_chunk_store, chunk);
    }
    return bytes;
}

uint64_t cup_pool_trim(cup_pool_t *pool, uint64_t want_bytes)
{
    return pool->f.has_ranges ? cup_pool_trim_ranges(pool, want_bytes) : trim_chunks(pool, want_bytes);
}

/* A live dedicated block that has one of these marks (0: any block) goes, with its chunk. */
static cup_status_t surrender(cup_pool_t *pool, cup_addr_t addr, unsigned marks)
{
    cup_pool_fields_t *f = &pool->f;
    cup_status_t status = CUP_ERR_NOT_FOUND;
    cup_chunk_t *chunk = NULL;
    cup_spot_t spot;
    cup_lock_acquire(&pool->lock);
    if (cup_spot_find_live_locked(pool, addr, &spot)) {
        status = CUP_ERR_INVALID;
        if (spot.span->chunk->is_dedicated && (marks == 0 || (*cup_spot_marks(spot) & marks))) {
            status = CUP_OK;
            chunk = spot.span->chunk;
            end_life_locked(f, spot);
            cup_span_retire(spot.span, &f->spans);
            chunk->first = NULL;
            unlink_chunk_locked(f, chunk);
            drop_kept_if_empty_locked(f);
        }
    }
    cup_lock_release(&pool->lock);
    if (chunk)
        cup_store_put(&cup_chunk_store, chunk);
    return status;
}

cup_status_t cup_pool_surrender(cup_pool_t *pool, cup_addr_t addr)
{
    return surrender(pool, addr, 0);
}

cup_status_t cup_pool_surrender_held(cup_pool_t *pool, cup_addr_t addr)
{
    return surrender(pool, addr, CUP_MARK_HOLDS);
}
