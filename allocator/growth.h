/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth - one growth of a range, or one trim: planned under the lock, carried out without it, settled under
 * it.
 * What:       a window that is to be backed, sources whose handles move into it or go back, the provider
 *             calls. Between plan and settle every span concerned is BUSY: nobody else sees it.
 * Not here:   which range, how much may be held, the serving of the request (pool.c).
 * Invariants: only complete (FREE) memory is moved or given back. Settling cannot fail. After a failure the
 *             handles committed here are gone again; those that moved stay where they are, as free memory.
 * Threads:    a growth is one thread's; functions named _locked need the pool's lock, the others must not
 *             have it.
 */
#ifndef CUP_ALLOCATOR_GROWTH_H
#define CUP_ALLOCATOR_GROWTH_H
#include "allocator/provider.h"
#include "allocator/range.h"

typedef struct cup_growth {
    cup_range_t *range;
    cup_site_t site;
    cup_span_t *first, *last;             /* the window, BUSY; NULL: a trim */
    cup_span_t *source[CUP_HANDLE_ZONES]; /* BUSY, linked by tree[0] */
    cup_span_t *giver[CUP_HANDLE_ZONES];  /* the source whose handles are next, from giver_end downwards */
    cup_addr_t giver_end[CUP_HANDLE_ZONES];
    uint64_t missing[CUP_HANDLE_ZONES];  /* places of the window without a handle yet */
    uint64_t borrowed[CUP_HANDLE_ZONES]; /* handles that the sources can still give */
    cup_stock_t spans;                   /* for settling */
    uint64_t planned_bytes;              /* to be committed, when the plan was made: pool.c's account */
    uint64_t commits, moves, decommits;  /* provider calls */
} cup_growth_t;

/* Storage is the caller's. Fills the stock that settling may need. Errors: CUP_ERR_NOMEM. */
cup_status_t cup_growth_init(cup_growth_t *growth, cup_range_t *range);
void cup_growth_fini(cup_growth_t *growth);

/*
 * Chooses the window for a request and takes it out of use. Takes CUP_RANGE_WINDOW_SPANS from the stock.
 * Errors: CUP_ERR_OOM, the range is too small; nothing changed then.
 */
cup_status_t cup_growth_plan_locked(cup_growth_t *growth, uint64_t size_bytes, uint64_t align,
                                    cup_stock_t *spans);

/*
 * Takes whole free handles out of use, as sources for up to so many bytes of what the window lacks. Fewer
 * when there are no more, or no host memory. Returns true when there is a source for that much.
 */
bool cup_growth_borrow_locked(cup_growth_t *growth, uint64_t want_bytes, cup_stock_t *spans);

/*
 * Takes whole free handles that go back: highest address first, until want_bytes. Returns how many bytes.
 */
uint64_t cup_growth_doom_locked(cup_growth_t *growth, uint64_t want_bytes, cup_stock_t *spans);

/*
 * New handles for what no source is there for. Errors: those of the provider; CUP_ERR_OOM may be followed
 * by borrowing the rest.
 */
cup_status_t cup_growth_commit(cup_growth_t *growth, const cup_provider_t *provider);

/* Nodes of the map for the window, then the moves. Errors: CUP_ERR_NOMEM, those of the provider. */
cup_status_t cup_growth_move(cup_growth_t *growth, const cup_provider_t *provider);

/* After an error: what was committed here goes back. */
void cup_growth_undo(cup_growth_t *growth, const cup_provider_t *provider);

/* The trim's calls. */
void cup_growth_decommit(cup_growth_t *growth, const cup_provider_t *provider);

/* Every span that was taken out of use is FREE or HOLE again, as its handles say. */
void cup_growth_settle_locked(cup_growth_t *growth);

static inline bool cup_growth_has_sources(const cup_growth_t *growth)
{
    uint64_t count = 0;
    for (size_t i = 0; i < growth->range->zones; i++)
        count += growth->borrowed[i];
    return count > 0;
}

static inline uint64_t cup_growth_missing_bytes(const cup_growth_t *growth)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < growth->range->zones; i++)
        bytes += (growth->missing[i] - growth->borrowed[i]) * growth->range->zone[i].handle_bytes;
    return bytes;
}

#endif /* CUP_ALLOCATOR_GROWTH_H */
