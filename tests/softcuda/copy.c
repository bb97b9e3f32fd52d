/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy - copies and sets, one-dimensional and pitched. What waits is as natively: a synchronous copy with
 * host memory on a side waits; between device addresses, and a set, it does not. An asynchronous copy from
 * pageable memory takes its bytes before it returns, one to pageable memory waits.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool is_sync;
    CUstream handle;
    sc_null_t null;
    bool is_peer; /* reaches every device's memory */
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

static uint64_t span(size_t pitch, size_t width, size_t height)
{
    return height ? (height - 1) * pitch + width : 0;
}

/* Replaces a pageable source by an owned copy of its bytes. */
static void stage(sc_work_t *work)
{
    uint64_t size = span(work->copy.src_pitch, work->copy.width, work->copy.height);

    work->staged = sc_zalloc(size);
    memcpy(work->staged, (const void *)(uintptr_t)work->copy.src, size);
    work->copy.src = (uint64_t)(uintptr_t)work->staged;
}

static CUresult find_stream(const where_t *where, sc_stream_t **out_stream)
{
    CUresult status = sc_stream_find(where->handle, where->null, out_stream);

    if (status == CUDA_SUCCESS && where->is_sync)
        status = sc_capture_check_stream(*out_stream);
    return status;
}

static CUresult submit(const where_t *where, sc_work_t *work, bool must_wait)
{
    sc_stream_t *stream;
    sc_op_t *op;
    CUresult status = find_stream(where, &stream);

    if (status == CUDA_SUCCESS && work->kind == SC_WORK_COPY && !stream->capture && !must_wait &&
        is_pageable(work->copy.src))
        stage(work);
    if (status == CUDA_SUCCESS)
        status = sc_stream_submit(stream, work, &op);
    if (status != CUDA_SUCCESS) {
        free(work->staged);
        return status;
    }
    return op && must_wait ? sc_op_wait(op) : CUDA_SUCCESS;
}

/* A side that is a device address must lie in one live allocation, or be mapped with access for the current
 * device. */
static bool is_side_good(const where_t *where, uint64_t addr, uint64_t size)
{
    return addr != 0 &&
           (is_host(addr) || sc_is_usable(addr, size, where->is_peer ? -1 : sc_ctx_current()->device));
}

static CUresult copy_pitched(const where_t *where, uint64_t dst, size_t dst_pitch, uint64_t src,
                             size_t src_pitch, size_t width, size_t height)
{
    sc_work_t work = {.kind = SC_WORK_COPY,
                      .copy = {.dst = dst,
                               .src = src,
                               .dst_pitch = dst_pitch,
                               .src_pitch = src_pitch,
                               .width = width,
                               .height = height}};

    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (!is_side_good(where, dst, span(dst_pitch, width, height)) ||
        !is_side_good(where, src, span(src_pitch, width, height)))
        return CUDA_ERROR_INVALID_VALUE;
    sc_work_touch(&work, dst, span(dst_pitch, width, height));
    sc_work_touch(&work, src, span(src_pitch, width, height));
    bool must_wait = where->is_sync ? is_host(dst) || is_host(src) : is_pageable(dst);
    return submit(where, &work, must_wait);
}

static CUresult copy(const where_t *where, uint64_t dst, uint64_t src, size_t size)
{
    return copy_pitched(where, dst, size, src, size, size, 1);
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
    uint64_t size = span(pitch, width * element, height);

    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (dst % element != 0 || !is_side_good(where, dst, size) || (is_host(dst) && is_pageable(dst)))
        return CUDA_ERROR_INVALID_VALUE;
    sc_work_touch(&work, dst, size);
    return submit(where, &work, false);
}

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define SYNC             (&(const where_t){true, NULL, null, false})
#define ASYNC            (&(const where_t){false, stream, null, false})
#define PEER_SYNC        (&(const where_t){true, NULL, null, true})
#define PEER_ASYNC       (&(const where_t){false, stream, null, true})

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

SC_TWINS(cuMemcpyPeer, _ptds,
         (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size),
         (dst, dst_ctx, src, src_ctx, size))
{
    return copy(PEER_SYNC, dst, src, size);
}

SC_TWINS(cuMemcpyPeerAsync, _ptsz,
         (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size,
          CUstream stream),
         (dst, dst_ctx, src, src_ctx, size, stream))
{
    return copy(PEER_ASYNC, dst, src, size);
}

/* A device pointer where the call's name wants one. */
static CUresult copy_typed(const where_t *where, uint64_t dst, uint64_t src, size_t size,
                           uint64_t device_side)
{
    if (size > 0 && is_host(device_side) && !sc_host_find(device_side))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(where, dst, src, size);
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
    return copy(SYNC, dst, src, size);
}

SC_TWINS(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
         (dst, src, size, stream))
{
    return copy(ASYNC, dst, src, size);
}

/* One side of a pitched copy; 0 for an array, which is refused. */
static uint64_t side(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                     size_t pitch)
{
    if (type == CU_MEMORYTYPE_HOST)
        return ADDRESS(host) + y * pitch + x;
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
        return device + y * pitch + x;
    return 0;
}

static CUresult copy_2d(const where_t *where, const CUDA_MEMCPY2D *c)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    size_t dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    if (dst_pitch < c->WidthInBytes || src_pitch < c->WidthInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t dst = side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, dst_pitch);
    uint64_t src = side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, src_pitch);
    return copy_pitched(where, dst, dst_pitch, src, src_pitch, c->WidthInBytes, c->Height);
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
