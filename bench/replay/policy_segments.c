/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: blocks of a segment are a list in address order; free ones of each pool (small, large) are another,
 * searched from end to end: slow and plain. The numbers are those of PyTorch's CUDACachingAllocator.
 */
#include <stdlib.h>
#include <sys/queue.h>

#include "bench/replay/policy.h"

#define ROUND_BYTES     512
#define SMALL_MAX       CUP_MIB        /* requests up to here are of the small pool */
#define SMALL_SEGMENT   (2 * CUP_MIB)  /* what the small pool asks the driver for */
#define LARGE_MIN       (10 * CUP_MIB) /* requests from here on get a segment of their own */
#define LARGE_SEGMENT   (20 * CUP_MIB)
#define LARGE_ROUND     (2 * CUP_MIB)
#define LARGE_REMAINDER CUP_MIB /* a large block is split when more than this remains */

typedef struct seg_block {
    struct seg_block *prev, *next; /* neighbours in the segment */
    LIST_ENTRY(seg_block) link;    /* in the free list of its pool */
    cup_addr_t addr;
    uint64_t bytes;
    bool is_small, is_free;
} seg_block_t;

typedef LIST_HEAD(seg_list, seg_block) seg_list_t;

typedef struct segments {
    host_t *host;
    cup_provider_t driver;
    seg_list_t free[2]; /* by is_small */
    pending_t pending;
    table_t block_at; /* address → seg_block_t, of what the program holds */
    uint64_t segment_bytes, free_bytes, used_bytes;
} segments_t;

