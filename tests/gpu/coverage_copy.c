/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a late kernel, then a copy or a set of each kind. Where the driver stages pageable memory the call
 * may return before the copy has begun, while it runs, or after it: the row says which ("done").
 */
#include "tests/gpu/coverage.h"
#include <string.h>

#define PITCH  1024
#define WIDTH  512
#define HEIGHT 64

CUresult coverage_h2d_pinned(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemcpyHtoDAsync(bed->to, bed->pinned, COVERAGE_BYTES, bed->stream);
}

CUresult coverage_d2h_pinned(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemcpyDtoHAsync(bed->pinned, bed->from, COVERAGE_BYTES, bed->stream);
}

CUresult coverage_d2d(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemcpyDtoDAsync(bed->to, bed->from, COVERAGE_BYTES, bed->stream);
}

CUresult coverage_unified(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemcpyAsync((CUdeviceptr)bed->pinned, bed->from, COVERAGE_BYTES, bed->stream);
}

static CUresult from_pageable(coverage_bed_t *bed, uint64_t bytes)
{
    coverage_late(bed->stream);
    return cuMemcpyHtoDAsync(bed->to, bed->pageable, bytes, bed->stream);
}

static CUresult to_pageable(coverage_bed_t *bed, uint64_t bytes)
{
    coverage_late(bed->stream);
    return cuMemcpyDtoHAsync(bed->pageable, bed->from, bytes, bed->stream);
}

CUresult coverage_h2d_pageable(coverage_bed_t *bed)
{
    return from_pageable(bed, 4096);
}

CUresult coverage_h2d_pageable_tail(coverage_bed_t *bed)
{
    return from_pageable(bed, COVERAGE_TAIL);
}

CUresult coverage_d2h_pageable(coverage_bed_t *bed)
{
    return to_pageable(bed, 4096);
}

CUresult coverage_d2h_pageable_tail(coverage_bed_t *bed)
{
    return to_pageable(bed, COVERAGE_TAIL);
}

CUresult coverage_copy_2d(coverage_bed_t *bed)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = bed->from,
                                .srcPitch = PITCH,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = bed->pinned,
                                .dstPitch = WIDTH,
                                .WidthInBytes = WIDTH,
                                .Height = HEIGHT};

    coverage_late(bed->stream);
    return cuMemcpy2DAsync(&copy, bed->stream);
}

CUresult coverage_copy_3d(coverage_bed_t *bed)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = bed->from,
                                .srcPitch = PITCH,
                                .srcHeight = HEIGHT,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = bed->to,
                                .dstPitch = PITCH,
                                .dstHeight = HEIGHT,
                                .WidthInBytes = WIDTH,
                                .Height = HEIGHT,
                                .Depth = 2};

    coverage_late(bed->stream);
    return cuMemcpy3DAsync(&copy, bed->stream);
}

CUresult coverage_copy_batch(coverage_bed_t *bed)
{
    CUdeviceptr to[2] = {bed->to, (CUdeviceptr)bed->pinned}, from[2] = {bed->from, bed->from};
    size_t sizes[2] = {COVERAGE_BYTES, COVERAGE_BYTES}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    coverage_late(bed->stream);
    return cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, bed->stream);
}

CUresult coverage_copy_3d_batch(coverage_bed_t *bed)
{
    CUDA_MEMCPY3D_BATCH_OP op = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = bed->from}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = bed->to}},
        .extent = {.width = COVERAGE_BYTES, .height = 1, .depth = 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
    };

    coverage_late(bed->stream);
    return cuMemcpy3DBatchAsync(1, &op, 0, bed->stream);
}

/* Both sides on one device. */
CUresult coverage_copy_peer_form(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemcpyPeerAsync(bed->to, bed->ctx, bed->from, bed->ctx, COVERAGE_BYTES, bed->stream);
}

CUresult coverage_set(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemsetD8Async(bed->to, 1, COVERAGE_BYTES, bed->stream);
}

CUresult coverage_set_2d(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemsetD2D32Async(bed->to, PITCH, 1, WIDTH / 4, HEIGHT, bed->stream);
}

CUresult coverage_set_pinned(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuMemsetD32Async((CUdeviceptr)bed->pinned, 1, 16, bed->stream);
}
