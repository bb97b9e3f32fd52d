/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cudart - the stand-in runtime library: how it reaches the driver, and the edges that programs lean
 * on.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>
#include "tests/softcuda/softcuda.h"
#include "tests/support/unit.h"

#define OK(call) CHECK_EQ(call, cudaSuccess)

TEST(cudart, malloc_edges)
{
    void *block = &block;

    OK(cudaFree(NULL));
    OK(cudaMalloc(&block, 0));
    CHECK(block == NULL);
    CHECK_EQ(cudaMalloc(&block, (size_t)1 << 50), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    CHECK_EQ(cudaFree(&block), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    cudaGetLastError();
}

TEST(cudart, malloc_arrives_as_cuMemAlloc_v2)
{
    void *block;

    OK(cudaFree(NULL));
    uint64_t allocs = softcuda_calls("cuMemAlloc_v2"), frees = softcuda_calls("cuMemFree_v2");
    OK(cudaMalloc(&block, 4096));
    OK(cudaFree(block));
    CHECK_EQ(softcuda_calls("cuMemAlloc_v2"), allocs + 1);
    CHECK_EQ(softcuda_calls("cuMemFree_v2"), frees + 1);
    CHECK(softcuda_calls("cuGetProcAddress_v2") >= 440);
    CHECK_EQ(softcuda_calls("cuGetProcAddress"), 0);
}

TEST(cudart, copies_and_pointers)
{
    struct cudaPointerAttributes attributes;
    char there[100], back[100];
    void *block;

    memset(there, 7, sizeof there);
    memset(back, 0, sizeof back);
    OK(cudaMalloc(&block, sizeof there));
    OK(cudaMemcpy(block, there, sizeof there, cudaMemcpyHostToDevice));
    OK(cudaMemset(block, 9, 1));
    OK(cudaMemcpy(back, block, sizeof back, cudaMemcpyDefault));
    there[0] = 9;
    CHECK(memcmp(there, back, sizeof back) == 0);
    OK(cudaPointerGetAttributes(&attributes, block));
    CHECK_EQ(attributes.type, cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&attributes, there));
    CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
    OK(cudaFree(block));
}

TEST(cudart, reset_starts_over)
{
    void *block;

    OK(cudaMalloc(&block, 4096));
    OK(cudaDeviceReset());
    CHECK_EQ(cudaFree(block), cudaErrorInvalidValue);
    cudaGetLastError();
    OK(cudaMalloc(&block, 4096));
    OK(cudaFree(block));
}

TEST(cudart, claims_what_it_hands_out)
{
    cudaStream_t stream;
    cudaEvent_t event;
    void *block;

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&event));
    softcuda_reset_counters();
    OK(cudaMalloc(&block, 1 << 20));
    for (int i = 0; i < 20; i++)
        OK(cudaMemsetAsync(block, i, 1 << 20, stream));
    OK(cudaFree(block)); /* waits */
    OK(cudaMalloc(&block, 1 << 20));
    OK(cudaMemset(block, 1, 1 << 20));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(softcuda_violations(), 0);
    CHECK_EQ(softcuda_claims_in_flight(), 0);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(block));
}

TEST(cudart, driver_entry_points)
{
    enum cudaDriverEntryPointQueryResult status;
    void *address = NULL;

    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &address, 13000, 0, &status));
    CHECK_EQ(status, cudaDriverEntryPointSuccess);
    CHECK(address != NULL);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchCall", &address, 13000, 0, &status));
    CHECK_EQ(status, cudaDriverEntryPointSymbolNotFound);
}
