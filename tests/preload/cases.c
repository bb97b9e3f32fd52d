/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases - an unmodified driver-level program in many small cases, under the preload on the software driver.
 * What:       cases NAME runs one; each asserts what the program sees (codes, bytes, ranges) and, by the
 *             driver's own call counts, that the pool served it. A case that counts nothing of the pool
 *             would pass without the preload.
 * Not here:   order under random load (softcuda/detector.c), failing calls (faults.c).
 * Invariants: exit 0 only when every REQUIRE held and the overlap detector saw nothing.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the pool serves, and tells the truth about its blocks ---- */

static void serves(void)
{
    uint64_t before;

    churn(1000, 4096);
    before = driver_calls();
    churn(1000, 4096);
    REQUIRE(driver_calls() == before); /* warm: not one driver call in 1,000 pairs */
}

static void many_small(void)
{
    enum { COUNT = 100000 };
    static CUdeviceptr block[COUNT];

    for (int i = 0; i < COUNT; i++)
        block[i] = client_alloc(4096);
    REQUIRE(driver_calls() > 0 && driver_calls() < 300);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
}

/* Codes of a real driver (tests/gpu/quirks.expected), for blocks that the driver has never heard of. */
static void codes(void)
{
    CUdeviceptr small = client_alloc(4096), large = client_alloc(8 << 20), none;
    uint64_t passed = softcuda_calls("cuMemFree_v2");

    REQUIRE(cuMemAlloc(&none, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAlloc(NULL, 4096) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAlloc(&none, (size_t)1 << 50) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemAlloc(&none, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemFree(small + 512) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(large + 4096) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(small) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(small) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(large) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(softcuda_calls("cuMemFree_v2") == passed); /* the driver never saw one of them */
    REQUIRE(cuMemFree(4096) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(0) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == passed + 2); /* these it did */
}

static void ranges(void)
{
    static const size_t sizes[] = {1, 300, 512, 1000, 4096, 5000, 100000, 1 << 20, (3 << 20) + 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CUdeviceptr block = client_alloc(sizes[i]), base = 0;
        size_t size = 0;

        REQUIRE(block % 512 == 0);
        REQUIRE(cuMemGetAddressRange(&base, &size, block + sizes[i] - 1) == CUDA_SUCCESS);
        REQUIRE(base == block && size == sizes[i]);
        REQUIRE(cuMemGetAddressRange(NULL, &size, block) == CUDA_SUCCESS);
        REQUIRE(cuMemGetAddressRange(&base, NULL, block) == CUDA_SUCCESS);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
        REQUIRE(cuMemGetAddressRange(&base, &size, block) == CUDA_ERROR_NOT_FOUND);
    }
    REQUIRE(driver_calls() < sizeof(sizes) / sizeof(sizes[0]));
}

static void free_memory(void)
{
    CUdeviceptr block[64];
    size_t before, during, after, total;

    churn(10, 4096); /* the first chunk is there */
    REQUIRE(cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
    for (int i = 0; i < 64; i++)
        block[i] = client_alloc(1 << 20);
    REQUIRE(cuMemGetInfo(&during, &total) == CUDA_SUCCESS);
    REQUIRE(before - during >= (size_t)64 << 20);
    for (int i = 0; i < 64; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(cuMemGetInfo(&after, &total) == CUDA_SUCCESS);
    REQUIRE(after <= total && after + (1 << 20) > before);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0); /* held by the pool, free to the program */
    REQUIRE(cuMemGetInfo(&before, NULL) == CUDA_SUCCESS && before == after);
    REQUIRE(cuMemGetInfo(NULL, &before) == CUDA_SUCCESS && before == total);
}

static void foreign(void)
{
    CUdeviceptr managed, async;
    void *host;

    churn(10, 4096);
    REQUIRE(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(managed) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocAsync(&async, 4096, NULL) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(async) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocHost(&host, 4096) == CUDA_SUCCESS);
    REQUIRE(cuMemFree((CUdeviceptr)host) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFreeHost(host) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 3);
}

static void free_async(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(4096);

    client_spin(stream, 2000);
    REQUIRE(cuMemFreeAsync(block + 512, stream) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(softcuda_calls("cuMemFreeAsync") == 0);
    REQUIRE(client_alloc(4096) != block); /* the stream is not there yet */
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

static void ipc(void)
{
    CUdeviceptr small = client_alloc(4096), large = client_alloc(4 << 20);
    CUipcMemHandle handle;

    REQUIRE(cuIpcGetMemHandle(&handle, small) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(softcuda_calls("cuIpcGetMemHandle") == 0);
    REQUIRE(cuIpcGetMemHandle(&handle, large) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(large) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 1); /* an exported block really goes back */
    REQUIRE(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
}

/* ---- nothing is handed out early ---- */

static void not_early(void)
{
    CUstream busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(1 << 20), next[8];

    client_fill(busy, block, 1 << 20, 7);
    client_spin(busy, 50000);
    client_fill(busy, block, 1 << 20, 8);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(cuStreamQuery(busy) == CUDA_ERROR_NOT_READY); /* the free did not wait */
    for (int i = 0; i < 8; i++) {
        next[i] = client_alloc(1 << 20);
        REQUIRE(next[i] != block);
    }
    REQUIRE(cuStreamSynchronize(busy) == CUDA_SUCCESS);
    for (int i = 0; i < 8; i++)
        REQUIRE(cuMemFree(next[i]) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
    REQUIRE(softcuda_claims_in_flight() == 0);
}

/* The GPU is far behind and memory is short: the pool waits for it instead of failing, as native frees had
 * done. */
static void rescue(void)
{
    enum { BIG = 64 << 20 };
    CUstream busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block;

    softcuda_set_memory((uint64_t)160 << 20);
    for (int i = 0; i < 6; i++) {
        block = client_alloc(BIG);
        client_spin(busy, 20000);
        client_fill(busy, block, 1 << 16, (uint64_t)i);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    }
    block = client_alloc(100 << 20); /* fits only once cached blocks went back */
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemAlloc_v2") < 12);
}

/* vmm: a large request takes its memory from small holes, but never from under work that still runs. */
static void moves(void)
{
    enum { COUNT = 10, BYTES = 20 << 20 };
    CUstream busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block[COUNT], big;
    uint64_t creates, maps;

    for (int i = 0; i < COUNT; i++)
        block[i] = client_alloc(BYTES);
    client_spin(busy, 30000);
    for (int i = 1; i < COUNT; i += 2) {
        client_fill(busy, block[i], 1 << 20, (uint64_t)i);
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    }
    big = client_alloc(90 << 20); /* the holes are still written to: this is new memory */
    REQUIRE(softcuda_unmap_violations() == 0);
    client_fill(busy, big, 90 << 20, 77);
    REQUIRE(cuMemFree(big) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(busy) == CUDA_SUCCESS);
    churn(40, 4096);
    creates = softcuda_calls("cuMemCreate");
    maps = softcuda_calls("cuMemMap");
    big = client_alloc(160 << 20); /* larger than any hole, smaller than all of them */
    client_fill(busy, big, 160 << 20, 78);
    REQUIRE(softcuda_calls("cuMemMap") - maps > softcuda_calls("cuMemCreate") - creates);
    REQUIRE(cuStreamSynchronize(busy) == CUDA_SUCCESS);
    REQUIRE(softcuda_unmap_violations() == 0);
}

/* ---- captures ---- */

static void capture_mode(CUstreamCaptureMode mode)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING), busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr kept = client_alloc(4096), block = client_alloc(4096);
    CUgraph graph = NULL;
    uint64_t points;

    churn(10, 4096);
    client_spin(busy, 20000);
    points = softcuda_calls("cuCtxRecordEvent");
    REQUIRE(cuStreamBeginCapture(capturing, mode) == CUDA_SUCCESS);
    client_fill(capturing, kept, 4096, 1);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS); /* served: no driver call that would spoil the capture */
    churn(50, 4096);
    REQUIRE(softcuda_calls("cuCtxRecordEvent") == points);
    REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS && graph);
    churn(1000, 4096); /* what was freed meanwhile comes back into use */
    REQUIRE(softcuda_calls("cuCtxRecordEvent") > points);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

static void captures(void)
{
    capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    capture_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture_mode(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* A capture that ends by the death of its stream, or badly, must not keep the clock stopped. */
static void end_context_that_captures(void)
{
    CUcontext context;

    REQUIRE(cuCtxCreate(&context, NULL, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(client_alloc(4096)) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(client_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED) ==
            CUDA_SUCCESS);
    REQUIRE(cuCtxDestroy(context) == CUDA_SUCCESS);
}

static void captures_abandoned(void)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    uint64_t points;

    churn(40, 4096);
    REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(cuStreamDestroy(capturing) == CUDA_SUCCESS);
    points = softcuda_calls("cuCtxRecordEvent");
    churn(40, 4096);
    REQUIRE(softcuda_calls("cuCtxRecordEvent") > points);
    capturing = client_stream(CU_STREAM_NON_BLOCKING);
    REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() != CUDA_SUCCESS); /* invalidates it */
    REQUIRE(cuStreamEndCapture(capturing, &graph) != CUDA_SUCCESS);
    points = softcuda_calls("cuCtxRecordEvent");
    churn(40, 4096);
    REQUIRE(softcuda_calls("cuCtxRecordEvent") > points);
    end_context_that_captures();
    points = softcuda_calls("cuCtxRecordEvent");
    churn(40, 4096);
    REQUIRE(softcuda_calls("cuCtxRecordEvent") > points);
    REQUIRE(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
    points = softcuda_calls("cuCtxRecordEvent");
    churn(40, 4096);
    REQUIRE(softcuda_calls("cuCtxRecordEvent") > points);
}

/* ---- contexts ---- */

static void reset(void)
{
    CUdeviceptr block = client_alloc(4096), large = client_alloc(4 << 20), again;
    CUcontext context;

    REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) != CUDA_SUCCESS && cuMemFree(large) != CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    softcuda_reset_counters();
    again = client_alloc(4096);
    REQUIRE(driver_calls() >= 1); /* a new pool: the old memory is gone */
    client_fill(NULL, again, 4096, 3);
    REQUIRE(cuMemFree(again) == CUDA_SUCCESS);
    churn(100, 4096);
    REQUIRE(driver_calls() < 5);
}

static void two_contexts(void)
{
    CUcontext first, second, popped;
    CUdeviceptr a, b;
    uint64_t calls;

    REQUIRE(cuCtxGetCurrent(&first) == CUDA_SUCCESS);
    a = client_alloc(4096);
    REQUIRE(cuCtxCreate(&second, NULL, 0, 0) == CUDA_SUCCESS);
    b = client_alloc(4096);
    calls = driver_calls();
    REQUIRE(calls >= 2 && calls <= 2 + 2 * TRIAL_CALLS); /* memory for each */
    REQUIRE(cuMemFree(a) == CUDA_SUCCESS);               /* with the other context current, as natively */
    REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS && popped == second);
    REQUIRE(cuMemFree(b) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(b) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuCtxDestroy(second) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(b) != CUDA_SUCCESS);
    churn(100, 4096);
    REQUIRE(driver_calls() <= calls + 1);
}

/* Whatever the pool held of a context is free again after its end, also what does not die with a context by itself. */
static void gives_back(void)
{
    CUcontext context, popped;
    uint64_t before = softcuda_held_bytes();

    for (int i = 0; i < 20; i++) {
        CUdeviceptr kept;

        REQUIRE(cuCtxCreate(&context, NULL, 0, 0) == CUDA_SUCCESS);
        kept = client_alloc(40 << 20);
        REQUIRE(cuMemsetD8Async(kept, 5, 1 << 20, NULL) == CUDA_SUCCESS);
        churn(50, 1 << 20);
        REQUIRE(softcuda_held_bytes() >= before + ((uint64_t)40 << 20));
        REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
        REQUIRE(cuCtxDestroy(context) == CUDA_SUCCESS);
        REQUIRE(softcuda_held_bytes() == before);
    }
}

/* An asynchronous error comes back from the first call that asks the driver; nothing is reused afterwards. */
static void sticky(void)
{
    CUdeviceptr block[64], none;
    int failed = 0;

    for (int i = 0; i < 64; i++)
        block[i] = client_alloc(4096);
    softcuda_stick(NULL, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 64; i++) {
        CUresult result = cuMemFree(block[i]);

        REQUIRE(result == CUDA_ERROR_ILLEGAL_ADDRESS || (result == CUDA_SUCCESS && !failed));
        failed += result != CUDA_SUCCESS;
    }
    REQUIRE(failed >= 32);
    REQUIRE(cuMemAlloc(&none, 4096) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(driver_calls() >= 2);
}

/* ---- threads and processes ---- */

static void *free_elsewhere(void *block)
{
    CUcontext current = NULL;

    cuCtxGetCurrent(&current);
    REQUIRE(!current);
    REQUIRE(cuMemFree((CUdeviceptr)(uintptr_t)block) == CUDA_SUCCESS);
    cuCtxGetCurrent(&current);
    REQUIRE(!current); /* nor has ours leaked into the thread */
    return NULL;
}

static void other_thread(void)
{
    pthread_t thread;

    for (int i = 0; i < 300; i++) { /* more than the ring of points: events are made in that thread, too */
        CUdeviceptr block = client_alloc(4096);

        REQUIRE(pthread_create(&thread, NULL, free_elsewhere, (void *)(uintptr_t)block) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
}

static void forked(void)
{
    CUdeviceptr block = client_alloc(4096), none = 0;
    pid_t child = fork();
    int status;

    if (child == 0) {
        int is_native = cuMemFree(block) == CUDA_ERROR_NOT_INITIALIZED &&
                        cuMemAlloc(&none, 4096) == CUDA_ERROR_NOT_INITIALIZED;

        _exit(is_native ? 7 : 1);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
}

static void manners(void)
{
    CUcontext before, after;
    CUdeviceptr block;

    REQUIRE(cuCtxGetCurrent(&before) == CUDA_SUCCESS);
    for (int i = 0; i < 400; i++) {
        errno = 4711;
        block = client_alloc(1 << 16);
        REQUIRE(errno == 4711);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
        REQUIRE(errno == 4711);
    }
    REQUIRE(cuCtxGetCurrent(&after) == CUDA_SUCCESS && after == before);
    REQUIRE(driver_calls() < 40);
}

static CUdeviceptr g_late_block;

static void free_late(void)
{
    if (cuMemFree(g_late_block) != CUDA_SUCCESS || cuMemAlloc(&g_late_block, 4096) != CUDA_SUCCESS)
        _exit(1);
}

/* Static destructors and exit handlers free: the pool is still there. */
static void at_exit(void)
{
    atexit(free_late);
    g_late_block = client_alloc(4096);
    REQUIRE(driver_calls() >= 1 && driver_calls() <= 1 + TRIAL_CALLS);
}

/* The driver has shut down before the program's own exit handlers run. */
static void free_deinitialized(void)
{
    softcuda_deinit();
    if (cuMemFree(g_late_block) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
    if (cuMemAlloc(&g_late_block, 4096) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
}

static void after_driver(void)
{
    atexit(free_deinitialized);
    g_late_block = client_alloc(4096);
    REQUIRE(driver_calls() >= 1 && driver_calls() <= 1 + TRIAL_CALLS);
}

/* ---- the table ---- */

#define CASE_LIST(X)      \
    X(serves)             \
    X(many_small)         \
    X(codes)              \
    X(ranges)             \
    X(free_memory)        \
    X(foreign)            \
    X(free_async)         \
    X(ipc)                \
    X(not_early)          \
    X(rescue)             \
    X(moves)              \
    X(captures)           \
    X(captures_abandoned) \
    X(reset)              \
    X(two_contexts)       \
    X(gives_back)         \
    X(sticky)             \
    X(other_thread)       \
    X(forked)             \
    X(manners)            \
    X(at_exit)            \
    X(after_driver)

static const struct {
    const char *name;
    void (*run)(void);
} g_case[] = {
#define X(name) {#name, name},
    CASE_LIST(X)
#undef X
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(g_case) / sizeof(g_case[0]); i++) {
        if (argc == 1) {
            puts(g_case[i].name);
        } else if (strcmp(argv[1], g_case[i].name) == 0) {
            client_open();
            g_case[i].run();
            REQUIRE(softcuda_violations() == 0);
            return 0;
        }
    }
    return argc == 1 ? 0 : 2;
}
