/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat - counters, and the report that CUPOLA_STATS asks for.
 * What:       one relaxed atomic per row of stat_list.h; a summary for people, one line of JSON for
 *             programs.
 * Not here:   the sizes that a pool keeps (allocator/pool.h); the report adds them up.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_STAT_H
#define CUP_SHIM_STAT_H
#include "allocator/pool.h"
#include "shim/stat_list.h"
#include <stdatomic.h>

typedef struct cup_stat {
#define X(field, meaning) _Atomic uint64_t field;
    CUP_STAT_LIST(X)
#undef X
} cup_stat_t;

extern cup_stat_t cup_stat;

#define CUP_STAT_ADD(field, n) \
    ((void)atomic_fetch_add_explicit(&cup_stat.field, (uint64_t)(n), memory_order_relaxed))
#define CUP_STAT_GET(field) atomic_load_explicit(&cup_stat.field, memory_order_relaxed)

/* Writes the summary ("1") or a line of JSON (a file name) for counters and the sum of all pools. No driver
 * call. */
void cup_stat_report(const char *where, const cup_pool_stat_t *pools);

#endif /* CUP_SHIM_STAT_H */
