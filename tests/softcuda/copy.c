/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy - copies and sets, of one, two and three dimensions and in batches. What waits is as natively: a
 * synchronous copy with host memory on a side waits; between device addresses, and a set, it does not. An
 * asynchronous copy from pageable memory takes its bytes before it returns, one to pageable memory waits;
 * pinned memory is read and written when the stream comes to it.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool is_sync;
    CUstream handle;
    sc_null_t null;
    bool is_peer;   /* reaches every device's memory */
    bool reads_now; /* host memory, before the call returns */
} where_t;

/* Host memory that is not pinned. */
static bool is_pageable(uint64_t addr)
{
    return !sc_is_device_address(addr) && !sc_host_find(addr);
}

static bool is_host(uint64_t addr)
{
    return !sc_is_device_address(addr);
}

/* From its first byte to its last. */
static uint64_t span(const sc_side_t *side, size_t width, size_t height, size_t depth)
{
    return (depth - 1) * side->slice + (height - 1) * side->pitch + width;
}

static uint64_t copy_span(const sc_work_t *work, const sc_side_t *side)
{
    return span(side, work->copy.width, work->copy.height, work->copy.depth);
}

/* Replaces a pageable source by an owned copy of its bytes. */
static void stage(sc_work_t *work)
{
    uint64_t size = copy_span(work, &work->copy.src);

    work->staged = sc_zalloc(size);
    memcpy(work->staged, (const void *)(uintptr_t)work->copy.src.base, size);
    work->copy.src.base = (uint64_t)(uintptr_t)work->staged;
}

/* The Peer forms are refused in a capture, and spoil it (measured). */
static CUresult find_stream(const where_t *where, sc_stream_t **out_stream)
{
    CUresult status = sc_stream_find(where->handle, where->null, out_stream);

    if (status == CUDA_SUCCESS && (where->is_sync || where->is_peer))
        status = sc_capture_check_stream(*out_stream);
    return status;
}

static CUresult submit(const where_t *where, sc_work_t *work, bool must_wait)
{
    sc_stream_t *stream;
    sc_op_t *op;
    CUresult status = find_stream(where, &stream);

    if (status == CUDA_SUCCESS && work->kind == SC_WORK_COPY && !stream->capture && !must_wait &&
        (is_pageable(work->copy.src.base) || (where->reads_now && is_host(work->copy.src.base))))
        stage(work);
    if (status == CUDA_SUCCESS)
        status = sc_stream_submit(stream, work, &op);
    if (status != CUDA_SUCCESS) {
        free(work->staged);
        return status;
    }
    return op && must_wait ? sc_op_wait(op) : CUDA_SUCCESS;
}

/* The device of the stream, which may be another context's than the current one. */
static int stream_device(const where_t *where)
{
    sc_stream_t *stream;

    return sc_stream_find(where->handle, where->null, &stream) == CUDA_SUCCESS ? stream->ctx->device
                                                                               : sc_ctx_current()->device;
}

/* Stream-ordered memory is out of another device's reach, also for copies (measured). */
static bool is_pool_closed(uint64_t addr)
{
    const sc_alloc_t *alloc = sc_heap_find(addr);

    return alloc && alloc->kind == SC_MEM_ASYNC && !sc_ctx_may_use(sc_ctx_current(), alloc);
}

/* A side that is a device address must lie in one live allocation, or be mapped with access for the current
 * device, and for the stream's: which of the two copies is not measured. */
static bool is_side_good(const where_t *where, uint64_t addr, uint64_t size)
{
    if (addr == 0 || is_host(addr))
        return addr != 0;
    if (where->is_peer)
        return sc_is_usable(addr, size, -1);
    if (is_pool_closed(addr))
        return false;
    return sc_is_usable(addr, size, sc_ctx_current()->device) &&
           sc_is_usable(addr, size, stream_device(where));
}

/* A copy of no bytes succeeds without a look at its sides. */
static bool is_empty(const sc_work_t *work)
{
    return work->copy.width == 0 || work->copy.height == 0 || work->copy.depth == 0;
}

/* What is mapped for reading only is refused as a destination (measured; a kernel's write breaks the context). */
static bool is_taken(uint64_t addr, uint64_t size)
{
    return is_host(addr) || sc_is_writable(addr, size, -1);
}

