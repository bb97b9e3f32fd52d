/* SPDX-License-Identifier: Apache-2.0 */
/* arena - best fit, alignment by a front split, coalescing to one span. */
#include "allocator/arena.h"
#include "allocator/provider.h"
#include "allocator/spanmap.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

enum { CHUNKS = 2, HELD = 64 };
#define CHUNK_BYTES (2 * CUP_MIB)

typedef struct bench {
    cup_arena_t arena;
    cup_stock_t spans;
    cup_chunk_t chunk[CHUNKS];
} bench_t;

static void set_up(bench_t *bench)
{
    *bench = (bench_t){.spans.store = &cup_span_store};
    CHECK_EQ(cup_stock_reserve(&bench->spans, 1024), CUP_OK);
    for (int i = 0; i < CHUNKS; i++) {
        cup_addr_t base =
            UINT64_C(0x123000000000) + (uint64_t)i * CHUNK_BYTES; /* side by side: must not merge */
        CHECK_EQ(cup_spanmap_cover(base, CHUNK_BYTES, true), CUP_OK);
        cup_chunk_init(&bench->chunk[i], base, CHUNK_BYTES, false);
        cup_spanmap_publish(&bench->chunk[i]);
        cup_arena_add(&bench->arena, &bench->chunk[i], &bench->spans);
    }
}

/* Each chunk must have become one free span again. */
static void tear_down(bench_t *bench)
{
    CHECK_EQ(bench->arena.free_bytes, CHUNKS * (CHUNK_BYTES - CUP_SPAN_GUARD_BYTES));
    CHECK_EQ(bench->arena.free.count, CHUNKS);
    for (int i = 0; i < CHUNKS; i++) {
        CHECK(cup_arena_is_whole(&bench->chunk[i]));
        cup_arena_remove(&bench->arena, &bench->chunk[i], &bench->spans);
        cup_spanmap_withdraw(&bench->chunk[i]);
    }
    CHECK_EQ(bench->arena.free_bytes, 0);
    cup_stock_drain(&bench->spans);
}

static cup_span_t *take(bench_t *bench, uint64_t size_bytes, uint64_t align)
{
    return cup_arena_take(&bench->arena, size_bytes, align, &bench->spans);
}

static void give(bench_t *bench, cup_span_t *span)
{
    cup_arena_give(&bench->arena, span, &bench->spans);
}

TEST(arena, smallest_hole_that_fits_and_lowest_among_equals)
{
    bench_t bench;
    set_up(&bench);
    cup_span_t *span[8];
    uint64_t size_kib[8] = {64, 4, 32, 4, 64, 4, 32, 4}; /* holes at 0, 2, 4, 6; the others keep them apart */
    for (int i = 0; i < 8; i++)
        CHECK((span[i] = take(&bench, size_kib[i] * CUP_KIB, 4 * CUP_KIB)));
    cup_addr_t hole64 = span[0]->base, hole32 = span[2]->base, second32 = span[6]->base;
    give(&bench, span[6]);
    give(&bench, span[4]);
    give(&bench, span[2]);
    give(&bench, span[0]);
    CHECK((span[2] = take(&bench, 28 * CUP_KIB, 4 * CUP_KIB)));
    CHECK_EQ(span[2]->base, hole32);
    CHECK((span[6] = take(&bench, 32 * CUP_KIB, 4 * CUP_KIB)));
    CHECK_EQ(span[6]->base, second32);
    CHECK((span[0] = take(&bench, 36 * CUP_KIB, 4 * CUP_KIB)));
    CHECK_EQ(span[0]->base, hole64);
    int held[] = {0, 1, 2, 3, 5, 6, 7};
    for (int i = 0; i < 7; i++)
        give(&bench, span[held[i]]);
    tear_down(&bench);
}

TEST(arena, never_the_guard_and_never_across_chunks)
{
    bench_t bench;
    set_up(&bench);
    CHECK(!take(&bench, CHUNK_BYTES, 4 * CUP_KIB));
    CHECK(!take(&bench, CHUNK_BYTES - 4 * CUP_KIB, 64 * CUP_KIB));
    cup_span_t *all = take(&bench, CHUNK_BYTES - 4 * CUP_KIB, 4 * CUP_KIB);
    CHECK(all && all->base == cup_chunk_base(&bench.chunk[0]) + 4 * CUP_KIB);
    give(&bench, all);
    tear_down(&bench);
}

/* More holes of nearly the size than are tried, none aligned: the large one behind them must still be found.
 */
TEST(arena, unaligned_holes_do_not_hide_an_aligned_one)
{
    bench_t bench;
    set_up(&bench);
    cup_span_t *hole[25], *wall[25];
    for (int i = 0; i < 25; i++) {
        CHECK((hole[i] = take(&bench, 64 * CUP_KIB, 4 * CUP_KIB)));
        CHECK((wall[i] = take(&bench, 12 * CUP_KIB, 4 * CUP_KIB)));
    }
    for (int i = 0; i < 25; i++)
        if (hole[i]->base % (64 * CUP_KIB))
            give(&bench, hole[i]);
        else
            give(&bench, wall[i]), wall[i] = hole[i];
    cup_span_t *aligned = take(&bench, 64 * CUP_KIB, 64 * CUP_KIB);
    CHECK(aligned && aligned->base % (64 * CUP_KIB) == 0);
    give(&bench, aligned);
    for (int i = 0; i < 25; i++)
        give(&bench, wall[i]);
    tear_down(&bench);
}

TEST(arena, random_takes_end_as_one_span_a_chunk)
{
    cup_rng_t rng = {cup_rng_seed(4)};
    bench_t bench;
    cup_span_t *held[HELD] = {0};
    uint64_t taken = 0;
    set_up(&bench);
    for (int i = 0; i < 20000; i++) {
        uint64_t slot = cup_rng_below(&rng, HELD);
        if (held[slot]) {
            taken -= held[slot]->size_bytes;
            give(&bench, held[slot]);
            held[slot] = NULL;
        } else {
            uint64_t size_bytes = (1 + cup_rng_below(&rng, 32)) * 4 * CUP_KIB;
            uint64_t align = cup_rng_below(&rng, 2) ? 4 * CUP_KIB : 64 * CUP_KIB;
            held[slot] = take(&bench, size_bytes, align);
            if (held[slot])
                CHECK(held[slot]->size_bytes == size_bytes && held[slot]->base % align == 0);
            taken += held[slot] ? size_bytes : 0;
        }
        CHECK_EQ(bench.arena.free_bytes + taken, CHUNKS * (CHUNK_BYTES - CUP_SPAN_GUARD_BYTES));
    }
    for (int i = 0; i < HELD; i++)
        if (held[i])
            give(&bench, held[i]);
    tear_down(&bench);
}
