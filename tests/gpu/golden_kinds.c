/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_kinds - the kinds of pointers that calls of the driver's golden program are given.
 */
#define _GNU_SOURCE
#include "golden_driver.h"
#include <stdlib.h>
#include <unistd.h>

#define ODD_BYTES 300
#define WILD      0x1000
#define WILD_HIGH 0x600000000000 /* where nobody maps anything */

static int point(golden_bed_t *bed, CUdeviceptr base, size_t bytes, size_t offset)
{
    bed->base = base;
    bed->bytes = bytes;
    bed->addr = base + offset;
    return 0;
}

static int make_null(golden_bed_t *bed)
{
    return point(bed, 0, 0, 0);
}

static int make_wild(golden_bed_t *bed)
{
    return point(bed, WILD, 0, 0);
}

static int make_wild_high(golden_bed_t *bed)
{
    return point(bed, WILD_HIGH, 0, 0);
}

static int make_stack(golden_bed_t *bed)
{
    return point(bed, golden_stack(), 0, 0);
}

static int make_heap(golden_bed_t *bed)
{
    static char page[SMALL_BYTES] __attribute__((aligned(SMALL_BYTES)));

    return point(bed, (CUdeviceptr)(uintptr_t)page, 0, 0);
}

static int allocate(golden_bed_t *bed, size_t bytes, size_t offset)
{
    CUdeviceptr base = 0;
    CUresult result = cuMemAlloc(&base, bytes);

    return result ? (int)result : point(bed, base, bytes, offset);
}

static int make_live(golden_bed_t *bed)
{
    return allocate(bed, SMALL_BYTES, 0);
}

static int make_interior(golden_bed_t *bed)
{
    return allocate(bed, SMALL_BYTES, INTERIOR_BYTES);
}

static int make_last(golden_bed_t *bed)
{
    return allocate(bed, SMALL_BYTES, SMALL_BYTES - 1);
}

static int make_odd(golden_bed_t *bed)
{
    return allocate(bed, ODD_BYTES, 0);
}

static int make_large(golden_bed_t *bed)
{
    return allocate(bed, LARGE_BYTES, 0);
}

static int make_large_interior(golden_bed_t *bed)
{
    return allocate(bed, LARGE_BYTES, HANDLE_BYTES);
}

static void spoil_free(golden_bed_t *bed)
{
    golden_need(cuMemFree(bed->base), "cuMemFree");
}

static int make_pitch(golden_bed_t *bed)
{
    CUdeviceptr base = 0;
    size_t pitch = 0;
    CUresult result = cuMemAllocPitch(&base, &pitch, 100, 10, 4);

    return result ? (int)result : point(bed, base, pitch * 10, 0);
}

static int make_managed(golden_bed_t *bed)
{
    CUdeviceptr base = 0;
    CUresult result = cuMemAllocManaged(&base, SMALL_BYTES, CU_MEM_ATTACH_GLOBAL);

    return result ? (int)result : point(bed, base, SMALL_BYTES, 0);
}

static int make_async(golden_bed_t *bed)
{
    CUdeviceptr base = 0;
    CUresult result = cuMemAllocAsync(&base, SMALL_BYTES, golden_stream);

    if (!result)
        result = cuStreamSynchronize(golden_stream);
    return result ? (int)result : point(bed, base, SMALL_BYTES, 0);
}

static void spoil_async(golden_bed_t *bed)
{
    golden_need(cuMemFreeAsync(bed->base, golden_stream), "cuMemFreeAsync");
    golden_need(cuStreamSynchronize(golden_stream), "cuStreamSynchronize");
}

static int make_host(golden_bed_t *bed)
{
    void *base = NULL;
    CUresult result = cuMemHostAlloc(&base, SMALL_BYTES, 0);

    return result ? (int)result : point(bed, (CUdeviceptr)(uintptr_t)base, SMALL_BYTES, 0);
}

static int make_host_interior(golden_bed_t *bed)
{
    int code = make_host(bed);

    bed->addr += INTERIOR_BYTES;
    return code;
}

static int make_registered(golden_bed_t *bed)
{
    void *base = NULL;
    CUresult result;

    golden_need(posix_memalign(&base, SMALL_BYTES, SMALL_BYTES), "posix_memalign");
    result = cuMemHostRegister(base, SMALL_BYTES, 0);
    return result ? (int)result : point(bed, (CUdeviceptr)(uintptr_t)base, SMALL_BYTES, 0);
}

