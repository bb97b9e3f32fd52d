/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider - the small interface through which the allocator gets and gives back device memory.
 * What:       an ops table; the shim implements it over the driver, tests over plain numbers. Chunks
 *             (reserve, release) are always there; ranges and handles only where the provider can place
 *             memory at an address of our choice.
 * Not here:   when to ask for more or give back (pool.c composes, shim/heap.c decides).
 * Threads:    any thread; the allocator never holds a lock across these calls.
 */
#ifndef CUP_ALLOCATOR_PROVIDER_H
#define CUP_ALLOCATOR_PROVIDER_H
#include "allocator/types.h"

/*
 * Every reservation starts and ends on a multiple of this, so that two chunks never share a page of the
 * span map.
 */
#define CUP_CHUNK_ALIGN (2 * CUP_MIB)

typedef struct cup_provider {
    /*
     * Reserves size_bytes (a multiple of CUP_CHUNK_ALIGN) at a base aligned to CUP_CHUNK_ALIGN. Must not
     * wait for the GPU. Errors: CUP_ERR_OOM, CUP_ERR_DRIVER; nothing is held then.
     */
    cup_status_t (*reserve)(void *self, uint64_t size_bytes, cup_addr_t *out_base);
    /* Gives one whole reservation back. May wait for the GPU. Never fails from the allocator's view. */
    void (*release)(void *self, cup_addr_t base, uint64_t size_bytes);
    void *self;
    /*
     * The next five are all there or all NULL. Sizes are multiples of CUP_CHUNK_ALIGN; none waits for the
     * GPU.
     *
     * Addresses only, aligned to 32 MiB or more. Errors: CUP_ERR_OOM, CUP_ERR_DRIVER.
     */
    cup_status_t (*range_reserve)(void *self, uint64_t size_bytes, cup_addr_t *out_base);
    /* The whole range, of which nothing is backed. */
    void (*range_release)(void *self, cup_addr_t base, uint64_t size_bytes);
    /* One handle of exactly size_bytes, mapped at addr and accessible. On an error nothing is held. */
    cup_status_t (*commit)(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t *out_handle);
    /* Unmapped and given back: one whole handle, complete memory only. Never fails from our view. */
    void (*decommit)(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t handle);
    /*
     * Unmapped at from, mapped and accessible at to: one whole handle, complete memory only. On an error it
     * is as it was, at from.
     */
    cup_status_t (*move)(void *self, cup_addr_t from, cup_addr_t to, uint64_t size_bytes, uint64_t handle);
    /*
     * May be NULL, for yes. Asked before each plan, while the pool lives: false, when others may have pinned
     * pages, and what was handed out once is neither moved nor given back.
     */
    bool (*may_move)(void *self);
} cup_provider_t;

#endif /* CUP_ALLOCATOR_PROVIDER_H */
