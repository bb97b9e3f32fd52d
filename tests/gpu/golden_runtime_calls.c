/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_runtime_calls - the calls of the runtime's golden program, with a pointer and without.
 */
#define _GNU_SOURCE
#include "golden_runtime.h"

#define SENTINEL   ((void *)0x5e5e5e5e) /* what an output holds before the call */
#define COPY_BYTES 16

static void *pointer(const golden_bed_t *bed)
{
    return (void *)(uintptr_t)bed->addr;
}

/* ---- calls with a pointer ---- */

static int free_it(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaFree(pointer(bed));
}

static int free_twice(golden_bed_t *bed, golden_answer_t *answer)
{
    int first = cudaFree(pointer(bed));

    golden_say(answer, " again %d", cudaFree(pointer(bed)));
    return first;
}

static int free_async(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaFreeAsync(pointer(bed), golden_stream);
}

static int free_host(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaFreeHost(pointer(bed));
}

static int get_attributes(golden_bed_t *bed, golden_answer_t *answer)
{
    struct cudaPointerAttributes found = {.device = 99};
    int code = cudaPointerGetAttributes(&found, pointer(bed));

    if (!code)
        golden_say(answer, " type %d device %d device-pointer %s host-pointer %s", (int)found.type,
                   found.device,
                   found.devicePointer == pointer(bed) ? "same"
                   : found.devicePointer               ? "other"
                                                       : "null",
                   found.hostPointer == pointer(bed) ? "same"
                   : found.hostPointer               ? "other"
                                                     : "null");
    return code;
}

static int ipc_get(golden_bed_t *bed, golden_answer_t *answer)
{
    cudaIpcMemHandle_t handle;

    return cudaIpcGetMemHandle(&handle, pointer(bed));
}

static int ipc_close(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaIpcCloseMemHandle(pointer(bed));
}

static int host_pointer(golden_bed_t *bed, golden_answer_t *answer)
{
    void *device = NULL;
    int code = cudaHostGetDevicePointer(&device, pointer(bed), 0);

    if (!code)
        golden_say(answer, " same %d", device == pointer(bed));
    return code;
}

static int host_flags(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned flags = 0;
    int code = cudaHostGetFlags(&flags, pointer(bed));

    if (!code)
        golden_say(answer, " flags %u", flags);
    return code;
}

static int host_unregister(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaHostUnregister(pointer(bed));
}

static int set_some(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMemset(pointer(bed), 0, COPY_BYTES);
}

static int set_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMemset(pointer(bed), 0, 0);
}

static int set_some_async(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMemsetAsync(pointer(bed), 0, COPY_BYTES, golden_stream);
}

static int copy_out(golden_bed_t *bed, golden_answer_t *answer)
{
    char bytes[COPY_BYTES];

    return cudaMemcpy(bytes, pointer(bed), sizeof bytes, cudaMemcpyDeviceToHost);
}

static int copy_in(golden_bed_t *bed, golden_answer_t *answer)
{
    char bytes[COPY_BYTES] = {0};

    return cudaMemcpy(pointer(bed), bytes, sizeof bytes, cudaMemcpyHostToDevice);
}

static int copy_across(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMemcpy(golden_other, pointer(bed), COPY_BYTES, cudaMemcpyDeviceToDevice);
}

static int copy_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMemcpy(golden_other, pointer(bed), 0, cudaMemcpyDeviceToDevice);
}

static int copy_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    char bytes[COPY_BYTES] = {0};

    return cudaMemcpy(pointer(bed), bytes, sizeof bytes, (enum cudaMemcpyKind)99);
}

/* ---- calls without one ---- */

static int finish(golden_bed_t *bed, golden_answer_t *answer, cudaError_t error, void *block)
{
    if (error)
        golden_say(answer, " untouched %d", block == SENTINEL);
    else if (!block)
        golden_say(answer, " null");
    else
        bed->kept = (uint64_t)(uintptr_t)block;
    return (int)error;
}

static int alloc(golden_bed_t *bed, golden_answer_t *answer, size_t bytes)
{
    void *block = SENTINEL;
    cudaError_t error = cudaMalloc(&block, bytes);

    return finish(bed, answer, error, block);
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
    golden_say(answer, " zero %d", cudaMalloc(NULL, 0));
    return cudaMalloc(NULL, SMALL_BYTES);
}

/* After a refusal the next request is served. */
static int alloc_after_refusal(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = NULL;

    golden_say(answer, " after %d", cudaMalloc(&block, (size_t)1 << 50));
    return alloc(bed, answer, SMALL_BYTES);
}

