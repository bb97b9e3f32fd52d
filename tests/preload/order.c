/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - what order points cost and keep (CUPOLA_FREE=exact), by the driver's own call counts.
 * What:       order NAME runs one case on the software driver: a block freed under a running kernel is the next one out,
 *             its new owner's work on another stream comes after, and the host has waited for nothing.
 * Not here:   order under random load (softcuda/detector.c), what the host may assume after a free (gpu/debts.c).
 * Invariants: exit 0 only when every REQUIRE held and the overlap detector saw nothing.
 */
#define _GNU_SOURCE
#include "bench/bare.h"
#include "tests/preload/client.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BYTES 65536

static uint64_t records(void)
{
    return softcuda_calls("cuEventRecord");
}

static uint64_t context_records(void)
{
    return softcuda_calls("cuCtxRecordEvent");
}

/* A kernel that takes us microseconds, then one that writes the block. */
static void late_fill(CUstream stream, CUdeviceptr block, uint64_t us)
{
    client_spin(stream, us);
    client_fill(stream, block, BYTES, 7);
}

/* The block is freed under work on `busy` and comes back at once; its new owner works on `next`. */
static void hand_over(CUdeviceptr block, CUstream next)
{
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(client_alloc(BYTES) == block);
    REQUIRE(softcuda_claims_in_flight() > 0); /* the GPU is not done with it */
    client_fill(next, block, BYTES, 8);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

static void reuse(void)
{
    CUstream busy = client_stream(CU_STREAM_NON_BLOCKING), next = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(BYTES);

    late_fill(busy, block, 50000);
    hand_over(block, next);
    REQUIRE(softcuda_unfinished() > 0); /* nobody waited */
    REQUIRE(softcuda_calls("cuStreamWaitEvent") == 1);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* One stream never waits for anything, and is recorded on itself: all but the first time. */
static void own_stream(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);

    for (int i = 0; i < 200; i++) {
        CUdeviceptr block = client_alloc(BYTES);

        client_fill(stream, block, BYTES, 1);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    }
    REQUIRE(records() == 198);
    REQUIRE(context_records() >= 1 + 1 && context_records() <= 1 + 4); /* of 64 points one is audited */
    REQUIRE(softcuda_calls("cuStreamWaitEvent") == 1);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

static void fill_and_free(CUstream stream)
{
    CUdeviceptr block = client_alloc(BYTES);

    client_fill(stream, block, BYTES, 1);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/* Asked past the hooks, which would wait. False: it waits for something itself. */
static int ends_soon(CUstream stream)
{
    __typeof__(cuStreamQuery) *query = bare_symbol("libcuda.so.1", "cuStreamQuery");
    CUresult result = CUDA_ERROR_NOT_READY;

    REQUIRE(query);
    for (int i = 0; result == CUDA_ERROR_NOT_READY && i < 3000; i++) {
        usleep(i > 0 ? 1000 : 0);
        result = query(stream);
    }
    return result == CUDA_SUCCESS;
}

/* A kernel that is launched past every hook: it is noticed, and from then on points cover the whole context. */
static void unseen(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING), hidden = client_stream(CU_STREAM_NON_BLOCKING);
    __typeof__(cuLaunchKernel) *launch = bare_symbol("libcuda.so.1", "cuLaunchKernel");
    uint64_t before, us = 1;
    int batches = 0;
    void *params[] = {&us};

    REQUIRE(launch && launch != cuLaunchKernel);
    fill_and_free(stream);
    fill_and_free(stream); /* closes the first point, which covers the context whatever is in it */
    REQUIRE(softcuda_hold(hidden) == 0);
    REQUIRE(launch(client_spin_kernel, 1, 1, 1, 1, 1, 1, 0, hidden, params, NULL) == CUDA_SUCCESS);
    while (++batches < 10 &&
           ends_soon(stream)) { /* else it waits for the hidden kernel: it has been noticed */
        before = context_records();
        for (int i = 0; i < 100; i++)
            fill_and_free(stream);
        if (context_records() >= before + 10) /* audits are two at most */
            break;
    }
    REQUIRE(batches < 10);
    before = context_records();
    for (int i = 0; i < 50; i++)
        fill_and_free(stream);
    REQUIRE(context_records() == before + 50);
    REQUIRE(softcuda_unfinished() > 1); /* what was freed under the hidden kernel waits for it */
    softcuda_release(hidden);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* What the program has waited for needs no point, whichever version of the call it was. */
static void waited(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdriverProcAddressQueryResult status;
    CUcontext ctx = NULL;
    CUresult (*wait_for)(CUcontext) = NULL;

    REQUIRE(cuGetProcAddress("cuCtxSynchronize", (void **)&wait_for, 13000, 0, &status) == CUDA_SUCCESS);
    REQUIRE(wait_for && (void *)wait_for != (void *)cuCtxSynchronize);
    REQUIRE(cuCtxGetCurrent(&ctx) == CUDA_SUCCESS);
    for (int i = 0; i < 200; i++) {
        CUdeviceptr block = client_alloc(BYTES);

        client_fill(stream, block, BYTES, 1);
        REQUIRE((i % 2 ? cuCtxSynchronize() : wait_for(ctx)) == CUDA_SUCCESS);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    }
    REQUIRE(context_records() <= 1 && records() == 0); /* a context starts with everything busy */
}

/* The handle of a destroyed stream comes back, and the new stream is not ordered behind the old one's work. */
static void destroyed(void)
{
    CUstream first = client_stream(CU_STREAM_NON_BLOCKING), second;
    CUdeviceptr block = client_alloc(BYTES);

    client_fill(first, block, BYTES, 1);
    REQUIRE(cuMemFree(client_alloc(512)) == CUDA_SUCCESS);
    client_fill(first, block, BYTES, 1); /* the stream has passed a point, and owns the next */
    REQUIRE(cuMemFree(client_alloc(512)) == CUDA_SUCCESS);
    late_fill(first, block, 50000);
    REQUIRE(cuStreamDestroy(first) == CUDA_SUCCESS);
    second = client_stream(CU_STREAM_NON_BLOCKING);
    REQUIRE(second == first);
    hand_over(block, second);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

static CUcontext g_context;
static CUdeviceptr g_block;

static void *use_own_stream(void *unused)
{
    REQUIRE(cuCtxSetCurrent(g_context) == CUDA_SUCCESS);
    late_fill(CU_STREAM_PER_THREAD, g_block, 50000);
    return unused;
}

static void thread_ends(void)
{
    pthread_t thread;

    REQUIRE(cuCtxGetCurrent(&g_context) == CUDA_SUCCESS);
    for (int i = 0; i < 4; i++) {
        g_block = client_alloc(BYTES);
        REQUIRE(pthread_create(&thread, NULL, use_own_stream, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
        hand_over(g_block, CU_STREAM_PER_THREAD);
    }
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Beside a capture: order is kept by events on the streams, and the capture comes out well. */
static void capture_mode(CUstreamCaptureMode mode)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING), busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUstream next = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block, kept = client_alloc(4096);
    CUgraph graph = NULL;
    uint64_t before;

    client_fill(capturing, kept, 4096, 1);
    REQUIRE(cuStreamBeginCapture(capturing, mode) == CUDA_SUCCESS);
    before = context_records();
    client_fill(capturing, kept, 4096, 2);
    for (int i = 0; i < 20; i++) {
        block = client_alloc(BYTES);
        late_fill(busy, block, 2000);
        hand_over(block, i % 2 ? next : busy);
        client_fill(capturing, kept, 4096, 2);
    }
    REQUIRE(context_records() == before);
    REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS && graph);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

static void capture(void)
{
    capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    capture_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture_mode(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* A busy stream becomes a part of the capture: what it had to do before is covered, and order goes on beside it. */
static void capture_joined(void)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING),
             joined = client_stream(CU_STREAM_NON_BLOCKING);
    CUstream next = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr kept = client_alloc(4096), block = client_alloc(BYTES);
    CUgraph graph = NULL;
    uint64_t before, waits;
    CUevent fork;

    REQUIRE(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    client_fill(capturing, kept, 4096, 1);
    REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    before = context_records();
    late_fill(joined, block, 50000);
    client_fill(capturing, kept, 4096, 2);
    REQUIRE(cuEventRecord(fork, capturing) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(joined, fork, 0) == CUDA_SUCCESS);
    client_fill(joined, kept, 4096, 3);
    waits = softcuda_calls("cuMemFree_v2");
    hand_over(block, next);
    REQUIRE(context_records() == before && softcuda_calls("cuMemFree_v2") == waits);
    REQUIRE(cuEventRecord(fork, joined) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(capturing, fork, 0) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS && graph);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* A stream's end makes unknown which streams are busy; a capture that begins then must find everything covered. */
static void capture_unknown(void)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING), busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUstream next = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(BYTES);
    CUgraph graph = NULL;

    churn(4, 512);
    late_fill(busy, block, 50000);
    REQUIRE(cuStreamDestroy(busy) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    hand_over(block, next);
    busy = client_stream(CU_STREAM_NON_BLOCKING);
    block = client_alloc(BYTES);
    late_fill(busy, block, 20000);
    REQUIRE(cuStreamDestroy(busy) == CUDA_SUCCESS); /* also within one */
    hand_over(block, next);
    REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS && graph);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* An asynchronous error surfaces where the pool asks the driver; from then on everywhere. */
static void sticky(void)
{
    CUdeviceptr block[8], none;

    for (int i = 0; i < 8; i++)
        block[i] = client_alloc(BYTES);
    softcuda_stick(NULL, CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(cuMemFree(block[0]) == CUDA_SUCCESS); /* nobody was asked */
    REQUIRE(cuMemAlloc(&none, (size_t)200 << 20) == CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 1; i < 8; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(cuMemAlloc(&none, BYTES) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Memory of one context handed over to a stream of another. */
static void two_contexts(void)
{
    CUstream busy = client_stream(CU_STREAM_NON_BLOCKING), next;
    CUdeviceptr block = client_alloc(BYTES), other;
    CUcontext first, second;

    REQUIRE(cuCtxGetCurrent(&first) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate_v4(&second, NULL, 0, 0) == CUDA_SUCCESS);
    other = client_alloc(512); /* a pool here, too */
    next = client_stream(CU_STREAM_NON_BLOCKING);
    REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS);
    late_fill(busy, block, 50000);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(client_alloc(BYTES) == block);
    REQUIRE(softcuda_claims_in_flight() > 0);
    REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(block, 1, BYTES, next) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuMemFree(other) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Launches alone, and frees alone, cost no driver call of ours. */
static void nothing(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block[100], kept = client_alloc(BYTES);
    uint64_t before;

    for (int i = 0; i < 100; i++)
        block[i] = client_alloc(4096);
    client_fill(stream, kept, BYTES, 1);
    before = softcuda_total_calls();
    for (int i = 0; i < 100; i++)
        client_fill(stream, kept, BYTES, 1);
    REQUIRE(softcuda_calls("cuLaunchKernel") == 101);
    REQUIRE(records() + context_records() + softcuda_calls("cuStreamWaitEvent") == 0);
    REQUIRE(softcuda_total_calls() - before <= 100 + 1); /* the launches, and nothing else of ours */
    before = softcuda_total_calls() - softcuda_calls("cuCtxGetCurrent");
    for (int i = 0; i < 100; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(softcuda_total_calls() - softcuda_calls("cuCtxGetCurrent") == before);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

static const struct {
    const char *name;
    void (*run)(void);
} g_case[] = {
    {"reuse", reuse},
    {"own_stream", own_stream},
    {"waited", waited},
    {"unseen", unseen},
    {"destroyed", destroyed},
    {"thread_ends", thread_ends},
    {"capture", capture},
    {"capture_unknown", capture_unknown},
    {"capture_joined", capture_joined},
    {"sticky", sticky},
    {"two_contexts", two_contexts},
    {"nothing", nothing},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(g_case) / sizeof(g_case[0]); i++) {
        if (strcmp(argv[1], g_case[i].name) != 0)
            continue;
        client_open();
        g_case[i].run();
        REQUIRE(softcuda_violations() == 0);
        return 0;
    }
    return 2;
}
