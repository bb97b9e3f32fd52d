/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copy - when a copy reads and writes, in every shape: pinned memory when the stream comes to it,
 * pageable memory at once or with a wait; pitched, cubic and batched copies; two devices; managed memory
 * and variables; times between events.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/pattern.h"

typedef struct {
    bed_t bed;
    CUstream stream;
    CUdeviceptr block;
    unsigned char *pinned; /* 4096 bytes */
} copy_bed_t;

static copy_bed_t make_copy_bed(void)
{
    copy_bed_t c = {.bed = make_bed()};

    OK(cuStreamCreate(&c.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&c.block, 4096));
    OK(cuMemHostAlloc((void **)&c.pinned, 4096, 0));
    OK(cuMemsetD8(c.block, 7, 4096));
    OK(cuCtxSynchronize());
    return c;
}

static CUdeviceptr device_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static unsigned char load(const unsigned char *byte)
{
    return __atomic_load_n(byte, __ATOMIC_ACQUIRE);
}

static void release(const copy_bed_t *c)
{
    softcuda_release(c->stream);
    OK(cuStreamSynchronize(c->stream));
}

/* ---- when ---- */

/* A host that looks too early sees the old bytes; one that overwrites its source too early spoils the
 * copy. */
TEST(copy, pinned_memory_is_touched_by_the_stream)
{
    copy_bed_t c = make_copy_bed();
    unsigned char found[64];

    for (int is_unified = 0; is_unified < 2; is_unified++) {
        memset(c.pinned, 1, 128);
        CHECK_EQ(softcuda_hold(c.stream), 0);
        if (is_unified) {
            OK(cuMemcpyAsync(device_address(c.pinned), c.block, 64, c.stream));
            OK(cuMemcpyAsync(c.block + 64, device_address(c.pinned + 64), 64, c.stream));
        } else {
            OK(cuMemcpyDtoHAsync(c.pinned, c.block, 64, c.stream));
            OK(cuMemcpyHtoDAsync(c.block + 64, c.pinned + 64, 64, c.stream));
        }
        CHECK_EQ(load(&c.pinned[0]), 1);
        memset(c.pinned + 64, 9, 64);
        release(&c);
        CHECK_EQ(c.pinned[63], 7);
        OK(cuMemcpyDtoH(found, c.block + 64, 64));
        CHECK(found[0] == 9 && found[63] == 9);
    }
    drop_bed(&c.bed);
}

TEST(copy, pageable_source_is_read_at_once)
{
    copy_bed_t c = make_copy_bed();
    unsigned char pageable[64], found[64];

    memset(pageable, 3, sizeof pageable);
    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(cuMemcpyHtoDAsync(c.block, pageable, sizeof pageable, c.stream));
    memset(pageable, 4, sizeof pageable);
    release(&c);
    OK(cuMemcpyDtoH(found, c.block, sizeof found));
    CHECK(found[0] == 3 && found[63] == 3);
    drop_bed(&c.bed);
}

static void *release_later(void *stream)
{
    usleep(20000);
    softcuda_release(stream);
    return NULL;
}

TEST(copy, pageable_destination_waits)
{
    copy_bed_t c = make_copy_bed();
    unsigned char pageable[64] = {0};
    pthread_t thread;

    CHECK_EQ(softcuda_hold(c.stream), 0);
    CHECK_EQ(pthread_create(&thread, NULL, release_later, c.stream), 0);
    OK(cuMemcpyDtoHAsync(pageable, c.block, sizeof pageable, c.stream));
    CHECK(pageable[0] == 7 && pageable[63] == 7);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    drop_bed(&c.bed);
}

/* ---- shapes ---- */

/* Two slices of two rows of 8 bytes, out of a cube of 4 x 4 rows of 16 bytes, at (4, 1, 1). */
TEST(copy, cubes)
{
    copy_bed_t c = make_copy_bed();
    CUDA_MEMCPY3D cube = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = c.pinned,
                          .srcPitch = 16,
                          .srcHeight = 4,
                          .srcXInBytes = 4,
                          .srcY = 1,
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = c.block,
                          .WidthInBytes = 8,
                          .Height = 2,
                          .Depth = 2};
    unsigned char found[32];

    for (int i = 0; i < 256; i++)
        c.pinned[i] = (unsigned char)i;
    for (int is_async = 0; is_async < 2; is_async++) {
        OK(cuMemsetD8(c.block, 0, 64));
        OK(is_async ? cuMemcpy3DAsync(&cube, NULL) : cuMemcpy3D(&cube));
        OK(cuMemcpyDtoH(found, c.block, sizeof found));
        for (int i = 0; i < 32; i++)
            CHECK_EQ(found[i], (i / 16 + 1) * 64 + (i / 8 % 2 + 1) * 16 + 4 + i % 8);
    }
    cube.srcPitch = 4; /* narrower than a row */
    CHECK_CU(cuMemcpy3D(&cube), CUDA_ERROR_INVALID_VALUE);
    cube.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK_CU(cuMemcpy3D(&cube), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CU(cuMemcpy3D(NULL), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&c.bed);
}

