/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - allocation calls. A free waits for everything submitted to the context before it (measured: a 5
 * ms kernel in flight, the free takes 5 ms; other contexts are not waited for); an allocation does not wait.
 */
#include "driver.h"

static CUresult allocate(CUdeviceptr *out, size_t size, sc_mem_kind_t kind)
{
    sc_ctx_t *ctx = sc_ctx_root(sc_ctx_current());
    uint64_t base;

    if (!out || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_heap_alloc(ctx->device, ctx, size, kind, &base);
    if (status == CUDA_SUCCESS)
        *out = base;
    return status;
}

/* The allocation that begins exactly there, and is not being freed in stream order; NULL. */
static sc_alloc_t *find_base(CUdeviceptr base)
{
    sc_alloc_t *alloc = sc_heap_find(base);

    if (!alloc || alloc->base != base || alloc->is_freeing || alloc->is_variable || alloc->kind == SC_MEM_IPC)
        return NULL;
    return alloc;
}

SC_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    SC_ENTER(cuMemAlloc_v2);
    return allocate(out, size, SC_MEM_DEVICE);
}

SC_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    SC_ENTER(cuMemAllocManaged);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, size, SC_MEM_MANAGED);
}

SC_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                      unsigned int element)
{
    SC_ENTER(cuMemAllocPitch_v2);
    size_t rounded = (width + SC_GRAIN_BYTES - 1) / SC_GRAIN_BYTES * SC_GRAIN_BYTES;

    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (rounded < width || rounded > SIZE_MAX / height)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = allocate(out, rounded * height, SC_MEM_DEVICE);
    if (status == CUDA_SUCCESS)
        *pitch = rounded;
    return status;
}

/* Cheaper where its block stays. */
static void release(sc_alloc_t *alloc)
{
    uint64_t before, after, total, size = alloc->size;
    int device = alloc->device;

    sc_heap_info(device, &before, &total);
    sc_heap_free(alloc);
    sc_heap_info(device, &after, &total);
    sc_time_take(after > before ? SC_TIME_FREE : SC_TIME_FREE_SMALL, size);
}

SC_EXPORT CUresult cuMemFree_v2(CUdeviceptr base)
{
    SC_ENTER(cuMemFree_v2);
    sc_alloc_t *alloc = find_base(base);

    if (base == 0)
        return CUDA_SUCCESS;
    if (!alloc)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t id = alloc->id;
    CUresult status = sc_ctx_drain(alloc->ctx);
    alloc = find_base(base); /* the lock was released: another thread may have freed it too */
    if (!alloc || alloc->id != id)
        return CUDA_ERROR_INVALID_VALUE;
    sc_time_waited();
    if (status == CUDA_SUCCESS)
        release(alloc);
    return status;
}

SC_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    SC_ENTER(cuMemGetInfo_v2);
    uint64_t idle, total;

    sc_heap_info(sc_ctx_current()->device, &idle, &total);
    if (free_bytes) /* NULL is fine (tests/gpu/quirks.expected) */
        *free_bytes = idle;
    if (total_bytes)
        *total_bytes = total;
    sc_time_take(SC_TIME_INFO, 0);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
    SC_ENTER(cuMemGetAddressRange_v2);
    const sc_alloc_t *alloc = sc_heap_find(addr);
    const sc_mapping_t *mapping = alloc ? NULL : sc_mapping_find(addr);

    if (!alloc && !mapping)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = alloc ? alloc->base : mapping->base;
    if (size)
        *size = alloc ? alloc->size : mapping->size;
    sc_time_take(SC_TIME_ADDRESS_RANGE, 0);
    return CUDA_SUCCESS;
}

/* ---- stream-ordered: taken from the heap at once, given back in stream order ---- */

SC_TWINS(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, size_t size, CUstream handle), (out, size, handle))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    if (stream->capture) /* graph memory nodes are not modelled */
        return CUDA_ERROR_NOT_SUPPORTED;
    sc_time_take(SC_TIME_ALLOC_ASYNC, size);
    return allocate(out, size, SC_MEM_ASYNC);
}

SC_TWINS(cuMemFreeAsync, _ptsz, (CUdeviceptr base, CUstream handle), (base, handle))
{
    const sc_work_t work = {.kind = SC_WORK_FREE, .free_base = base};
    sc_alloc_t *alloc = find_base(base);
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    if (!alloc || alloc->kind == SC_MEM_MANAGED) /* memory of cuMemAlloc is taken too (measured) */
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return CUDA_ERROR_NOT_SUPPORTED;
    status = sc_stream_submit(stream, &work, NULL);
    sc_time_take(SC_TIME_FREE_ASYNC, 0);
    alloc = find_base(base);
    if (status == CUDA_SUCCESS && alloc)
        alloc->is_freeing = true;
    return status;
}
