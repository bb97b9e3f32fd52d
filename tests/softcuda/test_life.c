/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_life - what the software driver answers before it starts, without a context, in a forked child, and
 * at the end. A plain program: each of these is a state of the whole process.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/softcuda/softcuda.h"

static int failures;

static void expect(const char *what, int got, int wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s: %d, not %d\n", what, got, wanted);
    failures++;
}

static CUresult alloc_once(void)
{
    CUdeviceptr block;

    return cuMemAlloc(&block, 4096);
}

/* The child of a process that has started may not use the driver; _exit keeps it from the parent's exit
 * handlers. */
static void check_child(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(alloc_once() == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    waitpid(child, &status, 0);
    expect("calls in a forked child", WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

/* Two devices, and names that look-ups deny: read from the environment by cuInit and by each look-up. */
static void check_environment(CUcontext ctx)
{
    CUcontext peer = NULL;
    void *address = NULL;
    int count = 0, can = 0;

    expect("cuDeviceGetCount", cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : -1, 2);
    expect("cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS ? can : -1, 1);
    expect("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&peer, 1), CUDA_SUCCESS);
    expect("cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(peer, 0), CUDA_SUCCESS);
    expect("again", cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    expect("to the same device", cuCtxEnablePeerAccess(ctx, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    expect("cuGetProcAddress of a hidden name",
           cuGetProcAddress("cuCtxRecordEvent", &address, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    expect("of another", cuGetProcAddress("cuCtxWaitEvent", &address, 13000, 0, NULL), CUDA_SUCCESS);
}

int main(void)
{
    CUcontext ctx = NULL;
    CUdeviceptr block = 0;
    int version = 0;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    setenv("SOFTCUDA_MISSING", "cuCtxGetId,cuCtxRecordEvent", 1);
    expect("cuMemAlloc before cuInit", alloc_once(), CUDA_ERROR_NOT_INITIALIZED);
    expect("cuDriverGetVersion before cuInit", cuDriverGetVersion(&version), CUDA_SUCCESS);
    expect("cuInit with flags", cuInit(1), CUDA_ERROR_INVALID_VALUE);
    expect("cuInit", cuInit(0), CUDA_SUCCESS);
    expect("cuMemAlloc without a context", alloc_once(), CUDA_ERROR_INVALID_CONTEXT);
    expect("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
    expect("cuCtxSetCurrent", cuCtxSetCurrent(ctx), CUDA_SUCCESS);
    expect("cuMemAlloc", cuMemAlloc(&block, 4096), CUDA_SUCCESS);
    expect("cuMemsetD8", cuMemsetD8(block, 1, 4096),
           CUDA_SUCCESS); /* a stream's thread exists when we fork */
    check_environment(ctx);
    check_child();
    expect("cuMemFree", cuMemFree(block), CUDA_SUCCESS);
    softcuda_deinit();
    expect("cuMemAlloc at exit", alloc_once(), CUDA_ERROR_DEINITIALIZED);
    expect("cuMemFree at exit", cuMemFree(block), CUDA_ERROR_DEINITIALIZED);
    return failures != 0;
}
