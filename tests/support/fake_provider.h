/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_provider - a provider over plain numbers.
 * What:       hands out chunks that nothing backs, takes them back and hands the same out again; or ranges,
 *             with handles that are mapped, moved and unmapped in them. Counts, runs out of memory, fails
 *             the Nth call. A call that breaks the contract is counted as a fault: a release that matches no
 *             reservation, a handle mapped over another or outside a range, a part of one, an unknown one.
 * Threads:    any thread. The fields for the test's own use are read and written while nobody else calls.
 */
#ifndef CUP_TESTS_FAKE_PROVIDER_H
#define CUP_TESTS_FAKE_PROVIDER_H
#include <pthread.h>

#include "allocator/provider.h"

#define CUP_FAKE_RANGES_MAX  4096
#define CUP_FAKE_HANDLES_MAX 8192

typedef struct cup_fake_range {
    cup_addr_t base;
    uint64_t size_bytes;
    bool is_addresses; /* of range_reserve */
    bool is_held;
} cup_fake_range_t;

typedef struct cup_fake_handle {
    cup_addr_t addr;
    uint64_t size_bytes;
    uint64_t id;
} cup_fake_handle_t;

typedef struct cup_fake_provider {
    pthread_mutex_t mutex;
    cup_fake_range_t range[CUP_FAKE_RANGES_MAX];
    size_t ranges;
    cup_fake_handle_t handle[CUP_FAKE_HANDLES_MAX]; /* those that are mapped, in no order */
    size_t handles;
    uint64_t last_id;
    uint64_t limit_bytes;    /* out of memory beyond this */
    uint64_t fail_nth;       /* the Nth call that can fail from now on does, with CUP_ERR_DRIVER; 0: none */
    uint64_t held_bytes;     /* memory: chunks or handles */
    uint64_t held_ranges;    /* chunks */
    uint64_t held_addresses; /* ranges */
    uint64_t reserves, releases; /* of chunks and ranges */
    uint64_t commits, decommits, moves;
    uint64_t faults;
    bool is_pinned;                  /* then nothing may be moved */
    void (*on_call)(void *argument); /* during each call, holding nothing of ours */
    void *on_call_argument;
} cup_fake_provider_t;

void cup_fake_init(cup_fake_provider_t *fake, uint64_t limit_bytes);

/* Chunks only. */
cup_provider_t cup_fake_ops(cup_fake_provider_t *fake);

/* With ranges. */
cup_provider_t cup_fake_range_ops(cup_fake_provider_t *fake);

/* For memory that left a pool by surrender: the test gives it back itself. */
void cup_fake_release(cup_fake_provider_t *fake, cup_addr_t base, uint64_t size_bytes);

/* Everything that is held goes: as when a context ends under its pool. */
void cup_fake_release_all(cup_fake_provider_t *fake);

/* A mark of the handles behind a part of a range: another one when any of them left, moved or was replaced;
 * 0 when a part has none. */
uint64_t cup_fake_mark(cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes);

/* A provider that breaks its contract: it gives the base that the test says, and counts what comes back as it was. */
typedef struct cup_odd_provider {
    cup_addr_t base;
    uint64_t size_bytes; /* what was asked for last */
    int releases;
} cup_odd_provider_t;

static inline cup_status_t cup_odd_reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    cup_odd_provider_t *odd = self;
    odd->size_bytes = size_bytes;
    *out_base = odd->base;
    return CUP_OK;
}

static inline void cup_odd_release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    cup_odd_provider_t *odd = self;
    odd->releases += base == odd->base && size_bytes == odd->size_bytes;
}

#endif /* CUP_TESTS_FAKE_PROVIDER_H */
