/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - the order points of one context: what a free leaves behind, and who must come after it.
 * What:       numbered points. A free marks; the next submission closes a point (an event that completes when all work
 *             submitted before it has) and passes it, so that work submitted after the free runs after the work before
 *             it, on the device. The points are the clock, too: polls tell up to which number everything is complete.
 * Not here:   the blocks (allocator/pool.h), which calls submit (submit_list.h), streams and threads (stream.h).
 * Invariants: completed <= point < open, each monotone, also from one context of a slot to the next. A block stamped with
 *             n is *ordered* as soon as it is marked, and *complete* when completed >= n.
 * Threads:    any thread. Marking takes no lock; closing takes CUP_LOCK_ORDER and records under it, which does not block.
 */
#ifndef CUP_SHIM_ORDER_H
#define CUP_SHIM_ORDER_H
#include "allocator/types.h"
#include "shim/cuda_abi.h"
#include "shim/stream.h"

typedef struct cup_order cup_order_t; /* opaque: only order.c knows the fields */

/* What a free means: the words of CUPOLA_FREE, in their order. Under the last two submissions are not followed. */
typedef enum { CUP_ORDER_EXACT, CUP_ORDER_OVERLAP, CUP_ORDER_DEFERRED, CUP_ORDER_SYNC } cup_order_mode_t;

/* ---- contexts ---- */

/* The context must be current (events are made there). NULL: no host memory, or CUP_ORDERS_MAX live ones. */
cup_order_t *cup_order_create(CUcontext ctx, cup_order_mode_t mode);

/*
 * Around each call that may end contexts, with a pool or not: while it runs, and after it, the handles of their streams may
 * come back as others'.
 */
void cup_order_begin_endings(void);
void cup_order_finish_endings(void);

/*
 * The context may be about to end: waits on the host for what its frees had waited for; from then on nobody names its
 * handles. Then either it has ended, or it goes on.
 */
void cup_order_ending(cup_order_t *order);
void cup_order_go_on(cup_order_t *order);

/* The context has ended. The struct stays. */
void cup_order_end(cup_order_t *order);

/*
 * Of a context, a green one's being its primary's; of the current one, but NULL where that is green: its
 * null stream is another one than its primary's, and has no entry. NULL without.
 */
cup_order_t *cup_order_of(CUcontext ctx);
cup_order_t *cup_order_current(void);

/* Counts up whenever an order comes or goes, or streams may have. */
uint64_t cup_order_generation(void);

/* Whether what is found out about a stream's handle stays true until the generation changes. */
bool cup_order_is_steady(void);

/* Whether any context follows its submissions: one load. */
bool cup_order_is_followed(void);

int cup_order_slot(const cup_order_t *order);
cup_stream_t *cup_order_legacy(cup_order_t *order);

/* Whether the driver gave us this address for the order's own use. */
bool cup_order_holds(cup_addr_t addr);

/* ---- free ---- */

/*
 * The stamp for a block that is freed now, before it becomes free for others: it must wait until that number is complete.
 * Never fails, takes no lock.
 */
cup_point_t cup_order_stamp(cup_order_t *order);

/*
 * Likewise, and true: the block may be handed out at once, because later submissions run after the free. No driver call, no
 * lock; but beside a capture, where it is not known which streams are busy, it waits on the host, as the driver's own
 * free. False: the driver has refused that; the block must wait.
 */
bool cup_order_stamp_ordered(cup_order_t *order, cup_point_t *out_stamp);

/*
 * A block of size_bytes was freed without a mark: closes the point once enough was, or at once if is_due.
 * Under `sync` and beside a capture, where no point can be closed, it waits for everything submitted.
 * Errors: the driver's code.
 */
CUresult cup_order_freed(cup_order_t *order, uint64_t size_bytes, bool is_due);

/*
 * Waits on the host for what asynchronous copies, host functions and graphs that were submitted before do to host memory:
 * natively a free had waited for them. Mostly one load. Errors: the driver's code.
 */
