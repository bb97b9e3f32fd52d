/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range - how: a table with a handle per place, FREE spans in an arena of their own, HOLE spans in a second
 * tree. The unused end of the range is a hole like any other, so growing at the top, into a hole, or across
 * both is one case. Growth is rare and pays tens of microseconds for each handle: walking all holes is cheap
 * beside it.
 */
#include "allocator/range.h"

#include "allocator/meta.h"
#include "allocator/provider.h"
#include "allocator/spanmap.h"

static const cup_handle_zone_t zone_rule[CUP_HANDLE_ZONES] = {
#define X(zone, from, handle) [zone] = {(from), (handle), 0},
    CUP_HANDLE_ZONE_LIST(X)
#undef X
};

#define X(zone, from, handle)                                                             \
    _Static_assert((handle) % CUP_CHUNK_ALIGN == 0, "a place is whole slots of the map"); \
    _Static_assert((from) % (handle) == 0, "a zone starts on a multiple of its handles"); \
    _Static_assert((32 * CUP_MIB) % (handle) == 0, "the base of a range is aligned to every handle");
CUP_HANDLE_ZONE_LIST(X)
#undef X

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- open, close ---- */

uint64_t cup_range_align(uint64_t handle_bytes)
{
    return handle_bytes ? handle_bytes : zone_rule[CUP_HANDLE_ZONES - 1].handle_bytes;
}

/* Zones that the range reaches, with the index of their first place; returns how many places there are. */
static size_t lay_out(cup_range_t *range, uint64_t size_bytes, uint64_t handle_bytes)
{
    size_t places = 0;
    range->zones = 0;
    for (size_t i = 0; i < CUP_HANDLE_ZONES && zone_rule[i].from_bytes < size_bytes; i++) {
        cup_handle_zone_t *zone = &range->zone[range->zones++];
        uint64_t end_bytes = size_bytes;
        *zone = zone_rule[i];
        if (handle_bytes)
            zone->handle_bytes = handle_bytes;
        else if (i + 1 < CUP_HANDLE_ZONES)
            end_bytes = least(end_bytes, zone_rule[i + 1].from_bytes);
        zone->first = places;
        places += (end_bytes - zone->from_bytes) / zone->handle_bytes;
        if (handle_bytes)
            break;
    }
    return places;
}

static void add_hole(cup_range_t *range, cup_span_t *span)
{
    span->state = CUP_SPAN_HOLE;
    cup_tree_insert(&range->holes, span);
}

cup_status_t cup_range_open(cup_range_t *range, cup_addr_t base, uint64_t size_bytes, uint64_t handle_bytes,
                            struct cup_pool *pool, cup_stock_t *spans)
{
    CUP_ASSERT(!range->chunk && size_bytes % cup_range_align(handle_bytes) == 0);
    range->handles = lay_out(range, size_bytes, handle_bytes);
    range->handle = cup_meta_alloc(range->handles * sizeof *range->handle);
    cup_chunk_t *chunk = range->handle ? cup_store_take(&cup_chunk_store) : NULL;
    if (!chunk) {
        cup_meta_free(range->handle, range->handles * sizeof *range->handle);
        range->handle = NULL;
        return CUP_ERR_NOMEM;
    }
    cup_chunk_init(chunk, base, size_bytes, false);
    cup_chunk_set_pool(chunk, pool);
    chunk->range = range;
    range->chunk = chunk;
    add_hole(range, cup_span_cover(chunk, spans));
    return CUP_OK;
}

void cup_range_close(cup_range_t *range, cup_stock_t *spans)
{
    cup_chunk_t *chunk = range->chunk;
    for (cup_span_t *span = chunk->first, *next; span; span = next) {
        next = span->next;
        if (span->state != CUP_SPAN_HOLE && span->state != CUP_SPAN_BUSY)
            cup_spanmap_set(span->base, CUP_SIZE_GRANULE, NULL);
        cup_span_retire(span, spans);
    }
    chunk->first = NULL;
    cup_spanmap_withdraw_part(chunk, cup_chunk_base(chunk), range->ever_bytes);
    cup_chunk_set_pool(chunk, NULL);
    chunk->range = NULL;
    cup_store_put(&cup_chunk_store, chunk);
    cup_meta_free(range->handle, range->handles * sizeof *range->handle);
    *range = (cup_range_t){0};
}

