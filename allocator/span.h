/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span - chunks and ranges, and the spans that tile them.
 * What:       the two structs, their links, split and merge.
 * Not here:   which span is chosen (arena.h), addresses to spans (spanmap.h), what is inside a slab
 *             (slab.h).
 * Invariants: the spans of a chunk, in list order, tile it exactly; the first of a shared chunk is its
 *             guard; no two neighbours are FREE, or HOLE; a dedicated chunk has one span.
 * Threads:    the pool's lock guards every field but the three that are atomic. Both structs live in stores:
 *             a stale pointer stays a pointer to the type.
 *
 *   chunk  |guard|  block   |   slab   | free |      block      |       free       |
 *          first -> next -> ...                                            NULL
 */
#ifndef CUP_ALLOCATOR_SPAN_H
#define CUP_ALLOCATOR_SPAN_H
#include <stdatomic.h>
#include <sys/queue.h>

#include "allocator/size.h"
#include "allocator/store.h"
#include "allocator/types.h"

#define CUP_SPAN_GUARD_BYTES CUP_SIZE_GRANULE

typedef enum {
    CUP_SPAN_VOID,  /* not part of a chunk: in a store or a stock */
    CUP_SPAN_GUARD, /* never handed out */
    CUP_SPAN_FREE,  /* complete; in the arena's tree, or cached if dedicated */
    CUP_SPAN_BLOCK, /* one live block */
    CUP_SPAN_LIMBO, /* one freed block that is not complete */
    CUP_SPAN_HELD,  /* one freed block in quarantine */
    CUP_SPAN_SLAB,  /* many blocks, see slab.h */
    CUP_SPAN_HOLE,  /* of a range: whole handle places without memory */
    CUP_SPAN_BUSY,  /* of a range: a provider call works on it; whoever planned that alone may touch it */
    CUP_SPAN_STATE_COUNT
} cup_span_state_t;

struct cup_pool;
struct cup_range;
struct cup_slab;

typedef struct cup_chunk {
    cup_item_t item;
    /* Read without a lock by look-ups. The pool is set while the chunk is linked, under that pool's lock: who
     * holds it and sees itself here knows that the chunk is its own until it lets go. */
    _Atomic(cup_addr_t) base;
    _Atomic(uint64_t) size_bytes;
    _Atomic(struct cup_pool *) pool;
    struct cup_span *first;
    struct cup_range *range;     /* whose addresses these are (range.h); NULL: a chunk */
    TAILQ_ENTRY(cup_chunk) all;  /* every chunk of the pool */
    TAILQ_ENTRY(cup_chunk) idle; /* wholly free chunks, least recently freed first */
    bool is_dedicated;
    bool is_idle;
} __attribute__((aligned(16))) cup_chunk_t;

typedef TAILQ_HEAD(cup_chunk_list, cup_chunk) cup_chunk_list_t;

typedef struct cup_span {
    cup_item_t item;
    cup_addr_t base;
    uint64_t size_bytes;
    uint64_t requested_bytes; /* BLOCK, LIMBO and HELD: as the program asked */
    uint64_t serial;          /* likewise: of this allocation */
    cup_chunk_t *chunk;
    struct cup_span *prev, *next; /* neighbours inside the chunk */
    struct cup_span *tree[2];     /* tree.c: smaller, larger */
    struct cup_slab *slab;        /* SLAB only */
    uint32_t tree_priority;       /* tree.c */
    cup_span_state_t state;
    uint8_t marks; /* BLOCK, LIMBO and HELD: pool.h */
} __attribute__((aligned(16))) cup_span_t;

extern cup_store_t cup_span_store;
extern cup_store_t cup_chunk_store;

static inline cup_addr_t cup_span_end(const cup_span_t *span)
{
    return span->base + span->size_bytes;
}

static inline cup_addr_t cup_chunk_base(cup_chunk_t *chunk)
{
    return atomic_load_explicit(&chunk->base, memory_order_relaxed);
}

static inline uint64_t cup_chunk_bytes(cup_chunk_t *chunk)
{
    return atomic_load_explicit(&chunk->size_bytes, memory_order_relaxed);
}

static inline struct cup_pool *cup_chunk_pool(cup_chunk_t *chunk)
{
    return atomic_load_explicit(&chunk->pool, memory_order_relaxed);
}

static inline void cup_chunk_set_pool(cup_chunk_t *chunk, struct cup_pool *pool)
{
    atomic_store_explicit(&chunk->pool, pool, memory_order_relaxed);
}

/* Fills a chunk taken from the store; it has no pool and no span yet and is in no list. */
void cup_chunk_init(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes, bool is_dedicated);

/* A new VOID span over the whole chunk; takes one span from the stock. */
cup_span_t *cup_span_cover(cup_chunk_t *chunk, cup_stock_t *spans);

/* Cuts the span after head_bytes. Returns the rest, a new VOID span behind it; takes one span from the stock.
 */
cup_span_t *cup_span_split(cup_span_t *span, uint64_t head_bytes, cup_stock_t *spans);

/* The span swallows its next neighbour, whose struct goes to the stock. */
void cup_span_merge_next(cup_span_t *span, cup_stock_t *spans);

/* A span that leaves with its chunk: VOID, back to the stock. */
void cup_span_retire(cup_span_t *span, cup_stock_t *spans);

#endif /* CUP_ALLOCATOR_SPAN_H */
