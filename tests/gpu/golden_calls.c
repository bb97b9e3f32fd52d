/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_calls - the calls of the driver's golden program that take no pointer, or one that they make.
 */
#define _GNU_SOURCE
#include "golden_driver.h"
#include <unistd.h>

/* ---- allocations ---- */

static int alloc(golden_bed_t *bed, golden_answer_t *answer, size_t bytes)
{
    CUdeviceptr block = SENTINEL;
    int code = cuMemAlloc(&block, bytes);

    if (code)
        golden_say(answer, " untouched %d", block == SENTINEL);
    else
        bed->kept = block;
    return code;
}

#define ALLOC(name, bytes)                                      \
    static int name(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                           \
        return alloc(bed, answer, bytes);                       \
    }
ALLOC(alloc_zero, 0)
ALLOC(alloc_one, 1)
ALLOC(alloc_small, SMALL_BYTES)
ALLOC(alloc_large, (size_t)64 << 20)
ALLOC(alloc_1t, (size_t)1 << 40)
ALLOC(alloc_1p, (size_t)1 << 50)
ALLOC(alloc_almost_max, SIZE_MAX - 4096)
ALLOC(alloc_max, SIZE_MAX)
#undef ALLOC

static int alloc_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemAlloc(NULL, SMALL_BYTES);
}

static int alloc_zero_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemAlloc(NULL, 0);
}

/* After a refusal the next request is served. */
static int alloc_after_refusal(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr block = 0;

    golden_say(answer, " after %d", cuMemAlloc(&block, (size_t)1 << 50));
    return alloc(bed, answer, SMALL_BYTES);
}

static int pitch(golden_bed_t *bed, golden_answer_t *answer, size_t width, size_t height, unsigned element)
{
    CUdeviceptr block = SENTINEL;
    size_t bytes = 0;
    int code = cuMemAllocPitch(&block, &bytes, width, height, element);

    if (code)
        golden_say(answer, " untouched %d", block == SENTINEL && bytes == 0);
    else
        golden_say(answer, " pitch %zu", bytes);
    if (!code)
        bed->kept = block;
    return code;
}

#define PITCH(name, width, height, element)                     \
    static int name(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                           \
        return pitch(bed, answer, width, height, element);      \
    }
PITCH(pitch_1, 1, 1, 4)
PITCH(pitch_513, 513, 7, 8)
PITCH(pitch_4097, 4097, 3, 16)
PITCH(pitch_no_width, 0, 8, 4)
PITCH(pitch_no_height, 8, 0, 4)
PITCH(pitch_element, 8, 8, 3)
PITCH(pitch_huge, (size_t)1 << 40, (size_t)1 << 30, 4)
PITCH(pitch_max, SIZE_MAX, 1, 4)
#undef PITCH

static int pitch_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t bytes = 0;

    golden_say(answer, " block %d", cuMemAllocPitch(NULL, &bytes, 8, 8, 4));
    return cuMemAllocPitch(&bed->kept, NULL, 8, 8, 4);
}

static int managed(golden_bed_t *bed, golden_answer_t *answer, size_t bytes, unsigned flags)
{
    CUdeviceptr block = SENTINEL;
    int code = cuMemAllocManaged(&block, bytes, flags);

    if (code)
        golden_say(answer, " untouched %d", block == SENTINEL);
    else
        bed->kept = block;
    return code;
}

static int managed_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    return managed(bed, answer, 0, CU_MEM_ATTACH_GLOBAL);
}

static int managed_flags(golden_bed_t *bed, golden_answer_t *answer)
{
    return managed(bed, answer, SMALL_BYTES, 99);
}

static int async_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr block = SENTINEL;
    int code = cuMemAllocAsync(&block, 0, golden_stream);

    golden_say(answer, " untouched %d null %d", block == SENTINEL, block == 0);
    return code;
}

static int async_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemAllocAsync(NULL, SMALL_BYTES, golden_stream);
}

static int host_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = NULL;

    golden_say(answer, " nowhere %d", cuMemHostAlloc(NULL, SMALL_BYTES, 0));
    return cuMemHostAlloc(&block, 0, 0);
}

static int info_both(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t available = SENTINEL, total = SENTINEL;
    int code = cuMemGetInfo(&available, &total);

    if (code)
        golden_say(answer, " untouched %d", available == SENTINEL && total == SENTINEL);
    else
        golden_say(answer, " some %d too-much %d", available > 0, available > total);
    return code;
}

