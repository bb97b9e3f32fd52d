/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - a GPU's memory as plain numbers, under the pool and its rivals.
 * What:       the provider (allocator/provider.h): counts what is held and each kind of call, has a limit,
 *             charges every call to the timeline. This is the footprint: what the driver holds, never what a
 *             pool believes.
 * Invariants: it is told of every block (driver_note_*) and keeps, per 2 MiB of addresses, what is backed,
 *             how many blocks live there and the newest free. A block outside of what is held, memory given
 *             back or moved under a live block or before its free was told to the policy (> usable), a
 *             handle that is not where the caller says: each is a fault, and faults fail the run. Told but
 *             not complete (> movable): whoever unmaps must wait first, and is made to.
 * Threads:    one.
 */
#ifndef CUP_BENCH_REPLAY_DRIVER_H
#define CUP_BENCH_REPLAY_DRIVER_H
#include "allocator/provider.h"
#include "bench/replay/table.h"
#include "bench/replay/timeline.h"

/*
 * X(enumerator, name, us, us per GiB): measured on an H200, driver 580. cuMemAlloc and cuMemFree: 32 + 28 µs
 * up to 8 MiB, 81 + 323 µs for 1 GiB; cuMemFree waits for the GPU besides. Handles cost the same whatever
 * their size up to 32 MiB: create + map + set access, unmap + release, unmap + map + set access.
 */
#define DRIVER_CALL_LIST(X)                       \
    X(DRIVER_RESERVE, reserve, 32, 49)            \
    X(DRIVER_RELEASE, release, 28, 295)           \
    X(DRIVER_RANGE_RESERVE, range_reserve, 29, 0) \
    X(DRIVER_RANGE_RELEASE, range_release, 4, 0)  \
    X(DRIVER_COMMIT, commit, 50, 0)               \
    X(DRIVER_DECOMMIT, decommit, 43, 0)           \
    X(DRIVER_MOVE, move, 48, 0)

typedef enum {
#define X(call, name, us, us_per_gib) call,
    DRIVER_CALL_LIST(X)
#undef X
        DRIVER_CALL_COUNT
} driver_call_t;

typedef struct driver_piece driver_piece_t; /* one reservation or one mapped handle */
typedef struct driver_page driver_page_t;   /* 2 MiB of addresses */

typedef struct driver {
    timeline_t *timeline;
    uint64_t limit_bytes;
    uint64_t held_bytes, peak_bytes;
    uint64_t calls[DRIVER_CALL_COUNT];
    cup_point_t usable;  /* frees up to here were told to the policy */
    cup_point_t movable; /* frees up to here are complete: no work of theirs is left (<= usable) */
    void (*wait)(void *host, cup_point_t point); /* raises movable to at least point */
    void *host;
    uint64_t faults;
    const char *fault; /* the first */
    cup_addr_t next_addr;
    table_t page_of; /* page number → index + 1 */
    driver_page_t *pages;
    size_t page_count, page_capacity;
    driver_piece_t *pieces;
    size_t piece_count, piece_capacity;
} driver_t;

void driver_init(driver_t *driver, timeline_t *timeline, uint64_t limit_bytes);
void driver_fini(driver_t *driver);

/* The ops over this driver; with is_chunks, only reserve and release. */
cup_provider_t driver_ops(driver_t *driver, bool is_chunks);

/* The program got a block, or gave it back at this point. */
void driver_note_alloc(driver_t *driver, cup_addr_t addr, uint64_t bytes);
void driver_note_free(driver_t *driver, cup_addr_t addr, uint64_t bytes, cup_point_t point);

/* All calls of all kinds. */
uint64_t driver_total_calls(const driver_t *driver);

/* " reserve=3 release=1 …" for those that were made, and the end of the line. */
void driver_print_calls(const uint64_t calls[DRIVER_CALL_COUNT]);

#endif /* CUP_BENCH_REPLAY_DRIVER_H */
