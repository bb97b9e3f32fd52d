/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap - what belongs to one context: its pool, its order points, its provider; and the decisions between
 * them.
 * What:       alloc: what is free and complete; else what the GPU has finished meanwhile; else a short wait
 *             when far more is held than needed; else growth; out of memory, everything that can be given
 *             back first. free: an order point, then limbo.
 * Not here:   finding the heap (registry.h), the program's arguments and codes (route.c).
 * Invariants: a block is handed out only once all work submitted to its context before its free is known
 *             complete.
 * Threads:    any thread between cup_heap_enter and cup_heap_leave. No lock is held over a call that can
 *             block.
 */
#ifndef CUP_SHIM_HEAP_H
#define CUP_SHIM_HEAP_H
#include "allocator/pool.h"
#include "shim/cuda_abi.h"

typedef struct cup_heap cup_heap_t; /* opaque: only heap.c knows the fields */

/* For the current context, which must be ctx. NULL: none can be had, stand aside. The struct is never given
 * back. */
cup_heap_t *cup_heap_create(CUcontext ctx, bool is_pinnable);

CUcontext cup_heap_ctx(const cup_heap_t *heap);
int cup_heap_device(const cup_heap_t *heap);

/* Its memory can be reached by the devices that have been given access to it, as the driver's own (peer.h).
 * Errors: the driver's code. */
CUresult cup_heap_follow_peers(cup_heap_t *heap);

/*
 * Whether a copy by this device can name its memory; if not, the Peer form must. The driver's own memory:
 * always.
 */
bool cup_heap_is_near(const cup_heap_t *heap, int device);

/* A use of the heap; false when its context has ended, or may be ending. */
bool cup_heap_enter(cup_heap_t *heap);
void cup_heap_leave(cup_heap_t *heap);

/*
 * A call is about to be made that may end the context. Settle: what its frees had waited for natively is complete, and other
 * contexts' submissions leave its handles alone; not under the registry's lock. Doubt: no use begins from now on (cup_heap_enter
 * says no). Hide: once the uses that are under way are over, takes the chunks' addresses out of the span
 * map, because the driver may give them to another context before the call has returned; false: not yet.
 * Trust: the context lives on, and so does the heap, as it was; when several calls were in doubt, after the
 * last one. These three under the registry's lock.
 */
void cup_heap_settle(cup_heap_t *heap);
void cup_heap_doubt(cup_heap_t *heap);
bool cup_heap_try_hide(cup_heap_t *heap);
void cup_heap_trust(cup_heap_t *heap);

/* Whether addr lies in a chunk that was taken out of the span map. */
bool cup_heap_hides(cup_heap_t *heap, cup_addr_t addr);

/* The context has ended and its memory with it: no use begins from now on, and the last one running forgets
 * the pool. */
void cup_heap_end(cup_heap_t *heap);
bool cup_heap_has_ended(const cup_heap_t *heap);

/* Whether the context is not there any more, or is another one at the same address. */
bool cup_heap_is_lost(cup_heap_t *heap);

/*
 * Asks the driver whether the context, which is current, has an asynchronous error: from then on it is the
 * driver that answers. False also where the heap had been left alone before.
 */
bool cup_heap_is_sound(cup_heap_t *heap);

/*
 * A block from what is there, without any driver call. False: not now.
 */
bool cup_heap_alloc_quick(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr);

/* A block by every means; the heap's context is current. False: let the driver answer. */
bool cup_heap_alloc(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr);

/*
 * Frees the block at addr, which lies in a chunk of this heap. Returns what the driver would have answered. is_async: waits
 * for nothing, and nothing is ordered behind it; the block waits until it is complete.
 */
CUresult cup_heap_free(cup_heap_t *heap, cup_addr_t addr, bool is_async);

/* Completes what is complete and gives idle memory back until want_bytes went. Returns the bytes given back.
 */
uint64_t cup_heap_trim(cup_heap_t *heap, uint64_t want_bytes);

/* Takes a dedicated block out of the pool: from now on it is the driver's alone. False: it is not dedicated.
 */
bool cup_heap_surrender(cup_heap_t *heap, cup_addr_t addr);

/*
 * The pool's marks (cup_pool_mark, cup_pool_unmark); what leaves quarantine is freed now. A block that is a
 * whole driver allocation has no quarantine: its free is the driver's own.
 */
void cup_heap_mark(cup_heap_t *heap, cup_addr_t addr, unsigned marks);
void cup_heap_unmark(cup_heap_t *heap, cup_addr_t addr, unsigned marks);

/* Whether its memory is mapped by us (vmm) rather than allocated by the driver (raw). */
bool cup_heap_is_vmm(const cup_heap_t *heap);

/*
 * An allocation of the driver's own in this context, made at the first call and kept: what the driver says
 * of it, it would natively say of a block. 0: there is no memory for it.
 */
CUdeviceptr cup_heap_witness(cup_heap_t *heap);

void cup_heap_stat(cup_heap_t *heap, cup_pool_stat_t *out_stat);

#endif /* CUP_SHIM_HEAP_H */
