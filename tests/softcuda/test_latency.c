/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_latency - the latency model: the straight lines between its points, and that calls and operations
 * take no less than it says. A plain program: the model is chosen by the environment of the whole process.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tests/softcuda/softcuda.h"

#define MIB (1ull << 20)

static int failures;

static void expect(const char *what, uint64_t got, uint64_t wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s: %llu, not %llu\n", what, (unsigned long long)got, (unsigned long long)wanted);
    failures++;
}

static void expect_at_least(const char *what, uint64_t took_ns, uint64_t ns)
{
    if (took_ns >= ns)
        return;
    fprintf(stderr, "%s took %llu ns, less than %llu\n", what, (unsigned long long)took_ns,
            (unsigned long long)ns);
    failures++;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Between the points a line; before the first its value; after the last the last line goes on. */
static void check_lines(void)
{
    expect("256 B", softcuda_latency_ns("ALLOC", 256), 32000);
    expect("36 MiB", softcuda_latency_ns("ALLOC", 36 * MIB), 35000);
    expect("64 MiB", softcuda_latency_ns("ALLOC", 64 * MIB), 38000);
    expect("1 GiB", softcuda_latency_ns("ALLOC", 1024 * MIB), 81000);
    expect("1984 MiB", softcuda_latency_ns("ALLOC", 1984 * MIB), 124000);
    expect("a launch", softcuda_latency_ns("LAUNCH", 5 * MIB), 3700);
    expect("no row", softcuda_latency_ns("NONE", 1), 0);
}

#define TIMED(what, row, bytes, call)                                                 \
    do {                                                                              \
        uint64_t begun_ns_ = now_ns();                                                \
        expect(what, call, CUDA_SUCCESS);                                             \
        expect_at_least(what, now_ns() - begun_ns_, softcuda_latency_ns(row, bytes)); \
    } while (0)

static void check_calls(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block, range;

    TIMED("cuMemAlloc", "ALLOC", 64 * MIB, cuMemAlloc(&block, 64 * MIB));
    TIMED("cuMemFree", "FREE", 64 * MIB, cuMemFree(block));
    TIMED("cuMemAddressReserve", "ADDRESS_RESERVE", 0, cuMemAddressReserve(&range, 32 * MIB, 0, 0, 0));
    TIMED("cuMemCreate", "CREATE", 32 * MIB, cuMemCreate(&handle, 32 * MIB, &prop, 0));
    TIMED("cuMemMap", "MAP", 32 * MIB, cuMemMap(range, 32 * MIB, 0, handle, 0));
    TIMED("cuMemSetAccess", "SET_ACCESS", 32 * MIB, cuMemSetAccess(range, 32 * MIB, &access, 1));
    TIMED("cuMemsetD8 and its wait", "DEVICE_SET", 32 * MIB,
          cuMemsetD8(range, 1, 32 * MIB) == CUDA_SUCCESS ? cuCtxSynchronize() : CUDA_ERROR_UNKNOWN);
    TIMED("cuMemUnmap", "UNMAP", 32 * MIB, cuMemUnmap(range, 32 * MIB));
    TIMED("cuMemRelease", "RELEASE", 32 * MIB, cuMemRelease(handle));
}

int main(void)
{
    CUcontext ctx;

    setenv("SOFTCUDA_LATENCY", "h200", 1);
    check_lines();
    expect("cuInit", cuInit(0), CUDA_SUCCESS);
    expect("cuCtxCreate", cuCtxCreate(&ctx, NULL, 0, 0), CUDA_SUCCESS);
    check_calls();
    expect("cuCtxDestroy", cuCtxDestroy(ctx), CUDA_SUCCESS);
    return failures != 0;
}
