/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab - how: bitmaps of two words; the bin keeps its lowest slab at hand, so a pair of a hot size touches
 * one slab.
 */
#include "allocator/slab.h"

#include <string.h>

#include "allocator/spanmap.h"

_Static_assert(CUP_SIZE_SMALL_MAX - 1 <= UINT16_MAX, "a requested size fits its field");
_Static_assert(CUP_SIZE_SLAB_BLOCKS_MAX % 64 == 0, "whole words");

cup_store_t cup_slab_store = CUP_STORE_INIT(cup_slab_t, 16);

static void flip(uint64_t *bits, uint32_t block)
{
    bits[block / 64] ^= UINT64_C(1) << (block % 64);
}

static void bin_insert(cup_slab_bin_t *bin, cup_span_t *span)
{
    cup_tree_insert(&bin->open, span);
    if (!bin->lowest || span->base < bin->lowest->base)
        bin->lowest = span;
}

static void bin_remove(cup_slab_bin_t *bin, cup_span_t *span)
{
    cup_tree_remove(&bin->open, span);
    if (bin->lowest == span)
        bin->lowest = cup_tree_find(&bin->open, 0, 0);
}

void cup_slab_open(cup_slab_bin_t *bin, cup_span_t *span, uint32_t class_index, cup_stock_t *slabs)
{
    const cup_size_class_t *class = &cup_size_classes[class_index];
    CUP_ASSERT(span->state == CUP_SPAN_BLOCK && span->size_bytes == class->slab_bytes);
    cup_slab_t *slab = cup_stock_take(slabs);
    slab->class_index = class_index;
    slab->block_bytes = class->block_bytes;
    slab->blocks = slab->blocks_free = class->slab_blocks;
    slab->blocks_live = 0;
    memset(slab->live, 0, sizeof slab->live);
    memset(slab->marks, 0, sizeof slab->marks);
    for (uint32_t word = 0; word < CUP_SLAB_WORDS; word++) {
        uint32_t left = slab->blocks > word * 64 ? slab->blocks - word * 64 : 0;
        slab->free[word] = left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
    }
    span->slab = slab;
    span->state = CUP_SPAN_SLAB;
    cup_spanmap_set(span->base, span->size_bytes, span);
    bin_insert(bin, span);
}

void cup_slab_close(cup_slab_bin_t *bin, cup_span_t *span, cup_stock_t *slabs)
{
    cup_slab_t *slab = span->slab;
    CUP_ASSERT(span->state == CUP_SPAN_SLAB);
    if (slab->blocks_free > 0)
        bin_remove(bin, span);
    cup_spanmap_set(span->base + CUP_SIZE_GRANULE, span->size_bytes - CUP_SIZE_GRANULE, NULL);
    span->slab = NULL;
    span->state = CUP_SPAN_BLOCK;
    cup_stock_put(slabs, slab);
}

static uint32_t lowest_free(const cup_slab_t *slab)
{
    uint32_t word = 0;
    while (word + 1 < CUP_SLAB_WORDS && !slab->free[word])
        word++;
    CUP_ASSERT(slab->free[word]);
    return word * 64 + (uint32_t)__builtin_ctzll(slab->free[word]);
}

cup_addr_t cup_slab_take(cup_slab_bin_t *bin, uint64_t requested_bytes)
{
    cup_span_t *span = bin->lowest;
    cup_slab_t *slab = span->slab;
    CUP_ASSERT(slab->blocks_free > 0 && requested_bytes <= slab->block_bytes);
    uint32_t block = lowest_free(slab);
    flip(slab->free, block);
    flip(slab->live, block);
    slab->requested_minus_1[block] = (uint16_t)(requested_bytes - 1);
    slab->blocks_live++;
    if (--slab->blocks_free == 0)
        bin_remove(bin, span);
    return cup_slab_addr(span, block);
}

void cup_slab_retire(cup_slab_t *slab, uint32_t block)
{
    CUP_ASSERT(cup_slab_bit(slab->live, block) && !cup_slab_bit(slab->free, block));
    flip(slab->live, block);
    slab->blocks_live--;
}

void cup_slab_give(cup_slab_bin_t *bin, cup_span_t *span, uint32_t block)
{
    cup_slab_t *slab = span->slab;
    CUP_ASSERT(!cup_slab_bit(slab->live, block) && !cup_slab_bit(slab->free, block));
    flip(slab->free, block);
    if (slab->blocks_free++ == 0)
        bin_insert(bin, span);
}