/* ---- places ---- */

size_t cup_range_place(const cup_range_t *range, cup_addr_t addr)
{
    uint64_t offset = addr - cup_chunk_base(range->chunk);
    size_t i = range->zones - 1;
    while (offset < range->zone[i].from_bytes)
        i--;
    return range->zone[i].first + (offset - range->zone[i].from_bytes) / range->zone[i].handle_bytes;
}

size_t cup_range_place_zone(const cup_range_t *range, size_t place)
{
    size_t i = range->zones - 1;
    while (place < range->zone[i].first)
        i--;
    return i;
}

/* Of the place behind the last one, too: the end of the range. */
cup_addr_t cup_range_place_base(const cup_range_t *range, size_t place)
{
    const cup_handle_zone_t *zone = &range->zone[cup_range_place_zone(range, place)];
    return cup_chunk_base(range->chunk) + zone->from_bytes + (place - zone->first) * zone->handle_bytes;
}

static cup_addr_t place_end(const cup_range_t *range, size_t place)
{
    return cup_range_place_base(range, place) + cup_range_place_bytes(range, place);
}

/* ---- where ---- */

static bool is_vacant(const cup_span_t *span)
{
    return span && (span->state == CUP_SPAN_FREE || span->state == CUP_SPAN_HOLE);
}

/* The handles that [base, base + size) lacks; counting ends once it is more than a better site needs. */
static uint64_t count_new_bytes(const cup_range_t *range, cup_addr_t base, uint64_t size_bytes,
                                uint64_t limit)
{
    uint64_t bytes = 0;
    size_t last = cup_range_place(range, base + size_bytes - 1);
    for (size_t place = cup_range_place(range, base); place <= last && bytes <= limit; place++)
        bytes += range->handle[place].is_backed ? 0 : cup_range_place_bytes(range, place);
    return bytes;
}

static void try_site(const cup_range_t *range, cup_addr_t base, uint64_t size_bytes, cup_site_t *best)
{
    uint64_t bytes = count_new_bytes(range, base, size_bytes, best->new_bytes);
    if (bytes < best->new_bytes || (bytes == best->new_bytes && base < best->base))
        *best = (cup_site_t){base, bytes};
}

/*
 * One run of vacant spans. The best site begins with the run, or makes all of a FREE span count: begins or
 * ends with that.
 */
static void try_gap(const cup_range_t *range, const cup_span_t *first, uint64_t size_bytes, uint64_t align,
                    cup_site_t *best)
{
    const cup_span_t *last = first;
    while (is_vacant(last->next))
        last = last->next;
    for (const cup_span_t *span = first; span != last->next; span = span->next) {
        cup_addr_t up = (span->base + align - 1) & ~(align - 1);
        if (up < cup_span_end(last) && cup_span_end(last) - up >= size_bytes)
            try_site(range, up, size_bytes, best);
        if (span->state == CUP_SPAN_HOLE || cup_span_end(span) - first->base < size_bytes)
            continue;
        cup_addr_t down = (cup_span_end(span) - size_bytes) & ~(align - 1);
        if (down >= first->base)
            try_site(range, down, size_bytes, best);
    }
}

bool cup_range_find_site(const cup_range_t *range, uint64_t size_bytes, uint64_t align, cup_site_t *out_site)
{
    cup_site_t best = {UINT64_MAX, UINT64_MAX};
    for (cup_span_t *hole = cup_tree_find(&range->holes, 0, 0); hole;
         hole = cup_tree_next(&range->holes, hole)) {
        const cup_span_t *first = hole;
        while (is_vacant(first->prev))
            first = first->prev;
        const cup_span_t *first_hole = first->state == CUP_SPAN_HOLE ? first : first->next;
        if (first_hole == hole) /* each gap once */
            try_gap(range, first, size_bytes, align, &best);
    }
    if (best.new_bytes == UINT64_MAX)
        return false;
    *out_site = best;
    return true;
}

