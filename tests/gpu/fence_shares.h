/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence_shares - what an allocator made of freed memory, as far as the program can know: from addresses,
 * sizes and times.
 * What:       each thread writes down what it was given and gave back, without a lock, so that watching
 *             orders nothing; later the logs are replayed by time against a map from address to the block
 *             that was there before.
 * Not here:   running anything (fence.c).
 * Invariants: a free is dated before its call and an allocation after it: so memory that changes hands does
 *             so in the log, too. What is less than FENCE_SLACK does not count: rounding to classes looks
 *             like that.
 * Threads:    a log belongs to one thread; the replay is called while no log is written.
 */
#ifndef CUP_TESTS_FENCE_SHARES_H
#define CUP_TESTS_FENCE_SHARES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FENCE_SLACK UINT64_C(4096)

typedef struct fence_event {
    uint64_t time_ns;
    uint64_t base, bytes;
    uint32_t stream; /* of the first use of what was given, of the last use of what was given back */
    bool is_free;
} fence_event_t;

typedef struct fence_log {
    fence_event_t *events; /* owned by whoever made the log; capacity entries */
    size_t count, capacity;
} fence_log_t;

/* Blocks given so far, and of these: */
typedef struct fence_shares {
    uint64_t given;
    uint64_t split;        /* part of one much larger block that was there before */
    uint64_t coalesced;    /* over parts of at least two */
    uint64_t other_stream; /* first used by another stream than the last user of what was there */
} fence_shares_t;

void fence_log_add(fence_log_t *log, fence_event_t event);

/* Merges the logs by time, replays them, empties them. Adds to *shares. */
void fence_shares_replay(fence_log_t *const *logs, unsigned count, fence_shares_t *shares);

#endif /* CUP_TESTS_FENCE_SHARES_H */
