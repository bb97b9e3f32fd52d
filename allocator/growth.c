/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth - how: commits before moves, as only they meet the end of memory, and then what is left can still
 * be moved; host memory for the map between the two, as a move is not taken back. The table of the range
 * says what was done (is_next, is_new), so that undoing and settling need no list of their own.
 */
#include "allocator/growth.h"

#include "allocator/spanmap.h"

/*
 * Cuts while settling, at most, in each zone: its places of the window are new or undone, then moved, then
 * not moved; and one source has given a part of its handles.
 */
#define SETTLE_SPANS (4 * CUP_HANDLE_ZONES)

cup_status_t cup_growth_init(cup_growth_t *growth, cup_range_t *range)
{
    *growth = (cup_growth_t){.range = range, .spans.store = &cup_span_store};
    return cup_stock_reserve(&growth->spans, SETTLE_SPANS);
}

void cup_growth_fini(cup_growth_t *growth)
{
    cup_stock_drain(&growth->spans);
}

/* ---- plan ---- */

/*
 * The places of the window, first to last, both included: those at its ends may belong to others as well,
 * but are backed then.
 */
static size_t first_place(const cup_growth_t *growth)
{
    return cup_range_place(growth->range, growth->first->base);
}

static size_t last_place(const cup_growth_t *growth)
{
    return cup_range_place(growth->range, cup_span_end(growth->last) - 1);
}

cup_status_t cup_growth_plan_locked(cup_growth_t *growth, uint64_t size_bytes, uint64_t align,
                                    cup_stock_t *spans)
{
    cup_range_t *range = growth->range;
    if (!cup_range_find_site(range, size_bytes, align, &growth->site))
        return CUP_ERR_OOM;
    cup_range_take_window(range, growth->site.base, size_bytes, spans, &growth->first, &growth->last);
    for (size_t place = first_place(growth), last = last_place(growth); place <= last; place++)
        growth->missing[cup_range_place_zone(range, place)] += !range->handle[place].is_backed;
    CUP_ASSERT(cup_growth_missing_bytes(growth) == growth->site.new_bytes);
    return CUP_OK;
}

/* Takes up to so many whole free handles of a zone out of use, highest address first; returns how many. */
static uint64_t take_sources(cup_growth_t *growth, size_t zone, uint64_t count, cup_stock_t *spans)
{
    cup_range_t *range = growth->range;
    size_t below = range->handles;
    uint64_t left = count;
    cup_run_t run;
    if (range->ever_bytes < cup_chunk_bytes(range->chunk))
        below = cup_range_place(range, cup_chunk_base(range->chunk) + range->ever_bytes);
    while (left > 0 && cup_stock_reserve(spans, CUP_RANGE_RUN_SPANS) == CUP_OK &&
           cup_range_find_run(range, zone, below, left, &run)) {
        cup_span_t *span = cup_range_take_run(range, &run, spans);
        span->tree[0] = growth->source[zone];
        growth->source[zone] = growth->giver[zone] = span;
        growth->giver_end[zone] = cup_span_end(span);
        growth->borrowed[zone] += run.count;
        below = run.first;
        left -= run.count;
    }
    return count - left;
}

/* From the highest zone down, so from the highest addresses down. */
static uint64_t take_by_bytes(cup_growth_t *growth, uint64_t want_bytes, bool only_missing,
                              cup_stock_t *spans)
{
    uint64_t bytes = 0;
    for (size_t zone = growth->range->zones; zone-- > 0 && bytes < want_bytes;) {
        uint64_t each = growth->range->zone[zone].handle_bytes;
        uint64_t count = (want_bytes - bytes - 1) / each + 1;
        if (only_missing && count > growth->missing[zone] - growth->borrowed[zone])
            count = growth->missing[zone] - growth->borrowed[zone];
        bytes += each * take_sources(growth, zone, count, spans);
    }
    return bytes;
}

bool cup_growth_borrow_locked(cup_growth_t *growth, uint64_t want_bytes, cup_stock_t *spans)
{
    return take_by_bytes(growth, want_bytes, true, spans) >= want_bytes;
}

uint64_t cup_growth_doom_locked(cup_growth_t *growth, uint64_t want_bytes, cup_stock_t *spans)
{
    return take_by_bytes(growth, want_bytes, false, spans);
}

/* ---- carry out ---- */

