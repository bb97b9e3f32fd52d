/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rescue - what a program has freed it can have again, by whatever call: idle memory of the pool goes back for it.
 * What:       rescue CASE fills most of the device by pooled blocks, frees them with work in flight, and asks another
 *             allocator, or another context, for as much. Prints the counters that must hold (counted.sh).
 *             once ROW: the entry point finds no memory the first time, and is called once more.
 * Not here:   cuMemAlloc in one context (cases.c rescue).
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <string.h>
#include <unistd.h>

static uint64_t g_most; /* nearly two thirds of the device */

static void fill_and_free(CUstream stream)
{
    enum { BLOCKS = 4 };
    CUdeviceptr block[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        block[i] = client_alloc(g_most / BLOCKS);
    client_spin(stream, 50000);
    for (int i = 0; i < BLOCKS; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
}

static void create(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;

    fill_and_free(client_stream(CU_STREAM_NON_BLOCKING));
    REQUIRE(cuMemCreate(&handle, g_most & ~((2ull << 20) - 1), &prop, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(handle) == CUDA_SUCCESS);
}

static void stream_ordered(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block;

    fill_and_free(stream);
    REQUIRE(cuMemAllocAsync(&block, g_most, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
}

static void pitch(void)
{
    CUdeviceptr block;
    size_t bytes;

    fill_and_free(client_stream(CU_STREAM_NON_BLOCKING));
    REQUIRE(cuMemAllocPitch(&block, &bytes, 1 << 20, g_most >> 20, 4) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/* The other context's frees are not complete yet: natively they had waited. */
static void context(void)
{
    CUcontext second;

    fill_and_free(client_stream(CU_STREAM_NON_BLOCKING));
    REQUIRE(cuCtxCreate(&second, NULL, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(client_alloc(g_most)) == CUDA_SUCCESS);
    REQUIRE(cuCtxDestroy(second) == CUDA_SUCCESS);
}

/* raw: what is kept beyond the cap goes back with the free, if that waits for nothing. The program allocates no more. */
static void cached(void)
{
    CUdeviceptr block = client_alloc(g_most);

    client_spin(client_stream(CU_STREAM_NON_BLOCKING), 20000);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(softcuda_held_bytes() < g_most / 2);
    printf("oom_rescues 0\n");
}

/* Of the LIST those that the software driver has. It may refuse them for other reasons: that they are asked again counts. */
static void once(const char *symbol)
{
    CUmodule module;
    CUcontext made;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

    fill_and_free(client_stream(CU_STREAM_NON_BLOCKING));
    softcuda_reset_counters();
    REQUIRE(softcuda_fail_nth(symbol, 1, CUDA_ERROR_OUT_OF_MEMORY) == 0);
#define CALL(name, ...)             \
    if (strcmp(symbol, #name) == 0) \
        (void)name(__VA_ARGS__);
    CALL(cuMemCreate, &handle, 2 << 20, &prop, 0)
    CALL(cuMemImportFromShareableHandle, &handle, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    CALL(cuCtxCreate_v4, &made, NULL, 0, 0)
    CALL(cuModuleLoadData, &module, "softcuda\n")
    CALL(cuModuleLoadDataEx, &module, "softcuda\n", 0, NULL, NULL)
#undef CALL
    REQUIRE(softcuda_calls(symbol) == 2);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } list[] = {{"create", create},
                {"stream_ordered", stream_ordered},
                {"pitch", pitch},
                {"context", context},
                {"cached", cached}};
    size_t free_bytes, total_bytes;
    int ran = 0;

    REQUIRE(argc > 1);
    alarm(60);
    client_open();
    REQUIRE(cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS);
    g_most = total_bytes / 100 * 64 & ~((uint64_t)(4 << 20) - 1);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (strcmp(argv[1], list[i].name) == 0) {
            list[i].run();
            ran++;
        }
    if (strcmp(argv[1], "once") == 0 && argc > 2) {
        once(argv[2]);
        ran++;
    }
    REQUIRE(ran == 1 && softcuda_violations() == 0);
    if (strcmp(argv[1], "cached") != 0)
        printf("oom_rescues 1\n");
    return 0;
}
