/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_parts - what pool.c and pool_range.c have of each other.
 * Not here:   anything for other files (pool.h).
 * Threads:    functions named _locked need the pool's lock, the others must not have it.
 */
#ifndef CUP_ALLOCATOR_POOL_PARTS_H
#define CUP_ALLOCATOR_POOL_PARTS_H
#include "allocator/pool_fields.h"

typedef enum { CUP_POOL_SMALL, CUP_POOL_SPAN, CUP_POOL_DEDICATED } cup_pool_route_t;

typedef struct cup_pool_request {
    cup_pool_route_t route;
    uint32_t class_index;     /* CUP_POOL_SMALL */
    uint64_t requested_bytes; /* as asked */
    uint64_t span_bytes;      /* of the span that serves it: a slab's, its own, a chunk's */
    uint64_t align;           /* of that span */
    cup_addr_t site;          /* 0, or where in a FREE span of a range it must be */
} cup_pool_request_t;

/* pool.c: gathers what a commit may need, so that it cannot fail; the pool stays as it is. Errors: CUP_ERR_NOMEM. */
cup_status_t cup_pool_prepare_locked(cup_pool_fields_t *f);

/* pool.c: serves the request from what is there; prepared before; changes nothing on CUP_ERR_MISS. */
cup_status_t cup_pool_commit_locked(cup_pool_fields_t *f, const cup_pool_request_t *request,
                                    cup_addr_t *out_addr);

/* pool.c: gives kept slabs back to where spans come from. Returns whether there was one. */
bool cup_pool_drop_kept_locked(cup_pool_fields_t *f);

/* pool.c: closes every slab of the chunk, whatever is in it. */
void cup_pool_forget_slabs_locked(cup_pool_fields_t *f, cup_chunk_t *chunk);

/*
 * pool_hide.c: takes what a hidden pool has apart. Its addresses may be others' by now: the map is left
 * alone.
 */
void cup_pool_forget_hidden_locked(cup_pool_fields_t *f);

/* pool_range.c: cup_pool_grow and cup_pool_trim over ranges. */
cup_status_t cup_pool_grow_range(cup_pool_t *pool, const cup_pool_request_t *request, cup_addr_t *out_addr);
uint64_t cup_pool_trim_ranges(cup_pool_t *pool, uint64_t want_bytes);

/* pool_range.c: every handle of the range, then the range, which is closed afterwards. */
void cup_pool_give_range_back(cup_pool_t *pool, cup_range_t *range);

static inline cup_range_t *cup_pool_range_for(cup_pool_fields_t *f, const cup_pool_request_t *request)
{
    return &f->range[request->span_bytes <= CUP_SIZE_SMALL_SPAN_MAX ? CUP_RANGE_SMALL : CUP_RANGE_LARGE];
}

#endif /* CUP_ALLOCATOR_POOL_PARTS_H */