/* A call that succeeds leaves an earlier error. */
static int alloc_beside_an_error(golden_bed_t *bed, golden_answer_t *answer)
{
    golden_say(answer, " after %d", cudaFree((void *)WILD));
    return alloc(bed, answer, SMALL_BYTES);
}

static int pitch(golden_bed_t *bed, golden_answer_t *answer, size_t width, size_t height)
{
    void *block = SENTINEL;
    size_t bytes = 77;
    cudaError_t error = cudaMallocPitch(&block, &bytes, width, height);

    golden_say(answer, " pitch %zu", bytes);
    return finish(bed, answer, error, block);
}

#define PITCH(name, width, height)                              \
    static int name(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                           \
        return pitch(bed, answer, width, height);               \
    }
PITCH(pitch_1, 1, 1)
PITCH(pitch_513, 513, 7)
PITCH(pitch_no_width, 0, 8)
PITCH(pitch_no_height, 8, 0)
PITCH(pitch_huge, (size_t)1 << 40, (size_t)1 << 30)
PITCH(pitch_max, SIZE_MAX, 1)
#undef PITCH

static int pitch_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = SENTINEL;
    size_t bytes = 0;

    golden_say(answer, " block %d", cudaMallocPitch(NULL, &bytes, 8, 8));
    return cudaMallocPitch(&block, NULL, 8, 8);
}

static int cube(golden_bed_t *bed, golden_answer_t *answer, struct cudaExtent extent)
{
    struct cudaPitchedPtr block = {.ptr = SENTINEL};
    cudaError_t error = cudaMalloc3D(&block, extent);

    golden_say(answer, " pitch %zu x %zu y %zu", block.pitch, block.xsize, block.ysize);
    return finish(bed, answer, error, block.ptr);
}

#define CUBE(name, width, height, depth)                                     \
    static int name(golden_bed_t *bed, golden_answer_t *answer)              \
    {                                                                        \
        return cube(bed, answer, (struct cudaExtent){width, height, depth}); \
    }
CUBE(cube_small, 100, 10, 3)
CUBE(cube_zero, 100, 0, 3)
CUBE(cube_huge, (size_t)1 << 40, (size_t)1 << 20, (size_t)1 << 20)
#undef CUBE

static int array_free_null(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaFreeArray(NULL);
}

static int managed(golden_bed_t *bed, golden_answer_t *answer, size_t bytes, unsigned flags)
{
    void *block = SENTINEL;
    cudaError_t error = cudaMallocManaged(&block, bytes, flags);

    return finish(bed, answer, error, block);
}

static int managed_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    return managed(bed, answer, 0, cudaMemAttachGlobal);
}

static int managed_flags(golden_bed_t *bed, golden_answer_t *answer)
{
    return managed(bed, answer, SMALL_BYTES, 99);
}

static int async_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = SENTINEL;
    cudaError_t error = cudaMallocAsync(&block, 0, golden_stream);

    return finish(bed, answer, error, block);
}

static int async_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaMallocAsync(NULL, SMALL_BYTES, golden_stream);
}

static int host_zero(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = SENTINEL;

    golden_say(answer, " %d", cudaHostAlloc(&block, 0, cudaHostAllocDefault));
    golden_say(answer, " %s", block == SENTINEL ? "untouched" : block ? "some" : "null");
    return cudaHostAlloc(NULL, SMALL_BYTES, cudaHostAllocDefault);
}

static int info_both(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t available = 1, total = 0;
    int code = cudaMemGetInfo(&available, &total);

    golden_say(answer, " some %d too-much %d", available > 1, available > total);
    return code;
}

static int info_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t bytes = 0;

    golden_say(answer, " free %d", cudaMemGetInfo(&bytes, NULL));
    golden_say(answer, " total %d", cudaMemGetInfo(NULL, &bytes));
    return cudaMemGetInfo(NULL, NULL);
}

/* Never more while the block is there; as much afterwards as before. */
static int info_moves(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t before = 0, within = 0, after = 0, total = 0;
    void *block = NULL;
    int code = cudaMemGetInfo(&before, &total);

    if (!code)
        code = cudaMalloc(&block, (size_t)64 << 20);
    if (code)
        return code;
    cudaMemGetInfo(&within, &total);
    code = cudaFree(block);
    cudaMemGetInfo(&after, &total);
    golden_say(answer, " falls %d by-it %d restored %d", within < before, before - within == (size_t)64 << 20,
               after == before);
    return code;
}

