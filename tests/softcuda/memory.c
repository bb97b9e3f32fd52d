/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - allocation calls. A free waits for everything submitted to the context before it (measured: a 5
 * ms kernel in flight, the free takes 5 ms; other contexts are not waited for); an allocation does not wait.
 */
#include "driver.h"
#include <string.h>
#include <unistd.h>

/* A call that fails writes 0 all the same, whatever it fails for (measured). */
static void blank(void *out, size_t bytes)
{
    if (out && !sc_has_ended())
        memset(out, 0, bytes);
}

static CUresult allocate_in(sc_ctx_t *ctx, CUdeviceptr *out, size_t size, sc_mem_kind_t kind)
{
    uint64_t base;

    if (!out || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_heap_alloc(ctx->device, ctx, size, kind, &base);
    if (status == CUDA_SUCCESS)
        *out = base;
    return status;
}

static CUresult allocate(CUdeviceptr *out, size_t size, sc_mem_kind_t kind)
{
    return allocate_in(sc_ctx_root(sc_ctx_current()), out, size, kind);
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
    blank(out, sizeof *out);
    SC_ENTER(cuMemAlloc_v2);
    return allocate(out, size, SC_MEM_DEVICE);
}

SC_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    blank(out, sizeof *out);
    if (size == 0 && !sc_has_ended()) /* this it looks at first (measured) */
        return CUDA_ERROR_INVALID_VALUE;
    SC_ENTER(cuMemAllocManaged);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, size, SC_MEM_MANAGED);
}

SC_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                      unsigned int element)
{
    blank(out, sizeof *out);
    blank(pitch, sizeof *pitch);
    SC_ENTER(cuMemAllocPitch_v2);
    size_t rounded = (width + SC_GRAIN_BYTES - 1) / SC_GRAIN_BYTES * SC_GRAIN_BYTES;

    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (rounded < width)
        return CUDA_ERROR_INVALID_VALUE;
    if (rounded > SIZE_MAX / height) {
        *pitch = rounded; /* all the same (measured) */
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = rounded;
    CUresult status = sc_capture_check_unsafe();
    return status == CUDA_SUCCESS ? allocate(out, rounded * height, SC_MEM_DEVICE) : status;
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

static bool is_staged_in(const sc_op_t *op, const sc_ctx_t *ctx)
{
    const sc_work_t *work = &op->work;

    if (work->kind != SC_WORK_COPY || op->queue->ctx == ctx || sc_ctx_reaches(op->queue->ctx, ctx))
        return false;
    for (unsigned i = 0; i < work->range_count; i++) {
        const sc_alloc_t *alloc = sc_heap_find(work->ranges[i].base);
        const sc_mapping_t *mapping = sc_mapping_find(work->ranges[i].base);

        if (alloc ? alloc->ctx == ctx && alloc->kind == SC_MEM_DEVICE
                  : mapping && mapping->handle->prop.location.id == ctx->device)
            return true;
    }
    return false;
}

/* Copies of other contexts' streams without access (measured): they go by way of this context. With access they are not
 * waited for (measured). */
static CUresult wait_for_staged(const sc_ctx_t *ctx)
{
    sc_marks_t marks = {0};

    for (sc_op_t *op = sc.oldest; op; op = op->newer)
        if (is_staged_in(op, ctx))
            sc_marks_add(&marks, op);
    CUresult status = sc_marks_wait(&marks);
    sc_marks_clear(&marks);
    return status;
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
    sc_ctx_t *ctx = alloc->ctx;
    CUresult status = wait_for_staged(ctx);
    if (status == CUDA_SUCCESS)
        status = sc_ctx_drain(ctx);
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
    blank(free_bytes, sizeof *free_bytes);
    blank(total_bytes, sizeof *total_bytes);
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

/* To the current context: not of another device's memory that it has no access to (measured). */
static bool is_told(const sc_alloc_t *alloc, const sc_mapping_t *mapping)
{
    const sc_ctx_t *ctx = sc_ctx_current();

    if (mapping)
        return mapping->access >> ctx->device & 1;
    return alloc && sc_ctx_may_use(ctx, alloc);
}

SC_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
    blank(base, sizeof *base);
    blank(size, sizeof *size);
    SC_ENTER(cuMemGetAddressRange_v2);
    const sc_alloc_t *alloc = sc_heap_find(addr);
    const sc_mapping_t *mapping = alloc ? NULL : sc_mapping_find(addr);
    const sc_host_t *host = alloc || mapping ? NULL : sc_host_find(addr);

    if (!base && !size)
        return CUDA_SUCCESS; /* nothing asked (measured) */
    if (!host && !is_told(alloc, mapping))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = alloc ? alloc->base : mapping ? mapping->base : host->base;
    if (size)
        *size = alloc ? alloc->size : mapping ? mapping->size : host->size;
    sc_time_take(SC_TIME_ADDRESS_RANGE, 0);
    return CUDA_SUCCESS;
}

/* ---- stream-ordered: taken from the heap at once, given back in stream order ---- */

/* On a stream that captures graph memory nodes are not modelled; on another it disturbs as a plain call. */
static CUresult check_beside(const sc_stream_t *stream)
{
    return stream->capture ? CUDA_ERROR_NOT_SUPPORTED : sc_capture_check_unsafe();
}

static CUresult allocate_async(CUdeviceptr *out, size_t size, CUstream handle, sc_null_t null)
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status == CUDA_SUCCESS)
        status = check_beside(stream);
    if (status != CUDA_SUCCESS || size == 0) /* nothing is had for nothing (measured) */
        return status;
    sc_time_take(SC_TIME_ALLOC_ASYNC, size);
    return allocate_in(sc_ctx_root(stream->ctx), out, size, SC_MEM_ASYNC);
}

SC_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
    blank(out, sizeof *out);
    SC_ENTER(cuMemAllocAsync);
    return allocate_async(out, size, stream, SC_LEGACY);
}

SC_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
    blank(out, sizeof *out);
    SC_ENTER(cuMemAllocAsync_ptsz);
    return allocate_async(out, size, stream, SC_PER_THREAD);
}

static CUresult free_async(CUdeviceptr base, CUstream handle, sc_null_t null)
{
    const sc_work_t work = {.kind = SC_WORK_FREE, .free_base = base};
    sc_alloc_t *alloc = find_base(base);
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status == CUDA_SUCCESS)
        status = check_beside(stream);
    if (status != CUDA_SUCCESS || base == 0)
        return status;
    if (!alloc || alloc->kind == SC_MEM_MANAGED) /* memory of cuMemAlloc is taken too (measured) */
        return alloc ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    status = sc_stream_submit(stream, &work, NULL);
    sc_time_take(SC_TIME_FREE_ASYNC, 0);
    alloc = find_base(base);
    if (status == CUDA_SUCCESS && alloc)
        alloc->is_freeing = true;
    return status;
}

/*
 * In a forked child this call goes by the books alone (measured). No lock: its owner may not have been
 * forked along.
 */
static bool is_forked(void)
{
    return sc.pid != 0 && sc.pid != getpid();
}

static CUresult free_forked(CUdeviceptr base)
{
    return base == 0 || find_base(base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuMemFreeAsync(CUdeviceptr base, CUstream stream)
{
    if (is_forked())
        return free_forked(base);
    SC_ENTER(cuMemFreeAsync);
    return free_async(base, stream, SC_LEGACY);
}

SC_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr base, CUstream stream)
{
    if (is_forked())
        return free_forked(base);
    SC_ENTER(cuMemFreeAsync_ptsz);
    return free_async(base, stream, SC_PER_THREAD);
}
