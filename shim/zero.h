/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero - CUPOLA_ZERO: what the pool hands out reads as zeros.
 * What:       one stream for each context on which blocks are set, and the event behind the last set. Later
 *             work of the program, on any stream of any context, runs after the sets that are under way, on
 *             the device.
 * Not here:   that a set comes after whoever had the block before: it is a submission like the program's
 *             (heap.c, order.h).
 * Why not as a free: an order point would make later work run after everything that is in flight, too, and
 *                    a kernel in flight may wait for that work. An event behind the sets alone waits for no
 *                    more than the frees before them.
 * Invariants: open is not 0 from before a block is handed out until its set is known complete.
 * Threads:    any thread, no lock. Nothing here is ever given back (registry.h).
 */
#ifndef CUP_SHIM_ZERO_H
#define CUP_SHIM_ZERO_H
#include "allocator/types.h"
#include "shim/cuda_abi.h"
#include "shim/stream.h"

typedef struct cup_zero {
    struct cup_zero *next; /* in the list of all */
    CUstream stream;       /* NULL: blocks are not set here */
    CUevent event;
    _Atomic uint64_t open; /* a number of the newest set that may be under way, or 0 */
    _Atomic bool has_ended;
} cup_zero_t;

/* How many there are: one load tells a process without the option. */
extern _Atomic unsigned cup_zero_count;

/* For a context, whichever is current; the struct must stay. Errors: the driver's; nothing is held then. */
CUresult cup_zero_init(cup_zero_t *zero, CUcontext ctx);

/* The context has ended, or is about to. */
void cup_zero_end(cup_zero_t *zero);

static inline bool cup_zero_is_on(const cup_zero_t *zero)
{
    return zero->stream != NULL;
}

/*
 * Sets the block, in a submission to zero->stream that the caller has begun. It is set when this returns,
 * unless is_ordered: then later submissions see to it. Errors: the driver's; the set may be under way, no
 * later submission waits for it.
 */
CUresult cup_zero_set(cup_zero_t *zero, cup_addr_t addr, uint64_t size_bytes, bool is_ordered);

/* Slow halves of what follows. */
void cup_zero_pass_slow(cup_stream_t *stream);
bool cup_zero_settle_slow(void);

/* A submission to the stream: it runs after the sets that are under way. */
static inline void cup_zero_pass(cup_stream_t *stream)
{
    if (atomic_load_explicit(&cup_zero_count, memory_order_relaxed) > 0)
        cup_zero_pass_slow(stream);
}

/* Somebody may look at blocks without a stream: waits on the host for the sets. False: nothing was open. */
static inline bool cup_zero_settle(void)
{
    return atomic_load_explicit(&cup_zero_count, memory_order_relaxed) > 0 && cup_zero_settle_slow();
}

#endif /* CUP_SHIM_ZERO_H */
