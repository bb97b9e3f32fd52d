/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quirks - what the shim relies on, asked of the driver: one line each, codes and yes or no, no times.
 * What:       the output on an H200 is kept as quirks.expected; the software driver must print the same (a
 *             CTest), and any real driver is compared by running this there. A line that starts with "probe"
 *             is for the record only.
 * Not here:   the pool: this program runs without the preload.
 * Invariants: a spinning kernel is what makes "not complete yet" certain; nothing else is about time.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SPIN_US 100000

static CUcontext g_ctx;

static void line(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}

static CUevent event(void)
{
    CUevent made;

    cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    return made;
}

static CUstream stream(unsigned flags)
{
    CUstream made;

    cuStreamCreate(&made, flags);
    return made;
}

/* ---- a record on the context covers every stream of it ---- */

static void covers(const char *name, CUstream on)
{
    CUevent mark = event();
    CUresult recorded, before;

    dev_spin(SPIN_US, on);
    recorded = cuCtxRecordEvent(g_ctx, mark);
    before = cuEventQuery(mark);
    cuEventSynchronize(mark);
    printf("record-covers-%s record %d, while it runs %d, afterwards stream %d\n", name, recorded, before,
           cuStreamQuery(on));
    cuCtxSynchronize();
    cuEventDestroy(mark);
}

static void *record_elsewhere(void *mark)
{
    CUcontext current = NULL;

    cuCtxGetCurrent(&current);
    line("thread-without-context current", current != NULL);
    line("thread-without-context record", cuCtxRecordEvent(g_ctx, mark));
    line("thread-without-context query", cuEventQuery(mark) == CUDA_ERROR_NOT_READY);
    return NULL;
}

static void records(void)
{
    CUstream busy = stream(CU_STREAM_NON_BLOCKING);
    CUevent mark = event();
    pthread_t thread;
    int low, high;
    CUstream urgent;

    covers("legacy", CU_STREAM_LEGACY);
    covers("per-thread", CU_STREAM_PER_THREAD);
    covers("blocking", stream(CU_STREAM_DEFAULT));
    covers("non-blocking", stream(CU_STREAM_NON_BLOCKING));
    cuCtxGetStreamPriorityRange(&low, &high);
    cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, high);
    covers("priority", urgent);
    dev_spin(SPIN_US, busy);
    pthread_create(&thread, NULL, record_elsewhere, mark);
    pthread_join(thread, NULL);
    cuEventSynchronize(mark);
    dev_spin(SPIN_US, busy);
    cuCtxRecordEvent(g_ctx, mark);
    cuCtxRecordEvent(g_ctx, mark);
    line("record-again", cuEventQuery(mark));
    cuStreamDestroy(busy);
    line("record-covers-destroyed-stream", cuEventQuery(mark));
    cuCtxSynchronize();
    line("record-done", cuEventQuery(mark));
}

/* ---- captures ---- */

static void capture(const char *name, CUstreamCaptureMode mode)
{
    CUstream capturing = stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    CUevent done = event(), mark = event();
    CUgraph graph = NULL;
    CUresult result;

    cuCtxRecordEvent(g_ctx, done);
    cuEventSynchronize(done);
    cuStreamBeginCapture(capturing, mode);
    cuThreadExchangeStreamCaptureMode(&relaxed);
    result = cuEventQuery(done);
    cuThreadExchangeStreamCaptureMode(&relaxed);
    cuStreamIsCapturing(capturing, &status);
    printf("capture-%s query under exchange %d, then capturing %d\n", name, result, status);
    result = cuCtxRecordEvent(g_ctx, mark);
    cuStreamIsCapturing(capturing, &status);
    printf("capture-%s record %d, then capturing %d\n", name, result, status);
    result = cuStreamEndCapture(capturing, &graph);
    cuStreamIsCapturing(capturing, &status);
    printf("capture-%s end %d, then capturing %d\n", name, result, status);
    line("record-after-capture", cuCtxRecordEvent(g_ctx, mark));
    cuStreamDestroy(capturing);
}

