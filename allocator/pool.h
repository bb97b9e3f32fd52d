/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - the suballocator of one context: size classes and slabs for small blocks, a best-fit arena for the
 * rest.
 * What:       alloc, free, complete, grow, trim over the chunks of one provider, or over two ranges where it
 *             has them: one for slabs and other small spans, one for what is larger. Plan first, then
 *             commit: whatever can fail happens before the first change of state; free never fails for a
 *             live block and never allocates.
 * Not here:   order points (shim/order.c gives the stamps), when to wait, grow or trim (shim/heap.c).
 * Invariants: cup_pool_check() walks them; footprint >= free + used + limbo + guards, in spans, exactly.
 * Threads:    any thread. Every function takes CUP_LOCK_POOL for a short time and holds no lock in a
 *             provider call.
 */
#ifndef CUP_ALLOCATOR_POOL_H
#define CUP_ALLOCATOR_POOL_H
#include "allocator/provider.h"
#include "allocator/types.h"

typedef struct cup_pool cup_pool_t; /* opaque: only pool.c knows the fields */

typedef struct cup_pool_conf {
    uint64_t dedicated_bytes; /* requests of at least this get a chunk of their own, never split */
    uint64_t redzone_bytes;   /* behind each block so much is handed out to nobody while it is live */
    /* Where the provider has ranges; there dedicated_bytes means nothing: */
    uint64_t range_bytes;  /* addresses to reserve for each of the two ranges, e.g. 4 x the device's memory */
    uint64_t handle_bytes; /* 0: by position (range.h); else this size everywhere, for experiments */
    uint64_t slack_floor_bytes; /* up to this, and up to slack_percent of the peak of live bytes, the pool */
    uint32_t slack_percent;     /* commits new memory; past both it moves what is free first */
    bool is_isolating;          /* each block gets whole handles of CUP_CHUNK_ALIGN, shared with no other */
} cup_pool_conf_t;

/* What can be noted of a live block: bits. */
typedef enum {
    CUP_MARK_NOTE = 1,   /* the caller's own: means nothing here */
    CUP_MARK_PINNED = 2, /* others may reach its memory: in quarantine from its free on */
    CUP_MARK_LENT = 4,   /* likewise, until they have given it back (cup_pool_unmark) */
    CUP_MARK_HOLDS = CUP_MARK_PINNED | CUP_MARK_LENT
} cup_mark_t;

typedef struct cup_block_info {
    cup_pool_t *pool;
    cup_addr_t base;
    uint64_t size_bytes; /* as the program asked for it */
    uint64_t serial;     /* of this allocation: no other of the process has it, before or after; from 1 */
    unsigned marks;      /* cup_mark_t */
    bool is_dedicated;   /* base is the provider's own address */
} cup_block_info_t;

typedef struct cup_pool_stat {
    uint64_t footprint_bytes; /* held from the provider */
    uint64_t footprint_peak_bytes;
    uint64_t live_bytes; /* requested bytes of live blocks */
    uint64_t live_peak_bytes;
    uint64_t live_blocks;
    uint64_t limbo_bytes; /* freed, not complete: in the rounded sizes that they occupy */
    uint64_t limbo_blocks;
    uint64_t quarantined_bytes; /* freed and held: in the rounded sizes that they occupy */
    uint64_t quarantined_blocks;
    uint64_t
        idle_bytes; /* could be handed out now: free spans, cached dedicated chunks, free blocks of slabs */
    uint64_t cached_dedicated_bytes; /* the part of idle that cached dedicated chunks hold */
    uint64_t chunks;
    uint64_t reserves; /* provider calls, ever */
    uint64_t releases;
    uint64_t moves; /* provider calls for handles, ever */
    uint64_t commits;
    uint64_t decommits;
    uint64_t holes_bytes; /* addresses of the ranges that were backed once and are not now */
} cup_pool_stat_t;

/*
 * Creates an empty pool; no provider call. The provider is copied; its self must outlive the pool.
 * Errors: CUP_ERR_NOMEM; CUP_ERR_INVALID for ranges with no size or handles that are no multiple of
 * CUP_CHUNK_ALIGN.
 */
