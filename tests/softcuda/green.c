/* SPDX-License-Identifier: Apache-2.0 */
/*
 * green - green contexts: a part of a device with streams of its own. Memory, events, modules and host
 * memory that are made with one current are the primary context's; a record on the primary context covers
 * its streams (measured), a record on it does not cover the primary's (measured). Resources are not split:
 * every descriptor stands for the whole device.
 */
#include "driver.h"
#include <stdlib.h>

/* Both handles are never freed, so that a stale one is told apart. */
struct CUgreenCtx_st {
    sc_ctx_t *ctx;
};

struct CUdevResourceDesc_st {
    unsigned count;
};

SC_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SC_ENTER(cuDeviceGetDevResource);
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = (CUdevResource){.type = type, .sm.smCount = 4};
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
                                             unsigned int count)
{
    SC_ENTER(cuDevResourceGenerateDesc);
    if (!desc || !resources || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = sc_new_handle(sizeof **desc);
    (*desc)->count = count;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device,
                                    unsigned int flags)
{
    SC_ENTER(cuGreenCtxCreate);
    if (!green || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *green = sc_new_handle(sizeof **green);
    (*green)->ctx = sc_ctx_make_green(device);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    SC_ENTER(cuGreenCtxDestroy);
    return green ? sc_ctx_end_green(green->ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

SC_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green)
{
    SC_ENTER(cuCtxFromGreenCtx);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!green || !green->ctx->is_alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctx = green->ctx;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                          int priority)
{
    SC_ENTER(cuGreenCtxStreamCreate);
    if (!stream || !green || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (!green->ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream = sc_stream_create(green->ctx, flags, priority);
    return CUDA_SUCCESS;
}
