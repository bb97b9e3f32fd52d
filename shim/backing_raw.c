/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the driver aligns requests of 2 MiB and more to 2 MiB (driver 580; tests/gpu/quirks.c). A base that is
 * not would break the span map's one-chunk-per-page rule, so it is refused rather than assumed. A free needs
 * no current context (likewise).
 */
#include "shim/backing.h"
#include "shim/drv.h"
#include "shim/stat.h"
#include <stddef.h>

/* CUP_ERR_INVALID: memory that can't be pooled here, now and later. */
static cup_status_t vet(CUcontext ctx, CUdeviceptr base)
{
    CUcontext owner = NULL;

    if (base % CUP_CHUNK_ALIGN != 0)
        return CUP_ERR_INVALID;
    if (cup_drv.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base) != CUDA_SUCCESS)
        return CUP_ERR_DRIVER;
    return owner == ctx ? CUP_OK : CUP_ERR_INVALID;
}

/* Under an exchange to relaxed mode: plain, it would spoil captures in progress (measured, docs/captures.md). */
static CUresult allocate(CUdeviceptr *out_base, uint64_t size_bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    CUP_STAT_ADD(driver_allocs, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuMemAlloc_v2(out_base, size_bytes);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

cup_status_t cup_backing_raw_reserve(CUcontext ctx, uint64_t size_bytes, cup_addr_t *out_base)
{
    CUdeviceptr base = 0;
    CUresult result = allocate(&base, size_bytes);
    cup_status_t status;

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return CUP_ERR_OOM;
    if (result != CUDA_SUCCESS)
        return CUP_ERR_DRIVER;
    status = vet(ctx, base);
    if (status != CUP_OK)
        cup_backing_raw_release(base);
    else
        *out_base = base;
    return status;
}

void cup_backing_raw_release(cup_addr_t base)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    CUP_STAT_ADD(driver_frees, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode); /* or a capture of the program's would end */
    cup_drv.cuMemFree_v2(base);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
}
