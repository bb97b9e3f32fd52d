/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client - what the driver-level test programs share: a context, kernels, and asking the software driver.
 * What:       linked against libcuda like any -lcuda program, so its calls go through the preload's exported
 *             symbols.
 * Not here:   anything of cupola's.
 * Threads:    any thread that has the context current.
 */
#ifndef CUP_TESTS_PRELOAD_CLIENT_H
#define CUP_TESTS_PRELOAD_CLIENT_H
#include "tests/softcuda/claim.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/require.h"
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/* Driver calls that allocate, since the counters were reset. */
static inline uint64_t driver_calls(void)
{
    return softcuda_calls("cuMemAlloc_v2") + softcuda_calls("cuMemCreate");
}

/* What a heap of the vmm backing may cost before it serves: its trial. */
#define TRIAL_CALLS 1

static CUfunction client_fill_kernel, client_spin_kernel;

static inline void client_open(void)
{
    CUmodule module;
    CUcontext context;

    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, "softcuda\n") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&client_fill_kernel, module, "fill") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&client_spin_kernel, module, "spin") == CUDA_SUCCESS);
    softcuda_reset_counters();
}

/* A block that must be had, announced to the overlap detector. */
static inline CUdeviceptr client_alloc(size_t bytes)
{
    CUdeviceptr block = 0;

    REQUIRE(cuMemAlloc(&block, bytes) == CUDA_SUCCESS);
    softcuda_claim(block, bytes);
    return block;
}

static inline CUstream client_stream(unsigned flags)
{
    CUstream stream;

    REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
    return stream;
}

static inline void client_fill(CUstream stream, CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    void *params[] = {&block, &bytes, &seed};

    REQUIRE(cuLaunchKernel(client_fill_kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

static inline void client_spin(CUstream stream, uint64_t us)
{
    void *params[] = {&us};

    REQUIRE(cuLaunchKernel(client_spin_kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

/* Blocks allocated, filled and freed one after the other. */
static inline void churn(int rounds, size_t bytes)
{
    for (int i = 0; i < rounds; i++)
        REQUIRE(cuMemFree(client_alloc(bytes)) == CUDA_SUCCESS);
}

#endif /* CUP_TESTS_PRELOAD_CLIENT_H */