cup_status_t cup_pool_create(const cup_pool_conf_t *conf, const cup_provider_t *provider,
                             cup_pool_t **out_pool);

/*
 * For the end of a context. Forgets every block and chunk without a provider call: their memory died with it.
 * Handles did not: they and the ranges are given back, whatever is in them. The caller guarantees that no work
 * uses them any more, and that no other call on this pool runs or comes.
 */
void cup_pool_destroy(cup_pool_t *pool);

/*
 * The context may be about to end. Hide: from here on the map answers for no chunk of the pool, so that the
 * driver may give the addresses to somebody else, a pool among them. Show: it lives on, and all is as it
 * was. Nothing is done for ranges, whose addresses stay ours until destroy. Both may be repeated. The
 * caller guarantees that no other call on the pool runs or comes in between, but for cup_pool_stat,
 * cup_pool_hides and destroy.
 */
void cup_pool_hide(cup_pool_t *pool);
void cup_pool_show(cup_pool_t *pool);

/* Whether addr lies in a chunk of a hidden pool. */
bool cup_pool_hides(cup_pool_t *pool, cup_addr_t addr);

/*
 * A block of at least size_bytes from what the pool holds free and complete; no provider call. Alignment:
 * 512 bytes always; 4 KiB for small sizes that are a multiple of 4 KiB and for everything above 32 KiB; 64
 * KiB from 64 KiB on; CUP_CHUNK_ALIGN when dedicated. Errors: CUP_ERR_MISS (grow, or complete more),
 * CUP_ERR_NOMEM, CUP_ERR_INVALID (size 0).
 */
cup_status_t cup_pool_alloc(cup_pool_t *pool, uint64_t size_bytes, cup_addr_t *out_addr);

/*
 * As cup_pool_alloc, from a new chunk: one provider call reserves for many requests (2, 8, then 32 MiB by
 * footprint). With is_tight the chunk is as small as this request allows: for when memory is short. Errors:
 * those of the provider, CUP_ERR_NOMEM, CUP_ERR_INVALID (0, or so large that rounding overflows). Over
 * ranges: from what is there, if it fits meanwhile, else with as many handles as the request lacks, new
 * ones or, past the slack and out of memory, moved ones. After an error the footprint is as it was; what
 * had moved is free elsewhere.
 */
cup_status_t cup_pool_grow(cup_pool_t *pool, uint64_t size_bytes, bool is_tight, cup_addr_t *out_addr);

/*
 * Frees the block that starts exactly at addr: it waits in limbo until complete(>= stamp). Never allocates.
 * *out_occupied_bytes (NULL is fine) is its size as rounded. Errors: CUP_ERR_NOT_FOUND (interior, already
 * free, foreign); nothing changed then.
 */
cup_status_t cup_pool_free(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                           uint64_t *out_occupied_bytes);

/*
 * As cup_pool_free, but the block can be handed out at once: the caller sees to it that its next owner's work runs after
 * the last one's (*ordered*). Only its memory is not moved or given back until complete(>= stamp).
 */
cup_status_t cup_pool_free_ordered(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                                   uint64_t *out_occupied_bytes);

/*
 * Marks the live block that starts at addr. One that is held (CUP_MARK_HOLDS) when it is freed goes into
 * quarantine: it is not handed out, moved or given back until nobody holds it. Errors: CUP_ERR_NOT_FOUND.
 */
cup_status_t cup_pool_mark(cup_pool_t *pool, cup_addr_t addr, unsigned marks);

/*
 * Takes marks back, from a live block or one in quarantine. Where no hold is left in quarantine, the block
 * is freed now: it waits in limbo until complete(>= stamp). Never allocates. Errors: CUP_ERR_NOT_FOUND.
 */
cup_status_t cup_pool_unmark(cup_pool_t *pool, cup_addr_t addr, unsigned marks, cup_point_t stamp);

/* The same, but a block that leaves quarantine can be handed out at once (cup_pool_free_ordered). */
cup_status_t cup_pool_unmark_ordered(cup_pool_t *pool, cup_addr_t addr, unsigned marks, cup_point_t stamp);

