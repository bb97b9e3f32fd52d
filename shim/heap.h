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
cup_heap_t *cup_heap_create(CUcontext ctx);

CUcontext cup_heap_ctx(const cup_heap_t *heap);
int cup_heap_device(const cup_heap_t *heap);

/* A use of the heap; false when its context has ended. */
bool cup_heap_enter(cup_heap_t *heap);
void cup_heap_leave(cup_heap_t *heap);

/* The context has ended and its memory with it: no use begins from now on, and the last one running forgets
 * the pool. */
void cup_heap_end(cup_heap_t *heap);

/* Whether the driver still knows memory of ours: false once the context was reset under us, or if we hold
 * none. */
bool cup_heap_has_memory(cup_heap_t *heap);

/*
 * A block from what is there, without any driver call. False: not now.
 */
bool cup_heap_alloc_quick(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr);

/* A block by every means; the heap's context is current. False: let the driver answer. */
bool cup_heap_alloc(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr);

/* Frees the block at addr, which lies in a chunk of this heap. Returns what the driver would have answered.
 */
CUresult cup_heap_free(cup_heap_t *heap, cup_addr_t addr);

/* Completes what is complete and gives idle memory back until want_bytes went. Returns the bytes given back.
 */
uint64_t cup_heap_trim(cup_heap_t *heap, uint64_t want_bytes);

/* Takes a dedicated block out of the pool: from now on it is the driver's alone. False: it is not dedicated.
 */
bool cup_heap_surrender(cup_heap_t *heap, cup_addr_t addr);

void cup_heap_stat(cup_heap_t *heap, cup_pool_stat_t *out_stat);

#endif /* CUP_SHIM_HEAP_H */
