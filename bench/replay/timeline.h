/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline - the time of a host and of the GPU that it feeds, modelled.
 * What:       between two events of the trace the host takes the recorded time (pauses cut to cap_us) and
 *             submits work: exponential, with a mean of rate x that time, in order, at most queue pieces
 *             ahead of the GPU: then the host blocks. Driver calls and waits move the host's time.
 * Not here:   what calls cost (driver.c), who waits for what (host.c).
 * Invariants: points 1, 2, … are the events; point p is complete when the work of events 1 … p is done. The
 *             same trace, rate and seed give the same times.
 */
#ifndef CUP_BENCH_REPLAY_TIMELINE_H
#define CUP_BENCH_REPLAY_TIMELINE_H
#include "allocator/types.h"
#include "bench/replay/trace.h"

typedef struct timeline_conf {
    double rate;
    double cap_us;
    uint64_t queue;
    uint64_t seed;
} timeline_conf_t;

typedef struct timeline {
    timeline_conf_t conf;
    const trace_t *trace;
    double *finish_us; /* of the work of each event so far */
    double host_us;
    uint64_t rng;
    size_t submitted;
    size_t completed; /* points that host_us is past */
} timeline_t;

void timeline_init(timeline_t *timeline, const timeline_conf_t *conf, const trace_t *trace);
void timeline_fini(timeline_t *timeline);

/* The next event: its gap passes, its work is submitted. */
void timeline_step(timeline_t *timeline);

/* The host is busy with a call. */
void timeline_spend(timeline_t *timeline, double us);

/* The host waits for a point; CUP_POINT_MAX is the newest one. */
void timeline_wait(timeline_t *timeline, cup_point_t point);

/* The newest complete point as of now. */
cup_point_t timeline_completed(timeline_t *timeline);

/* When both are done with everything so far. */
double timeline_end_us(const timeline_t *timeline);

/* timeline_end_us of the whole trace where nothing waits and calls cost nothing. */
double timeline_ideal_us(const timeline_conf_t *conf, const trace_t *trace);

#endif /* CUP_BENCH_REPLAY_TIMELINE_H */