static CUresult plan_copy(const where_t *where, sc_work_t *work)
{
    const sc_side_t *dst = &work->copy.dst, *src = &work->copy.src;

    if (!is_side_good(where, dst->base, copy_span(work, dst)) ||
        !is_side_good(where, src->base, copy_span(work, src)) || !is_taken(dst->base, copy_span(work, dst)))
        return CUDA_ERROR_INVALID_VALUE;
    sc_work_touch(work, dst->base, copy_span(work, dst));
    sc_work_touch(work, src->base, copy_span(work, src));
    return CUDA_SUCCESS;
}

static CUresult submit_copy(const where_t *where, sc_work_t *work)
{
    uint64_t dst = work->copy.dst.base, src = work->copy.src.base;

    if (is_empty(work))
        return CUDA_SUCCESS;
    CUresult status = plan_copy(where, work);
    bool must_wait = where->is_sync ? is_host(dst) || is_host(src) : is_pageable(dst);
    return status == CUDA_SUCCESS ? submit(where, work, must_wait) : status;
}

static sc_work_t linear(uint64_t dst, uint64_t src, size_t size)
{
    return (sc_work_t){
        .kind = SC_WORK_COPY,
        .copy = {.dst = {dst, size, size}, .src = {src, size, size}, .width = size, .height = 1, .depth = 1}};
}

static CUresult copy(const where_t *where, uint64_t dst, uint64_t src, size_t size)
{
    sc_work_t work = linear(dst, src, size);

    return submit_copy(where, &work);
}

/* A copy finds its way to another device's plain memory; a set needs access, its stream's (measured). */
static bool is_settable(const where_t *where, uint64_t addr, uint64_t size)
{
    const sc_alloc_t *alloc = sc_heap_find(addr);
    sc_stream_t *stream;

    if (addr == 0 || is_pageable(addr))
        return false;
    if (is_host(addr) || sc_stream_find(where->handle, where->null, &stream) != CUDA_SUCCESS)
        return true; /* a stream that is not there: the submission is refused by that code */
    return (!alloc || sc_ctx_may_use(stream->ctx, alloc)) && sc_is_usable(addr, size, stream->ctx->device);
}

static CUresult plan_set(const where_t *where, sc_work_t *work)
{
    uint64_t dst = work->set.dst;
    const sc_side_t side = {dst, work->set.pitch, 0};

    if (work->set.width == 0 || work->set.height == 0)
        return CUDA_SUCCESS;
    uint64_t size = span(&side, work->set.width * work->set.element, work->set.height, 1);
    if (dst % work->set.element != 0 || !is_settable(where, dst, size) || !is_taken(dst, size))
        return CUDA_ERROR_INVALID_VALUE;
    sc_work_touch(work, dst, size);
    return CUDA_SUCCESS;
}

static CUresult set_pitched(const where_t *where, uint64_t dst, size_t pitch, unsigned element,
                            uint32_t value, size_t width, size_t height)
{
    sc_work_t work = {.kind = SC_WORK_SET,
                      .set = {.dst = dst,
                              .pitch = pitch,
                              .width = width,
                              .height = height,
                              .value = value,
                              .element = element}};
    CUresult status = plan_set(where, &work);

    return status == CUDA_SUCCESS && width > 0 && height > 0 ? submit(where, &work, false) : status;
}

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define SYNC             (&(const where_t){.is_sync = true, .null = null})
#define ASYNC            (&(const where_t){.handle = stream, .null = null})
#define PEER_SYNC        (&(const where_t){.is_sync = true, .null = null, .is_peer = true})
#define PEER_ASYNC       (&(const where_t){.handle = stream, .null = null, .is_peer = true})

/* ---- copies ---- */

SC_TWINS(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t size), (dst, src, size))
{
    return copy(SYNC, dst, src, size);
}

SC_TWINS(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
         (dst, src, size, stream))
{
    return copy(ASYNC, dst, src, size);
}

/* A device pointer where the call's name wants one. */
static CUresult copy_typed(const where_t *where, uint64_t dst, uint64_t src, size_t size,
                           uint64_t device_side)
{
    if (size > 0 && is_host(device_side) && !sc_host_find(device_side))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(where, dst, src, size);
}

/* Two of them. */
static CUresult copy_device(const where_t *where, uint64_t dst, uint64_t src, size_t size)
{
    if (size > 0 && is_pageable(src))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_typed(where, dst, src, size, dst);
}