/* ---- BUSY ---- */

static cup_span_t *make_busy(cup_span_t *span)
{
    CUP_ASSERT(span->state == CUP_SPAN_BLOCK);
    cup_spanmap_set(span->base, CUP_SIZE_GRANULE, NULL);
    span->state = CUP_SPAN_BUSY;
    return span;
}

/* The part of a HOLE between two places. */
static cup_span_t *carve_hole(cup_range_t *range, cup_span_t *span, cup_addr_t base, cup_addr_t end,
                              cup_stock_t *spans)
{
    cup_tree_remove(&range->holes, span);
    if (base > span->base) {
        cup_span_t *front = span;
        span = cup_span_split(front, base - front->base, spans);
        add_hole(range, front);
    }
    if (end < cup_span_end(span))
        add_hole(range, cup_span_split(span, end - span->base, spans));
    span->state = CUP_SPAN_BUSY;
    return span;
}

static cup_span_t *take_part(cup_range_t *range, cup_span_t *span, cup_addr_t base, cup_addr_t end,
                             cup_stock_t *spans)
{
    base = most(base, span->base);
    end = least(end, cup_span_end(span));
    if (span->state == CUP_SPAN_FREE)
        return make_busy(cup_arena_carve(&range->arena, span, base, end - base, spans));
    cup_addr_t to = place_end(range, cup_range_place(range, end - 1));
    return carve_hole(range, span, cup_range_place_base(range, cup_range_place(range, base)), to, spans);
}

/* The vacant span that contains base: holes have no entry in the map, but the one below may. */
static cup_span_t *vacant_at(const cup_range_t *range, cup_addr_t base)
{
    cup_addr_t start = cup_chunk_base(range->chunk);
    cup_addr_t from = range->ever_bytes ? least(base, start + range->ever_bytes - 1) : start;
    cup_span_t *span = cup_spanmap_below(from, start);
    span = span ? span : range->chunk->first;
    while (cup_span_end(span) <= base)
        span = span->next;
    return span;
}

void cup_range_take_window(cup_range_t *range, cup_addr_t base, uint64_t size_bytes, cup_stock_t *spans,
                           cup_span_t **out_first, cup_span_t **out_last)
{
    CUP_ASSERT(spans->count >= CUP_RANGE_WINDOW_SPANS);
    cup_addr_t end = base + size_bytes;
    cup_span_t *last = take_part(range, vacant_at(range, base), base, end, spans);
    *out_first = last;
    while (cup_span_end(last) < end) {
        CUP_ASSERT(is_vacant(last->next));
        last = take_part(range, last->next, base, end, spans);
    }
    *out_last = last;
}

/* ---- runs of whole free handles ---- */

void cup_range_note_free(cup_range_t *range, cup_addr_t addr, uint64_t size_bytes, cup_point_t stamp)
{
    size_t last = cup_range_place(range, addr + size_bytes - 1);
    for (size_t place = cup_range_place(range, addr); place <= last; place++)
        if (range->handle[place].stamp < stamp)
            range->handle[place].stamp = stamp;
}

static bool is_whole_free(const cup_range_t *range, const cup_span_t *span, size_t place)
{
    return span && span->state == CUP_SPAN_FREE && range->handle[place].stamp <= range->completed &&
           span->base <= cup_range_place_base(range, place) && place_end(range, place) <= cup_span_end(span);
}

