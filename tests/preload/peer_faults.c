/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_faults - every driver call behind peer access and copies between devices fails once, for every N,
 * under the preload on the software driver.
 * What:       a workload over two devices in a fresh child per (symbol, N, code). The program may see the
 *             injected code from one of its calls, which has changed nothing then: the same call succeeds
 *             the second time. Who reaches what is as the calls that succeeded say, and the bytes are
 *             right.
 * Not here:   the calls of one device (faults.c).
 * Invariants: a symbol that is never reached fails the test.
 */
#define _GNU_SOURCE
#include "tests/preload/each_call.h"
#include "tests/preload/peer.h"

#define MIB ((size_t)1 << 20)

#define NTH_MAX 30

static const char *const g_raw[] = {"cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", "cuCtxGetCurrent",
                                    NULL};
static const char *const g_vmm[] = {
    "cuCtxEnablePeerAccess",
    "cuCtxDisablePeerAccess",
    "cuMemSetAccess",
    "cuMemMap",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuDeviceGetCount",
    "cuCtxGetId",
    "cuCtxGetDevice",
    "cuCtxGetCurrent",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemcpy3DPeer",
    "cuMemcpy3DPeerAsync",
    "cuStreamGetCtx",
    "cuPointerGetAttribute",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    NULL,
};

static int g_code; /* what is injected; 0: nothing */

/* Success, if not at once then at the second try. */
#define TWICE(call)                                                                   \
    do {                                                                              \
        CUresult result_now = (call);                                                 \
                                                                                      \
        REQUIRE(result_now == CUDA_SUCCESS || (g_code && (int)result_now == g_code)); \
        REQUIRE(result_now == CUDA_SUCCESS || (call) == CUDA_SUCCESS);                \
    } while (0)

static void join(const place_t *place)
{
    TWICE(cuCtxSetCurrent(place->ctx));
}

static CUdeviceptr make_block(const place_t *place, size_t bytes)
{
    CUdeviceptr block = 0;

    join(place);
    TWICE(cuMemAlloc(&block, bytes));
    softcuda_claim(block, bytes);
    return block;
}

static bool can_write(const place_t *place, CUdeviceptr block, uint64_t seed)
{
    uint64_t bytes = 64;
    void *params[] = {&block, &bytes, &seed};
    CUresult result;

    join(place);
    TWICE(cuLaunchKernel(place->fill, 1, 1, 1, 1, 1, 1, 0, place->stream, params, NULL));
    result = cuStreamSynchronize(place->stream);
    if (g_code && (int)result == g_code)
        result = cuStreamSynchronize(place->stream);
    REQUIRE(result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(place->ctx, CUDA_SUCCESS);
    return result == CUDA_SUCCESS;
}

static void copy_both_ways(const place_t *by, CUdeviceptr here, CUdeviceptr there, uint64_t seed)
{
    uint64_t word = 0, *pinned;

    join(by);
    TWICE(cuMemAllocHost((void **)&pinned, 64));
    TWICE(cuMemcpyDtoD(there, here, 64));
    TWICE(cuCtxSynchronize());
    TWICE(cuMemcpyAsync(here, there, 64, by->stream));
    TWICE(cuStreamSynchronize(by->stream));
    TWICE(cuMemcpyDtoH(&word, there, 8));
    REQUIRE(word == softcuda_fill_word(seed, 0));
    TWICE(cuMemcpyDtoHAsync(pinned, there, 64, by->stream));
    TWICE(cuStreamSynchronize(by->stream));
    REQUIRE(pinned[1] == softcuda_fill_word(seed, 1));
    TWICE(cuMemcpyHtoD(there, pinned, 64));
    TWICE(cuMemFreeHost(pinned));
}

static void workload(const place_t *here, const place_t *there)
{
    CUdeviceptr block[2], large, other;

    for (int i = 0; i < 2; i++)
        block[i] = make_block(here, 4096 << i);
    other = make_block(there, 4096);
    REQUIRE(can_write(here, block[0], 3));
    copy_both_ways(here, block[0], other, 3);
    REQUIRE(!can_write(there, block[0], 9));
    join(there);
    TWICE(cuCtxEnablePeerAccess(here->ctx, 0));
    REQUIRE(can_write(there, block[0], 4) && can_write(there, block[1], 4));
    large = make_block(here, 40 * MIB);
    REQUIRE(can_write(there, large, 4) && can_write(there, large + 40 * MIB - 64, 5));
    copy_both_ways(there, block[0], other, 4);
    join(there);
    TWICE(cuCtxDisablePeerAccess(here->ctx));
    join(here);
    TWICE(cuMemFree(block[1]));
    REQUIRE(can_write(here, block[0], 6));
    copy_both_ways(there, block[0], other, 6);
    TWICE(cuCtxSynchronize());
}

static void child(const char *symbol, uint64_t nth, int code)
{
    place_t here = peer_primary(0), there = peer_primary(1);

    g_code = code;
    alarm(60);
    softcuda_reset_counters();
    if (nth > 0)
        REQUIRE(softcuda_fail_nth(symbol, nth, g_code) == 0);
    workload(&here, &there);
    *g_calls = softcuda_calls(symbol);
    REQUIRE(softcuda_violations() == 0);
    _exit(0);
}

int main(void)
{
    each_call_fails(peer_is_vmm() ? g_vmm : g_raw, NTH_MAX, child);
    return 0;
}
