/* SPDX-License-Identifier: Apache-2.0 */
/* slab - every class from full to empty, lowest address first, exact states. */
#include "allocator/provider.h"
#include "allocator/slab.h"
#include "allocator/spanmap.h"
#include "tests/support/unit.h"

enum { SLABS = 3 };

typedef struct bench {
    cup_slab_bin_t bin;
    cup_stock_t slabs;
    cup_span_t span[SLABS];
} bench_t;

static void set_up(bench_t *bench, uint32_t class_index)
{
    cup_addr_t base = UINT64_C(0x321000000000);
    CHECK_EQ(cup_spanmap_cover(base, CUP_CHUNK_ALIGN, true), CUP_OK);
    *bench = (bench_t){.slabs.store = &cup_slab_store};
    CHECK_EQ(cup_stock_reserve(&bench->slabs, SLABS), CUP_OK);
    for (int i = SLABS - 1; i >= 0; i--) {
        cup_span_t *span = &bench->span[i];
        span->size_bytes = cup_size_classes[class_index].slab_bytes;
        span->base = base + (uint64_t)i * span->size_bytes;
        span->state = CUP_SPAN_BLOCK;
        cup_slab_open(&bench->bin, span, class_index, &bench->slabs);
    }
}

static void tear_down(bench_t *bench)
{
    for (int i = 0; i < SLABS; i++) {
        cup_slab_close(&bench->bin, &bench->span[i], &bench->slabs);
        CHECK_EQ(bench->span[i].state, CUP_SPAN_BLOCK);
        cup_spanmap_set(bench->span[i].base, CUP_SIZE_GRANULE, NULL);
    }
    CHECK(!bench->bin.lowest && bench->bin.open.count == 0);
    cup_stock_drain(&bench->slabs);
}

static void free_block(bench_t *bench, cup_span_t *span, uint32_t block)
{
    cup_slab_retire(span->slab, block);
    cup_slab_give(&bench->bin, span, block);
}

TEST(slab, blocks_come_in_address_order_and_end)
{
    for (uint32_t class = 0; class < CUP_SIZE_CLASS_COUNT; class ++) {
        bench_t bench;
        set_up(&bench, class);
        for (int i = 0; i < SLABS; i++)
            for (uint32_t b = 0; b < cup_size_classes[class].slab_blocks; b++) {
                cup_addr_t addr = cup_slab_take(&bench.bin, b % cup_size_classes[class].block_bytes + 1);
                CHECK_EQ(addr, bench.span[i].base + (uint64_t)b * cup_size_classes[class].block_bytes);
                CHECK_EQ(cup_slab_requested(bench.span[i].slab, b),
                         b % cup_size_classes[class].block_bytes + 1);
            }
        CHECK(!bench.bin.lowest);
        for (int i = 0; i < SLABS; i++)
            for (uint32_t b = 0; b < cup_size_classes[class].slab_blocks; b++)
                free_block(&bench, &bench.span[i], b);
        tear_down(&bench);
    }
}

TEST(slab, lowest_hole_of_the_lowest_slab_is_next)
{
    bench_t bench;
    set_up(&bench, 0);
    uint32_t blocks = bench.span[0].slab->blocks;
    for (uint32_t i = 0; i < 2 * blocks; i++)
        cup_slab_take(&bench.bin, 512);
    CHECK(bench.bin.lowest == &bench.span[2]);
    free_block(&bench, &bench.span[1], 100);
    free_block(&bench, &bench.span[1], 3);
    CHECK_EQ(cup_slab_take(&bench.bin, 1), cup_slab_addr(&bench.span[1], 3));
    free_block(&bench, &bench.span[0], 70);
    CHECK_EQ(cup_slab_take(&bench.bin, 1), cup_slab_addr(&bench.span[0], 70));
    CHECK_EQ(cup_slab_take(&bench.bin, 1), cup_slab_addr(&bench.span[1], 100));
    CHECK(bench.bin.lowest == &bench.span[2]);
    for (uint32_t i = 0; i < blocks; i++) {
        free_block(&bench, &bench.span[0], i);
        free_block(&bench, &bench.span[1], i);
    }
    tear_down(&bench);
}

TEST(slab, limbo_is_neither_free_nor_live)
{
    bench_t bench;
    set_up(&bench, 5);
    cup_addr_t addr = cup_slab_take(&bench.bin, 2999);
    cup_slab_t *slab = bench.span[0].slab;
    CHECK(cup_slab_bit(slab->live, 0) && !cup_slab_bit(slab->free, 0));
    cup_slab_retire(slab, 0);
    CHECK(!cup_slab_bit(slab->live, 0) && !cup_slab_bit(slab->free, 0));
    CHECK(cup_slab_take(&bench.bin, 1) != addr);
    cup_slab_give(&bench.bin, &bench.span[0], 0);
    CHECK_EQ(cup_slab_take(&bench.bin, 1), addr);
    free_block(&bench, &bench.span[0], 0);
    free_block(&bench, &bench.span[0], 1);
    tear_down(&bench);
}

TEST(slab, address_to_block_and_the_tail)
{
    bench_t bench;
    set_up(&bench, 8); /* 4608 bytes: 14 blocks and a tail of 1024 */
    cup_span_t *span = &bench.span[1];
    CHECK_EQ(cup_slab_block(span, span->base + 4607), 0);
    CHECK_EQ(cup_slab_block(span, span->base + 4608), 1);
    CHECK_EQ(cup_slab_block(span, span->base + 65536 - 1024 - 1), 13);
    CHECK_EQ(cup_slab_block(span, span->base + 65536 - 1024), 14);
    for (uint64_t at = 0; at < span->size_bytes; at += CUP_SIZE_GRANULE)
        CHECK(cup_spanmap_at(span->base + at) == span);
    tear_down(&bench);
}
