/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry - contexts and their heaps, from the first allocation in a context to its end.
 * What:       context -> heap (a new one on demand), address -> heap, and the sum over all.
 * Not here:   what a heap does.
 * Invariants: one live heap per context; a context that ended and one that came after it at the same address
 *             are two.
 * Threads:    any thread. Every heap that comes out has been entered; the caller leaves it (heap.h).
 */
#ifndef CUP_SHIM_REGISTRY_H
#define CUP_SHIM_REGISTRY_H
#include "shim/heap.h"

/* The heap of the current context, made if may_create. NULL: no context, none can be had, or the table is
 * full. */
cup_heap_t *cup_registry_acquire_current(bool may_create);

/*
 * After a call of the program's that failed: where the current context has an asynchronous error its heap
 * learns of it, too (cup_heap_is_sound), so that what comes next is answered as natively. Asks the driver.
 */
void cup_registry_doubt_current(void);

/* The heap whose chunk holds addr; NULL for the driver's own memory. Lock-free, unless its context may be
 * ending: then it waits for that call. */
cup_heap_t *cup_registry_acquire_owner(cup_addr_t addr);

/* A call that may end a context, from before it until after it; the caller's storage. */
typedef struct cup_ending {
    struct cup_ending *next;
    CUcontext ctx; /* NULL: the primary one of the device, whichever that is */
    int device;
} cup_ending_t;

/*
 * Before the call: its heaps take nothing and give nothing until it has returned. Waits for their users, a
 * second at most.
 */
void cup_registry_begin_end(cup_ending_t *ending);

/* After it: with has_ended the heap of ctx ends; else each one whose context is gone. The others go on. */
void cup_registry_finish_end(cup_ending_t *ending, bool has_ended);

/* After a call that was not thought to end a context: heaps of the device whose context is gone end. */
void cup_registry_end_lost(int device);

/* Each heap, or that of ctx alone, sees to it that its peers reach its memory (peer.h). The first error; no
 * heap is left out for it. One whose context may be ending follows once that is decided. */
CUresult cup_registry_follow_peers(CUcontext ctx);

#define CUP_REGISTRY_ANY_DEVICE (-1)

/*
 * Idle memory of every heap on the device goes back until want_bytes went; waits for what their frees had waited for. Returns
 * how much went.
 */
uint64_t cup_registry_trim(int device, uint64_t want_bytes);

/* Bytes on the device that the program has freed and we still hold: free memory, as it would see it natively.
 */
uint64_t cup_registry_reusable_bytes(int device);

/* The sum over all heaps, ended ones included. No driver call. */
void cup_registry_stat(cup_pool_stat_t *out_sum);

#endif /* CUP_SHIM_REGISTRY_H */
