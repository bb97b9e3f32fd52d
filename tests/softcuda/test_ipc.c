/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ipc - legacy IPC handles of the software driver between two processes: right bytes at the base of
 * each allocation, large and small, both ways; opens are counted; handles of what is gone, of the process
 * itself and of nothing are refused. An interprocess event orders a stream of one behind a stream of the
 * other.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "tests/softcuda/pattern.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/peer.h"

#define LARGE (5u << 20)
#define SMALL 3000u

typedef struct {
    CUipcMemHandle large, small, second, gone;
    CUipcEventHandle event;
} handles_t;

static CUfunction fill;

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

static void open_driver(void)
{
    CUcontext ctx;
    CUmodule module;

    OK(cuInit(0));
    OK(cuCtxCreate(&ctx, NULL, 0, 0));
    OK(cuModuleLoadData(&module, "softcuda\nfill\n"));
    OK(cuModuleGetFunction(&fill, module, "fill"));
}

static void fill_on(CUstream stream, CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    void *params[] = {&block, &bytes, &seed};

    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill_all(CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    fill_on(NULL, block, bytes, seed);
    OK(cuCtxSynchronize());
}

static bool is_right(CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    static char copy[LARGE];

    OK(cuMemcpyDtoH(copy, block, bytes));
    return softcuda_verify_region(copy, bytes, seed) == 0;
}

static CUresult open_handle(CUdeviceptr *out, CUipcMemHandle handle)
{
    return cuIpcOpenMemHandle(out, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* The other side's fill is held: ours must come after it all the same. */
static void fill_after(int socket, CUdeviceptr block, const CUipcEventHandle *handle)
{
    CUipcEventHandle nonsense;
    CUstream stream;
    CUevent event;
    char word = 0;

    memset(&nonsense, 7, sizeof nonsense);
    REQUIRE(cuIpcOpenEventHandle(&event, nonsense) == CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenEventHandle(&event, *handle));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    peer_hear(socket, &word, 1); /* recorded */
    REQUIRE(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(stream, event, 0));
    fill_on(stream, block, LARGE, 6);
    REQUIRE(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    peer_say(socket, &word, 1);
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(stream));
    OK(cuEventDestroy(event));
    peer_say(socket, &word, 1);
}

static void fill_before(const peer_t *peer, CUdeviceptr block, CUevent event)
{
    CUstream stream;
    char word = 0;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    REQUIRE(softcuda_hold(stream) == 0);
    fill_on(stream, block, LARGE, 5);
    OK(cuEventRecord(event, stream));
    peer_say(peer->socket, &word, 1);
    peer_hear(peer->socket, &word, 1);
    softcuda_release(stream);
    peer_hear(peer->socket, &word, 1);
    REQUIRE(is_right(block, LARGE, 6));
}

static CUevent export_event(CUipcEventHandle *out)
{
    CUevent event, plain;

    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    REQUIRE(cuIpcGetEventHandle(out, plain) == CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(out, event));
    REQUIRE(cuIpcOpenEventHandle(&plain, *out) == CUDA_ERROR_INVALID_CONTEXT);
    return event;
}

static int run_importer(int socket)
{
    CUdeviceptr large = 0, again = 0, small = 0, second = 0;
    CUipcMemHandle nonsense;
    handles_t handles;
    char word = 0;

    open_driver();
    peer_hear(socket, &handles, sizeof handles);
    OK(open_handle(&large, handles.large));
    OK(open_handle(&again, handles.large));
    REQUIRE(again == large);
    OK(open_handle(&small, handles.small));
    OK(open_handle(&second, handles.second));
    REQUIRE(is_right(large, LARGE, 1) && is_right(small, SMALL, 2) && is_right(second, SMALL, 3));
    REQUIRE(softcuda_held_bytes() == 0); /* it counts where it was allocated */
    REQUIRE(open_handle(&again, handles.gone) == CUDA_ERROR_INVALID_VALUE);
    memset(&nonsense, 7, sizeof nonsense);
    REQUIRE(open_handle(&again, nonsense) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuIpcOpenMemHandle(&again, handles.large, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    fill_all(large, LARGE, 4);
    peer_say(socket, &word, 1);
    fill_after(socket, large, &handles.event);
    peer_hear(socket, &word, 1); /* freed over there */
    REQUIRE(is_right(large, LARGE, 6));
    OK(cuIpcCloseMemHandle(large));
    OK(cuIpcCloseMemHandle(large));
    REQUIRE(cuIpcCloseMemHandle(large) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(open_handle(&again, handles.large) == CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(second));
    OK(cuIpcCloseMemHandle(small));
    return 0;
}

int main(int argc, char **argv)
{
    const char *const args[] = {NULL};
    CUdeviceptr large, small, second, gone, same;
    handles_t handles;
    CUipcMemHandle interior;
    CUevent event;
    char word;

    if (argc == 2)
        return run_importer(atoi(argv[1]));
    peer_t peer = peer_start(args);
    open_driver();
    OK(cuMemAlloc(&large, LARGE));
    OK(cuMemAlloc(&small, SMALL));
    OK(cuMemAlloc(&second, SMALL));
    OK(cuMemAlloc(&gone, SMALL));
    fill_all(large, LARGE, 1);
    fill_all(small, SMALL, 2);
    OK(cuIpcGetMemHandle(&handles.gone, gone));
    OK(cuMemFree(gone));
    OK(cuMemAlloc(&same, SMALL));
    REQUIRE(same == gone);
    OK(cuIpcGetMemHandle(&interior, same));
    REQUIRE(memcmp(&interior, &handles.gone, sizeof interior) != 0);
    OK(cuIpcGetMemHandle(&handles.large, large));
    OK(cuIpcGetMemHandle(&handles.small, small));
    OK(cuIpcGetMemHandle(&handles.second, second));
    OK(cuIpcGetMemHandle(&interior, large + 512));
    REQUIRE(memcmp(&interior, &handles.large, sizeof interior) == 0);
    REQUIRE(open_handle(&same, handles.large) == CUDA_ERROR_INVALID_CONTEXT);
    fill_all(second, SMALL, 3); /* after its handle was made */
    event = export_event(&handles.event);
    peer_say(peer.socket, &handles, sizeof handles);
    peer_hear(peer.socket, &word, 1);
    REQUIRE(is_right(large, LARGE, 4) && is_right(small, SMALL, 2));
    fill_before(&peer, large, event);
    OK(cuMemFree(large));
    peer_say(peer.socket, &word, 1);
    REQUIRE(peer_end(&peer) == 0);
    return 0;
}
