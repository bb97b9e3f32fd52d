/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - one trace through one policy, and what came of it.
 * Invariants: after the last event everything is freed and complete; the policy must then be whole again,
 *             and the driver's account without a fault. What that costs is not in the result.
 */
#ifndef CUP_BENCH_REPLAY_RUN_H
#define CUP_BENCH_REPLAY_RUN_H
#include "bench/replay/conf.h"
#include "bench/replay/policy.h"

typedef struct replay_result {
    uint64_t footprint_bytes; /* peak of what the driver held */
    uint64_t end_bytes;       /* held after the last event */
    uint64_t waits;
    uint64_t calls[DRIVER_CALL_COUNT];
    uint64_t driver_calls;
    uint64_t failed; /* allocations that got no memory */
    double end_us, ideal_us;
    const char *broken; /* the first broken law, or NULL */
} replay_result_t;

/* conf->policy is not looked at: ops is. */
void replay_run(const replay_conf_t *conf, const policy_ops_t *ops, const trace_t *trace,
                replay_result_t *out_result);

#endif /* CUP_BENCH_REPLAY_RUN_H */
