/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_collect - the bodies of the entry points that notice what a free leaves undone: the driver's own call, once
 * there is nothing to notice.
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/idle.h"
#include "shim/registry.h"
#include "shim/route.h"
#include "shim/stream_set.h"
#include "shim/submit.h"

#define X(symbol, params, args)        \
    CUresult cup_route_##symbol params \
    {                                  \
        cup_submit_collect();          \
        return cup_drv.symbol args;    \
    }
CUP_COLLECT_LIST(X)
#undef X

/*
 * What was asynchronous shows first where the program asks or waits: from there on it knows, so must the
 * pool.
 */
static CUresult learn(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && cup_gate_enter(false)) {
        cup_registry_doubt_current();
        cup_gate_leave();
    }
    return result;
}

#define X(symbol, params, args)                                     \
    CUresult cup_route_##symbol params                              \
    {                                                               \
        CUresult result = cup_drv.symbol args;                      \
                                                                    \
        if (result == CUDA_ERROR_NOT_READY && cup_submit_collect()) \
            result = cup_drv.symbol args;                           \
        return learn(result);                                       \
    }
CUP_ASK_LIST(X)
#undef X

#define X(symbol, params, args, place)              \
    CUresult cup_route_##symbol params              \
    {                                               \
        cup_idle_t idle = cup_submit_look((place)); \
        CUresult result = cup_drv.symbol args;      \
                                                    \
        if (result == CUDA_SUCCESS)                 \
            cup_idle_note(&idle);                   \
        return learn(result);                       \
    }
CUP_WAIT_LIST(X)
#undef X

#define X(symbol, params, args, context)                          \
    CUresult cup_route_##symbol params                            \
    {                                                             \
        cup_idle_t idle[CUP_STREAM_SET_MAX];                      \
        int count = cup_submit_look_at_context(context, idle);    \
        CUresult result = cup_drv.symbol args;                    \
                                                                  \
        for (int i = 0; result == CUDA_SUCCESS && i < count; i++) \
            cup_idle_note(&idle[i]);                              \
        return learn(result);                                     \
    }
CUP_WAIT_CONTEXT_LIST(X)
#undef X

#define X(symbol, params, args, place)   \
    CUresult cup_route_##symbol params   \
    {                                    \
        cup_submit_before_join((place)); \
        return cup_drv.symbol args;      \
    }
CUP_JOIN_LIST(X)
#undef X

#define X(symbol, params, args)                                       \
    CUresult cup_route_##symbol params                                \
    {                                                                 \
        CUresult result = cup_drv.symbol args;                        \
                                                                      \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && cup_route_rescue()) \
            result = cup_drv.symbol args;                             \
        if (result == CUDA_SUCCESS && dptr)                           \
            cup_submit_note_global(*dptr);                            \
        return result;                                                \
    }
CUP_MANAGED_LIST(X)
#undef X

CUresult cup_route_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CUresult result = cup_drv.cuMemPoolCreate(pool, props);

    if (result == CUDA_SUCCESS && props && props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        cup_submit_note_managed();
    return result;
}

/* What is allocated from it later is managed. */
#define GET_POOL(symbol)                                                                               \
    CUresult cup_route_##symbol(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) \
    {                                                                                                  \
        CUresult result = cup_drv.symbol(pool, location, type);                                        \
                                                                                                       \
        if (result == CUDA_SUCCESS && type == CU_MEM_ALLOCATION_TYPE_MANAGED)                          \
            cup_submit_note_managed();                                                                 \
        return result;                                                                                 \
    }
GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)
#undef GET_POOL

#define X(symbol, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(cup_route_##symbol)), #symbol);
CUP_COLLECT_LIST(X)
CUP_ASK_LIST(X)
CUP_WAIT_LIST(X)
CUP_WAIT_CONTEXT_LIST(X)
CUP_JOIN_LIST(X)
CUP_MANAGED_LIST(X)
#undef X
