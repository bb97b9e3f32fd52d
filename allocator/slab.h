/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab - a span of equal blocks of one small class.
 * What:       two bits and a requested size per block, out of band; the bin of a class: its slabs with a
 *             free block.
 * Not here:   where the span comes from and when an empty slab goes back (pool.c).
 * Invariants: a block is FREE (bit in `free`), LIVE (bit in `live`), or in LIMBO or HELD (neither: its marks
 *             tell); free & live == 0;
 *             blocks_free and blocks_live count the bits; a slab is in its bin exactly while blocks_free >
 *             0. The lowest address of the lowest slab is handed out first: equal histories give equal
 *             addresses.
 * Threads:    the pool's lock.
 */
#ifndef CUP_ALLOCATOR_SLAB_H
#define CUP_ALLOCATOR_SLAB_H
#include "allocator/tree.h"

#define CUP_SLAB_WORDS (CUP_SIZE_SLAB_BLOCKS_MAX / 64)

typedef struct cup_slab {
    cup_item_t item;
    uint32_t class_index;
    uint32_t block_bytes;
    uint32_t blocks, blocks_free, blocks_live;
    uint64_t free[CUP_SLAB_WORDS];
    uint64_t live[CUP_SLAB_WORDS];
    uint16_t requested_minus_1[CUP_SIZE_SLAB_BLOCKS_MAX]; /* 1 .. 32 KiB; of LIVE blocks */
    uint8_t marks[CUP_SIZE_SLAB_BLOCKS_MAX];              /* pool.h; of blocks that are not FREE */
    uint64_t serial[CUP_SIZE_SLAB_BLOCKS_MAX];            /* likewise: of this allocation */
} __attribute__((aligned(16))) cup_slab_t;

typedef struct cup_slab_bin {
    cup_tree_t open;    /* by address: they are of one size */
    cup_span_t *lowest; /* of open; NULL when it is empty */
    cup_span_t *kept;   /* of open, pool.c's: an empty slab that waits for the next request */
} cup_slab_bin_t;

extern cup_store_t cup_slab_store;

/* Makes a BLOCK span of the class's slab size a slab of free blocks, in the bin. Takes one from the stock. */
void cup_slab_open(cup_slab_bin_t *bin, cup_span_t *span, uint32_t class_index, cup_stock_t *slabs);

/* The reverse, for a slab whose blocks are all free (or, at the end of a pool, whatever they are). */
void cup_slab_close(cup_slab_bin_t *bin, cup_span_t *span, cup_stock_t *slabs);

/* The lowest free block of the bin, which has one, goes live. */
cup_addr_t cup_slab_take(cup_slab_bin_t *bin, uint64_t requested_bytes);

/* LIVE -> LIMBO, LIMBO -> FREE. The block is in that state. */
void cup_slab_retire(cup_slab_t *slab, uint32_t block);
void cup_slab_give(cup_slab_bin_t *bin, cup_span_t *span, uint32_t block);

static inline bool cup_slab_bit(const uint64_t *bits, uint32_t block)
{
    return bits[block / 64] >> (block % 64) & 1;
}

/* The block that contains addr, or slab->blocks for the tail behind the last one. */
static inline uint32_t cup_slab_block(const cup_span_t *span, cup_addr_t addr)
{
    uint32_t block = (uint32_t)(addr - span->base) / span->slab->block_bytes;
    return block < span->slab->blocks ? block : span->slab->blocks;
}

static inline cup_addr_t cup_slab_addr(const cup_span_t *span, uint32_t block)
{
    return span->base + (uint64_t)block * span->slab->block_bytes;
}

static inline uint64_t cup_slab_requested(const cup_slab_t *slab, uint32_t block)
{
    return (uint64_t)slab->requested_minus_1[block] + 1;
}

#endif /* CUP_ALLOCATOR_SLAB_H */