static int info_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t bytes = 0;

    golden_say(answer, " free %d", cuMemGetInfo(&bytes, NULL));
    golden_say(answer, " total %d", cuMemGetInfo(NULL, &bytes));
    return cuMemGetInfo(NULL, NULL);
}

/* Never more while the block is there; as much afterwards as before. */
static int info_moves(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t before = 0, within = 0, after = 0, total = 0;
    CUdeviceptr block = 0;
    int code = cuMemGetInfo(&before, &total);

    if (!code)
        code = cuMemAlloc(&block, (size_t)64 << 20);
    if (code)
        return code;
    cuMemGetInfo(&within, &total);
    code = cuMemFree(block);
    cuMemGetInfo(&after, &total);
    golden_say(answer, " falls %d by-it %d restored %d", within < before, before - within == (size_t)64 << 20,
               after == before);
    return code;
}

/* The driver may keep what a small block took. */
static int info_moves_little(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t before = 0, within = 0, after = 0;
    int code = cuMemGetInfo(&before, NULL);

    if (!code)
        code = alloc(bed, answer, 1);
    if (code)
        return code;
    cuMemGetInfo(&within, NULL);
    code = cuMemFree(bed->kept);
    bed->kept = 0;
    cuMemGetInfo(&after, NULL);
    golden_say(answer, " rises %d falls-again %d", within > before, after < within);
    return code;
}

/* ---- descriptors of ranges: of a block that begins on a page, as small ones need not ---- */

static int dma_buf(golden_bed_t *bed, size_t offset, size_t bytes, bool is_freed)
{
    int fd = -1;
    int code = cuMemAlloc(&bed->kept, LARGE_BYTES);
    CUdeviceptr block = bed->kept;

    if (!code && is_freed) {
        code = cuMemFree(block);
        bed->kept = 0;
    }
    if (!code)
        code =
            cuMemGetHandleForAddressRange(&fd, block + offset, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (fd >= 0)
        close(fd);
    return code;
}

#define DMA_BUF(name, offset, bytes, is_freed)                  \
    static int name(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                           \
        (void)answer;                                           \
        return dma_buf(bed, offset, bytes, is_freed);           \
    }
DMA_BUF(dma_buf_whole, 0, LARGE_BYTES, false)
DMA_BUF(dma_buf_part, HANDLE_BYTES, SMALL_BYTES, false)
DMA_BUF(dma_buf_unaligned, INTERIOR_BYTES, SMALL_BYTES, false)
DMA_BUF(dma_buf_nothing, 0, 0, false)
DMA_BUF(dma_buf_overrun, 0, LARGE_BYTES + SMALL_BYTES, false)
DMA_BUF(dma_buf_freed, 0, LARGE_BYTES, true)
#undef DMA_BUF

/* ---- attributes of neighbours ---- */

static int buffer_ids(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned long long kept = 0, first = 0, second = 0;
    CUdeviceptr other = 0;
    int code = alloc(bed, answer, SMALL_BYTES);

    if (code)
        return code;
    cuPointerGetAttribute(&kept, CU_POINTER_ATTRIBUTE_BUFFER_ID, bed->kept);
    for (int i = 0; i < 2 && !code; i++) {
        code = cuMemAlloc(&other, SMALL_BYTES);
        cuPointerGetAttribute(i ? &second : &first, CU_POINTER_ATTRIBUTE_BUFFER_ID, other);
        cuMemFree(other);
    }
    golden_say(answer, " differ %d differ-after-a-free %d", kept != first, first != second);
    return code;
}

static int neighbours_sync_memops(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned yes = 1, of_neighbour = 9, of_next = 9;
    CUdeviceptr other = 0, next = 0;
    int code = alloc(bed, answer, SMALL_BYTES);

    if (code || cuMemAlloc(&other, SMALL_BYTES))
        return code;
    code = cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, bed->kept);
    cuPointerGetAttribute(&of_neighbour, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other);
    cuMemFree(bed->kept);
    bed->kept = 0;
    cuMemAlloc(&next, SMALL_BYTES);
    cuPointerGetAttribute(&of_next, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, next);
    golden_say(answer, " neighbour %u next-block %u", of_neighbour, of_next);
    cuMemFree(other);
    cuMemFree(next);
    return code;
}

/* ---- ranges that are longer than their memory ---- */