/* What is not a context's, managed and host memory, may be said to be anybody's. */
static CUresult check_owner(const sc_ctx_t *ctx, uint64_t addr)
{
    const sc_alloc_t *alloc = sc_heap_find(addr);
    const sc_mapping_t *mapping = sc_mapping_find(addr);
    int device = alloc && alloc->kind != SC_MEM_MANAGED ? alloc->device
                 : mapping                              ? mapping->handle->prop.location.id
                                                        : -1;

    if (!ctx || !ctx->is_alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    return device < 0 || device == ctx->device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The linear form takes any context for memory of cuMemAlloc (measured); a mapping's must be its device's. */
static CUresult check_named(const sc_ctx_t *ctx, uint64_t addr)
{
    return ctx && ctx->is_alive && !sc_mapping_find(addr) ? CUDA_SUCCESS : check_owner(ctx, addr);
}

/* A side whose context counts; a unified address tells whose it is, but a mapping is nobody's. */
static CUresult check_side(CUmemorytype type, const sc_ctx_t *ctx, uint64_t addr)
{
    if (type == CU_MEMORYTYPE_DEVICE)
        return check_owner(ctx, addr);
    return type == CU_MEMORYTYPE_UNIFIED && sc_mapping_find(addr) &&
                   !sc_mapping_holds(addr, 1, sc_ctx_current()->device)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult copy_peer(const where_t *where, uint64_t dst, const sc_ctx_t *dst_ctx, uint64_t src,
                          const sc_ctx_t *src_ctx, size_t size)
{
    CUresult status = check_named(dst_ctx, dst);

    if (status == CUDA_SUCCESS)
        status = check_named(src_ctx, src);
    return status == CUDA_SUCCESS ? copy_device(where, dst, src, size) : status;
}

SC_TWINS(cuMemcpyPeer, _ptds,
         (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size),
         (dst, dst_ctx, src, src_ctx, size))
{
    return copy_peer(PEER_SYNC, dst, dst_ctx, src, src_ctx, size);
}

SC_TWINS(cuMemcpyPeerAsync, _ptsz,
         (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size,
          CUstream stream),
         (dst, dst_ctx, src, src_ctx, size, stream))
{
    return copy_peer(PEER_ASYNC, dst, dst_ctx, src, src_ctx, size);
}

SC_TWINS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t size), (dst, src, size))
{
    return copy_typed(SYNC, dst, ADDRESS(src), size, dst);
}

SC_TWINS(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr dst, const void *src, size_t size, CUstream stream),
         (dst, src, size, stream))
{
    return copy_typed(ASYNC, dst, ADDRESS(src), size, dst);
}

SC_TWINS(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t size), (dst, src, size))
{
    return copy_typed(SYNC, ADDRESS(dst), src, size, src);
}

SC_TWINS(cuMemcpyDtoHAsync_v2, _ptsz, (void *dst, CUdeviceptr src, size_t size, CUstream stream),
         (dst, src, size, stream))
{
    return copy_typed(ASYNC, ADDRESS(dst), src, size, src);
}

SC_TWINS(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t size), (dst, src, size))
{
    return copy_device(SYNC, dst, src, size);
}

SC_TWINS(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
         (dst, src, size, stream))
{
    return copy_device(ASYNC, dst, src, size);
}

/* ---- of two and three dimensions: linear memory only ---- */

/* One side of a copy, of a struct whose fields begin with dst or src. */
#define SIDE(c, x)                                                                                          \
    side((c)->x##MemoryType, (c)->x##Host, (c)->x##Device, (c)->x##Pitch, (c)->x##Height, (c)->x##XInBytes, \
         (c)->x##Y, (c)->x##Z, (c)->WidthInBytes, (c)->Height)

static sc_side_t side(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch, size_t rows,
                      size_t x, size_t y, size_t z, size_t width, size_t height)
{
    sc_side_t side = {.base = type == CU_MEMORYTYPE_HOST ? ADDRESS(host) : device,
                      .pitch = pitch ? pitch : width};

    side.slice = side.pitch * (rows ? rows : height);
    side.base += z * side.slice + y * side.pitch + x;
    return side;
}

/* NOT_SUPPORTED for arrays. */
static CUresult read_copy(const CUDA_MEMCPY3D *c, sc_work_t *out_work)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    *out_work = (sc_work_t){.kind = SC_WORK_COPY,
                            .copy = {.dst = SIDE(c, dst),
                                     .src = SIDE(c, src),
                                     .width = c->WidthInBytes,
                                     .height = c->Height,
                                     .depth = c->Depth}};
    return out_work->copy.dst.pitch < c->WidthInBytes || out_work->copy.src.pitch < c->WidthInBytes
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult copy_3d(const where_t *where, const CUDA_MEMCPY3D *c)
{
    sc_work_t work;
    CUresult status = read_copy(c, &work);

    return status == CUDA_SUCCESS ? submit_copy(where, &work) : status;
}

#define SIDE_2D(x)                                                                     \
    .x##XInBytes = c->x##XInBytes, .x##Y = c->x##Y, .x##MemoryType = c->x##MemoryType, \
    .x##Host = c->x##Host, .x##Device = c->x##Device, .x##Pitch = c->x##Pitch

static CUresult copy_2d(const where_t *where, const CUDA_MEMCPY2D *c)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_3d(where, &(const CUDA_MEMCPY3D){SIDE_2D(src), SIDE_2D(dst), .WidthInBytes = c->WidthInBytes,
                                                 .Height = c->Height, .Depth = 1});
}

