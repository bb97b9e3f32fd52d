/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_rescue - the bodies of the entry points that take memory beside the pools: the driver's own call, and where it
 * finds none, once more when what is idle in the pools has gone back.
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/registry.h"
#include "shim/route.h"
#include "shim/stat.h"

bool cup_route_rescue(void)
{
    CUdevice device;
    uint64_t given;

    if (!cup_gate_enter(false))
        return false;
    if (cup_drv.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = CUP_REGISTRY_ANY_DEVICE;
    given = cup_registry_trim(device, UINT64_MAX);
    if (given > 0)
        CUP_STAT_ADD(oom_rescues, 1);
    cup_gate_leave();
    return given > 0;
}

#define X(symbol, params, args)                                       \
    CUresult cup_route_##symbol params                                \
    {                                                                 \
        CUresult result = cup_drv.symbol args;                        \
                                                                      \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && cup_route_rescue()) \
            result = cup_drv.symbol args;                             \
        return result;                                                \
    }
CUP_RESCUE_LIST(X)
#undef X

#define X(symbol, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(cup_route_##symbol)), #symbol);
CUP_RESCUE_LIST(X)
#undef X