static int overrun(golden_bed_t *bed, golden_answer_t *answer, size_t bytes, bool is_set)
{
    static char copy[LARGE_BYTES + 1];
    int code = cuMemAlloc(&bed->kept, bytes);

    if (code)
        return code;
    return is_set ? cuMemsetD8(bed->kept, 0, bytes + 1) : cuMemcpyDtoH(copy, bed->kept, bytes + 1);
}

static int overrun_read(golden_bed_t *bed, golden_answer_t *answer)
{
    return overrun(bed, answer, SMALL_BYTES, false);
}

static int overrun_read_large(golden_bed_t *bed, golden_answer_t *answer)
{
    return overrun(bed, answer, LARGE_BYTES, false);
}

static int overrun_set(golden_bed_t *bed, golden_answer_t *answer)
{
    return overrun(bed, answer, SMALL_BYTES, true);
}

static int overrun_set_large(golden_bed_t *bed, golden_answer_t *answer)
{
    return overrun(bed, answer, LARGE_BYTES, true);
}

/* ---- sharing, peers, pools ---- */

static int ipc_get_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    int code = cuMemAlloc(&bed->kept, SMALL_BYTES);

    return code ? code : (int)cuIpcGetMemHandle(NULL, bed->kept);
}

static int ipc_open_garbage(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr opened = SENTINEL;
    CUipcMemHandle handle = {{0}};
    int code;

    for (size_t i = 0; i < sizeof handle; i++)
        handle.reserved[i] = (char)(i * 37 + 11);
    code = cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    golden_say(answer, " untouched %d", opened == SENTINEL);
    return code;
}