bool cup_range_find_run(const cup_range_t *range, size_t zone, size_t below, size_t at_most,
                        cup_run_t *out_run)
{
    cup_addr_t base = cup_chunk_base(range->chunk);
    size_t floor = range->zone[zone].first;
    if (zone + 1 < range->zones)
        below = least(below, range->zone[zone + 1].first);
    while (below > floor) {
        size_t place = below - 1;
        cup_addr_t at = cup_range_place_base(range, place);
        cup_span_t *span = range->handle[place].is_backed ? cup_spanmap_below(at, base) : NULL;
        if (is_whole_free(range, span, place)) {
            size_t count = 1;
            while (count < at_most && place - floor >= count && is_whole_free(range, span, place - count))
                count++;
            *out_run = (cup_run_t){span, place + 1 - count, count};
            return true;
        }
        /* A span in use that contains the place: nothing above its base. */
        bool is_used = span && span->state != CUP_SPAN_FREE && at < cup_span_end(span);
        below = is_used ? least(place, cup_range_place(range, span->base) + 1) : place;
    }
    return false;
}

cup_span_t *cup_range_take_run(cup_range_t *range, const cup_run_t *run, cup_stock_t *spans)
{
    CUP_ASSERT(spans->count >= CUP_RANGE_RUN_SPANS);
    cup_addr_t base = cup_range_place_base(range, run->first);
    cup_addr_t end = place_end(range, run->first + run->count - 1);
    return make_busy(cup_arena_carve(&range->arena, run->span, base, end - base, spans));
}

/* ---- and back ---- */

static void update_places(cup_range_t *range, const cup_span_t *span)
{
    size_t last = cup_range_place(range, cup_span_end(span) - 1);
    for (size_t place = cup_range_place(range, span->base); place <= last; place++) {
        cup_handle_t *handle = &range->handle[place];
        uint64_t bytes = cup_range_place_bytes(range, place);
        if (handle->is_backed == handle->is_next)
            continue; /* also a place of which others have a part: they may be looking at it */
        handle->is_backed = handle->is_next;
        handle->is_new = false;
        if (!handle->is_backed) {
            range->backed_bytes -= bytes;
            continue;
        }
        cup_addr_t base = cup_range_place_base(range, place);
        range->backed_bytes += bytes;
        range->ever_bytes = most(range->ever_bytes, base + bytes - cup_chunk_base(range->chunk));
        cup_spanmap_publish_part(range->chunk, base, bytes);
    }
}

/* Cuts the span where its backing changes; the rest, BUSY, or NULL. */
static cup_span_t *cut_by_backing(cup_range_t *range, cup_span_t *span, cup_stock_t *spans)
{
    size_t place = cup_range_place(range, span->base);
    bool is_backed = range->handle[place].is_backed;
    cup_addr_t end = cup_span_end(span), at = place_end(range, place);
    while (at < end && range->handle[++place].is_backed == is_backed)
        at = place_end(range, place);
    if (at >= end)
        return NULL;
    cup_span_t *rest = cup_span_split(span, at - span->base, spans);
    rest->state = CUP_SPAN_BUSY;
    return rest;
}

static void become_hole(cup_range_t *range, cup_span_t *span, cup_stock_t *spans)
{
    if (span->next && span->next->state == CUP_SPAN_HOLE) {
        cup_tree_remove(&range->holes, span->next);
        cup_span_merge_next(span, spans);
    }
    if (span->prev && span->prev->state == CUP_SPAN_HOLE) {
        span = span->prev;
        cup_tree_remove(&range->holes, span);
        cup_span_merge_next(span, spans);
    }
    add_hole(range, span);
}

static void become_free(cup_range_t *range, cup_span_t *span, cup_stock_t *spans)
{
    span->state = CUP_SPAN_BLOCK;
    cup_spanmap_set(span->base, CUP_SIZE_GRANULE, span);
    cup_arena_give(&range->arena, span, spans);
}

void cup_range_settle(cup_range_t *range, cup_span_t *span, cup_stock_t *spans)
{
    CUP_ASSERT(span->state == CUP_SPAN_BUSY);
    update_places(range, span);
    while (span) {
        cup_span_t *rest = cut_by_backing(range, span, spans);
        if (range->handle[cup_range_place(range, span->base)].is_backed)
            become_free(range, span, spans);
        else
            become_hole(range, span, spans);
        span = rest;
    }
}
