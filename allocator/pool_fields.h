/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_fields - what is inside a pool: for pool.c and pool_range.c, which change it, and check.c, which walks
 * it. Nobody else.
 * Invariants: stated where they are checked (check.c).
 * Threads:    the lock guards everything below it; the head stays readable after destroy (pools live in a
 *             store).
 */
#ifndef CUP_ALLOCATOR_POOL_FIELDS_H
#define CUP_ALLOCATOR_POOL_FIELDS_H
#include "allocator/growth.h"
#include "allocator/limbo.h"
#include "allocator/pool.h"
#include "allocator/slab.h"

/* What one call can take from the stock of spans: add a chunk, then cut a span from it. */
#define CUP_POOL_SPARE_SPANS (CUP_ARENA_ADD_SPANS + CUP_ARENA_TAKE_SPANS)

typedef enum { CUP_RANGE_LARGE, CUP_RANGE_SMALL, CUP_RANGE_COUNT } cup_range_index_t;

/* Set to zero at each create. */
typedef struct cup_pool_fields {
    cup_pool_conf_t conf;
    cup_provider_t provider;
    bool has_ranges; /* then there are no chunks, no arena but those of the ranges, nothing cached */
    bool is_hidden;  /* the map answers for no chunk (pool_hide.c) */
    cup_arena_t arena;
    cup_range_t range[CUP_RANGE_COUNT];
    cup_slab_bin_t bins[CUP_SIZE_CLASS_COUNT];
    cup_tree_t cached; /* dedicated spans that are FREE */
    cup_limbo_t limbo;
    cup_chunk_list_t chunks;
    cup_chunk_list_t idle;
    cup_stock_t spans;
    cup_stock_t slabs;
    _Atomic(cup_point_t) completed; /* the newest that cup_pool_complete() heard of */
    uint64_t serial;                /* of the newest allocation, in a batch of the process's (pool.c) */
    uint64_t growing_bytes;         /* that growths under way will commit */
    uint64_t slab_free_bytes;       /* in free blocks of slabs, but for kept ones */
    uint64_t kept_bytes;            /* spans of kept slabs: at most one a class */
    cup_pool_stat_t stat;           /* but for what cup_pool_stat() derives: idle, reserves, releases */
    _Atomic(uint64_t) reserves;     /* provider calls, successful or not: counted where no lock is held */
    _Atomic(uint64_t) releases;
} cup_pool_fields_t;

struct cup_pool {
    cup_item_t item;
    cup_lock_t lock;
    bool has_lock; /* a recycled pool keeps its mutex: a late reader may be about to take it */
    _Atomic(void *) self;
    cup_pool_fields_t f;
} __attribute__((aligned(16)));

#endif /* CUP_ALLOCATOR_POOL_FIELDS_H */