TEST(copy, planes)
{
    copy_bed_t c = make_copy_bed();
    const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = c.block,
                                 .srcPitch = 512,
                                 .dstMemoryType = CU_MEMORYTYPE_HOST,
                                 .dstHost = c.pinned,
                                 .dstPitch = 16,
                                 .dstXInBytes = 8,
                                 .WidthInBytes = 8,
                                 .Height = 3};

    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(cuMemsetD2D32Async(c.block, 512, 0x05050505, 2, 3, c.stream));
    OK(cuMemcpy2DAsync(&plane, c.stream));
    CHECK_EQ(load(&c.pinned[8]), 0);
    release(&c);
    for (int i = 0; i < 48; i++)
        CHECK_EQ(c.pinned[i], i % 16 < 8 ? 0 : 5);
    drop_bed(&c.bed);
}

/* Each copy by its attribute: the first source is read in the call, the second in stream order. */
TEST(copy, batches)
{
    copy_bed_t c = make_copy_bed();
    CUdeviceptr dsts[] = {c.block, c.block + 64},
                srcs[] = {device_address(c.pinned), device_address(c.pinned + 64)};
    size_t sizes[] = {8, 8}, firsts[] = {0, 1};
    CUmemcpyAttributes attributes[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
                                       {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
    unsigned char found[72];

    memset(c.pinned, 1, 128);
    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, firsts, 2, c.stream));
    memset(c.pinned, 2, 128);
    release(&c);
    OK(cuMemcpyDtoH(found, c.block, sizeof found));
    CHECK_EQ(found[0], 1);
    CHECK_EQ(found[64], 2);
    CHECK_CU(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, firsts, 2, NULL), CUDA_ERROR_INVALID_VALUE);
    firsts[1] = 2;
    CHECK_CU(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, firsts, 2, c.stream),
             CUDA_ERROR_INVALID_VALUE);
    drop_bed(&c.bed);
}

/* ---- two devices (the test runs with SOFTCUDA_DEVICES=2) ---- */

typedef struct {
    CUcontext ctx;
    CUstream stream;
    CUdeviceptr block;
} other_t;

/* A second context, on the second device; the bed's is current again afterwards. */
static other_t make_other(void)
{
    other_t other;

    OK(cuCtxCreate(&other.ctx, NULL, 0, 1));
    OK(cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&other.block, 4096));
    OK(cuMemsetD8(other.block, 3, 4096));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent(NULL));
    return other;
}

TEST(copy, between_devices)
{
    copy_bed_t c = make_copy_bed();
    other_t other = make_other();
    CUDA_MEMCPY3D_PEER cube = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = other.block,
                               .srcContext = other.ctx,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = c.block,
                               .dstContext = c.bed.ctx,
                               .WidthInBytes = 16,
                               .Height = 1,
                               .Depth = 1};
    unsigned char found[16];

    for (int way = 0; way < 4; way++) {
        OK(cuMemsetD8(c.block, 7, 16));
        OK(way == 0   ? cuMemcpyPeer(c.block, c.bed.ctx, other.block, other.ctx, 16)
           : way == 1 ? cuMemcpyPeerAsync(c.block, c.bed.ctx, other.block, other.ctx, 16, NULL)
           : way == 2 ? cuMemcpy3DPeer(&cube)
                      : cuMemcpy3DPeerAsync(&cube, NULL));
        OK(cuMemcpyDtoH(found, c.block, 16));
        CHECK(found[0] == 3 && found[15] == 3);
    }
    OK(cuMemcpyPeer(c.block, other.ctx, other.block, other.ctx, 16)); /* the wrong one: measured */
    OK(cuCtxSynchronize());
    CHECK_CU(cuMemcpyPeer(c.block, c.bed.ctx, other.block, NULL, 16), CUDA_ERROR_INVALID_CONTEXT);
    cube.dstContext = other.ctx;
    CHECK_CU(cuMemcpy3DPeer(&cube), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxDestroy(other.ctx));
    drop_bed(&c.bed);
}

