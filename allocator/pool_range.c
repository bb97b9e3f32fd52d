/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_range - how: the part of a pool that works over ranges: their addresses, growing by handles, trimming, the end.
 *              Each is planned under the lock, carried out without it, settled under it (growth.h).
 */
#include "allocator/pool_parts.h"
#include "allocator/spanmap.h"

/* ---- growing ---- */

/* The addresses, once. Two threads may come here at once: the second gives its own back. */
static cup_status_t open_range(cup_pool_t *pool, cup_range_t *range)
{
    cup_pool_fields_t *f = &pool->f;
    uint64_t align = cup_range_align(f->conf.handle_bytes), size_bytes = f->conf.range_bytes / align * align;
    cup_addr_t base = 0;
    atomic_fetch_add_explicit(&f->reserves, 1, memory_order_relaxed);
    cup_status_t status = f->provider.range_reserve(f->provider.self, size_bytes, &base);
    if (status != CUP_OK)
        return status;
    bool is_usable =
        base % CUP_CHUNK_ALIGN == 0 && base < CUP_SPANMAP_LIMIT && size_bytes <= CUP_SPANMAP_LIMIT - base;
    bool is_kept = false;
    cup_lock_acquire(&pool->lock);
    status = is_usable ? cup_stock_reserve(&f->spans, 1) : CUP_ERR_DRIVER;
    if (status == CUP_OK && !range->chunk) {
        status = cup_range_open(range, base, size_bytes, f->conf.handle_bytes, pool, &f->spans);
        is_kept = status == CUP_OK;
        range->completed = atomic_load_explicit(&f->completed, memory_order_relaxed);
    }
    cup_lock_release(&pool->lock);
    if (!is_kept) {
        atomic_fetch_add_explicit(&f->releases, 1, memory_order_relaxed);
        f->provider.range_release(f->provider.self, base, size_bytes);
    }
    return status;
}

static uint64_t budget_bytes(const cup_pool_fields_t *f, const cup_pool_request_t *request)
{
    uint64_t live_bytes = f->stat.live_bytes + request->requested_bytes;
    uint64_t peak_bytes = live_bytes > f->stat.live_peak_bytes ? live_bytes : f->stat.live_peak_bytes;
    uint64_t bytes = peak_bytes / 100 * f->conf.slack_percent;
    return bytes > f->conf.slack_floor_bytes ? bytes : f->conf.slack_floor_bytes;
}

/*
 * Without the lock: the answer may need the loader's, which a constructor holds that allocates. Asked before the plan:
 * what is free in it was pinned, if at all, through something that was there by then.
 */
static bool may_move(const cup_pool_fields_t *f)
{
    return !f->provider.may_move || f->provider.may_move(f->provider.self);
}

/*
 * The window, and what the slack asks for: sources for it; and where handles of its size are not to be had, others that go
 * back before new ones are made.
 */
static cup_status_t plan_growth_locked(cup_pool_fields_t *f, cup_growth_t *growth, cup_growth_t *trade,
                                       const cup_pool_request_t *request, bool is_movable)
{
    cup_status_t status = cup_growth_plan_locked(growth, request->span_bytes, request->align, &f->spans);
    if (status != CUP_OK)
        return status;
    uint64_t after_bytes = f->stat.footprint_bytes + f->growing_bytes + growth->site.new_bytes;
    if (after_bytes > budget_bytes(f, request) && is_movable &&
        !cup_growth_borrow_locked(growth, growth->site.new_bytes, &f->spans))
        (void)cup_growth_doom_locked(trade, cup_growth_missing_bytes(growth), &f->spans);
    growth->planned_bytes = cup_growth_missing_bytes(growth);
    f->growing_bytes += growth->planned_bytes;
    return CUP_OK;
}

/* Out of memory: what is free elsewhere serves, if it is enough. */
static cup_status_t borrow_the_rest(cup_pool_t *pool, cup_growth_t *growth)
{
    if (!may_move(&pool->f))
        return CUP_ERR_OOM;
    cup_lock_acquire(&pool->lock);
    bool is_enough = cup_growth_borrow_locked(growth, cup_growth_missing_bytes(growth), &pool->f.spans);
    cup_lock_release(&pool->lock);
    return is_enough ? CUP_OK : CUP_ERR_OOM;
}