static int ipc_open_zeros(golden_bed_t *bed, golden_answer_t *answer)
{
    CUipcMemHandle handle = {{0}};
    CUdeviceptr opened = 0;

    golden_say(answer, " flags %d", cuIpcOpenMemHandle(&opened, handle, 0));
    return cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* By the process that made it. */
static int ipc_open_own(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr opened = 0;
    CUipcMemHandle handle;
    int code = cuMemAlloc(&bed->kept, HANDLE_BYTES);

    if (!code)
        golden_say(answer, " get %d", cuIpcGetMemHandle(&handle, bed->kept));
    return code ? code : (int)cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static int can_reach_itself(golden_bed_t *bed, golden_answer_t *answer)
{
    int can = -1, code = cuDeviceCanAccessPeer(&can, 0, 0);

    golden_say(answer, " can %d", can);
    return code;
}

/* Access to the first context's memory, which may be the current one; as it was afterwards. */
static int peer_first(golden_bed_t *bed, golden_answer_t *answer)
{
    int code = cuCtxEnablePeerAccess(golden_first, 0);

    golden_say(answer, " again %d", cuCtxEnablePeerAccess(golden_first, 0));
    golden_say(answer, " disable %d", cuCtxDisablePeerAccess(golden_first));
    golden_say(answer, " again %d", cuCtxDisablePeerAccess(golden_first));
    if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        cuCtxEnablePeerAccess(golden_first, 0);
    return code;
}

static int peer_null(golden_bed_t *bed, golden_answer_t *answer)
{
    golden_say(answer, " disable %d", cuCtxDisablePeerAccess(NULL));
    return cuCtxEnablePeerAccess(NULL, 0);
}

static int peer_flags(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuCtxEnablePeerAccess(golden_first, 1);
}

static int pool_create_null(golden_bed_t *bed, golden_answer_t *answer)
{
    CUmemoryPool pool = NULL;

    golden_say(answer, " properties %d", cuMemPoolCreate(&pool, NULL));
    return cuMemPoolCreate(NULL, NULL);
}

/* ---- contexts, streams, look-ups: what is hooked beside memory ---- */

static int release_no_device(golden_bed_t *bed, golden_answer_t *answer)
{
    golden_say(answer, " reset %d", cuDevicePrimaryCtxReset(99));
    return cuDevicePrimaryCtxRelease(99);
}

static int destroy_null(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuCtxDestroy(NULL);
}

static int current(golden_bed_t *bed, golden_answer_t *answer)
{
    CUcontext context = NULL;
    int code = cuCtxGetCurrent(&context);

    if (!code)
        golden_say(answer, " %s", golden_context_name(context));
    return code;
}

static int synchronize(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuCtxSynchronize();
}

static int begin_capture_wrongly(golden_bed_t *bed, golden_answer_t *answer)
{
    golden_say(answer, " legacy %d", cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
    return cuStreamBeginCapture(golden_stream, (CUstreamCaptureMode)77);
}

static int end_capture_wrongly(golden_bed_t *bed, golden_answer_t *answer)
{
    CUgraph graph = NULL;

    return cuStreamEndCapture(golden_stream, &graph);
}

static int destroy_null_stream(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuStreamDestroy(NULL);
}

static int look_up(golden_answer_t *answer, const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    void *found = (void *)SENTINEL;
    int code = cuGetProcAddress(name, &found, version, flags, &status);

    golden_say(answer, " status %d %s", (int)status,
               !found                      ? "null"
               : found == (void *)SENTINEL ? "untouched"
                                           : "found");
    return code;
}

#define LOOK_UP(function, name, version, flags)                     \
    static int function(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                               \
        (void)bed;                                                  \
        return look_up(answer, name, version, flags);               \
    }
LOOK_UP(look_up_alloc, "cuMemAlloc", 13000, 0)
LOOK_UP(look_up_alloc_old, "cuMemAlloc", 2000, 0)
LOOK_UP(look_up_alloc_suffixed, "cuMemAlloc_v2", 13000, 0)
LOOK_UP(look_up_alloc_version_0, "cuMemAlloc", 0, 0)
LOOK_UP(look_up_alloc_flags, "cuMemAlloc", 13000, 64)
LOOK_UP(look_up_async_too_old, "cuMemFreeAsync", 11000, 0)
LOOK_UP(look_up_unknown, "cuNoSuchThing", 13000, 0)
LOOK_UP(look_up_empty, "", 13000, 0)
LOOK_UP(look_up_null, NULL, 13000, 0)
#undef LOOK_UP

static int look_up_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuGetProcAddress("cuMemAlloc", NULL, 13000, 0, NULL);
}

const golden_call_t golden_other_calls[] = {
    {"cuMemAlloc/0", GOLDEN_ALWAYS, alloc_zero},
    {"cuMemAlloc/1", GOLDEN_ALWAYS, alloc_one},
    {"cuMemAlloc/4096", GOLDEN_ALWAYS, alloc_small},
    {"cuMemAlloc/64m", GOLDEN_ALWAYS, alloc_large},
    {"cuMemAlloc/1t", GOLDEN_FULL, alloc_1t},
    {"cuMemAlloc/1p", GOLDEN_ALWAYS, alloc_1p},
    {"cuMemAlloc/max-4096", GOLDEN_FULL, alloc_almost_max},
    {"cuMemAlloc/max", GOLDEN_ALWAYS, alloc_max},
    {"cuMemAlloc/nowhere", GOLDEN_ALWAYS, alloc_nowhere},
    {"cuMemAlloc/0-nowhere", GOLDEN_FULL, alloc_zero_nowhere},
    {"cuMemAlloc/after-a-refusal", GOLDEN_ALWAYS, alloc_after_refusal},
    {"cuMemAllocPitch/1x1", GOLDEN_ALWAYS, pitch_1},
    {"cuMemAllocPitch/513x7", GOLDEN_FULL, pitch_513},
    {"cuMemAllocPitch/4097x3", GOLDEN_FULL, pitch_4097},
    {"cuMemAllocPitch/0x8", GOLDEN_ALWAYS, pitch_no_width},
    {"cuMemAllocPitch/8x0", GOLDEN_FULL, pitch_no_height},
    {"cuMemAllocPitch/element-3", GOLDEN_FULL, pitch_element},
    {"cuMemAllocPitch/huge", GOLDEN_FULL, pitch_huge},
    {"cuMemAllocPitch/max", GOLDEN_FULL, pitch_max},
    {"cuMemAllocPitch/nowhere", GOLDEN_FULL, pitch_nowhere},
    {"cuMemAllocManaged/0", GOLDEN_ALWAYS, managed_zero},
    {"cuMemAllocManaged/flags", GOLDEN_FULL, managed_flags},
    {"cuMemAllocAsync/0", GOLDEN_ALWAYS, async_zero},
    {"cuMemAllocAsync/nowhere", GOLDEN_FULL, async_nowhere},
    {"cuMemHostAlloc/0", GOLDEN_ALWAYS, host_zero},
    {"cuMemGetInfo", GOLDEN_ALWAYS, info_both},
    {"cuMemGetInfo/nothing", GOLDEN_ALWAYS, info_nothing},
    {"cuMemGetInfo/moves", GOLDEN_ALWAYS, info_moves},
    {"cuMemGetInfo/moves-little", GOLDEN_FULL, info_moves_little},
    {"cuPointerGetAttribute/BUFFER_ID-differs", GOLDEN_FULL, buffer_ids},
    {"cuPointerSetAttribute/SYNC_MEMOPS-of-neighbours", GOLDEN_FULL, neighbours_sync_memops},
    {"cuMemGetHandleForAddressRange/whole", GOLDEN_FULL, dma_buf_whole},
    {"cuMemGetHandleForAddressRange/part", GOLDEN_FULL, dma_buf_part},
    {"cuMemGetHandleForAddressRange/unaligned", GOLDEN_FULL, dma_buf_unaligned},
    {"cuMemGetHandleForAddressRange/nothing", GOLDEN_FULL, dma_buf_nothing},
    {"cuMemGetHandleForAddressRange/overrun", GOLDEN_FULL, dma_buf_overrun},
    {"cuMemGetHandleForAddressRange/freed", GOLDEN_FULL, dma_buf_freed},
    {"cuMemcpyDtoH/overrun", GOLDEN_FULL, overrun_read},
    {"cuMemcpyDtoH/overrun-large", GOLDEN_FULL, overrun_read_large},
    {"cuMemsetD8/overrun", GOLDEN_FULL, overrun_set},
    {"cuMemsetD8/overrun-large", GOLDEN_FULL, overrun_set_large},
    {"cuIpcGetMemHandle/nowhere", GOLDEN_FULL, ipc_get_nowhere},
    {"cuIpcOpenMemHandle/garbage", GOLDEN_ALWAYS, ipc_open_garbage},
    {"cuIpcOpenMemHandle/zeros", GOLDEN_FULL, ipc_open_zeros},
    {"cuIpcOpenMemHandle/own", GOLDEN_FULL, ipc_open_own},
    {"cuDeviceCanAccessPeer/itself", GOLDEN_ALWAYS, can_reach_itself},
    {"cuCtxEnablePeerAccess/first", GOLDEN_ALWAYS, peer_first},
    {"cuCtxEnablePeerAccess/null", GOLDEN_ALWAYS, peer_null},
    {"cuCtxEnablePeerAccess/flags", GOLDEN_FULL, peer_flags},
    {"cuMemPoolCreate/null", GOLDEN_ALWAYS, pool_create_null},
    {"cuDevicePrimaryCtxRelease/no-device", GOLDEN_ALWAYS, release_no_device},
    {"cuCtxDestroy/null", GOLDEN_ALWAYS, destroy_null},
    {"cuCtxGetCurrent", GOLDEN_ALWAYS, current},
    {"cuCtxSynchronize", GOLDEN_ALWAYS, synchronize},
    {"cuStreamBeginCapture/wrongly", GOLDEN_ALWAYS, begin_capture_wrongly},
    {"cuStreamEndCapture/wrongly", GOLDEN_ALWAYS, end_capture_wrongly},
    {"cuStreamDestroy/null", GOLDEN_ALWAYS, destroy_null_stream},
    {"cuGetProcAddress/cuMemAlloc", GOLDEN_ALWAYS, look_up_alloc},
    {"cuGetProcAddress/cuMemAlloc-2000", GOLDEN_FULL, look_up_alloc_old},
    {"cuGetProcAddress/cuMemAlloc_v2", GOLDEN_FULL, look_up_alloc_suffixed},
    {"cuGetProcAddress/cuMemAlloc-0", GOLDEN_FULL, look_up_alloc_version_0},
    {"cuGetProcAddress/cuMemAlloc-flags", GOLDEN_FULL, look_up_alloc_flags},
    {"cuGetProcAddress/cuMemFreeAsync-11000", GOLDEN_FULL, look_up_async_too_old},
    {"cuGetProcAddress/unknown", GOLDEN_ALWAYS, look_up_unknown},
    {"cuGetProcAddress/empty", GOLDEN_FULL, look_up_empty},
    {"cuGetProcAddress/null", GOLDEN_FULL, look_up_null},
    {"cuGetProcAddress/nowhere", GOLDEN_FULL, look_up_nowhere},
};
const size_t golden_other_call_count = GOLDEN_COUNT(golden_other_calls);
