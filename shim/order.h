/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - the clock of one context: numbered order points that tell when freed memory is complete.
 * What:       a freed block is stamped with the number of the point that is open. A point closes as an event that
 *             completes when all work submitted to the context before it has run; a poll tells up to which number
 *             everything is complete. Frees close points in batches, polls close what is left over.
 * Not here:   the blocks (allocator/limbo.c), what to do about memory that is not complete (heap.c).
 * Invariants: completed <= recorded < open; completed is monotone. What was submitted before a free is covered by
 *             its stamp's point. A point that a free closed is *tight*: in a program of one thread it covers nothing
 *             that the driver's own frees would not have waited for. One that a poll closed is loose.
 * Threads:    any thread; takes CUP_LOCK_ORDER, and holds it over records and queries, which don't block.
 */
#ifndef CUP_SHIM_ORDER_H
#define CUP_SHIM_ORDER_H
#include "allocator/types.h"
#include "shim/cuda_abi.h"

typedef struct cup_order cup_order_t; /* opaque: only order.c knows the fields */

/* The context must be current (events are made there). NULL when there is no host memory. Never freed
 * (registry.h). */
cup_order_t *cup_order_create(CUcontext ctx);

/* The stamp for a block that is freed now: read it before the block becomes free for others. Never fails. */
cup_point_t cup_order_open(cup_order_t *order);

/*
 * A block of size_bytes was freed with the open stamp. Closes the point once enough was freed since the last one, or at
 * once if is_due. While a capture is in progress nothing may be recorded: the point then stays open. Never waits for
 * the GPU, except where the driver can't record on a context (before 12.5): there a close synchronises, as the driver's
 * own free. Errors: the driver's code; the point stays open.
 */
CUresult cup_order_freed(cup_order_t *order, uint64_t size_bytes, bool is_due);

/*
 * Closes the open point if a free is waiting for it, and finds the newest complete one: a few event queries, never a wait.
 * Errors: the driver's code.
 */
CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed);

/*
 * Waits on the host until point is complete: as long as it takes for a tight one, LOOSE_WAIT_MS at most for a loose one
 * (a kernel that it covers may be waiting for something that this thread does next). A point that is still open is not
 * waited for. Holds no lock meanwhile. Errors: the driver's code, or CUDA_ERROR_NOT_READY.
 */
CUresult cup_order_wait(cup_order_t *order, cup_point_t point);

#endif /* CUP_SHIM_ORDER_H */