/* ---- memory ---- */

static void alignments(void)
{
    int unaligned = 0, foreign = 0, wrong_range = 0;
    CUdeviceptr block[24];

    for (int i = 0; i < 24; i++) {
        CUdeviceptr base;
        CUcontext owner = NULL;
        size_t size = ((size_t)1 + (size_t)i % 5) << 21, reported;

        if (cuMemAlloc(&block[i], size) != CUDA_SUCCESS)
            continue;
        unaligned += block[i] % ((size_t)2 << 20) != 0;
        cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block[i]);
        foreign += owner != g_ctx;
        wrong_range += cuMemGetAddressRange(&base, &reported, block[i] + size / 2) != CUDA_SUCCESS ||
                       base != block[i] || reported != size;
    }
    line("chunks-unaligned", unaligned);
    line("chunks-of-another-context", foreign);
    line("chunks-with-another-range", wrong_range);
    for (int i = 0; i < 24; i++)
        cuMemFree(block[i]);
}

static void ranges(void)
{
    static const size_t sizes[] = {1, 300, 512, 1000, 4096, 5000, 100000, 1 << 20, (3 << 20) + 1};
    CUdeviceptr block, base;
    size_t size;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        cuMemAlloc(&block, sizes[i]);
        cuMemGetAddressRange(&base, &size, block + sizes[i] - 1);
        printf("range-of-%zu size %zu, base %d, aligned to 512 %d\n", sizes[i], size, base == block,
               block % 512 == 0);
        cuMemFree(block);
    }
    cuMemAlloc(&block, 4096);
    line("range-null-base", cuMemGetAddressRange(NULL, &size, block));
    line("range-null-size", cuMemGetAddressRange(&base, NULL, block));
    line("range-null-both", cuMemGetAddressRange(NULL, NULL, block));
    cuMemFree(block);
    line("range-of-freed", cuMemGetAddressRange(&base, &size, block));
    line("range-of-foreign", cuMemGetAddressRange(&base, &size, 4096));
}

static void *free_elsewhere(void *block)
{
    line("free-without-context", cuMemFree((CUdeviceptr)block));
    return NULL;
}

