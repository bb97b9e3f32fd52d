/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat - counters, and the report that CUPOLA_STATS asks for.
 * What:       one relaxed atomic per row of stat_list.h, a histogram per row that is timed, a row per process
 *             that blocks were opened of; a summary for people, one line of JSON for programs.
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

/* Histograms: the call began at start_ns of cup_stat_now_ns(), and ends now. */
typedef struct cup_stat_times {
#define X(field, meaning) _Atomic uint64_t field[CUP_STAT_BUCKETS];
    CUP_STAT_TIME_LIST(X)
#undef X
} cup_stat_times_t;

extern cup_stat_times_t cup_stat_times;

uint64_t cup_stat_now_ns(void);
void cup_stat_time(_Atomic uint64_t *buckets, uint64_t start_ns);
#define CUP_STAT_TIME(field, start_ns) cup_stat_time(cup_stat_times.field, start_ns)

/*
 * A process that blocks are opened of: name tells it from all others, pid is for people. Returns the number of
 * its row, the same for the same name. The caller lets only one thread at a time in here.
 */
unsigned cup_stat_peer(uint64_t name, int pid);
void cup_stat_peer_opened(unsigned peer);
void cup_stat_peer_mapped(unsigned peer, uint64_t bytes);
void cup_stat_peer_unmapped(unsigned peer, uint64_t bytes);

/* Writes the summary ("1") or a line of JSON (a file name) for counters and the sum of all pools. No driver
 * call. */
void cup_stat_report(const char *where, const cup_pool_stat_t *pools);

#endif /* CUP_SHIM_STAT_H */
