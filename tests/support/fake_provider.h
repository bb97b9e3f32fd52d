/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_provider - a provider over plain numbers.
 * What:       hands out address ranges that nothing backs, takes them back and hands the same out again;
 *             counts, runs out of memory, fails the Nth call. A release that does not match a reservation is
 *             counted as a fault.
 * Threads:    any thread. The fields for the test's own use are read and written while nobody else calls.
 */
#ifndef CUP_TESTS_FAKE_PROVIDER_H
#define CUP_TESTS_FAKE_PROVIDER_H
#include <pthread.h>

#include "allocator/provider.h"

#define CUP_FAKE_RANGES_MAX 4096

typedef struct cup_fake_range {
    cup_addr_t base;
    uint64_t size_bytes;
    bool is_held;
} cup_fake_range_t;

typedef struct cup_fake_provider {
    pthread_mutex_t mutex;
    cup_fake_range_t range[CUP_FAKE_RANGES_MAX];
    size_t ranges;
    uint64_t limit_bytes; /* out of memory beyond this */
    uint64_t fail_nth;    /* the Nth reserve from now on fails with CUP_ERR_DRIVER; 0: none */
    uint64_t held_bytes, held_ranges;
    uint64_t reserves, releases, faults;
    void (*on_call)(void *argument); /* during each call, holding nothing of ours */
    void *on_call_argument;
} cup_fake_provider_t;

void cup_fake_init(cup_fake_provider_t *fake, uint64_t limit_bytes);
cup_provider_t cup_fake_ops(cup_fake_provider_t *fake);

/* For memory that left a pool by surrender: the test gives it back itself. */
void cup_fake_release(cup_fake_provider_t *fake, cup_addr_t base, uint64_t size_bytes);

#endif /* CUP_TESTS_FAKE_PROVIDER_H */
