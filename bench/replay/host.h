/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - the program's side of a replay: what is complete by now, and waiting.
 * What:       steps from event to event; says which frees may be handed out again (usable) and which memory
 *             may be unmapped (movable), in events or by the modelled GPU; waits, and counts it.
 * Invariants: movable <= usable <= now; all only rise.
 */
#ifndef CUP_BENCH_REPLAY_HOST_H
#define CUP_BENCH_REPLAY_HOST_H
#include "bench/replay/conf.h"
#include "bench/replay/driver.h"

typedef struct host {
    const replay_conf_t *conf;
    timeline_t *timeline;
    driver_t *driver;
    cup_point_t now, usable, movable;
    uint64_t waits; /* allocations and unmaps that waited */
} host_t;

/* Both are initialised; they must outlive the host, and it must not move. */
void host_init(host_t *host, const replay_conf_t *conf, timeline_t *timeline, driver_t *driver);

/* The next event. */
void host_step(host_t *host);

/* The GPU may have got further while calls were made. */
void host_poll(host_t *host);

/* Blocks until the GPU has passed a point; CUP_POINT_MAX is all of it. What it has passed is complete. */
void host_wait(host_t *host, cup_point_t point);

#endif /* CUP_BENCH_REPLAY_HOST_H */
