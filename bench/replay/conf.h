/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf - what one replay is asked for; replay.c fills it in.
 */
#ifndef CUP_BENCH_REPLAY_CONF_H
#define CUP_BENCH_REPLAY_CONF_H
#include "bench/replay/timeline.h"

/* When a free has its effect: so many events later, or when the modelled GPU has passed it. */
typedef struct replay_lag {
    bool is_time;
    uint64_t events;
} replay_lag_t;

typedef struct replay_conf {
    const char *trace_path;
    const char *policy;   /* pool, segments, classes */
    const char *backing;  /* raw, vmm: of the pool */
    replay_lag_t lag;     /* a freed block may be handed out again */
    replay_lag_t movable; /* its memory may be unmapped: never before lag */
    uint64_t may_wait;    /* past slack x live peak, an allocation waits for frees before it grows */
    uint64_t slack_percent;
    uint64_t floor_bytes;     /* never waits, trims or moves below */
    uint64_t handle_bytes;    /* 0: the pool's own choice */
    uint64_t dedicated_bytes; /* raw: requests of at least this get their own driver allocation */
    uint64_t limit_bytes;     /* of the device */
    uint64_t check_every;     /* events between two walks over all invariants; 0: at the end only */
    timeline_conf_t timeline;
    const char *csv_path; /* NULL: none */
} replay_conf_t;

#endif /* CUP_BENCH_REPLAY_CONF_H */
