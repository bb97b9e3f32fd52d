/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts_probe - what the shim assumes of contexts that end, of green contexts, and of a free beside a
 * capture, asked of the driver: one line each, codes and yes or no, no times. Runs without the preload.
 * What:       the software driver answers by documentation or by likeness where nothing is measured
 *             (tests/softcuda); this program's output on a GPU tells where it is wrong.
 * Not here:   what is measured already (quirks.c).
 * Invariants: a spinning kernel is what makes "not complete yet" certain.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SPIN_US 200000

static CUcontext g_primary;

static void line(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}

static void *old_symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);

    return driver ? dlsym(driver, name) : NULL;
}

static CUresult id_of(CUcontext ctx)
{
    unsigned long long id;

    return cuCtxGetId(ctx, &id);
}

static CUcontext create(void)
{
    CUcontext ctx = NULL;

    cuCtxCreate_v4(&ctx, NULL, 0, 0);
    return ctx;
}

static CUstream stream(void)
{
    CUstream made = NULL;

    cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    return made;
}

static CUevent event(void)
{
    CUevent made = NULL;

    cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    return made;
}

/* ---- contexts that end ---- */

static void *destroy_elsewhere(void *ctx)
{
    line("destroy-in-another-thread", cuCtxDestroy(ctx));
    return NULL;
}

/* A block of the primary context, in a thread whose current context is gone. */
static void gone_and_current(void)
{
    CUcontext ctx = create(), current = NULL;
    CUdeviceptr block, none;
    pthread_t thread;
    size_t size;

    cuCtxSetCurrent(g_primary);
    cuMemAlloc(&block, 4096);
    cuCtxSetCurrent(ctx);
    pthread_create(&thread, NULL, destroy_elsewhere, ctx);
    pthread_join(thread, NULL);
    cuCtxGetCurrent(&current);
    line("gone-context-is-still-current", current == ctx);
    line("id-of-a-gone-context", id_of(ctx));
    line("range-with-a-gone-context", cuMemGetAddressRange(NULL, &size, block));
    line("alloc-with-a-gone-context", cuMemAlloc(&none, 4096));
    line("free-with-a-gone-context", cuMemFree(block));
    line("destroy-again", cuCtxDestroy(ctx));
    line("set-a-gone-context", cuCtxSetCurrent(ctx));
    cuCtxSetCurrent(g_primary);
    line("free-afterwards", cuMemFree(block));
}

static void uses(void)
{
    CUresult (*attach)(CUcontext *, unsigned) = (CUresult(*)(CUcontext *, unsigned))old_symbol("cuCtxAttach");
    CUresult (*detach)(CUcontext) = (CUresult(*)(CUcontext))old_symbol("cuCtxDetach");
    CUcontext ctx = create(), same = NULL;

    line("attach", attach(&same, 0));
    line("attach-is-current", same == ctx);
    line("detach", detach(ctx));
    line("id-after-detach", id_of(ctx));
    line("detach-last", detach(ctx));
    line("id-after-detach-last", id_of(ctx));
    cuCtxSetCurrent(g_primary);
}

static void state(const char *name)
{
    unsigned flags;
    int active = -1;

    cuDevicePrimaryCtxGetState(0, &flags, &active);
    line(name, active);
}

static void primary_ends(void)
{
    CUcontext same;

    line("destroy-primary", cuCtxDestroy(g_primary));
    cuDevicePrimaryCtxRetain(&same, 0);
    line("release", cuDevicePrimaryCtxRelease(0));
    state("active-after-release");
    cuDevicePrimaryCtxRetain(&same, 0);
    line("reset", cuDevicePrimaryCtxReset(0));
    state("active-after-reset");
    line("id-after-reset", id_of(g_primary));
    line("release-after-reset", cuDevicePrimaryCtxRelease(0));
    state("active-after-release-after-reset");
    cuDevicePrimaryCtxRetain(&same, 0);
    line("comes-back-at-the-same-address", same == g_primary);
    state("active-after-retain");
    line("release-one", cuDevicePrimaryCtxRelease(0));
    state("active-after-release-one");
    line("id-after-release-one", id_of(g_primary));
}

/* ---- green contexts ---- */