static int attributes_nowhere(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaPointerGetAttributes(NULL, golden_other);
}

static int overrun(golden_bed_t *bed, golden_answer_t *answer, size_t bytes, bool is_set)
{
    static char copy[LARGE_BYTES + 1];
    void *block = NULL;
    int code = cudaMalloc(&block, bytes);

    if (code)
        return code;
    bed->kept = (uint64_t)(uintptr_t)block;
    return is_set ? cudaMemset(block, 0, bytes + 1)
                  : cudaMemcpy(copy, block, bytes + 1, cudaMemcpyDeviceToHost);
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

static int ipc_open_garbage(golden_bed_t *bed, golden_answer_t *answer)
{
    void *opened = SENTINEL;
    cudaIpcMemHandle_t handle = {{0}};
    int code;

    for (size_t i = 0; i < sizeof handle; i++)
        handle.reserved[i] = (char)(i * 37 + 11);
    code = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
    golden_say(answer, " untouched %d", opened == SENTINEL);
    return code;
}

static int peer_first(golden_bed_t *bed, golden_answer_t *answer)
{
    int code = cudaDeviceEnablePeerAccess(0, 0);

    golden_say(answer, " again %d", cudaDeviceEnablePeerAccess(0, 0));
    golden_say(answer, " disable %d", cudaDeviceDisablePeerAccess(0));
    golden_say(answer, " again %d", cudaDeviceDisablePeerAccess(0));
    return code;
}

static int peer_no_device(golden_bed_t *bed, golden_answer_t *answer)
{
    int can = -1;

    golden_say(answer, " can %d", cudaDeviceCanAccessPeer(&can, 0, 99));
    golden_say(answer, " disable %d", cudaDeviceDisablePeerAccess(99));
    return cudaDeviceEnablePeerAccess(99, 0);
}

static int set_no_device(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaSetDevice(99);
}

static int synchronize(golden_bed_t *bed, golden_answer_t *answer)
{
    return cudaDeviceSynchronize();
}

static int end_capture_wrongly(golden_bed_t *bed, golden_answer_t *answer)
{
    cudaGraph_t graph = NULL;

    return cudaStreamEndCapture(golden_stream, &graph);
}

static int look_up(golden_answer_t *answer, const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult status = (enum cudaDriverEntryPointQueryResult)9;
    void *found = SENTINEL;
    int code = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status);

    golden_say(answer, " status %d %s", (int)status,
               !found              ? "null"
               : found == SENTINEL ? "untouched"
                                   : "found");
    return code;
}

#define LOOK_UP(function, name, version)                            \
    static int function(golden_bed_t *bed, golden_answer_t *answer) \
    {                                                               \
        (void)bed;                                                  \
        return look_up(answer, name, version);                      \
    }
LOOK_UP(look_up_alloc, "cuMemAlloc", 13000)
LOOK_UP(look_up_alloc_old, "cuMemAlloc", 2000)
LOOK_UP(look_up_unknown, "cuNoSuchThing", 13000)
#undef LOOK_UP

const golden_call_t golden_pointer_calls[] = {
    {"cudaFree", GOLDEN_FIRST_TOO, free_it},
    {"cudaFree/twice", GOLDEN_FULL, free_twice},
    {"cudaFreeAsync", GOLDEN_ALWAYS, free_async},
    {"cudaFreeHost", GOLDEN_FULL, free_host},
    {"cudaPointerGetAttributes", GOLDEN_FIRST_TOO, get_attributes},
    {"cudaIpcGetMemHandle", GOLDEN_ALWAYS, ipc_get},
    {"cudaIpcCloseMemHandle", GOLDEN_FULL, ipc_close},
    {"cudaHostGetDevicePointer", GOLDEN_FULL, host_pointer},
    {"cudaHostGetFlags", GOLDEN_FULL, host_flags},
    {"cudaHostUnregister", GOLDEN_FULL, host_unregister},
    {"cudaMemset", GOLDEN_ALWAYS, set_some},
    {"cudaMemset/nothing", GOLDEN_FULL, set_nothing},
    {"cudaMemsetAsync", GOLDEN_FULL, set_some_async},
    {"cudaMemcpy/out", GOLDEN_ALWAYS, copy_out},
    {"cudaMemcpy/in", GOLDEN_FULL, copy_in},
    {"cudaMemcpy/across", GOLDEN_ALWAYS, copy_across},
    {"cudaMemcpy/nothing", GOLDEN_FULL, copy_nothing},
    {"cudaMemcpy/kind-99", GOLDEN_FULL, copy_nowhere},
};
const size_t golden_pointer_call_count = GOLDEN_COUNT(golden_pointer_calls);