static int make_reserved(golden_bed_t *bed)
{
    CUdeviceptr base = 0;
    CUresult result = cuMemAddressReserve(&base, HANDLE_BYTES, 0, 0, 0);

    return result ? (int)result : point(bed, base, HANDLE_BYTES, 0);
}

/* The mapping keeps the memory. */
static int map(golden_bed_t *bed, CUmemGenericAllocationHandle handle)
{
    CUresult result = (CUresult)make_reserved(bed);

    if (!result)
        result = cuMemMap(bed->base, HANDLE_BYTES, 0, handle, 0);
    if (!result)
        result = cuMemSetAccess(bed->base, HANDLE_BYTES, &golden_access, 1);
    cuMemRelease(handle);
    return (int)result;
}

static int make_mapped(golden_bed_t *bed)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuMemCreate(&handle, HANDLE_BYTES, &golden_prop, 0);

    return result ? (int)result : map(bed, handle);
}

static int make_mapped_interior(golden_bed_t *bed)
{
    int code = make_mapped(bed);

    bed->addr += INTERIOR_BYTES;
    return code;
}

static int make_imported(golden_bed_t *bed)
{
    CUmemGenericAllocationHandle handle = 0, imported = 0;
    CUresult result = cuMemCreate(&handle, HANDLE_BYTES, &golden_prop, 0);
    int fd = -1;

    if (!result)
        result = cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (!result)
        result = cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (fd >= 0)
        close(fd);
    cuMemRelease(handle);
    return result ? (int)result : map(bed, imported);
}

/* Memory of a graph's allocation node, which has run. */
static int make_graph(golden_bed_t *bed)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                                         .bytesize = SMALL_BYTES};
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;
    CUgraphNode node;
    CUresult result = cuGraphCreate(&graph, 0);

    if (!result)
        result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
    if (!result)
        result = cuGraphInstantiate(&exec, graph, 0);
    if (!result)
        result = cuGraphLaunch(exec, golden_stream);
    if (!result)
        result = cuStreamSynchronize(golden_stream);
    return result ? (int)result : point(bed, params.dptr, SMALL_BYTES, 0);
}

const golden_kind_t golden_kinds[] = {
    /* name, is_literal, where */
    {"null", true, GOLDEN_ALWAYS, make_null, NULL},
    {"wild", true, GOLDEN_ALWAYS, make_wild, NULL},
    {"wild-high", true, GOLDEN_FULL, make_wild_high, NULL},
    {"stack", true, GOLDEN_FULL, make_stack, NULL},
    {"heap", true, GOLDEN_FULL, make_heap, NULL},
    {"live", false, GOLDEN_ALWAYS, make_live, NULL},
    {"interior", false, GOLDEN_ALWAYS, make_interior, NULL},
    {"last-byte", false, GOLDEN_FULL, make_last, NULL},
    {"odd", false, GOLDEN_FULL, make_odd, NULL},
    {"large", false, GOLDEN_FULL, make_large, NULL},
    {"large-interior", false, GOLDEN_FULL, make_large_interior, NULL},
    {"freed", false, GOLDEN_ALWAYS, make_live, spoil_free},
    {"freed-interior", false, GOLDEN_FULL, make_interior, spoil_free},
    {"freed-large", false, GOLDEN_FULL, make_large, spoil_free},
    {"pitch", false, GOLDEN_FULL, make_pitch, NULL},
    {"managed", false, GOLDEN_FULL, make_managed, NULL},
    {"async", false, GOLDEN_ALWAYS, make_async, NULL},
    {"async-freed", false, GOLDEN_FULL, make_async, spoil_async},
    {"graph", false, GOLDEN_FULL, make_graph, NULL},
    {"host", false, GOLDEN_FULL, make_host, NULL},
    {"host-interior", false, GOLDEN_FULL, make_host_interior, NULL},
    {"registered", false, GOLDEN_FULL, make_registered, NULL},
    {"reserved", false, GOLDEN_FULL, make_reserved, NULL},
    {"mapped", false, GOLDEN_ALWAYS, make_mapped, NULL},
    {"mapped-interior", false, GOLDEN_FULL, make_mapped_interior, NULL},
    {"imported", false, GOLDEN_FULL, make_imported, NULL},
};

const size_t golden_kind_count = GOLDEN_COUNT(golden_kinds);