static cup_status_t carry_out(cup_pool_t *pool, cup_growth_t *growth)
{
    const cup_provider_t *provider = &pool->f.provider;
    cup_status_t status = cup_growth_commit(growth, provider);
    if (status == CUP_ERR_OOM)
        status = borrow_the_rest(pool, growth);
    return status == CUP_OK ? cup_growth_move(growth, provider) : status;
}

static void settle_growth_locked(cup_pool_fields_t *f, cup_growth_t *growth)
{
    cup_growth_settle_locked(growth);
    f->growing_bytes -= growth->planned_bytes;
    f->stat.commits += growth->commits;
    f->stat.decommits += growth->decommits;
    f->stat.moves += growth->moves;
    f->stat.footprint_bytes = f->range[CUP_RANGE_LARGE].backed_bytes + f->range[CUP_RANGE_SMALL].backed_bytes;
    if (f->stat.footprint_peak_bytes < f->stat.footprint_bytes)
        f->stat.footprint_peak_bytes = f->stat.footprint_bytes;
}

/* Handles of another size go back: planned beside the growth, done before it, so that no more is held at any time. */
static void carry_out_trade(cup_pool_t *pool, cup_growth_t *trade)
{
    if (!cup_growth_has_sources(trade))
        return;
    cup_growth_decommit(trade, &pool->f.provider);
    cup_lock_acquire(&pool->lock);
    settle_growth_locked(&pool->f, trade);
    cup_lock_release(&pool->lock);
}

/*
 * Settled and served in one locked section: no other thread can take the memory that this request paid for.
 */
static cup_status_t finish_growth(cup_pool_t *pool, cup_growth_t *growth, cup_status_t status,
                                  const cup_pool_request_t *request, cup_addr_t *out_addr)
{
    cup_pool_fields_t *f = &pool->f;
    cup_lock_acquire(&pool->lock);
    if (status == CUP_OK)
        status = cup_pool_prepare_locked(f);
    if (status != CUP_OK) {
        cup_lock_release(&pool->lock);
        cup_growth_undo(growth, &f->provider);
        cup_lock_acquire(&pool->lock);
    }
    settle_growth_locked(f, growth);
    if (status == CUP_OK) {
        cup_pool_request_t here = *request;
        here.site = growth->site.base;
        status = cup_pool_commit_locked(f, &here, out_addr);
    }
    CUP_ASSERT(status != CUP_ERR_MISS);
    cup_lock_release(&pool->lock);
    return status;
}

cup_status_t cup_pool_grow_range(cup_pool_t *pool, const cup_pool_request_t *request, cup_addr_t *out_addr)
{
    cup_range_t *range = cup_pool_range_for(&pool->f, request);
    cup_growth_t growth, trade;
    cup_lock_acquire(&pool->lock);
    bool is_open = range->chunk != NULL;
    cup_lock_release(&pool->lock);
    cup_status_t status = is_open ? CUP_OK : open_range(pool, range);
    if (status != CUP_OK)
        return status;
    status = cup_growth_init(&growth, range);
    if (cup_growth_init(&trade, range) != CUP_OK)
        status = CUP_ERR_NOMEM;
    bool is_movable = may_move(&pool->f);
    cup_lock_acquire(&pool->lock);
    if (status == CUP_OK)
        status = cup_pool_prepare_locked(&pool->f);
    if (status == CUP_OK) /* another thread may have freed or grown enough */
        status = cup_pool_commit_locked(&pool->f, request, out_addr);
    bool must_grow = status == CUP_ERR_MISS;
    if (must_grow)
        status = plan_growth_locked(&pool->f, &growth, &trade, request, is_movable);
    cup_lock_release(&pool->lock);
    if (must_grow && status == CUP_OK) {
        carry_out_trade(pool, &trade);
        status = carry_out(pool, &growth);
        status = finish_growth(pool, &growth, status, request, out_addr);
    }
    cup_growth_fini(&trade);
    cup_growth_fini(&growth);
    return status;
}