const golden_call_t golden_other_calls[] = {
    {"cudaMalloc/0", GOLDEN_FIRST_TOO, alloc_zero},
    {"cudaMalloc/1", GOLDEN_ALWAYS, alloc_one},
    {"cudaMalloc/4096", GOLDEN_FIRST_TOO, alloc_small},
    {"cudaMalloc/64m", GOLDEN_ALWAYS, alloc_large},
    {"cudaMalloc/1t", GOLDEN_FULL, alloc_1t},
    {"cudaMalloc/1p", GOLDEN_FIRST_TOO, alloc_1p},
    {"cudaMalloc/max-4096", GOLDEN_FULL, alloc_almost_max},
    {"cudaMalloc/max", GOLDEN_ALWAYS, alloc_max},
    {"cudaMalloc/nowhere", GOLDEN_FIRST_TOO, alloc_nowhere},
    {"cudaMalloc/after-a-refusal", GOLDEN_ALWAYS, alloc_after_refusal},
    {"cudaMalloc/beside-an-error", GOLDEN_ALWAYS, alloc_beside_an_error},
    {"cudaMallocPitch/1x1", GOLDEN_ALWAYS, pitch_1},
    {"cudaMallocPitch/513x7", GOLDEN_FULL, pitch_513},
    {"cudaMallocPitch/0x8", GOLDEN_ALWAYS, pitch_no_width},
    {"cudaMallocPitch/8x0", GOLDEN_FULL, pitch_no_height},
    {"cudaMallocPitch/huge", GOLDEN_FULL, pitch_huge},
    {"cudaMallocPitch/max", GOLDEN_FULL, pitch_max},
    {"cudaMallocPitch/nowhere", GOLDEN_FULL, pitch_nowhere},
    {"cudaMalloc3D/100x10x3", GOLDEN_ALWAYS, cube_small},
    {"cudaMalloc3D/100x0x3", GOLDEN_FULL, cube_zero},
    {"cudaMalloc3D/huge", GOLDEN_FULL, cube_huge},
    {"cudaFreeArray/null", GOLDEN_ALWAYS, array_free_null},
    {"cudaMallocManaged/0", GOLDEN_ALWAYS, managed_zero},
    {"cudaMallocManaged/flags", GOLDEN_FULL, managed_flags},
    {"cudaMallocAsync/0", GOLDEN_ALWAYS, async_zero},
    {"cudaMallocAsync/nowhere", GOLDEN_FULL, async_nowhere},
    {"cudaHostAlloc/0", GOLDEN_ALWAYS, host_zero},
    {"cudaMemGetInfo", GOLDEN_FIRST_TOO, info_both},
    {"cudaMemGetInfo/nothing", GOLDEN_FIRST_TOO, info_nothing},
    {"cudaMemGetInfo/moves", GOLDEN_ALWAYS, info_moves},
    {"cudaPointerGetAttributes/nowhere", GOLDEN_ALWAYS, attributes_nowhere},
    {"cudaMemcpy/overrun", GOLDEN_FULL, overrun_read},
    {"cudaMemcpy/overrun-large", GOLDEN_FULL, overrun_read_large},
    {"cudaMemset/overrun", GOLDEN_FULL, overrun_set},
    {"cudaMemset/overrun-large", GOLDEN_FULL, overrun_set_large},
    {"cudaIpcOpenMemHandle/garbage", GOLDEN_ALWAYS, ipc_open_garbage},
    {"cudaDeviceEnablePeerAccess/0", GOLDEN_ALWAYS, peer_first},
    {"cudaDeviceEnablePeerAccess/no-device", GOLDEN_ALWAYS, peer_no_device},
    {"cudaSetDevice/no-device", GOLDEN_FIRST_TOO, set_no_device},
    {"cudaDeviceSynchronize", GOLDEN_FIRST_TOO, synchronize},
    {"cudaStreamEndCapture/wrongly", GOLDEN_ALWAYS, end_capture_wrongly},
    {"cudaGetDriverEntryPoint/cuMemAlloc", GOLDEN_ALWAYS, look_up_alloc},
    {"cudaGetDriverEntryPoint/cuMemAlloc-2000", GOLDEN_FULL, look_up_alloc_old},
    {"cudaGetDriverEntryPoint/unknown", GOLDEN_FULL, look_up_unknown},
};
const size_t golden_other_call_count = GOLDEN_COUNT(golden_other_calls);