static void frees(void)
{
    CUdeviceptr small, large;
    CUevent mark = event();
    CUstream busy = stream(CU_STREAM_NON_BLOCKING);
    pthread_t thread;

    cuMemAlloc(&small, 4096);
    cuMemAlloc(&large, 8 << 20);
    line("alloc-zero", cuMemAlloc(&small, 0) ? (long)cuMemAlloc(&small, 0) : 0);
    line("alloc-null-out", cuMemAlloc(NULL, 4096));
    line("alloc-huge", cuMemAlloc(&small, (size_t)1 << 50));
    cuMemAlloc(&small, 4096);
    line("free-null", cuMemFree(0));
    line("free-interior", cuMemFree(small + 512));
    line("free-interior-large", cuMemFree(large + 4096));
    line("free-unknown", cuMemFree(4096));
    line("free", cuMemFree(small));
    line("free-twice", cuMemFree(small));
    pthread_create(&thread, NULL, free_elsewhere, (void *)large);
    pthread_join(thread, NULL);
    cuMemAlloc(&small, 4096);
    dev_spin(SPIN_US, busy);
    cuEventRecord(mark, busy);
    cuMemAlloc(&large, 8 << 20);
    line("alloc-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemFree(small);
    line("free-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemFree(large);
    cuStreamDestroy(busy);
}

static void infos(void)
{
    size_t bytes = 0;

    line("info-null-free", cuMemGetInfo(NULL, &bytes));
    line("info-null-total", cuMemGetInfo(&bytes, NULL));
    line("info-null-both", cuMemGetInfo(NULL, NULL));
}

/* What the driver says to memory of cuMemAlloc in a stream-ordered free. */
static void async_frees(void)
{
    CUdeviceptr block, base;
    size_t size;
    CUstream on = stream(CU_STREAM_NON_BLOCKING);

    for (size_t bytes = 4096; bytes <= 8 << 20; bytes <<= 11) {
        cuMemAlloc(&block, bytes);
        printf("free-async-%zu free %d", bytes, cuMemFreeAsync(block, on));
        printf(", synchronize %d", cuStreamSynchronize(on));
        printf(", range %d, then free %d\n", cuMemGetAddressRange(&base, &size, block), cuMemFree(block));
    }
    cuMemAlloc(&block, 4096);
    line("free-async-interior", cuMemFreeAsync(block + 512, on));
    cuMemFree(block);
    cuStreamDestroy(on);
}

/* ---- look-ups ---- */

static int g_lookup_misses;

static void same_address(const char *base, int version, cuuint64_t flags, const char *exported)
{
    void *found = NULL, *symbol = dlsym(RTLD_DEFAULT, exported);
    CUdriverProcAddressQueryResult status;

    if (cuGetProcAddress(base, &found, version, flags, &status) != CUDA_SUCCESS || found != symbol) {
        printf("lookup-differs %s version %d\n", exported, version);
        g_lookup_misses++;
    }
}

static void lookups(void)
{
    same_address("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    same_address("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    same_address("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuMemAlloc_v2");
    same_address("cuMemFree", 3020, 0, "cuMemFree_v2");
    same_address("cuMemFreeAsync", 11020, 0, "cuMemFreeAsync");
    same_address("cuMemFreeAsync", 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                 "cuMemFreeAsync_ptsz");
    same_address("cuMemGetInfo", 3020, 0, "cuMemGetInfo_v2");
    same_address("cuMemGetAddressRange", 3020, 0, "cuMemGetAddressRange_v2");
    same_address("cuIpcGetMemHandle", 4010, 0, "cuIpcGetMemHandle");
    same_address("cuDevicePrimaryCtxRelease", 7000, 0, "cuDevicePrimaryCtxRelease");
    same_address("cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2");
    same_address("cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset");
    same_address("cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2");
    same_address("cuCtxDestroy", 4000, 0, "cuCtxDestroy_v2");
    same_address("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture");
    same_address("cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2");
    same_address("cuStreamEndCapture", 10000, 0, "cuStreamEndCapture");
    same_address("cuStreamDestroy", 4000, 0, "cuStreamDestroy_v2");
    same_address("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    same_address("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    line("lookups-that-differ", g_lookup_misses);
}

/* ---- the end of a context ---- */

static void ends(void)
{
    CUdeviceptr block, base;
    CUcontext made, popped;
    CUdevice device;
    size_t size;
    unsigned long long id = 0, again = 0;

    cuDeviceGet(&device, 0);
    cuCtxCreate_v4(&made, NULL, 0, device);
    cuMemAlloc(&block, 2 << 20);
    cuCtxPopCurrent(&popped);
    cuCtxDestroy(made);
    line("range-after-destroy", cuMemGetAddressRange(NULL, &size, block));
    cuMemAlloc(&block, 2 << 20);
    cuCtxGetId(g_ctx, &id);
    line("reset", cuDevicePrimaryCtxReset(device));
    line("range-after-reset", cuMemGetAddressRange(&base, &size, block));
    line("free-after-reset", cuMemFree(block));
    cuCtxGetCurrent(&popped);
    line("current-after-reset-is-the-old", popped == g_ctx);
    line("alloc-after-reset", cuMemAlloc(&block, 4096));
    cuDevicePrimaryCtxRetain(&made, device);
    cuCtxSetCurrent(made);
    cuCtxGetId(made, &again);
    line("probe-context-pointer-comes-back", made == g_ctx);
    line("context-id-comes-back", id == again);
}

int main(void)
{
    dev_open();
    cuCtxGetCurrent(&g_ctx);
    records();
    capture("global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    capture("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    alignments();
    ranges();
    frees();
    infos();
    async_frees();
    lookups();
    ends();
    return 0;
}
