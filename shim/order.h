/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - the clock of one context: numbered order points that tell when freed memory is complete.
 * What:       a free closes a point: an event that completes when all work submitted to the context before
 *             it has run. Blocks carry the number of their point; a poll tells up to which number everything
 *             is complete.
 * Not here:   the blocks (allocator/limbo.c), what to do about memory that is not complete (heap.c).
 * Invariants: completed <= recorded; completed is monotone. A point covers only work submitted before the
 *             free that closed it, unless the ring was full (then: before a later free), so nobody waits for
 *             more than the driver's own free would have waited for.
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

/*
 * Closes a point for a free that is under way: what is submitted before this call is covered by *out_stamp.
 * While a capture is in progress nothing may be recorded: the stamp is then the point that the next close or
 * poll records. Errors: the driver's code; nothing is stamped then. Never waits for the GPU, except where the
 * driver can't record on a context (before 12.5): there it synchronises, as the driver's own free.
 */
CUresult cup_order_close(cup_order_t *order, cup_point_t *out_stamp);

/* The newest complete point. Asks the driver (a few event queries), never waits. Errors: the driver's code.
 */
CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed);

/*
 * Waits on the host until point is complete; a point that can't be recorded now (a capture is in progress) is
 * not waited for. Holds no lock meanwhile. Errors: the driver's code.
 */
CUresult cup_order_wait(cup_order_t *order, cup_point_t point);

#endif /* CUP_SHIM_ORDER_H */