SC_TWINS(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *c), (c))
{
    return copy_2d(SYNC, c);
}

SC_TWINS(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *c), (c))
{
    return copy_2d(SYNC, c);
}

SC_TWINS(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *c, CUstream stream), (c, stream))
{
    return copy_2d(ASYNC, c);
}

SC_TWINS(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *c), (c))
{
    return copy_3d(SYNC, c);
}

SC_TWINS(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *c, CUstream stream), (c, stream))
{
    return copy_3d(ASYNC, c);
}

#define SIDE_3D(x) SIDE_2D(x), .x##Z = c->x##Z, .x##Height = c->x##Height

static CUresult copy_3d_peer(const where_t *where, const CUDA_MEMCPY3D_PEER *c)
{
    CUresult status = c ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    if (status == CUDA_SUCCESS)
        status = check_side(c->dstMemoryType, c->dstContext, c->dstDevice);
    if (status == CUDA_SUCCESS)
        status = check_side(c->srcMemoryType, c->srcContext, c->srcDevice);
    if (status != CUDA_SUCCESS)
        return status;
    return copy_3d(where, &(const CUDA_MEMCPY3D){SIDE_3D(src), SIDE_3D(dst), .WidthInBytes = c->WidthInBytes,
                                                 .Height = c->Height, .Depth = c->Depth});
}

SC_TWINS(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *c), (c))
{
    return copy_3d_peer(PEER_SYNC, c);
}

SC_TWINS(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *c, CUstream stream), (c, stream))
{
    return copy_3d_peer(PEER_ASYNC, c);
}

/* ---- in batches: in order, as one after the other ---- */

typedef struct {
    CUdeviceptr *dsts, *srcs;
    size_t *sizes, count;
    CUmemcpyAttributes *attributes; /* each from its first copy on */
    size_t *firsts, attribute_count;
} batch_t;

static bool is_batch_good(const batch_t *b)
{
    if (!b->dsts || !b->srcs || !b->sizes || b->count == 0 || !b->attributes || !b->firsts ||
        b->attribute_count == 0 || b->attribute_count > b->count || b->firsts[0] != 0)
        return false;
    for (size_t i = 0; i < b->attribute_count; i++)
        if (b->firsts[i] >= b->count || (i > 0 && b->firsts[i] <= b->firsts[i - 1]) ||
            b->attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            b->attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
            return false;
    return true;
}

/* out_failed: the copy that was refused, or SIZE_MAX. The legacy stream takes no batches. */
static CUresult copy_batch(const where_t *where, const batch_t *b, size_t *out_failed)
{
    CUresult status = CUDA_SUCCESS;
    where_t each = *where;
    sc_stream_t *stream;
    size_t attribute = 0;

    *out_failed = SIZE_MAX;
    if (!is_batch_good(b))
        return CUDA_ERROR_INVALID_VALUE;
    status = sc_stream_find(where->handle, where->null, &stream);
    if (status == CUDA_SUCCESS && stream->queue->is_legacy)
        status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < b->count; i++) {
        attribute += attribute + 1 < b->attribute_count && b->firsts[attribute + 1] == i;
        each.reads_now =
            b->attributes[attribute].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        status = copy(&each, b->dsts[i], b->srcs[i], b->sizes[i]);
        if (status != CUDA_SUCCESS)
            *out_failed = i;
    }
    return status;
}

SC_TWINS(cuMemcpyBatchAsync, _ptsz,
         (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
          size_t *firsts, size_t attribute_count, size_t *failed, CUstream stream),
         (dsts, srcs, sizes, count, attributes, firsts, attribute_count, failed, stream))
{
    const batch_t batch = {dsts, srcs, sizes, count, attributes, firsts, attribute_count};
    size_t ignored;

    return copy_batch(ASYNC, &batch, failed ? failed : &ignored);
}

