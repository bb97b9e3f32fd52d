/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe - a small program whose one line of output shows what each option changes. options.sh compares it.
 * What:       calls: driver allocations for 100 pairs of 4 KiB; waited: whether a free waited for a running
 *             kernel; own: whether 4 KiB blocks have driver allocations of their own; kept: whether freed 8
 *             MiB blocks are still held after a later miss; reused: whether a block freed under a running
 *             kernel is the next one out.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"

static int free_waits(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(4096);
    int waited;

    client_spin(stream, 100000);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    waited = softcuda_unfinished() == 0; /* the question itself would wait, so as to answer as natively */
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    return waited;
}

static int keeps_freed(void)
{
    enum { COUNT = 4 };
    CUdeviceptr block[COUNT];
    uint64_t before;

    for (int i = 0; i < COUNT; i++)
        block[i] = client_alloc(8 << 20);
    before = softcuda_calls("cuMemFree_v2");
    for (int i = 0; i < COUNT; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    block[0] = client_alloc(32 << 20);
    return softcuda_calls("cuMemFree_v2") == before;
}

static int reuses(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(8 << 20), next;

    client_spin(stream, 100000);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    next = client_alloc(8 << 20);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    return next == block;
}

int main(void)
{
    CUdeviceptr block, another;
    uint64_t calls;
    int waited, own, reused;

    client_open();
    churn(100, 4096);
    calls = driver_calls();
    waited = free_waits();
    block = client_alloc(4096);
    another = client_alloc(4096);
    own = block % (2 << 20) == 0 && another % (2 << 20) == 0;
    reused = reuses();
    printf("calls=%d waited=%d own=%d kept=%d reused=%d\n", calls > 50 ? 100 : 1, waited, own, keeps_freed(),
           reused);
    REQUIRE(softcuda_violations() == 0);
    return 0;
}
