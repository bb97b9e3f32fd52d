/* SPDX-License-Identifier: Apache-2.0 */
/* range - the geometry of places, the choice of a site, BUSY and back. */
#include "allocator/range.h"

#include "allocator/provider.h"
#include "allocator/spanmap.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#define BASE   UINT64_C(0x223000000000)
#define HANDLE (2 * CUP_MIB)

static cup_stock_t spans = {.store = &cup_span_store};

static void open_range(cup_range_t *range, uint64_t size_bytes, uint64_t handle_bytes)
{
    *range = (cup_range_t){0};
    CHECK_EQ(cup_stock_reserve(&spans, 1000), CUP_OK);
    CHECK_EQ(cup_range_open(range, BASE, size_bytes, handle_bytes, NULL, &spans), CUP_OK);
}

TEST(range, places_tile_it_by_zones)
{
    cup_range_t range;
    open_range(&range, 40 * CUP_GIB, 0);
    CHECK_EQ(range.handles, 512 + 7 * 128 + 32 * 32);
    cup_addr_t at = BASE;
    for (size_t place = 0; place < range.handles; place++) {
        uint64_t bytes = cup_range_place_bytes(&range, place), offset = at - BASE;
        CHECK_EQ(bytes, offset < CUP_GIB ? 2 * CUP_MIB : offset < 8 * CUP_GIB ? 8 * CUP_MIB : 32 * CUP_MIB);
        CHECK_EQ(cup_range_place_base(&range, place), at);
        CHECK_EQ(cup_range_place(&range, at), place);
        CHECK_EQ(cup_range_place(&range, at + bytes - 1), place);
        at += bytes;
    }
    CHECK_EQ(at, cup_range_end(&range));
    cup_range_close(&range, &spans);
}

TEST(range, small_ones_and_ones_of_one_size_have_one_zone)
{
    cup_range_t range;
    open_range(&range, 96 * CUP_MIB, 0);
    CHECK(range.zones == 1 && range.handles == 48);
    cup_range_close(&range, &spans);
    open_range(&range, 4 * CUP_GIB, 64 * CUP_MIB);
    CHECK(range.zones == 1 && range.handles == 64);
    CHECK_EQ(cup_range_place_base(&range, 63), BASE + 63 * 64 * CUP_MIB);
    cup_range_close(&range, &spans);
}

/* As a growth does it, with no provider: the places of the window that `backs` names get memory. */
static void back(cup_range_t *range, cup_addr_t base, uint64_t size_bytes, bool backs)
{
    cup_span_t *first, *last, *next;
    cup_range_take_window(range, base, size_bytes, &spans, &first, &last);
    size_t end = cup_range_place(range, cup_span_end(last) - 1);
    for (size_t place = cup_range_place(range, first->base); place <= end; place++)
        range->handle[place].is_next |= backs;
    CHECK_EQ(
        cup_spanmap_cover(first->base & ~(CUP_CHUNK_ALIGN - 1), size_bytes / HANDLE * HANDLE + HANDLE, true),
        CUP_OK);
    for (cup_span_t *span = first; span; span = next) {
        next = span == last ? NULL : span->next;
        cup_range_settle(range, span, &spans);
    }
}

static cup_site_t site_for(const cup_range_t *range, uint64_t size_bytes, uint64_t align)
{
    cup_site_t site = {0, 0};
    CHECK(cup_range_find_site(range, size_bytes, align, &site));
    return site;
}

TEST(range, the_site_with_the_fewest_new_bytes)
{
    cup_range_t range;
    open_range(&range, CUP_GIB, 0);
    CHECK_EQ(site_for(&range, 100, 4096).base, BASE);
    back(&range, BASE, 4 * HANDLE, true);
    cup_span_t *used = cup_arena_take(&range.arena, 3 * HANDLE + HANDLE / 2, 4096, &spans);
    cup_site_t site = site_for(&range, HANDLE, 4096);
    CHECK(site.base == cup_span_end(used) && site.new_bytes == HANDLE);
    site = site_for(&range, 2 * HANDLE + HANDLE / 2, 4096);
    CHECK(site.base == cup_span_end(used) && site.new_bytes == 2 * HANDLE);
    cup_arena_give(&range.arena, used, &spans);
    CHECK_EQ(site_for(&range, 4 * HANDLE, 4096).new_bytes, 0);
    CHECK(!cup_range_find_site(&range, CUP_GIB + 4096, 4096, &site));
    CHECK(!cup_range_find_site(&range, UINT64_MAX / 2, 4096, &site));
    CHECK_EQ(site_for(&range, CUP_GIB, 65536).new_bytes, CUP_GIB - 4 * HANDLE);
    cup_range_close(&range, &spans);
}

TEST(range, a_window_that_gets_nothing_is_a_hole_again)
{
    cup_range_t range;
    open_range(&range, CUP_GIB, 0);
    back(&range, BASE + HANDLE, 3 * HANDLE, false);
    CHECK(range.holes.count == 1 && range.chunk->first->size_bytes == CUP_GIB && range.backed_bytes == 0);
    back(&range, BASE + HANDLE, 3 * HANDLE, true);
    CHECK(range.holes.count == 2 && range.arena.free_bytes == 3 * HANDLE && range.backed_bytes == 3 * HANDLE);
    back(&range, BASE + HANDLE / 2, 4 * HANDLE, false); /* from inside a place to inside another */
    CHECK(range.holes.count == 2 && range.arena.free_bytes == 3 * HANDLE);
    CHECK(cup_spanmap_chunk(BASE + HANDLE) == range.chunk && !cup_spanmap_chunk(BASE));
    cup_range_close(&range, &spans);
    CHECK(!cup_spanmap_chunk(BASE + HANDLE));
}

TEST(range, runs_are_whole_free_handles_from_the_top)
{
    cup_range_t range;
    cup_run_t run;
    open_range(&range, CUP_GIB, 0);
    back(&range, BASE, 8 * HANDLE, true);
    cup_span_t *low = cup_arena_take(&range.arena, HANDLE / 2, 4096, &spans); /* place 0 */
    cup_span_t *mid = cup_arena_carve(&range.arena, cup_spanmap_at(cup_span_end(low)),
                                      BASE + 5 * HANDLE - 4096, 8192, &spans); /* places 4 and 5 */
    CHECK(cup_range_find_run(&range, 0, 512, 100, &run) && run.first == 6 && run.count == 2);
    CHECK(cup_range_find_run(&range, 0, 512, 1, &run) && run.first == 7 && run.count == 1);
    CHECK(cup_range_find_run(&range, 0, 6, 100, &run) && run.first == 1 && run.count == 3);
    CHECK(cup_range_find_run(&range, 0, 6, 2, &run) && run.first == 2 && run.count == 2);
    CHECK(!cup_range_find_run(&range, 0, 1, 100, &run));
    cup_span_t *busy =
        cup_range_take_run(&range, &(cup_run_t){cup_spanmap_at(cup_span_end(low)), 2, 1}, &spans);
    CHECK(busy->base == BASE + 2 * HANDLE && busy->size_bytes == HANDLE && !cup_spanmap_at(busy->base));
    CHECK(cup_range_find_run(&range, 0, 6, 100, &run) && run.first == 3 && run.count == 1);
    range.handle[2].is_next = false;
    cup_range_settle(&range, busy, &spans);
    CHECK(range.holes.count == 2 && range.backed_bytes == 7 * HANDLE);
    CHECK(mid->state == CUP_SPAN_BLOCK);
    cup_range_close(&range, &spans);
}