static CUgreenCtx create_green(void)
{
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx green = NULL;
    unsigned groups = 1;

    line("green-resource", cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    line("probe-green-split", cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8));
    line("green-desc", cuDevResourceGenerateDesc(&desc, groups ? &part : &all, 1));
    line("green-create", cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void record_across(CUcontext ctx, CUstream in_green)
{
    CUevent of_primary = event(), of_green;
    CUstream in_primary = stream();

    cuCtxSetCurrent(ctx);
    of_green = event();
    line("green-stream, event of the primary: record", cuEventRecord(of_primary, in_green));
    line("green-stream, event of the green: record", cuEventRecord(of_green, in_green));
    line("primary's stream, event of the green: record", cuEventRecord(of_green, in_primary));
    line("primary's stream, event of the primary, green current: record",
         cuEventRecord(of_primary, in_primary));
    cuCtxSetCurrent(g_primary);
    line("primary's stream waits for the green's",
         cuEventRecord(of_primary, in_green) == CUDA_SUCCESS &&
             cuStreamWaitEvent(in_primary, of_primary, 0) == CUDA_SUCCESS);
}

/* A record on the primary context, and a free of its memory, while a stream of the green one is busy. */
static void covered(const char *name, CUcontext current, CUstream on)
{
    CUevent mark = event();
    CUdeviceptr block;

    cuMemAlloc(&block, 4096);
    cuCtxSetCurrent(current);
    dev_spin(SPIN_US, on);
    cuCtxSetCurrent(g_primary);
    printf("%s: record %d,", name, cuCtxRecordEvent(g_primary, mark));
    printf(" covered %d,", cuEventQuery(mark) == CUDA_ERROR_NOT_READY);
    printf(" free %d,", cuMemFree(block));
    printf(" has waited %d\n", cuEventQuery(mark) == CUDA_SUCCESS);
    cuCtxSynchronize();
}

static void green(void)
{
    CUgreenCtx green = create_green();
    CUcontext ctx = NULL, again = NULL, owner = NULL;
    CUdeviceptr block;
    CUstream in_green = NULL;

    if (!green)
        return;
    line("green-convert", cuCtxFromGreenCtx(&ctx, green));
    cuCtxFromGreenCtx(&again, green);
    line("green-converts-to-the-same", ctx == again);
    line("green-is-not-the-primary", ctx != g_primary);
    line("green-id", id_of(ctx));
    line("green-stream", cuGreenCtxStreamCreate(&in_green, green, CU_STREAM_NON_BLOCKING, 0));
    owner = NULL;
    line("green-stream-context", cuStreamGetCtx(in_green, &owner));
    line("green-stream-context-is-the-converted", owner == ctx);
    cuCtxSetCurrent(ctx);
    line("green-alloc", cuMemAlloc(&block, (size_t)2 << 20));
    cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block);
    line("green-alloc-is-the-primary's", owner == g_primary);
    line("green-is-captured-null-stream", cuStreamIsCapturing(NULL, &(CUstreamCaptureStatus){0}));
    cuCtxSetCurrent(g_primary);
    record_across(ctx, in_green);
    covered("green-stream", g_primary, in_green);
    covered("green-null-stream", ctx, NULL);
    line("green-destroy-stream", cuStreamDestroy(in_green));
    line("green-destroy", cuGreenCtxDestroy(green));
    line("green-block-outlives", cuMemsetD8(block, 1, 4096));
    line("green-block-free", cuMemFree(block));
    line("green-convert-a-gone-one", id_of(ctx));
}

/* ---- a free beside a capture ---- */

/* In relaxed mode: does it wait for a stream that does not capture, and leave the capture alone? */
static void beside(const char *name, CUstreamCaptureMode of_capture)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream capturing = stream(), busy = stream();
    CUdeviceptr block = 0;
    CUgraph graph = NULL;

    cuThreadExchangeStreamCaptureMode(&mode);
    cuStreamBeginCapture(capturing, of_capture);
    dev_spin(10, capturing);
    dev_spin(SPIN_US, busy);
    printf("%s: alloc %d,", name, cuMemAlloc(&block, 1));
    printf(" busy %d,", cuStreamQuery(busy) == CUDA_ERROR_NOT_READY);
    printf(" free %d,", cuMemFree(block));
    printf(" has waited %d,", cuStreamQuery(busy) == CUDA_SUCCESS);
    printf(" end %d\n", cuStreamEndCapture(capturing, &graph));
    cuThreadExchangeStreamCaptureMode(&mode);
    cuCtxSynchronize();
}

int main(void)
{
    dev_open();
    cuCtxGetCurrent(&g_primary);
    gone_and_current();
    uses();
    green();
    beside("beside-global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    beside("beside-thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    beside("beside-relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    primary_ends();
    return 0;
}