/* ---- giving back ---- */

/* Whole free handles of one range; nothing when host memory for the plan is short. */
static uint64_t trim_range(cup_pool_t *pool, cup_range_t *range, uint64_t want_bytes)
{
    cup_pool_fields_t *f = &pool->f;
    cup_growth_t growth;
    uint64_t bytes = 0;
    if (cup_growth_init(&growth, range) == CUP_OK) {
        cup_lock_acquire(&pool->lock);
        (void)cup_pool_drop_kept_locked(f);
        if (range->chunk)
            bytes = cup_growth_doom_locked(&growth, want_bytes, &f->spans);
        cup_lock_release(&pool->lock);
    }
    if (bytes > 0) {
        cup_growth_decommit(&growth, &f->provider);
        cup_lock_acquire(&pool->lock);
        settle_growth_locked(f, &growth);
        cup_lock_release(&pool->lock);
    }
    cup_growth_fini(&growth);
    return bytes;
}

uint64_t cup_pool_trim_ranges(cup_pool_t *pool, uint64_t want_bytes)
{
    uint64_t bytes = 0;
    if (!may_move(&pool->f))
        return 0;
    for (int i = 0; i < CUP_RANGE_COUNT && bytes < want_bytes; i++)
        bytes += trim_range(pool, &pool->f.range[i], want_bytes - bytes);
    return bytes;
}

uint64_t cup_pool_movable(cup_pool_t *pool, cup_point_t completed)
{
    cup_range_t *range = &pool->f.range[CUP_RANGE_LARGE];
    uint64_t bytes = 0;
    cup_run_t run;
    cup_lock_acquire(&pool->lock);
    cup_point_t really = range->completed;
    range->completed = completed;
    for (size_t zone = range->chunk ? range->zones : 0; zone-- > 0;) {
        size_t below = cup_range_place(range, cup_chunk_base(range->chunk) + range->ever_bytes - 1) + 1;
        while (range->ever_bytes > 0 && cup_range_find_run(range, zone, below, SIZE_MAX, &run)) {
            bytes += run.count * range->zone[zone].handle_bytes;
            below = run.first;
        }
    }
    range->completed = really;
    cup_lock_release(&pool->lock);
    return bytes;
}

bool cup_pool_find_backed(cup_pool_t *pool, cup_addr_t addr, cup_backed_t *out_backed)
{
    bool is_found = false;
    cup_lock_acquire(&pool->lock);
    for (int i = 0; i < CUP_RANGE_COUNT && !is_found; i++) {
        cup_range_t *range = &pool->f.range[i];
        if (!range->chunk || addr - cup_chunk_base(range->chunk) >= cup_chunk_bytes(range->chunk))
            continue;
        size_t place = cup_range_place(range, addr);
        is_found = range->handle[place].is_backed;
        if (is_found)
            *out_backed = (cup_backed_t){.handle = range->handle[place].id,
                                         .base = cup_range_place_base(range, place),
                                         .size_bytes = cup_range_place_bytes(range, place),
                                         .range_base = cup_chunk_base(range->chunk),
                                         .range_bytes = cup_chunk_bytes(range->chunk)};
    }
    cup_lock_release(&pool->lock);
    return is_found;
}

/*
 * The addresses go back last: they may come from the driver again at once, and the map must not answer for them any
 * more by then.
 */
void cup_pool_give_range_back(cup_pool_t *pool, cup_range_t *range)
{
    cup_pool_fields_t *f = &pool->f;
    cup_addr_t base = cup_chunk_base(range->chunk);
    uint64_t bytes = cup_chunk_bytes(range->chunk);
    for (size_t place = 0; place < range->handles; place++)
        if (range->handle[place].is_backed)
            f->provider.decommit(f->provider.self, cup_range_place_base(range, place),
                                 cup_range_place_bytes(range, place), range->handle[place].id);
    cup_lock_acquire(&pool->lock);
    cup_pool_forget_slabs_locked(f, range->chunk);
    cup_range_close(range, &f->spans);
    cup_lock_release(&pool->lock);
    f->provider.range_release(f->provider.self, base, bytes);
}
