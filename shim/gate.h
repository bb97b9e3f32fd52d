/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate - life: whether the pool may serve this call.
 * What:       UNBORN until the program's first allocation, then READY or PASS_THROUGH (told to stand aside)
 *             for good. A forked child passes everything through: CUDA does not survive a fork, and our
 *             locks may be held there. A call of ours that comes back through a hook passes through too
 *             (per-thread depth).
 * Not here:   contexts (registry.h).
 * Manners:    errno is the program's: saved on entering, restored on leaving.
 * Threads:    any thread. Until the first allocation nothing has happened in the process: no memory, file or
 *             thread.
 */
#ifndef CUP_SHIM_GATE_H
#define CUP_SHIM_GATE_H
#include <stdbool.h>

struct cup_conf;

/* The options; only inside a call that entered. */
const struct cup_conf *cup_gate_conf(void);

/*
 * Begins a pooled call. False: the caller forwards to the driver and does not leave. The first call that
 * may_start brings the pool to life (parses the environment; no driver call).
 */
bool cup_gate_enter(bool may_start);

/*
 * A child that was forked from a process with a pool: it has our memory, and locks that nobody will let go.
 */
bool cup_gate_is_forked(void);

/* Ends what a true cup_gate_enter began. */
void cup_gate_leave(void);

#endif /* CUP_SHIM_GATE_H */
