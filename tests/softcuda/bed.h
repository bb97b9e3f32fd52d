/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bed - what the unit tests of the software driver stand on: a context with kernels, and a stream that can
 * be held.
 * What:       make_bed() and drop_bed(), for one test each.
 * Threads:    the thread of the test.
 */
#ifndef SOFTCUDA_BED_H
#define SOFTCUDA_BED_H
#include <cuda.h>
#include <stdint.h>
#include "tests/softcuda/softcuda.h"
#include "tests/support/unit.h"

#define MIB                    (1ull << 20)
#define CHECK_CU(call, wanted) CHECK_EQ(call, wanted)
#define OK(call)               CHECK_EQ(call, CUDA_SUCCESS)

typedef struct {
    CUcontext ctx;
    CUmodule module;
    CUfunction fill, verify, hash, copy, spin_until;
    uint32_t *flag; /* host memory that the device can read: spin_until waits for it */
} bed_t;

/* A context of its own, current, for one test. */
static inline bed_t make_bed(void)
{
    bed_t bed;

    OK(cuInit(0));
    OK(cuCtxCreate(&bed.ctx, NULL, 0, 0));
    OK(cuModuleLoadData(&bed.module, "softcuda\n"));
    OK(cuModuleGetFunction(&bed.fill, bed.module, "fill"));
    OK(cuModuleGetFunction(&bed.verify, bed.module, "verify"));
    OK(cuModuleGetFunction(&bed.hash, bed.module, "hash"));
    OK(cuModuleGetFunction(&bed.copy, bed.module, "copy"));
    OK(cuModuleGetFunction(&bed.spin_until, bed.module, "spin_until"));
    OK(cuMemHostAlloc((void **)&bed.flag, 4096, 0));
    softcuda_reset_counters();
    return bed;
}

static inline void set_flag(const bed_t *bed, uint32_t value)
{
    __atomic_store_n(bed->flag, value, __ATOMIC_RELEASE);
}

static inline void drop_bed(bed_t *bed)
{
    set_flag(bed, 1);
    OK(cuModuleUnload(bed->module));
    OK(cuCtxDestroy(bed->ctx));
}

static inline CUresult launch(CUfunction function, CUstream stream, void **params)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* The stream stays busy until the flag is set. */
static inline CUresult hold(const bed_t *bed, CUstream stream)
{
    uint32_t one = 1;
    void *params[] = {(void *)&bed->flag, &one};

    return launch(bed->spin_until, stream, params);
}

static inline CUresult fill(const bed_t *bed, CUstream stream, CUdeviceptr block, uint64_t bytes,
                            uint64_t seed)
{
    void *params[] = {&block, &bytes, &seed};

    return launch(bed->fill, stream, params);
}

#endif /* SOFTCUDA_BED_H */
