/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta - host memory for bookkeeping; the one place where metadata meets jemalloc.
 * What:       a private jemalloc arena, never the program's malloc: no re-entrancy into its hooks, exact
 *             accounting. Under AddressSanitizer and ThreadSanitizer the sanitizer's malloc, so that they
 *             see our mistakes.
 * Not here:   device memory (provider.h).
 * Threads:    any thread. Never called in a forked child: jemalloc's locks may be held there (the gate sees
 *             to it).
 */
#ifndef CUP_ALLOCATOR_META_H
#define CUP_ALLOCATOR_META_H
#include "allocator/types.h"

/* Zeroed memory, 16-byte aligned; NULL when there is none. Leaves errno alone. The caller owns it. */
void *cup_meta_alloc(size_t size_bytes);

/* Gives back what cup_meta_alloc returned for the same size_bytes; NULL is fine. Leaves errno alone. */
void cup_meta_free(void *memory, size_t size_bytes);

/* Bytes handed out now, as asked for. */
uint64_t cup_meta_live_bytes(void);

/* Bytes that the backing allocator accounts to our arena (>= live); live bytes where it keeps no account. */
uint64_t cup_meta_held_bytes(void);

#ifdef CUP_TESTING
/* The Nth cup_meta_alloc from now on returns NULL, once; 0 turns it off. */
void cup_meta_fail_nth(uint64_t nth);
#endif

#endif /* CUP_ALLOCATOR_META_H */
