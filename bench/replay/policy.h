/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy - what is replayed: the real pool, or a rival written small.
 * What:       one interface: blocks in, blocks out, over the driver of numbers. Lag is the same for all: a
 *             block freed at a point comes back when complete() finds it usable (host.h).
 *
 * pool      allocator/pool.h itself, driven as shim/heap.c drives it
 * segments  PyTorch's caching allocator by default: 512-byte rounding; up to 1 MiB from 2 MiB segments,
 *           below 10 MiB from 20 MiB ones, else a segment of its own rounded to 2 MiB; best fit, split when
 *           512 bytes (small) or more than 1 MiB (large) remain, merged inside a segment, cached until out of
 *           memory
 * classes   caching by exact class: 8 classes per doubling, each block its own driver allocation, never
 *           split, cached until out of memory
 */
#ifndef CUP_BENCH_REPLAY_POLICY_H
#define CUP_BENCH_REPLAY_POLICY_H
#include "bench/replay/host.h"

typedef struct policy_ops {
    const char *name;
    void *(*create)(host_t *host);
    /* False: out of memory. */
    bool (*alloc)(void *self, uint64_t bytes, cup_addr_t *out_addr);
    void (*free)(void *self, cup_addr_t addr, cup_point_t point);
    /* host->usable or host->movable may have risen. */
    void (*complete)(void *self);
    /* The first broken invariant, or NULL. */
    const char *(*check)(void *self);
    /* The same for a policy whose blocks are all freed and complete. */
    const char *(*check_empty)(void *self);
    void (*destroy)(void *self);
} policy_ops_t;

extern const policy_ops_t policy_pool, policy_segments, policy_classes;

/* NULL: no such policy. */
const policy_ops_t *policy_find(const char *name);

/* Blocks of a rival that are freed and not usable yet, first in, first out. */
typedef struct pending {
    struct pending_entry {
        void *block;
        cup_point_t point;
    } * entries;
    size_t head, count, capacity; /* count includes those before head */
} pending_t;

void pending_push(pending_t *pending, void *block, cup_point_t point);

/* The oldest block if its point is usable; NULL otherwise. */
void *pending_pop(pending_t *pending, cup_point_t usable);

#endif /* CUP_BENCH_REPLAY_POLICY_H */