/* A kernel reaches the other device's memory when its context has asked for it; else its context is
 * broken. */
TEST(copy, peer_access)
{
    copy_bed_t c = make_copy_bed();
    other_t other = make_other();
    CUdeviceptr managed;
    uint64_t word = 0;

    OK(cuCtxPushCurrent(other.ctx));
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuCtxPopCurrent(NULL));
    OK(fill(&c.bed, c.stream, managed, 8, 5)); /* managed memory needs no permission */
    OK(cuStreamSynchronize(c.stream));
    OK(cuCtxEnablePeerAccess(other.ctx, 0));
    CHECK_CU(cuCtxEnablePeerAccess(other.ctx, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(fill(&c.bed, c.stream, other.block, 8, 5));
    OK(cuStreamSynchronize(c.stream));
    OK(cuMemcpyDtoH(&word, other.block, 8));
    CHECK_EQ(word, softcuda_fill_word(5, 0));
    OK(cuCtxDisablePeerAccess(other.ctx));
    OK(fill(&c.bed, c.stream, other.block, 8, 6));
    CHECK_CU(cuStreamSynchronize(c.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuMemAlloc(&managed, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(c.bed.ctx, CUDA_SUCCESS);
    OK(cuCtxDestroy(other.ctx));
    drop_bed(&c.bed);
}

/* Access is to a context, not to its device; it ends with that context. */
TEST(copy, peer_access_by_context)
{
    copy_bed_t c = make_copy_bed();
    other_t other = make_other(), second = make_other();

    OK(cuCtxEnablePeerAccess(other.ctx, 0));
    CHECK_CU(cuCtxDisablePeerAccess(second.ctx), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxEnablePeerAccess(second.ctx, 0));
    OK(cuCtxDisablePeerAccess(other.ctx));
    OK(fill(&c.bed, c.stream, second.block, 8, 5));
    OK(cuStreamSynchronize(c.stream));
    OK(cuCtxDestroy(second.ctx));
    CHECK_CU(cuCtxDisablePeerAccess(second.ctx), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxDestroy(other.ctx));
    drop_bed(&c.bed);
}

/* A stream of one context waits for an event of another; the event is recorded in its own. */
TEST(copy, events_across_contexts)
{
    copy_bed_t c = make_copy_bed();
    other_t other = make_other();
    CUevent event;

    OK(cuCtxPushCurrent(other.ctx));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuEventRecord(event, c.stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(softcuda_hold(other.stream), 0);
    OK(cuMemsetD8Async(device_address(c.pinned), 5, 8, other.stream));
    OK(cuEventRecord(event, other.stream));
    OK(cuCtxPopCurrent(NULL));
    OK(cuStreamWaitEvent(c.stream, event, 0));
    OK(cuMemcpyHtoDAsync(c.block, c.pinned, 8, c.stream));
    usleep(3000);
    CHECK_CU(cuStreamQuery(c.stream), CUDA_ERROR_NOT_READY);
    softcuda_release(other.stream);
    OK(cuStreamSynchronize(c.stream));
    OK(cuMemcpyDtoH(c.pinned + 8, c.block, 8));
    CHECK_EQ(c.pinned[8], 5);
    OK(cuCtxDestroy(other.ctx));
    drop_bed(&c.bed);
}

/* ---- managed memory, variables ---- */

static bool is_managed(CUdeviceptr addr)
{
    unsigned value = 2;

    OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, addr));
    return value;
}

TEST(copy, managed_memory)
{
    copy_bed_t c = make_copy_bed();
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                        gone = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 7};
    CUdeviceptr managed;

    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK(is_managed(managed) && !is_managed(c.block));
    *(volatile uint64_t *)(uintptr_t)managed = 5; /* the host's, too */
    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(cuMemPrefetchAsync(managed, 4096, here, 0, c.stream));
    CHECK_CU(cuStreamQuery(c.stream), CUDA_ERROR_NOT_READY);
    release(&c);
    CHECK_CU(cuMemPrefetchAsync(c.block, 4096, here, 0, c.stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemPrefetchAsync(managed, 8192, here, 0, c.stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemPrefetchAsync(managed, 4096, gone, 0, c.stream), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemFree(managed));
    drop_bed(&c.bed);
}

TEST(copy, variables)
{
    copy_bed_t c = make_copy_bed();
    uint64_t live = softcuda_live_allocations();
    CUdeviceptr managed, device, none;
    CUmodule module;
    size_t size;

    OK(cuModuleLoadData(&module, "softcuda\nfill\nmanaged_words\ndevice_words\n"));
    OK(cuModuleGetGlobal(&managed, &size, module, "managed_words"));
    CHECK(is_managed(managed) && size == 4096);
    OK(cuModuleGetGlobal(&device, NULL, module, "device_words"));
    CHECK(!is_managed(device));
    CHECK_EQ(*(volatile uint64_t *)(uintptr_t)managed, 0);
    OK(fill(&c.bed, c.stream, managed, 8, 5));
    OK(cuStreamSynchronize(c.stream));
    CHECK_EQ(*(volatile uint64_t *)(uintptr_t)managed, softcuda_fill_word(5, 0));
    CHECK_CU(cuMemFree(managed), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuModuleGetGlobal(&none, &size, module, "fill"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuModuleGetGlobal(&none, &size, c.bed.module, "managed_words"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleUnload(module));
    CHECK_EQ(softcuda_live_allocations(), live);
    drop_bed(&c.bed);
}

/* ---- other doors: older versions, per-thread streams ---- */

static void *look_up(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    void *address = NULL;

    OK(cuGetProcAddress(name, &address, version, flags, &status));
    return address;
}

TEST(copy, older_versions)
{
    copy_bed_t c = make_copy_bed();
    PFN_cuMemPrefetchAsync_v8000 prefetch =
        (PFN_cuMemPrefetchAsync_v8000)look_up("cuMemPrefetchAsync", 8000, 0);
    PFN_cuMemcpyBatchAsync_v12080 batch =
        (PFN_cuMemcpyBatchAsync_v12080)look_up("cuMemcpyBatchAsync", 12080, 0);
    PFN_cuStreamWriteValue32_v8000 write =
        (PFN_cuStreamWriteValue32_v8000)look_up("cuStreamWriteValue32", 8000, 0);
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr managed, dsts[2] = {c.block + 64, 0}, srcs[2] = {c.block, c.block};
    size_t sizes[2] = {8, 8}, first = 0, failed = 0;

    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(prefetch(managed, 4096, CU_DEVICE_CPU, c.stream));
    CHECK_CU(cuStreamQuery(c.stream), CUDA_ERROR_NOT_READY);
    CHECK_CU(prefetch(managed, 4096, 7, c.stream), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CU(batch(dsts, srcs, sizes, 2, &attributes, &first, 1, &failed, c.stream),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(failed, 1);
    OK(batch(dsts, srcs, sizes, 1, &attributes, &first, 1, &failed, c.stream));
    CHECK_CU(write(c.stream, c.block, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
    release(&c);
    drop_bed(&c.bed);
}

/* Through the per-thread door the null stream is the thread's. */
TEST(copy, per_thread_door)
{
    copy_bed_t c = make_copy_bed();
    PFN_cuStreamWriteValue32_v11070_ptsz write =
        (PFN_cuStreamWriteValue32_v11070_ptsz)look_up("cuStreamWriteValue32", 13000, 2);
    PFN_cuMemcpy3DAsync_v7000_ptsz cube =
        (PFN_cuMemcpy3DAsync_v7000_ptsz)look_up("cuMemcpy3DAsync", 13000, 2);
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = c.block,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = c.block + 64,
                                .WidthInBytes = 8,
                                .Height = 1,
                                .Depth = 1};

    for (int i = 0; i < 2; i++) {
        CHECK_EQ(softcuda_hold(CU_STREAM_PER_THREAD), 0);
        OK(i == 0 ? write(NULL, c.block, 1, 0) : cube(&copy, NULL));
        CHECK_CU(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
        CHECK_CU(cuStreamQuery(c.stream), CUDA_SUCCESS);
        softcuda_release(CU_STREAM_PER_THREAD);
        OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }
    drop_bed(&c.bed);
}

/* ---- time ---- */

TEST(copy, elapsed_time)
{
    copy_bed_t c = make_copy_bed();
    CUevent start, end, plain;
    float ms = -1;

    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(start, c.stream));
    OK(cuEventSynchronize(start));
    CHECK_EQ(softcuda_hold(c.stream), 0);
    OK(cuEventRecord(end, c.stream));
    OK(cuEventRecord(plain, c.stream));
    CHECK_CU(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    usleep(10000);
    release(&c);
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms >= 10);
    CHECK_CU(cuEventElapsedTime(&ms, start, plain), CUDA_ERROR_INVALID_HANDLE);
    drop_bed(&c.bed);
}
