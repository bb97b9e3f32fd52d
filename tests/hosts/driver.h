/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - the few driver calls of the host programs, found as a dlopen+dlsym client finds them.
 * What:       load (dlopen, dlsym, a primary context made current), alloc and free; a failed step ends the
 *             program. HOST_EXPECT=native: the program runs without the preload, or the pool is to stand
 *             aside.
 * Not here:   anything of cupola's: the programs do not know that they are preloaded.
 * Invariants: softcuda_calls is NULL on a real driver, and only there.
 * Threads:    any thread that has made the context current.
 */
#ifndef CUP_TESTS_HOSTS_DRIVER_H
#define CUP_TESTS_HOSTS_DRIVER_H
#include "tests/support/require.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void *handle;
    CUcontext context;
    CUresult (*set_current)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    uint64_t (*softcuda_calls)(const char *);
} driver_t;

static inline void *driver_symbol(const driver_t *driver, const char *name)
{
    void *symbol = dlsym(driver->handle, name);
    if (symbol == NULL)
        fprintf(stderr, "no %s\n", name);
    REQUIRE(symbol != NULL);
    return symbol;
}

static inline driver_t driver_load(void)
{
    driver_t driver = {.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    CUdevice device = 0;
    if (driver.handle == NULL) {
        fprintf(stderr, "skipped: %s\n", dlerror());
        _Exit(77);
    }
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))driver_symbol(&driver, "cuInit");
    CUresult (*get)(CUdevice *, int) = (CUresult(*)(CUdevice *, int))driver_symbol(&driver, "cuDeviceGet");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))driver_symbol(&driver, "cuDevicePrimaryCtxRetain");
    driver.set_current = (CUresult(*)(CUcontext))driver_symbol(&driver, "cuCtxSetCurrent");
    driver.alloc = (CUresult(*)(CUdeviceptr *, size_t))driver_symbol(&driver, "cuMemAlloc_v2");
    driver.free = (CUresult(*)(CUdeviceptr))driver_symbol(&driver, "cuMemFree_v2");
    driver.softcuda_calls = (uint64_t(*)(const char *))dlsym(driver.handle, "softcuda_calls");
    REQUIRE(init(0) == CUDA_SUCCESS);
    REQUIRE(get(&device, 0) == CUDA_SUCCESS);
    REQUIRE(retain(&driver.context, device) == CUDA_SUCCESS);
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    return driver;
}

/* rounds times: 64 blocks of 512 B to 256 KiB, sizes from seed, allocated and freed. */
static inline void driver_churn(const driver_t *driver, unsigned seed, int rounds)
{
    CUdeviceptr blocks[64];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 64; i++) {
            seed = seed * 1664525u + 1013904223u;
            REQUIRE(driver->alloc(&blocks[i], (size_t)((seed >> 8) % 512 + 1) * 512) == CUDA_SUCCESS);
        }
        for (int i = 0; i < 64; i++)
            REQUIRE(driver->free(blocks[i]) == CUDA_SUCCESS);
    }
}

/* A function of the driver as an expression; function is its name, which cuda.h may rename. */
#define DRIVER_CALL(driver, symbol, type) ((CUresult(*) type)driver_symbol(driver, symbol))

/* One block that must be had. */
static inline CUdeviceptr driver_alloc(const driver_t *driver, size_t bytes)
{
    CUdeviceptr block = 0;
    REQUIRE(driver->alloc(&block, bytes) == CUDA_SUCCESS);
    return block;
}

static inline int driver_expects_native(void)
{
    const char *expect = getenv("HOST_EXPECT");
    return expect != NULL && strcmp(expect, "native") == 0;
}

/* The pool served: many allocations, few driver calls. What makes these tests of cupola and not of the
 * driver; natively as many calls as allocations, so that the count is known to count. */
static inline void driver_require_pooled(const driver_t *driver, uint64_t allocations)
{
    uint64_t calls;
    if (driver->softcuda_calls == NULL)
        return;
    calls = driver->softcuda_calls("cuMemAlloc_v2") + driver->softcuda_calls("cuMemCreate");
    if (driver_expects_native())
        REQUIRE(calls >= allocations);
    else
        REQUIRE(calls * 4 < allocations);
}

#endif /* CUP_TESTS_HOSTS_DRIVER_H */
