/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range - one contiguous reservation of addresses, backed by handles that can come, go and move.
 * What:       the places of the handles and what is in them, the spans that tile the range, the place that a
 *             request would cost the least new memory, and the way of a span to BUSY and back.
 * Not here:   provider calls (growth.h), how much may be held (pool.c).
 * Invariants: spans tile the whole range; FREE, BLOCK, SLAB and LIMBO spans touch backed places only, HOLE
 *             spans are whole places without memory; neither two FREE nor two HOLE spans are neighbours. The
 *             last span is mostly a large HOLE: addresses that were never used. A place is backed or not as
 *             a whole. The map knows what was ever backed (so an old pointer stays ours), and has entries
 *             for all spans but HOLE and BUSY ones.
 * Threads:    the pool's lock; who holds a span BUSY owns `id`, `is_next` and `is_new` of the places inside
 *             it.
 *
 *   range    |  block  |  slab  | free |  block  | hole |  block  |  free  |        hole, never backed        |
 *   places   |   2 MiB   |   2 MiB   |   2 MiB   |      |   2 MiB   |  8 MiB from 1 GiB, 32 MiB from 8 GiB on
 */
#ifndef CUP_ALLOCATOR_RANGE_H
#define CUP_ALLOCATOR_RANGE_H
#include "allocator/arena.h"

/* X(zone, from this offset on, handle bytes): the cost of a handle does not depend on its size (docs). */
#define CUP_HANDLE_ZONE_LIST(X) \
    X(0, 0, 2 * CUP_MIB)        \
    X(1, CUP_GIB, 8 * CUP_MIB)  \
    X(2, 8 * CUP_GIB, 32 * CUP_MIB)

enum {
#define X(zone, from, handle) +1
    CUP_HANDLE_ZONES = CUP_HANDLE_ZONE_LIST(X)
#undef X
};

typedef struct cup_handle_zone {
    uint64_t from_bytes;
    uint64_t handle_bytes;
    size_t first; /* index of its first place */
} cup_handle_zone_t;

/* What is in one place. Outside BUSY spans is_next == is_backed and is_new is false. */
typedef struct cup_handle {
    uint64_t id;       /* the provider's */
    bool is_backed;    /* the lock's: what the bookkeeping says */
    bool is_next;      /* what it will say once the span is settled */
    bool is_new;       /* committed by the growth that is under way */
    cup_point_t stamp; /* newest of the frees in it: the handle may move once that is complete */
} cup_handle_t;

typedef struct cup_range {
    cup_chunk_t *chunk; /* base and size of the reservation; NULL until there is one */
    cup_arena_t arena;  /* FREE spans */
    cup_tree_t holes;   /* HOLE spans */
    cup_handle_zone_t zone[CUP_HANDLE_ZONES];
    size_t zones;
    cup_handle_t *handle; /* one for each place: made once, so that it never moves */
    size_t handles;
    uint64_t backed_bytes;
    cup_point_t completed; /* stamps up to this are complete */
    uint64_t ever_bytes;   /* from the base to the end of the highest place that was ever backed */
} cup_range_t;

/* A reservation is a multiple of this. */
uint64_t cup_range_align(uint64_t handle_bytes);

/*
 * Makes the tables for a reservation of size_bytes (a multiple of cup_range_align). handle_bytes 0: by
 * position. Takes one span from the stock. Errors: CUP_ERR_NOMEM; the range is as it was.
 */
cup_status_t cup_range_open(cup_range_t *range, cup_addr_t base, uint64_t size_bytes, uint64_t handle_bytes,
                            struct cup_pool *pool, cup_stock_t *spans);

/* Forgets everything; the spans are gone but for one HOLE. The addresses are the caller's. */
void cup_range_close(cup_range_t *range, cup_stock_t *spans);

/* ---- places ---- */

size_t cup_range_place(const cup_range_t *range, cup_addr_t addr);
cup_addr_t cup_range_place_base(const cup_range_t *range, size_t place);
size_t cup_range_place_zone(const cup_range_t *range, size_t place);

static inline uint64_t cup_range_place_bytes(const cup_range_t *range, size_t place)
{
    return range->zone[cup_range_place_zone(range, place)].handle_bytes;
}

static inline cup_addr_t cup_range_end(const cup_range_t *range)
{
    return cup_chunk_base(range->chunk) + cup_chunk_bytes(range->chunk);
}

/* ---- where ---- */

typedef struct cup_site {
    cup_addr_t base;    /* where the request would be, aligned */
    uint64_t new_bytes; /* whole handles that are missing for that */
} cup_site_t;

/*
 * Among all runs of FREE and HOLE spans: the fewest new bytes, the lowest address among equals. False when
 * the range is too small.
 */
bool cup_range_find_site(const cup_range_t *range, uint64_t size_bytes, uint64_t align, cup_site_t *out_site);

/* ---- BUSY and back ---- */

/*
 * Takes size_bytes at base, all of it FREE or HOLE, out of use, holes by whole places. Returns the first
 * and the last of the BUSY spans that tile it. Takes two spans from the stock.
 */
#define CUP_RANGE_WINDOW_SPANS 2
void cup_range_take_window(cup_range_t *range, cup_addr_t base, uint64_t size_bytes, cup_stock_t *spans,
                           cup_span_t **out_first, cup_span_t **out_last);

/* A block at addr was freed with this stamp. */
void cup_range_note_free(cup_range_t *range, cup_addr_t addr, uint64_t size_bytes, cup_point_t stamp);

/* A run of places that are backed, of one zone, complete, and wholly inside one FREE span. */
typedef struct cup_run {
    cup_span_t *span;
    size_t first, count;
} cup_run_t;

/*
 * The highest such run of this zone below the place `below`, the upper end of it if it is longer than
 * at_most.
 */
bool cup_range_find_run(const cup_range_t *range, size_t zone, size_t below, size_t at_most,
                        cup_run_t *out_run);

/* Takes the run out of use: one BUSY span. Takes two spans from the stock. */
#define CUP_RANGE_RUN_SPANS 2
cup_span_t *cup_range_take_run(cup_range_t *range, const cup_run_t *run, cup_stock_t *spans);

/*
 * The places inside the BUSY span are what is_next says: it becomes FREE and HOLE spans, merged with their
 * neighbours. Takes one span from the stock for each change inside it, gives those of merges back.
 */
void cup_range_settle(cup_range_t *range, cup_span_t *span, cup_stock_t *spans);

#endif /* CUP_ALLOCATOR_RANGE_H */
