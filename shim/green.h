/* SPDX-License-Identifier: Apache-2.0 */
/*
 * green - green contexts: which primary context each is a part of.
 * What:       a green context has streams of its own, but its memory is the device's primary context's
 *             (measured), and an event that is recorded on the primary one covers them (measured; not the
 *             other way round). So both share a heap and its order points: the primary's.
 * Not here:   the entry points (route_context.c).
 * Invariants: a converted context is here from its green context's creation to its end.
 * Threads:    any thread. Look-ups take no lock.
 */
#ifndef CUP_SHIM_GREEN_H
#define CUP_SHIM_GREEN_H
#include "shim/cuda_abi.h"
#include <stdbool.h>

/* green was made on the device; ctx is what it converts to. False: no host memory. */
bool cup_green_add(CUgreenCtx green, CUcontext ctx, CUcontext primary, int device);

/* green is gone. */
void cup_green_remove(CUgreenCtx green);

/* The device of a green context; -1: unknown. */
int cup_green_device(CUgreenCtx green);

/* The primary context that ctx is a part of; ctx itself when it is not green. */
CUcontext cup_green_primary(CUcontext ctx);

static inline bool cup_green_is(CUcontext ctx)
{
    return cup_green_primary(ctx) != ctx;
}

#endif /* CUP_SHIM_GREEN_H */
