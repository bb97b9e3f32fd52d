/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck_faults - under CUPOLA_ZERO every driver call that a set needs fails once, for every N.
 * What:       a workload of blocks that change hands under work in flight, in a fresh child per (symbol, N,
 *             code). The program may see the injected code; one failure costs at most one block its zeros
 *             (then the driver has answered, as natively), and nothing is lost: what the pool holds
 *             afterwards is what it held before.
 * Invariants: a symbol that is never reached fails the test.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/preload/each_call.h"
#include <stdbool.h>
#include <string.h>

#define NTH_MAX 6
#define ROUNDS  10
#define BYTES   65536

static const char *const g_ordered[] = {
    "cuMemsetD8Async",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamWaitEvent",
    "cuStreamCreate",
    "cuEventCreate",
    "cuCtxPushCurrent_v2",
    "cuEventSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    NULL,
};
static const char *const g_waited[] = {"cuMemsetD8Async", "cuStreamSynchronize", NULL};

static bool is_fine(CUresult result, int code)
{
    REQUIRE(result == CUDA_SUCCESS || (int)result == code);
    return result == CUDA_SUCCESS;
}

/* The next owner looks by a synchronous copy. Returns whether it saw anything but zeros. */
static int change_hands(CUstream stream, int round, int code)
{
    static unsigned char seen[BYTES];
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    int dirty = 0;

    if (!is_fine(cuMemAlloc(&block, BYTES), code))
        return 0;
    softcuda_claim(block, BYTES);
    if (round % 5 == 4) /* refused, under raw; the sets are waited for before */
        (void)cuIpcGetMemHandle(&handle, block);
    if (is_fine(cuMemcpyDtoH(seen, block, BYTES), code))
        for (size_t i = 0; i < BYTES; i++)
            dirty |= seen[i] != 0;
    client_spin(stream, 500);
    client_fill(stream, block, BYTES, 9);
    is_fine(cuMemFree(block), code);
    return dirty;
}

static void child(const char *symbol, uint64_t nth, int code)
{
    CUstream stream;
    uint64_t held;
    int dirty = 0;

    alarm(60);
    client_open();
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    softcuda_reset_counters();
    if (nth > 0)
        REQUIRE(softcuda_fail_nth(symbol, nth, code) == 0);
    for (int round = 0; round < ROUNDS; round++)
        dirty += change_hands(stream, round, code);
    REQUIRE(dirty <= (nth > 0));
    *g_calls = softcuda_calls(symbol);
    softcuda_reset_counters(); /* what did not happen by now does not */
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    held = softcuda_held_bytes();
    for (int round = 0; round < 5 * ROUNDS; round++)
        REQUIRE(change_hands(stream, round, CUDA_SUCCESS) == 0);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(softcuda_held_bytes() <= held + (2 << 20) && softcuda_violations() == 0);
    REQUIRE(softcuda_calls("cuMemAlloc_v2") + softcuda_calls("cuMemCreate") <= 2);
    _exit(0);
}

/* luck_faults ordered|waited: as CUPOLA_FREE has it. */
int main(int argc, char **argv)
{
    bool is_waited = argc > 1 && strcmp(argv[1], "waited") == 0;

    each_call_fails(is_waited ? g_waited : g_ordered, NTH_MAX, child);
    return 0;
}
