/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_softcuda - the driver itself: error codes, what waits, order, events, captures, look-ups. Where a
 * value was measured on hardware the test says "measured". Time appears only as "not before": an event must
 * not be complete while a kernel waits for a flag that the test holds.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/claim.h"
#include "tests/softcuda/pattern.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/unit.h"

/* ---- error codes ---- */

TEST(softcuda, alloc_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr block = 77;

    CHECK_CU(cuMemAlloc(&block, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAlloc(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAlloc(&block, 1ull << 50), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CU(cuMemAlloc(&block, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(block, 0); /* measured: a refusal writes */
    drop_bed(&bed);
}

TEST(softcuda, free_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr block;
    int local;

    OK(cuMemAlloc(&block, 4096));
    CHECK_CU(cuMemFree(block + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFree((CUdeviceptr)(uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(0));
    OK(cuMemFree(block));
    CHECK_CU(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

TEST(softcuda, sticky_error)
{
    bed_t bed = make_bed();
    CUdeviceptr block;

    OK(cuMemAlloc(&block, 4096));
    softcuda_stick(bed.ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuMemAlloc(&block, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuMemFree(block), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    drop_bed(&bed);
}

/* A kernel on memory that is not allocated: the context is broken afterwards. */
TEST(softcuda, wild_kernel)
{
    bed_t bed = make_bed();
    CUdeviceptr block;

    OK(cuMemAlloc(&block, 4096));
    OK(fill(&bed, NULL, block, 8192, 1));
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuMemFree(block), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    drop_bed(&bed);
}

TEST(softcuda, injected_failure)
{
    bed_t bed = make_bed();
    CUdeviceptr block;

    CHECK_EQ(softcuda_fail_nth("cuMemAlloc_v2", 2, CUDA_ERROR_UNKNOWN), 0);
    CHECK_EQ(softcuda_fail_nth("cuNoSuchCall", 1, CUDA_ERROR_UNKNOWN), -1);
    OK(cuMemAlloc(&block, 512));
    CHECK_CU(cuMemAlloc(&block, 512), CUDA_ERROR_UNKNOWN);
    OK(cuMemAlloc(&block, 512));
    CHECK_EQ(softcuda_calls("cuMemAlloc_v2"), 3);
    drop_bed(&bed);
}

/* ---- memory ---- */

TEST(softcuda, spacing_measured)
{
    bed_t bed = make_bed();
    CUdeviceptr a, b, base;
    size_t size;

    OK(cuMemAlloc(&a, 256));
    OK(cuMemAlloc(&b, 256));
    CHECK_EQ(b - a, 512);
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemAlloc(&b, 4096));
    CHECK_EQ(b - a, 4096);
    OK(cuMemGetAddressRange(&base, &size, a + 100));
    CHECK_EQ(base, a);
    CHECK_EQ(size, 4096);
    CHECK_CU(cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)&bed), CUDA_ERROR_NOT_FOUND);
    OK(cuMemAlloc(&a, 2 * MIB));
    CHECK_EQ(a % (2 * MIB), 0);
    drop_bed(&bed);
}

TEST(softcuda, out_of_memory_at_the_limit)
{
    bed_t bed = make_bed();
    CUdeviceptr block, other;
    size_t idle, total;

    OK(cuMemGetInfo(&idle, &total));
    uint64_t held = softcuda_held_bytes();
    softcuda_set_memory(held + 8 * MIB);
    OK(cuMemAlloc(&block, 8 * MIB));
    CHECK_CU(cuMemAlloc(&other, 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(block));
    OK(cuMemAlloc(&block, 1));
    softcuda_set_memory(total);
    drop_bed(&bed);
    CHECK_EQ(softcuda_held_bytes(), held);
}

TEST(softcuda, memory_dies_with_its_context)
{
    bed_t bed = make_bed();
    uint64_t held = softcuda_held_bytes();
    CUdeviceptr block;
    CUcontext other;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    for (int i = 0; i < 40; i++)
        OK(cuMemAlloc(&block, 100000u * (unsigned)(i + 1)));
    OK(cuCtxDestroy(other));
    CHECK_EQ(softcuda_held_bytes(), held);
    CHECK_CU(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuCtxDestroy(other), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    drop_bed(&bed);
}

TEST(softcuda, pointer_attributes)
{
    bed_t bed = make_bed();
    CUdeviceptr block, start = 0;
    unsigned long long id = 0, interior_id = 1;
    unsigned type = 0;
    int ordinal = 5;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *data[] = {&type, &start};

    OK(cuMemAlloc(&block, 4096));
    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    OK(cuPointerGetAttribute(&interior_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block + 1000));
    CHECK_EQ(id, interior_id);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    CHECK_EQ(ordinal, 0);
    CHECK_CU(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)&bed),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttributes(2, wanted, data, block + 8));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(start, block);
    OK(cuPointerGetAttributes(2, wanted, data, (CUdeviceptr)(uintptr_t)&bed));
    CHECK_EQ(type, 0);
    drop_bed(&bed);
}

TEST(softcuda, ipc_handle_of_interior_is_the_bases_measured)
{
    bed_t bed = make_bed();
    CUipcMemHandle base, interior;
    CUdeviceptr block;

    OK(cuMemAlloc(&block, 4096));
    OK(cuIpcGetMemHandle(&base, block));
    OK(cuIpcGetMemHandle(&interior, block + 512));
    CHECK(memcmp(&base, &interior, sizeof base) == 0);
    drop_bed(&bed);
}

/* ---- what waits ---- */

typedef struct {
    bed_t *bed;
    CUdeviceptr block;
    _Atomic bool is_freed;
} freeing_t;

static void *free_in_thread(void *argument)
{
    freeing_t *freeing = argument;

    cuCtxSetCurrent(freeing->bed->ctx);
    cuMemFree(freeing->block);
    freeing->is_freed = true;
    return NULL;
}

/* Measured: a free returns when all that was submitted to the context before it is done, on any stream. */
TEST(softcuda, free_waits_for_the_context)
{
    bed_t bed = make_bed();
    freeing_t freeing = {.bed = &bed};
    CUdeviceptr other;
    CUstream stream;
    pthread_t thread;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&freeing.block, 4096));
    OK(hold(&bed, stream));
    CHECK_EQ(pthread_create(&thread, NULL, free_in_thread, &freeing), 0);
    usleep(20000);
    CHECK(!freeing.is_freed);
    OK(cuMemAlloc(&other, 4096)); /* an allocation does not wait: this line is reached */
    set_flag(&bed, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(freeing.is_freed);
    drop_bed(&bed);
}

TEST(softcuda, free_ignores_other_contexts)
{
    bed_t bed = make_bed();
    CUcontext other;
    CUdeviceptr block;

    OK(hold(&bed, NULL));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&block, 4096));
    OK(cuMemFree(block)); /* returns although the flag is not set */
    OK(cuCtxDestroy(other));
    drop_bed(&bed);
}

/* ---- streams and events ---- */

TEST(softcuda, kernels_compute)
{
    bed_t bed = make_bed();
    uint64_t bytes = 100003, seed = 42, found[2];
    unsigned char copy[100003];
    CUdeviceptr block, out;

    OK(cuMemAlloc(&block, bytes));
    OK(cuMemAlloc(&out, 16));
    CUdeviceptr out_hash = out + 8;
    void *verify_params[] = {&block, &bytes, &seed, &out};
    void *hash_params[] = {&block, &bytes, &out_hash};
    OK(cuMemsetD8(out, 0, 16));
    OK(fill(&bed, NULL, block, bytes, seed));
    OK(launch(bed.verify, NULL, verify_params));
    OK(launch(bed.hash, NULL, hash_params));
    OK(cuMemcpyDtoH(found, out, 16));
    OK(cuMemcpyDtoH(copy, block, bytes));
    CHECK_EQ(found[0], 0);
    CHECK_EQ(found[1], softcuda_hash_region(copy, bytes));
    CHECK_EQ(softcuda_verify_region(copy, bytes, seed), 0);
    OK(cuMemsetD8(block + bytes - 1, copy[bytes - 1] ^ 1, 1)); /* one bit of the tail */
    OK(launch(bed.verify, NULL, verify_params));
    OK(cuMemcpyDtoH(found, out, 16));
    CHECK_EQ(found[0], 1);
    drop_bed(&bed);
}

static CUfunction find_kernel(const bed_t *bed, const char *name)
{
    CUfunction function = NULL;

    OK(cuModuleGetFunction(&function, bed->module, name));
    return function;
}

TEST(softcuda, more_kernels_compute)
{
    bed_t bed = make_bed();
    uint64_t bytes = 1000, words = 3, steps = 4, us = 1000, seed = 6, chain[3] = {2, 0, 1}, out;
    float x[2] = {1, 2}, y[2] = {10, 20}, factor = 3;
    uint64_t count = 2;
    unsigned char copied[1000];
    CUdeviceptr a, b;

    OK(cuMemAlloc(&a, bytes));
    OK(cuMemAlloc(&b, bytes));
    void *late_params[] = {&a, &bytes, &seed, &us}, *copy_params[] = {&b, &a, &bytes};
    void *chase_params[] = {&a, &words, &steps, &b}, *axpy_params[] = {&a, &b, &count, &factor};
    OK(launch(find_kernel(&bed, "late_fill"), NULL, late_params));
    OK(launch(find_kernel(&bed, "copy"), NULL, copy_params));
    OK(cuMemcpyDtoH(copied, b, bytes));
    CHECK_EQ(softcuda_verify_region(copied, bytes, seed), 0);
    OK(cuMemcpyHtoD(a, chain, sizeof chain));
    OK(launch(find_kernel(&bed, "chase"), NULL, chase_params));
    OK(cuMemcpyDtoH(&out, b, sizeof out));
    CHECK_EQ(out, 2); /* 0 -> 2 -> 1 -> 0 -> 2 */
    OK(cuMemcpyHtoD(a, y, sizeof y));
    OK(cuMemcpyHtoD(b, x, sizeof x));
    OK(launch(find_kernel(&bed, "axpy"), NULL, axpy_params));
    OK(cuMemcpyDtoH(y, a, sizeof y));
    CHECK(y[0] == 13 && y[1] == 26);
    drop_bed(&bed);
}

TEST(softcuda, images)
{
    bed_t bed = make_bed();
    CUmodule module;
    CUfunction function;

    CHECK_CU(cuModuleLoadData(&module, "\177ELF"), CUDA_ERROR_INVALID_IMAGE);
    CHECK_CU(cuModuleLoadData(&module, "softcuda\nno_such_kernel\n"), CUDA_ERROR_INVALID_IMAGE);
    OK(cuModuleLoadData(&module, "softcuda\nfill\nspin\n"));
    OK(cuModuleGetFunction(&function, module, "spin"));
    CHECK_CU(cuModuleGetFunction(&function, module, "hash"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleUnload(module));
    drop_bed(&bed);
}

/* Each stream in order; the legacy stream before and after the blocking ones; a non-blocking one beside it.
 */
TEST(softcuda, legacy_order)
{
    bed_t bed = make_bed();
    CUstream blocking, aside;

    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&aside, CU_STREAM_NON_BLOCKING));
    OK(hold(&bed, NULL));
    CUdeviceptr block;
    OK(cuMemAlloc(&block, 4096));
    OK(cuMemsetD8Async(block, 1, 4096, blocking));
    OK(cuMemsetD8Async(block, 2, 2048, aside));
    OK(cuStreamSynchronize(aside));
    usleep(20000);
    CHECK_CU(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    set_flag(&bed, 1);
    OK(cuStreamSynchronize(blocking));
    set_flag(&bed, 0);
    OK(hold(&bed, blocking));
    OK(cuMemsetD8Async(block, 3, 4096, NULL));
    usleep(20000);
    CHECK_CU(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    set_flag(&bed, 1);
    OK(cuStreamSynchronize(NULL));
    drop_bed(&bed);
}

TEST(softcuda, per_thread_stream_is_another)
{
    bed_t bed = make_bed();

    OK(hold(&bed, CU_STREAM_PER_THREAD));
    CHECK_CU(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    CHECK_CU(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
    set_flag(&bed, 1);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    drop_bed(&bed);
}

TEST(softcuda, events_order_streams)
{
    bed_t bed = make_bed();
    CUstream first, second;
    CUevent event, start;
    float ms = -1;

    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventCreate(&start, 0));
    CHECK_CU(cuEventQuery(event), CUDA_SUCCESS);
    CHECK_CU(cuEventElapsedTime_v2(&ms, start, event), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(start, first));
    OK(cuEventSynchronize(start));
    OK(hold(&bed, first));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    usleep(20000);
    CHECK_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_CU(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    set_flag(&bed, 1);
    OK(cuStreamSynchronize(second));
    CHECK_CU(cuEventQuery(event), CUDA_SUCCESS);
    OK(cuEventElapsedTime_v2(&ms, start, event));
    CHECK(ms >= 20); /* the flag was set that much later */
    drop_bed(&bed);
}

/* Measured: a context event covers every stream, a destroyed one too; a context wait orders streams made
 * later. */
TEST(softcuda, context_events)
{
    bed_t bed = make_bed();
    CUstream stream, later;
    CUevent event;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(hold(&bed, stream));
    OK(cuStreamDestroy(stream));
    OK(cuCtxRecordEvent(bed.ctx, event));
    OK(cuCtxWaitEvent(bed.ctx, event));
    OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    OK(cuEventRecord(event, later));
    usleep(20000);
    CHECK_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    set_flag(&bed, 1);
    OK(cuEventSynchronize(event));
    drop_bed(&bed);
}

/* A primary context that is reset comes back under its handle, with another id, and without its events and
 * memory. */
TEST(softcuda, events_die_with_their_context)
{
    CUcontext ctx, again;
    CUdeviceptr block, none;
    CUevent event;
    unsigned long long id, next_id;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxPushCurrent(ctx));
    OK(cuCtxGetId(ctx, &id));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 4096));
    OK(cuDevicePrimaryCtxReset(0));
    CHECK_CU(cuMemAlloc(&none, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == ctx);
    OK(cuCtxGetId(ctx, &next_id));
    CHECK(next_id != id);
    CHECK_CU(cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CU(cuCtxRecordEvent(ctx, event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CU(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRelease(0)); /* the reset has kept the first reference (measured) */
    CHECK_CU(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxPopCurrent(&again));
}

/* Measured, 200 of 200: the handle comes back at once, and the new stream is not ordered behind the old one's
 * work. */
TEST(softcuda, destroyed_handle_comes_back)
{
    bed_t bed = make_bed();
    CUstream first, second;

    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(hold(&bed, first));
    OK(cuStreamDestroy(first));
    CHECK_CU(cuStreamQuery(first), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(first == second);
    OK(cuStreamSynchronize(second)); /* returns although the old work is not done */
    CHECK(softcuda_unfinished() > 0);
    drop_bed(&bed);
}

static void call_driver(void *out)
{
    CUdeviceptr block;

    *(CUresult *)out = cuMemAlloc(&block, 512);
}

TEST(softcuda, host_functions_may_not_call)
{
    bed_t bed = make_bed();
    CUresult got = CUDA_SUCCESS;

    OK(cuLaunchHostFunc(NULL, call_driver, &got));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(got, CUDA_ERROR_NOT_PERMITTED);
    drop_bed(&bed);
}

TEST(softcuda, async_memory)
{
    bed_t bed = make_bed();
    CUdeviceptr block, plain;

    OK(cuMemAllocAsync(&block, 4096, NULL));
    OK(fill(&bed, NULL, block, 4096, 5));
    OK(cuMemFreeAsync(block, NULL));
    CHECK_CU(cuMemFreeAsync(block, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    CHECK_EQ(softcuda_live_allocations(), 0);
    OK(cuMemAlloc(&plain, 4096)); /* measured: memory of cuMemAlloc is taken too */
    CHECK_CU(cuMemFreeAsync(plain + 512, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(plain, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_CU(cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

/* ---- captures: what disturbs them, by mode (measured) ---- */

typedef enum { DO_CTX_RECORD, DO_EVENT_QUERY, DO_ALLOC, DO_FREE, DO_CTX_SYNC, DO_MEM_INFO, DO_COUNT } deed_t;

static CUresult commit(deed_t deed, const bed_t *bed, CUevent event, CUdeviceptr block)
{
    CUdeviceptr other;
    size_t idle, total;

    switch (deed) {
    case DO_CTX_RECORD:
        return cuCtxRecordEvent(bed->ctx, event);
    case DO_EVENT_QUERY:
        return cuEventQuery(event);
    case DO_ALLOC:
        return cuMemAlloc(&other, 4096);
    case DO_FREE:
        return cuMemFree(block);
    case DO_CTX_SYNC:
        return cuCtxSynchronize();
    default:
        return cuMemGetInfo(&idle, &total);
    }
}

static void check_deed(const bed_t *bed, deed_t deed, CUstreamCaptureMode mode, bool disturbs)
{
    CUstreamCaptureStatus status;
    CUdeviceptr block;
    CUstream stream;
    CUevent event;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 4096));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    OK(cuStreamBeginCapture_v2(stream, mode));
    CHECK_MSG(commit(deed, bed, event, block) ==
                  (disturbs ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS),
              "deed %d, mode %d", deed, mode);
    OK(cuStreamIsCapturing(stream, &status));
    CHECK_EQ(status, disturbs ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CU(cuStreamEndCapture(stream, &graph),
             disturbs ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (!disturbs)
        OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
}

TEST(softcuda, capture_table_measured)
{
    static const bool disturbs[DO_COUNT][3] = {
        [DO_CTX_RECORD] = {true, true, true}, [DO_EVENT_QUERY] = {true, true, false},
        [DO_ALLOC] = {true, true, false},     [DO_FREE] = {true, true, false},
        [DO_CTX_SYNC] = {true, true, true},   [DO_MEM_INFO] = {false, false, false},
    };
    bed_t bed = make_bed();

    for (int deed = 0; deed < DO_COUNT; deed++)
        for (int mode = 0; mode < 3; mode++)
            check_deed(&bed, deed, (CUstreamCaptureMode)mode, disturbs[deed][mode]);
    drop_bed(&bed);
}

TEST(softcuda, relaxed_exchange_protects_a_query)
{
    bed_t bed = make_bed();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream;
    CUevent event;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventQuery(event));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    drop_bed(&bed);
}

TEST(softcuda, legacy_stream_disturbs_a_blocking_capture)
{
    bed_t bed = make_bed();
    CUstream blocking, aside;
    CUevent event;
    CUgraph graph;

    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&aside, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuEventRecord(event, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_CU(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(aside, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, NULL));
    OK(cuStreamEndCapture(aside, &graph));
    OK(cuGraphDestroy(graph));
    CHECK_CU(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
             CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CU(cuStreamEndCapture(aside, &graph), CUDA_ERROR_ILLEGAL_STATE);
    drop_bed(&bed);
}

/* Fork to a second stream and join it; the graph does nothing until it is launched, and what it recorded each
 * time. */
TEST(softcuda, graph_replays)
{
    bed_t bed = make_bed();
    CUstream stream, branch;
    CUevent forked, joined;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr block;
    uint64_t words[2] = {0, 0};

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&branch, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 16));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(block, 0, 16, stream));
    OK(cuEventRecord(forked, stream));
    OK(cuStreamWaitEvent(branch, forked, 0));
    OK(fill(&bed, branch, block, 8, 9));
    OK(cuEventRecord(joined, branch));
    OK(cuStreamWaitEvent(stream, joined, 0));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        OK(cuMemsetD8Async(block, 0xff, 16, stream));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(words, block, 16));
        CHECK_EQ(words[0], softcuda_fill_word(9, 0));
        CHECK_EQ(words[1], 0);
    }
    OK(cuGraphExecDestroy(exec));
    drop_bed(&bed);
}

TEST(softcuda, unjoined_capture)
{
    bed_t bed = make_bed();
    CUstream stream, branch;
    CUevent forked;
    CUgraph graph;
    CUdeviceptr block;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&branch, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 16));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(forked, stream));
    OK(cuStreamWaitEvent(branch, forked, 0));
    OK(cuMemsetD8Async(block, 0, 16, branch));
    CHECK_CU(cuEventQuery(forked), CUDA_ERROR_CAPTURED_EVENT);
    CHECK_CU(cuStreamEndCapture(branch, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    CHECK_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(forked, stream));
    OK(cuStreamWaitEvent(branch, forked, 0));
    OK(cuMemsetD8Async(block, 0, 16, branch));
    CHECK_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    drop_bed(&bed);
}

/* ---- the detector ---- */

/* A block that changes hands with a kernel of the old owner in flight, and work of the new one that does not
 * wait. */
TEST(softcuda, overlap_is_found)
{
    bed_t bed = make_bed();
    CUstream old_stream, new_stream;
    CUdeviceptr block;

    OK(cuStreamCreate(&old_stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&new_stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&block, 4096));
    softcuda_claim_block(block, 4096);
    OK(hold(&bed, old_stream));
    OK(fill(&bed, old_stream, block, 4096, 1));
    OK(fill(&bed, new_stream, block, 4096, 2)); /* the same owner: its own affair */
    OK(cuStreamSynchronize(new_stream));
    CHECK_EQ(softcuda_violations(), 0);
    softcuda_claim_block(block, 4096);
    CHECK_EQ(softcuda_claims_in_flight(), 1);
    OK(fill(&bed, new_stream, block + 1024, 16, 3));
    OK(cuStreamSynchronize(new_stream));
    CHECK_EQ(softcuda_violations(), 1);
    set_flag(&bed, 1);
    drop_bed(&bed);
}

TEST(softcuda, order_on_the_device_is_no_overlap)
{
    bed_t bed = make_bed();
    CUstream old_stream, new_stream;
    CUdeviceptr block;
    CUevent event;

    OK(cuStreamCreate(&old_stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&new_stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 4 * MIB));
    softcuda_claim_block(block, 4 * MIB);
    OK(hold(&bed, old_stream));
    OK(fill(&bed, old_stream, block, 4 * MIB, 1));
    OK(cuCtxRecordEvent(bed.ctx, event));
    OK(cuStreamWaitEvent(new_stream, event, 0));
    softcuda_claim_block(block, 4 * MIB);
    OK(fill(&bed, new_stream, block, 4 * MIB, 2));
    set_flag(&bed, 1);
    OK(cuCtxSynchronize());
    CHECK_EQ(softcuda_claims_in_flight(), 1);
    CHECK_EQ(softcuda_violations(), 0);
    drop_bed(&bed);
}

/* ---- look-ups ---- */

static void *look_up(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    void *address = NULL;

    cuGetProcAddress_v2(name, &address, version, flags, &status);
    return address;
}

static void *exported(const char *symbol)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

    return driver ? dlsym(driver, symbol) : NULL;
}

TEST(softcuda, lookup_versions)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *address = &status;

    CHECK(look_up("cuMemAlloc", 13000, 0) == exported("cuMemAlloc_v2"));
    CHECK(look_up("cuMemAlloc", 3020, 0) == exported("cuMemAlloc_v2"));
    CHECK(look_up("cuMemAlloc", 2000, 0) == exported("cuMemAlloc"));
    CHECK(look_up("cuGetProcAddress", 11030, 0) == exported("cuGetProcAddress"));
    CHECK(look_up("cuGetProcAddress", 12000, 0) == exported("cuGetProcAddress_v2"));
    CHECK(look_up("cuCtxGetDevice", 2000, 0) == exported("cuCtxGetDevice"));
    CHECK(look_up("cuCtxGetDevice", 13000, 0) == exported("cuCtxGetDevice_v2"));
    CHECK(look_up("cuStreamBeginCapture", 10000, 0) == exported("cuStreamBeginCapture"));
    CHECK(look_up("cuStreamBeginCapture", 10010, 2) == exported("cuStreamBeginCapture_v2_ptsz"));
    CHECK(look_up("cuMemcpyHtoD", 13000, 2) == exported("cuMemcpyHtoD_v2_ptds"));
    CHECK(look_up("cuMemAlloc", 13000, 2) == exported("cuMemAlloc_v2"));
    OK(cuGetProcAddress_v2("cuCtxRecordEvent", &address, 12000, 0, &status)); /* the status tells */
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(address == NULL);
    OK(cuGetProcAddress_v2("cuNoSuchCall", &address, 13000, 0, &status));
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK_CU(cuGetProcAddress_v2("cuMemAlloc", NULL, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}
