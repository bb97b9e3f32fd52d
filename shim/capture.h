/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture - which captures are in progress, because a record on a context invalidates them.
 * What:       the set of capturing streams of the process. A Begin enters it before the real call, and has the open
 *             points closed first; End and Destroy leave it when the capture has really ended.
 * Quirk:      cuCtxRecordEvent invalidates every capture of the context, in every mode, from any thread, also under an
 *             exchange to relaxed mode (measured, driver 580; tests/gpu/quirks.c). A capture may take in streams of
 *             other contexts: one keeps all contexts' records off.
 * Threads:    any thread; CUP_LOCK_CAPTURE, inside it CUP_LOCK_ORDER.
 */
#ifndef CUP_SHIM_CAPTURE_H
#define CUP_SHIM_CAPTURE_H
#include "shim/cuda_abi.h"
#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic int cup_captures;

/* One load: is any capture in progress, as far as we saw? */
static inline bool cup_capture_is_active(void)
{
    return atomic_load_explicit(&cup_captures, memory_order_acquire) > 0;
}

/* Forgets captures that ended without our seeing it: asks the driver about each. */
void cup_capture_sweep(void);

/* Around the real Begin: before it, and after it with whether it succeeded. */
void cup_capture_begin(CUstream stream);
void cup_capture_began(CUstream stream, bool is_success);

/* After the real End. */
void cup_capture_ended(CUstream stream, CUresult result);

/* Around the real Destroy of a stream: true asks for the second call. */
bool cup_capture_destroying(CUstream stream);
void cup_capture_destroyed(CUstream stream, bool is_success);

/* Around a call that may end a context. */
void cup_capture_context_ending(CUcontext ctx);
void cup_capture_context_ended(CUcontext ctx, bool has_ended);

/* For contexts that come: while it is held, no capture begins or ends; how many there are. (order.c) */
void cup_capture_lock(void);
void cup_capture_unlock(void);
int cup_capture_count(void);

#endif /* CUP_SHIM_CAPTURE_H */
