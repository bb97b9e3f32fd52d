/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_context - the calls that make, keep and end contexts.
 * How:        a call that may end a context is announced to the registry before, and decided after. The
 *             references on the primary contexts are counted, as far as we see them: the release of one
 *             among several ends nothing, and nothing is to stand still for it. Those that we do not see
 *             only make the count too low.
 *
 *             A green context is noted when it is made: the driver is asked at once for what it converts
 *             to, and for the primary context, which a green context keeps.
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/green.h"
#include "shim/registry.h"
#include "shim/route.h"
#include <stdatomic.h>

#define DEVICES_MAX 64

static _Atomic int g_references[DEVICES_MAX]; /* seen, on each device's primary context */

/* NULL: the device is none. */
static _Atomic int *references_of(CUdevice dev)
{
    return dev >= 0 && dev < DEVICES_MAX ? &g_references[dev] : NULL;
}

/* ---- contexts of the program's own ---- */

/* is_last: success means that the context is gone; else it may have been one reference. */
static CUresult end_context(CUresult (*real)(CUcontext), CUcontext ctx, bool is_last)
{
    cup_ending_t ending = {.ctx = ctx};
    CUresult result;

    if (!ctx || !cup_gate_enter(false))
        return real(ctx);
    cup_registry_begin_end(&ending);
    cup_gate_leave();
    result = real(ctx);
    if (cup_gate_enter(false)) {
        cup_registry_finish_end(&ending, is_last && result == CUDA_SUCCESS);
        cup_gate_leave();
    }
    return result;
}

CUresult cup_route_cuCtxDestroy(CUcontext ctx)
{
    return end_context(cup_drv.cuCtxDestroy, ctx, true);
}

CUresult cup_route_cuCtxDestroy_v2(CUcontext ctx)
{
    return end_context(cup_drv.cuCtxDestroy_v2, ctx, true);
}

CUresult cup_route_cuCtxDetach(CUcontext ctx)
{
    return end_context(cup_drv.cuCtxDetach, ctx, false);
}

/* ---- primary contexts ---- */

static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice dev)
{
    cup_ending_t ending = {.device = dev};
    CUresult result;

    if (!cup_gate_enter(false))
        return real(dev);
    cup_registry_begin_end(&ending);
    cup_gate_leave();
    result = real(dev);
    if (cup_gate_enter(false)) {
        cup_registry_finish_end(&ending, false);
        cup_gate_leave();
    }
    return result;
}

/*
 * The call was not thought to end a context. It may have, or something out of our sight may: so the heaps
 * are looked at.
 */
static CUresult look(CUresult result, CUdevice dev)
{
    if (result == CUDA_SUCCESS && cup_gate_enter(false)) {
        cup_registry_end_lost(dev);
        cup_gate_leave();
    }
    return result;
}

CUresult cup_route_cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    CUresult result = look(cup_drv.cuDevicePrimaryCtxRetain(ctx, dev), dev);

    if (result == CUDA_SUCCESS && references_of(dev))
        atomic_fetch_add(references_of(dev), 1);
    return result;
}

/* Two threads may release at once, and the driver may take them in the other order. */
static CUresult release(CUresult (*real)(CUdevice), CUdevice dev)
{
    _Atomic int *references = references_of(dev);
    bool is_one_of_several = references && atomic_fetch_sub(references, 1) > 1;
    CUresult result = is_one_of_several ? look(real(dev), dev) : end_primary(real, dev);

    if (result != CUDA_SUCCESS && references)
        atomic_fetch_add(references, 1);
    return result;
}

CUresult cup_route_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return release(cup_drv.cuDevicePrimaryCtxRelease, dev);
}

CUresult cup_route_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return release(cup_drv.cuDevicePrimaryCtxRelease_v2, dev);
}

/* What becomes of references then is not documented the same everywhere: none is counted on. */
static CUresult reset(CUresult (*real)(CUdevice), CUdevice dev)
{
    if (references_of(dev))
        atomic_store(references_of(dev), 0);
    return end_primary(real, dev);
}

CUresult cup_route_cuDevicePrimaryCtxReset(CUdevice dev)
{
    return reset(cup_drv.cuDevicePrimaryCtxReset, dev);
}

CUresult cup_route_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return reset(cup_drv.cuDevicePrimaryCtxReset_v2, dev);
}

/* ---- green contexts ---- */

/* The green context keeps the primary one: taking a reference and giving it back changes no state of it. */
static bool note_green(CUgreenCtx green, CUdevice dev)
{
    CUcontext ctx, primary;

    if (cup_drv.cuCtxFromGreenCtx(&ctx, green) != CUDA_SUCCESS ||
        cup_drv.cuDevicePrimaryCtxRetain(&primary, dev) != CUDA_SUCCESS)
        return false;
    cup_drv.cuDevicePrimaryCtxRelease_v2(dev);
    return cup_green_add(green, ctx, primary, dev);
}

CUresult cup_route_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev,
                                    unsigned int flags)
{
    CUresult result = cup_drv.cuGreenCtxCreate(green, desc, dev, flags);

    if (result == CUDA_SUCCESS && green && cup_gate_enter(true)) {
        note_green(*green, dev);
        cup_gate_leave();
    }
    return result;
}

/* It gives back its reference on the primary context, which may be the last one. */
CUresult cup_route_cuGreenCtxDestroy(CUgreenCtx green)
{
    cup_ending_t ending = {.device = cup_green_device(green)};
    CUresult result;

    if (!cup_gate_enter(false))
        return cup_drv.cuGreenCtxDestroy(green);
    cup_registry_begin_end(&ending);
    cup_gate_leave();
    result = cup_drv.cuGreenCtxDestroy(green);
    if (cup_gate_enter(false)) {
        cup_registry_finish_end(&ending, false);
        if (result == CUDA_SUCCESS)
            cup_green_remove(green);
        cup_gate_leave();
    }
    return result;
}