CUresult cup_order_pay_host(cup_order_t *order);

/* Managed memory is there, from now on; a free then waits for everything, because the CPU may look without a call. */
void cup_order_note_managed(void);
void cup_order_pay_managed(cup_order_t *order);

/* ---- submissions (submit.c) ---- */

/*
 * Closes the points that frees have marked, and makes later work of the stream run after the newest ones: of every context
 * with a pool, because a peer's memory is used from here, too.
 */
void cup_order_pass_all(cup_stream_t *stream, cup_thread_t *self);

/* Notes that work goes to the stream; to any stream of any other context. */
void cup_order_note_busy(cup_stream_t *stream);
void cup_order_note_others_busy(cup_stream_t *stream);
void cup_order_note_all_busy(void);

/*
 * The same, and for good: a call is under way that nobody can see submit (it holds no call word). From now on points cover
 * whole contexts, whatever is known to be busy.
 */
void cup_order_distrust_all(void);

/* Looks at each stream that is known to be busy (idle.h); room for CUP_STREAM_SET_MAX. Returns how many. */
int cup_order_look_at_busy(cup_order_t *order, const cup_thread_t *self, struct cup_idle *out_idle);

/*
 * An event behind the work on a stream on which others can't record later: this thread's own, which only it can name, or
 * one that is about to be captured. Needed while a capture is in progress, and where the driver records on no context.
 */
bool cup_order_needs_tail(const cup_stream_t *stream);
void cup_order_note_tail(cup_stream_t *stream, const cup_thread_t *self);

/* An operation that touches host memory was submitted to the stream. */
void cup_order_note_host(cup_stream_t *stream);

/* Something else is about to be put behind such operations. */
void cup_order_seal_host(cup_stream_t *stream);

/*
 * Waits on the host until all that was freed is complete, in every context, as the native frees had. For calls that
 * notice, or that submit who knows where. False: there was nothing to wait for.
 */
bool cup_order_settle_all(void);
bool cup_order_settle(cup_order_t *order);

/* A stream's handle is about to be destroyed; a thread with a per-thread stream has ended. */
void cup_order_stream_ends(cup_stream_t *stream);

/* ---- the clock ---- */

/*
 * Closes the open point, if a block was stamped with it or is_due, without a submission: it may cover work that was submitted after
 * the free (loose). Errors: the driver's code; CUDA_SUCCESS when a capture is in the way: the point stays open.
 */
CUresult cup_order_close(cup_order_t *order, bool is_due);

/* Whether all that was submitted, as far as it is known, is known to be complete. No driver call. */
bool cup_order_is_quiet(cup_order_t *order);

/* Finds the newest complete point: a few event queries, never a wait. Errors: the driver's code. */
CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed);

/*
 * Waits on the host until point is complete: as long as it takes for a tight one, LOOSE_WAIT_MS at most for a loose one
 * (a kernel that it covers may be waiting for something that this thread does next). A point that is still open is not
 * waited for. Holds no lock meanwhile. Errors: the driver's code, or CUDA_ERROR_NOT_READY.
 */
CUresult cup_order_wait(cup_order_t *order, cup_point_t point);

/* The newest closed point; 0 before the first. */
cup_point_t cup_order_newest(cup_order_t *order);

/* ---- overlap ---- */

/*
 * Blocks stamped up to the number that is returned may be handed out although they are not complete: submissions from now
 * on run after their last work. Closed points that a native free would have waited for as well, no others.
 */
cup_point_t cup_order_hand_out(cup_order_t *order);

/* ---- captures ---- */

/* While a capture is in progress: work that is on the stream now is closed off, because the stream may be captured next. */
void cup_order_before_join(cup_stream_t *stream, cup_thread_t *self);

/* ---- captures (capture.c), under its lock ---- */

/* A capture is about to begin: closes the open point, then keeps context records off. */
void cup_order_capture_begins(void);
void cup_order_capture_ended(void);

#endif /* CUP_SHIM_ORDER_H */