cup_status_t cup_growth_commit(cup_growth_t *growth, const cup_provider_t *provider)
{
    cup_range_t *range = growth->range;
    for (size_t place = first_place(growth), last = last_place(growth); place <= last; place++) {
        size_t zone = cup_range_place_zone(range, place);
        cup_handle_t *handle = &range->handle[place];
        if (handle->is_next || growth->missing[zone] == growth->borrowed[zone])
            continue;
        growth->commits++;
        cup_status_t status = provider->commit(provider->self, cup_range_place_base(range, place),
                                               range->zone[zone].handle_bytes, &handle->id);
        if (status != CUP_OK)
            return status;
        handle->is_next = handle->is_new = true;
        handle->stamp = 0;
        growth->missing[zone]--;
    }
    return CUP_OK;
}

/* The next handle that a source has to give; there is one. */
static cup_addr_t next_source(cup_growth_t *growth, size_t zone)
{
    CUP_ASSERT(growth->giver[zone] && growth->borrowed[zone] > 0);
    return growth->giver_end[zone] - growth->range->zone[zone].handle_bytes;
}

static void pass_source(cup_growth_t *growth, size_t zone, cup_addr_t from)
{
    growth->borrowed[zone]--;
    growth->giver_end[zone] = from;
    if (from > growth->giver[zone]->base)
        return;
    growth->giver[zone] = growth->giver[zone]->tree[0];
    growth->giver_end[zone] = growth->giver[zone] ? cup_span_end(growth->giver[zone]) : 0;
}

static cup_status_t move_to(cup_growth_t *growth, const cup_provider_t *provider, size_t place)
{
    cup_range_t *range = growth->range;
    size_t zone = cup_range_place_zone(range, place);
    cup_addr_t from = next_source(growth, zone);
    cup_handle_t *source = &range->handle[cup_range_place(range, from)], *target = &range->handle[place];
    growth->moves++;
    cup_status_t status = provider->move(provider->self, from, cup_range_place_base(range, place),
                                         range->zone[zone].handle_bytes, source->id);
    if (status != CUP_OK)
        return status;
    target->id = source->id;
    target->is_next = true;
    target->stamp = 0; /* what moves is complete */
    source->is_next = false;
    growth->missing[zone]--;
    pass_source(growth, zone, from);
    return CUP_OK;
}

cup_status_t cup_growth_move(cup_growth_t *growth, const cup_provider_t *provider)
{
    cup_range_t *range = growth->range;
    cup_addr_t base = cup_range_place_base(range, first_place(growth));
    cup_addr_t end =
        cup_range_place_base(range, last_place(growth)) + cup_range_place_bytes(range, last_place(growth));
    cup_status_t status = cup_spanmap_cover(base, end - base, true);
    for (size_t place = first_place(growth); place <= last_place(growth) && status == CUP_OK; place++)
        if (!range->handle[place].is_next)
            status = move_to(growth, provider, place);
    return status == CUP_ERR_INVALID ? CUP_ERR_DRIVER : status;
}

void cup_growth_undo(cup_growth_t *growth, const cup_provider_t *provider)
{
    cup_range_t *range = growth->range;
    for (size_t place = first_place(growth), last = last_place(growth); place <= last; place++) {
        cup_handle_t *handle = &range->handle[place];
        if (!handle->is_new)
            continue;
        handle->is_new = handle->is_next = false;
        growth->decommits++;
        provider->decommit(provider->self, cup_range_place_base(range, place),
                           cup_range_place_bytes(range, place), handle->id);
    }
}

void cup_growth_decommit(cup_growth_t *growth, const cup_provider_t *provider)
{
    cup_range_t *range = growth->range;
    for (size_t zone = range->zones; zone-- > 0;) {
        while (growth->borrowed[zone] > 0) {
            cup_addr_t from = next_source(growth, zone);
            cup_handle_t *handle = &range->handle[cup_range_place(range, from)];
            growth->decommits++;
            provider->decommit(provider->self, from, range->zone[zone].handle_bytes, handle->id);
            handle->is_next = false;
            pass_source(growth, zone, from);
        }
    }
}

/* ---- settle ---- */

void cup_growth_settle_locked(cup_growth_t *growth)
{
    cup_range_t *range = growth->range;
    cup_span_t *next = NULL;
    for (size_t zone = 0; zone < range->zones; zone++) {
        for (cup_span_t *span = growth->source[zone]; span; span = next) {
            next = span->tree[0];
            cup_range_settle(range, span, &growth->spans);
        }
    }
    for (cup_span_t *span = growth->first; span; span = next) {
        next = span == growth->last ? NULL : span->next;
        cup_range_settle(range, span, &growth->spans);
    }
}