/* Order points up to completed have completed: their blocks leave limbo, their memory may move. Returns how many blocks
 * left. Monotone in completed. */
uint64_t cup_pool_complete(cup_pool_t *pool, cup_point_t completed);

/* Blocks stamped up to ordered leave limbo as if they had been freed ordered. Returns how many. */
uint64_t cup_pool_order_limbo(cup_pool_t *pool, cup_point_t ordered);

/* Bytes of whole free handles up to this point: what a growth could move if it were complete. 0 without ranges. */
uint64_t cup_pool_movable(cup_pool_t *pool, cup_point_t completed);

/* The oldest stamp in limbo, or 0 when limbo is empty: what a waiting malloc would wait for. */
cup_point_t cup_pool_oldest_stamp(cup_pool_t *pool);

/*
 * Releases wholly free shared chunks and cached dedicated ones, least recently freed first, until at least
 * want_bytes went back or none is left. Complete memory only. Returns the bytes given back. May wait for
 * the GPU (provider). Over ranges: whole free handles, highest address first.
 */
uint64_t cup_pool_trim(cup_pool_t *pool, uint64_t want_bytes);

/*
 * The live block that contains addr, base or interior, in any pool of the process. Never blocks for long.
 * Returns false for everything else.
 */
bool cup_pool_find(cup_addr_t addr, cup_block_info_t *out_info);

/*
 * In a forked child: whether a live block begins there. Where another thread of the parent held the lock,
 * nobody will let it go: then whether the address is a pool's at all.
 */
bool cup_pool_is_inherited(cup_addr_t addr);

/*
 * The pool whose chunk contains addr, live or not; NULL outside all chunks. Lock-free: a few loads. Such an
 * address must never reach the driver as the base of a free. Of a range: all that was ever backed.
 */
cup_pool_t *cup_pool_owner(cup_addr_t addr);

/*
 * The provider's self of a pool. Safe on a pool that was destroyed: the head of a pool is never given back
 * (some hundred bytes a context), so that a free that races with the end of its context reads memory that
 * is still ours.
 */
void *cup_pool_self(const cup_pool_t *pool);

/*
 * The base of one of the pool's chunks, or a backed address of a range, whichever; false when it has none.
 */
bool cup_pool_any_chunk(cup_pool_t *pool, cup_addr_t *out_base);

/*
 * Takes a live dedicated block out of the pool for good, in one step with its chunk: the caller gives the
 * memory back itself. For blocks that left the process (IPC). Errors: CUP_ERR_NOT_FOUND, CUP_ERR_INVALID
 * (not dedicated).
 */
cup_status_t cup_pool_surrender(cup_pool_t *pool, cup_addr_t addr);

/* The same, only for a block that is held: in place of its free, where the caller would rather give the
 * memory back than keep it in quarantine. Errors: likewise; CUP_ERR_INVALID also for a block that is not
 * held. */
cup_status_t cup_pool_surrender_held(cup_pool_t *pool, cup_addr_t addr);

/* What backs an address of a range. It stays while a block that it touches is live or in quarantine. */
typedef struct cup_backed {
    uint64_t handle; /* the provider's */
    cup_addr_t base; /* of the whole handle */
    uint64_t size_bytes;
    cup_addr_t range_base;
    uint64_t range_bytes;
} cup_backed_t;

/* False: addr is in no range of the pool, or nothing backs it. */
bool cup_pool_find_backed(cup_pool_t *pool, cup_addr_t addr, cup_backed_t *out_backed);

void cup_pool_stat(cup_pool_t *pool, cup_pool_stat_t *out_stat);

/* Walks everything and returns the first broken invariant as text, or NULL. (check.c) */
const char *cup_pool_check(cup_pool_t *pool);

/*
 * The first chunk that is not exactly one free span (beside its guard), or range in which a span is neither
 * free nor a hole, as text, or NULL: the law of an empty pool.
 */
const char *cup_pool_check_empty(cup_pool_t *pool);

#endif /* CUP_ALLOCATOR_POOL_H */