SC_TWINS(cuMemcpyBatchAsync_v2, _ptsz,
         (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
          size_t *firsts, size_t attribute_count, CUstream stream),
         (dsts, srcs, sizes, count, attributes, firsts, attribute_count, stream))
{
    const batch_t batch = {dsts, srcs, sizes, count, attributes, firsts, attribute_count};
    size_t ignored;

    return copy_batch(ASYNC, &batch, &ignored);
}

/* ---- for graph nodes ---- */

CUresult sc_copy_plan(const CUDA_MEMCPY3D *c, sc_work_t *out_work)
{
    CUresult status = read_copy(c, out_work);

    return status == CUDA_SUCCESS && !is_empty(out_work) ? plan_copy(&(const where_t){0}, out_work) : status;
}

CUresult sc_set_plan(const CUDA_MEMSET_NODE_PARAMS *set, sc_work_t *out_work)
{
    if (!set || (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) ||
        set->width == 0 || set->height == 0 ||
        (set->height > 1 && set->pitch < set->width * set->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    *out_work = (sc_work_t){.kind = SC_WORK_SET,
                            .set = {.dst = set->dst,
                                    .pitch = set->pitch,
                                    .width = set->width,
                                    .height = set->height,
                                    .value = set->value,
                                    .element = set->elementSize}};
    return plan_set(&(const where_t){0}, out_work);
}

/* ---- managed memory: where it is makes no difference here, only that the stream gets to it ---- */

static CUresult prefetch(const where_t *where, CUdeviceptr base, size_t size, CUmemLocation to,
                         unsigned flags)
{
    sc_work_t work = {.kind = SC_WORK_PREFETCH};
    const sc_alloc_t *alloc = sc_heap_find(base);
    sc_stream_t *stream;

    if (flags != 0 || size == 0 || !alloc || alloc->kind != SC_MEM_MANAGED || !sc_heap_holds(base, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (to.type == CU_MEM_LOCATION_TYPE_DEVICE && (to.id < 0 || to.id >= sc.device_count))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult status = sc_stream_find(where->handle, where->null, &stream);
    if (status == CUDA_SUCCESS)
        status = sc_capture_check_stream(stream); /* there is no node that prefetches */
    sc_work_touch(&work, base, size);
    return status == CUDA_SUCCESS ? submit(where, &work, false) : status;
}

/* -1 is the host. */
SC_TWINS(cuMemPrefetchAsync, _ptsz, (CUdeviceptr base, size_t size, CUdevice device, CUstream stream),
         (base, size, device, stream))
{
    const CUmemLocation to = {.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                              : CU_MEM_LOCATION_TYPE_DEVICE,
                              .id = device};

    return prefetch(ASYNC, base, size, to, 0);
}

SC_TWINS(cuMemPrefetchAsync_v2, _ptsz,
         (CUdeviceptr base, size_t size, CUmemLocation location, unsigned int flags, CUstream stream),
         (base, size, location, flags, stream))
{
    if (location.type < CU_MEM_LOCATION_TYPE_DEVICE || location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(ASYNC, base, size, location, flags);
}

/* ---- sets ---- */

#define SET_FAMILY(bits, type)                                                                              \
    SC_TWINS(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dst, type value, size_t count), (dst, value, count)) \
    {                                                                                                       \
        return set_pitched(SYNC, dst, 0, bits / 8, value, count, 1);                                        \
    }                                                                                                       \
    SC_TWINS(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr dst, type value, size_t count, CUstream stream),   \
             (dst, value, count, stream))                                                                   \
    {                                                                                                       \
        return set_pitched(ASYNC, dst, 0, bits / 8, value, count, 1);                                       \
    }                                                                                                       \
    SC_TWINS(cuMemsetD2D##bits##_v2, _ptds,                                                                 \
             (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),                      \
             (dst, pitch, value, width, height))                                                            \
    {                                                                                                       \
        return set_pitched(SYNC, dst, pitch, bits / 8, value, width, height);                               \
    }                                                                                                       \
    SC_TWINS(cuMemsetD2D##bits##Async, _ptsz,                                                               \
             (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),     \
             (dst, pitch, value, width, height, stream))                                                    \
    {                                                                                                       \
        return set_pitched(ASYNC, dst, pitch, bits / 8, value, width, height);                              \
    }

SET_FAMILY(8, unsigned char)
SET_FAMILY(16, unsigned short)
SET_FAMILY(32, unsigned int)
