/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - a recorded history of allocations and frees.
 * What:       reads our CSV (comments, then time_us,thread,op,id,bytes) and RMM's log (Thread,Time,Action,
 *             Pointer,Size,Stream), either of them also as .xz (by the program xz). The header decides.
 * Not here:   what becomes of a block that is never freed (run.c frees it at the end).
 * Invariants: events are in order; a block is allocated once, and freed at most once, after that.
 *
 * Tolerant: a line that makes no sense is left out and said on standard error, in one line each, the first
 * ten of them and then their number. Not a problem, and silent: allocations of 0 bytes (the driver gives
 * none) and their frees, RMM's "allocate failure", time that steps back (logs of several threads: no gap).
 */
#ifndef CUP_BENCH_REPLAY_TRACE_H
#define CUP_BENCH_REPLAY_TRACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_ROUND_BYTES 512 /* the driver's own spacing: what "peak live" rounds each request to */

typedef struct trace_event {
    double gap_us;  /* since the event before; 0 for the first */
    uint64_t bytes; /* of the block, as asked for; of its free too */
    uint32_t block; /* 0, 1, 2, … in the order of allocation */
    bool is_alloc;
} trace_event_t;

typedef struct trace {
    trace_event_t *events;
    size_t count, capacity;
    size_t blocks;
    size_t problems;          /* lines left out */
    uint64_t peak_live_bytes; /* of requests rounded to TRACE_ROUND_BYTES */
} trace_t;

/* Ends the program, with one line, when there is no trace at path or nothing in it to replay. */
void trace_read(trace_t *trace, const char *path);
void trace_fini(trace_t *trace);

/*
 * What nobody who never waits can hold less than, in the same rounded bytes: the peak of live bytes and of
 * what was freed less than lag events ago.
 */
uint64_t trace_least_bytes(const trace_t *trace, uint64_t lag);

#endif /* CUP_BENCH_REPLAY_TRACE_H */