static void *create(host_t *host)
{
    segments_t *self = replay_alloc(1, sizeof *self);
    self->host = host;
    self->driver = driver_ops(host->driver, true);
    LIST_INIT(&self->free[false]);
    LIST_INIT(&self->free[true]);
    return self;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t segment_bytes_for(uint64_t bytes)
{
    if (bytes <= SMALL_MAX)
        return SMALL_SEGMENT;
    return bytes < LARGE_MIN ? LARGE_SEGMENT : round_up(bytes, LARGE_ROUND);
}

static void set_free(segments_t *self, seg_block_t *block, bool is_free)
{
    block->is_free = is_free;
    if (is_free) {
        LIST_INSERT_HEAD(&self->free[block->is_small], block, link);
        self->free_bytes += block->bytes;
    } else {
        LIST_REMOVE(block, link);
        self->free_bytes -= block->bytes;
    }
}

/* The smallest that fits, the lowest address among equals. */
static seg_block_t *find_fit(segments_t *self, uint64_t bytes, bool is_small)
{
    seg_block_t *best = NULL, *block;
    LIST_FOREACH(block, &self->free[is_small], link)
    {
        if (block->bytes < bytes)
            continue;
        if (!best || block->bytes < best->bytes || (block->bytes == best->bytes && block->addr < best->addr))
            best = block;
    }
    return best;
}

/* The tail of a taken block that is worth keeping becomes a free one. */
static void split(segments_t *self, seg_block_t *block, uint64_t bytes)
{
    uint64_t rest_bytes = block->bytes - bytes;
    if (block->is_small ? rest_bytes < ROUND_BYTES : rest_bytes <= LARGE_REMAINDER)
        return;
    seg_block_t *rest = replay_alloc(1, sizeof *rest);
    *rest = (seg_block_t){.prev = block,
                          .next = block->next,
                          .addr = block->addr + bytes,
                          .bytes = rest_bytes,
                          .is_small = block->is_small};
    if (rest->next)
        rest->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    set_free(self, rest, true);
}

static seg_block_t *add_segment(segments_t *self, uint64_t bytes, bool is_small)
{
    uint64_t segment_bytes = segment_bytes_for(bytes);
    cup_addr_t addr;
    if (self->driver.reserve(self->driver.self, segment_bytes, &addr) != CUP_OK)
        return NULL;
    seg_block_t *block = replay_alloc(1, sizeof *block);
    *block = (seg_block_t){.addr = addr, .bytes = segment_bytes, .is_small = is_small};
    self->segment_bytes += segment_bytes;
    set_free(self, block, true);
    return block;
}

/* Out of memory: whole free segments go back. */
static void release_cached(segments_t *self)
{
    for (int is_small = 0; is_small < 2; is_small++)
        for (seg_block_t *block = LIST_FIRST(&self->free[is_small]), *next; block; block = next) {
            next = LIST_NEXT(block, link);
            if (block->prev || block->next)
                continue;
            set_free(self, block, false);
            self->segment_bytes -= block->bytes;
            self->driver.release(self->driver.self, block->addr, block->bytes);
            free(block);
        }
}

/* Waits for every free, then gives the cache back. */
static seg_block_t *add_segment_slow(segments_t *self, uint64_t bytes, bool is_small)
{
    self->host->waits++;
    host_wait(self->host, CUP_POINT_MAX);
    policy_segments.complete(self);
    release_cached(self);
    seg_block_t *block = find_fit(self, bytes, is_small);
    return block ? block : add_segment(self, bytes, is_small);
}

static bool alloc(void *policy, uint64_t bytes, cup_addr_t *out_addr)
{
    segments_t *self = policy;
    bytes = round_up(bytes, ROUND_BYTES);
    bool is_small = bytes <= SMALL_MAX;
    seg_block_t *block = find_fit(self, bytes, is_small);
    if (!block)
        block = add_segment(self, bytes, is_small);
    if (!block)
        block = add_segment_slow(self, bytes, is_small);
    if (!block)
        return false;
    set_free(self, block, false);
    split(self, block, bytes);
    self->used_bytes += block->bytes;
    *table_at(&self->block_at, block->addr) = (uint64_t)(uintptr_t)block;
    *out_addr = block->addr;
    return true;
}

static void free_block(void *policy, cup_addr_t addr, cup_point_t point)
{
    segments_t *self = policy;
    uint64_t *slot = table_at(&self->block_at, addr);
    pending_push(&self->pending, (void *)(uintptr_t)*slot, point);
    *slot = 0;
}

/* right, free, is swallowed by its left neighbour, which is in no list. */
static void swallow(segments_t *self, seg_block_t *left, seg_block_t *right)
{
    if (right->is_free)
        set_free(self, right, false);
    left->bytes += right->bytes;
    left->next = right->next;
    if (left->next)
        left->next->prev = left;
    free(right);
}

static void settle(segments_t *self, seg_block_t *block)
{
    self->used_bytes -= block->bytes;
    if (block->next && block->next->is_free)
        swallow(self, block, block->next);
    if (block->prev && block->prev->is_free) {
        seg_block_t *left = block->prev;
        set_free(self, left, false);
        swallow(self, left, block);
        block = left;
    }
    set_free(self, block, true);
}

static void complete(void *policy)
{
    segments_t *self = policy;
    seg_block_t *block;
    while ((block = pending_pop(&self->pending, self->host->usable)))
        settle(self, block);
}

static const char *check(void *policy)
{
    segments_t *self = policy;
    seg_block_t *block;
    uint64_t free_bytes = 0;
    for (int is_small = 0; is_small < 2; is_small++)
        LIST_FOREACH(block, &self->free[is_small], link)
        {
            free_bytes += block->bytes;
            if (block->next && block->next->addr != block->addr + block->bytes)
                return "segments: blocks do not tile their segment";
            if (block->next && block->next->is_free)
                return "segments: two free neighbours";
        }
    if (free_bytes != self->free_bytes || free_bytes + self->used_bytes != self->segment_bytes)
        return "segments: free and used bytes are not the segments' bytes";
    return self->segment_bytes == self->host->driver->held_bytes ? NULL
                                                                 : "segments: not what the driver holds";
}

static const char *check_empty(void *policy)
{
    segments_t *self = policy;
    seg_block_t *block;
    for (int is_small = 0; is_small < 2; is_small++)
        LIST_FOREACH(block, &self->free[is_small], link)
    if (block->prev || block->next)
        return "segments: an empty segment is not one block";
    return self->used_bytes ? "segments: something is used" : NULL;
}

static void destroy(void *policy)
{
    segments_t *self = policy;
    release_cached(self);
    table_fini(&self->block_at);
    free(self->pending.entries);
    free(self);
}

const policy_ops_t policy_segments = {"segments", create, alloc,       free_block,
                                      complete,   check,  check_empty, destroy};
