/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider - the small interface through which the allocator gets and gives back device memory.
 * What:       an ops table; the shim implements it over the driver, tests over plain numbers.
 * Not here:   when to ask for more or give back (pool.c composes, shim/heap.c decides).
 * Threads:    any thread; the allocator never holds a lock across these calls.
 */
#ifndef CUP_ALLOCATOR_PROVIDER_H
#define CUP_ALLOCATOR_PROVIDER_H
#include "allocator/types.h"

/* Every reservation starts and ends on a multiple of this, so that two chunks never share a page of the span
 * map. */
#define CUP_CHUNK_ALIGN (2 * CUP_MIB)

typedef struct cup_provider {
    /*
     * Reserves size_bytes (a multiple of CUP_CHUNK_ALIGN) at a base aligned to CUP_CHUNK_ALIGN. Must not wait
     * for the GPU. Errors: CUP_ERR_OOM, CUP_ERR_DRIVER; nothing is held then.
     */
    cup_status_t (*reserve)(void *self, uint64_t size_bytes, cup_addr_t *out_base);
    /* Gives one whole reservation back. May wait for the GPU. Never fails from the allocator's view. */
    void (*release)(void *self, cup_addr_t base, uint64_t size_bytes);
    void *self;
} cup_provider_t;

#endif /* CUP_ALLOCATOR_PROVIDER_H */
