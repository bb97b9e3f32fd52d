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

/* The heap whose chunk holds addr; NULL for the driver's own memory. Lock-free. */
cup_heap_t *cup_registry_acquire_owner(cup_addr_t addr);

/* ctx was destroyed. */
void cup_registry_end_context(CUcontext ctx);

/* The primary context of a device was released or reset: heaps whose memory is gone end. */
void cup_registry_end_lost(int device);

/* Idle memory of every heap on the device goes back until want_bytes went. */
uint64_t cup_registry_trim(int device, uint64_t want_bytes);

/* Bytes on the device that the program has freed and we still hold: free memory, as it would see it natively.
 */
uint64_t cup_registry_reusable_bytes(int device);

/* The sum over all heaps, ended ones included. No driver call. */
void cup_registry_stat(cup_pool_stat_t *out_sum);

#endif /* CUP_SHIM_REGISTRY_H */
