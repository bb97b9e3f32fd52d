/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults - every driver call that the shim makes fails once, for every N, under the preload on the software
 * driver.
 * What:       a workload over streams and sizes runs in a fresh child per (symbol, N, code). The program may
 *             see the injected code from one of its calls; whatever else happens, no block is handed out
 *             early, the child ends by itself, and afterwards the pool works (unless the code was sticky by
 *             its nature).
 * Invariants: a symbol that is never reached fails the test.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/preload/each_call.h"
#include <string.h>

#define NTH_MAX 12

static const char *const g_raw[] = {
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuCtxRecordEvent",
    "cuEventQuery",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuPointerGetAttribute",
    NULL,
};
static const char *const g_deferred[] = {
    "cuCtxGetCurrent",
    "cuEventCreate",
    "cuCtxRecordEvent",
    "cuEventQuery",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    NULL,
};
static const char *const g_vmm[] = {
    "cuCtxGetId",     "cuMemAddressReserve", "cuMemCreate",  "cuMemMap",
    "cuMemSetAccess", "cuMemUnmap",          "cuMemRelease", NULL,
};

/* Whether result is fine: success, or what was injected. */
static int expect(CUresult result, int code)
{
    REQUIRE(result == CUDA_SUCCESS || (int)result == code);
    return result == CUDA_SUCCESS;
}

static void step(CUstream stream, size_t bytes, int code)
{
    CUdeviceptr block = 0;

    if (!expect(cuMemAlloc(&block, bytes), code))
        return;
    softcuda_claim(block, bytes);
    client_fill(stream, block, bytes & ~(size_t)7, bytes);
    expect(cuMemFree(block), code);
}

/* Frees without a current context: points are closed in theirs. */
static void free_elsewhere(int code)
{
    CUdeviceptr block[20] = {0};
    CUcontext context;

    if (!expect(cuCtxGetCurrent(&context), code))
        return;
    for (int i = 0; i < 20; i++)
        expect(cuMemAlloc(&block[i], 4096), code);
    if (!expect(cuCtxSetCurrent(NULL), code))
        return;
    for (int i = 0; i < 20; i++)
        expect(cuMemFree(block[i]), code);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static void workload(int code)
{
    static const size_t sizes[] = {512, 4096, 40000, 1 << 20, 4 << 20};
    CUstream stream[2] = {client_stream(CU_STREAM_NON_BLOCKING), client_stream(CU_STREAM_DEFAULT)};

    softcuda_set_memory((uint64_t)24 << 20); /* short enough that something is given back */
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            step(stream[(round + (int)i) % 2], sizes[i], code);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    free_elsewhere(code);
    step(stream[0], 20 << 20, code);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(softcuda_violations() == 0);
}

static void child(const char *symbol, uint64_t nth, int code)
{
    uint64_t before;

    alarm(60);
    client_open();
    if (nth > 0)
        REQUIRE(softcuda_fail_nth(symbol, nth, code) == 0);
    workload(code);
    *g_calls = softcuda_calls(symbol);
    REQUIRE(*g_calls >=
            1); /* streams run at their own pace: how many calls there are differs from run to run */
    before = driver_calls();
    churn(50, 4096);
    REQUIRE(driver_calls() - before < 25); /* one failure does not turn the pool off */
    _exit(0);
}

/* faults [raw|vmm|deferred]: the calls of one backing, one mode; CUPOLA_BACKING and CUPOLA_FREE say the same. */
int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "raw";
    const char *const *symbol = strcmp(name, "vmm") == 0        ? g_vmm
                                : strcmp(name, "deferred") == 0 ? g_deferred
                                                                : g_raw;

    each_call_fails(symbol, NTH_MAX, child);
    return 0;
}
