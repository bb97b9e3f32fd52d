/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_ipc - legacy IPC handles of memory: tokens of ours for pooled memory of a range, the driver's
 * handles for everything else.
 *
 * A driver's handle names a whole driver allocation. Where a block is one (raw), it becomes the driver's
 * own for good, so that its free and what comes after are native. A block that shares its chunk can't be
 * exported that way: the peer would get the chunk's first bytes, silently wrong, so the call fails and says
 * what to do. Over a range (vmm) the driver makes no handle at all: the block gets a token, which a peer
 * with the preload opens (docs/ipc.md), and the driver refuses.
 */
#include "shim/conf.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/ipc_export.h"
#include "shim/ipc_import.h"
#include "shim/log.h"
#include "shim/registry.h"
#include "shim/route.h"
#include "shim/route_ipc.h"
#include "shim/submit.h"
#include "shim/zero.h"
#include <unistd.h>

/* Says why there can be no handle for a block that shares its driver allocation. */
static CUresult refuse_shared(const cup_block_info_t *block)
{
    cup_log(
        CUP_LOG_ERROR,
        "an IPC handle was asked for a pooled block of %llu bytes, which shares its driver allocation; set "
        "CUPOLA_BACKING=vmm where the other process has this library too, else CUPOLA_DEDICATED=1 to give "
        "each block its own",
        (unsigned long long)block->size_bytes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* On a stream of its own: nothing of the program's is touched, waited for or captured. */
static CUresult zero(CUdeviceptr from, uint64_t size_bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream;
    CUresult result;

    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        result = cup_drv.cuMemsetD8Async(from, 0, size_bytes, stream);
        if (result == CUDA_SUCCESS)
            result = cup_drv.cuStreamSynchronize(stream);
        cup_drv.cuStreamDestroy_v2(stream);
    }
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* CUPOLA_IPC_ISOLATE: what else is in the block's last handle goes, too, to whoever opens it. */
static CUresult zero_rest(cup_heap_t *heap, const cup_block_info_t *block)
{
    cup_addr_t end = block->base + block->size_bytes;
    cup_backed_t last;
    CUcontext ignored;
    CUresult result;

    if (!cup_gate_conf()->ipc_isolate.word || (block->marks & CUP_MARK_LENT) ||
        !cup_pool_find_backed(block->pool, end - 1, &last) || last.base + last.size_bytes == end)
        return CUDA_SUCCESS;
    result = cup_drv.cuCtxPushCurrent_v2(cup_heap_ctx(heap));
    if (result != CUDA_SUCCESS)
        return result;
    result = zero(end, last.base + last.size_bytes - end);
    cup_drv.cuCtxPopCurrent_v2(&ignored);
    return result;
}

/*
 * What the driver says before it looks at the address: it has shut down, there is no context, or one that
 * has ended or has an asynchronous error (measured: 4, 201, 709, 700, here as there).
 */
CUresult cup_route_ipc_check_caller(void)
{
    return cup_drv.cuMemGetInfo_v2(NULL, NULL);
}

/* Whoever opens it asks no event of ours: its own zeros are there before it is told. */
CUresult cup_route_ipc_export(cup_heap_t *heap, const cup_block_info_t *block, CUipcMemHandle *out_handle)
{
    CUresult result = zero_rest(heap, block);

    cup_zero_settle();
    if (result != CUDA_SUCCESS)
        return result;
    return cup_ipc_export(block, cup_heap_device(heap), cup_order_of(cup_heap_ctx(heap)), out_handle);
}

/* False: the driver answers. */
static bool get_pooled(cup_heap_t *heap, CUdeviceptr dptr, CUipcMemHandle *handle, CUresult *out_result)
{
    cup_block_info_t block;
    cup_backed_t backed;

    *out_result = cup_route_ipc_check_caller();
    if (*out_result != CUDA_SUCCESS)
        return true;
    if (!cup_pool_find(dptr, &block)) {
        *out_result = CUDA_ERROR_INVALID_VALUE; /* freed: the driver still has what it lay in */
        return true;
    }
    if (cup_pool_find_backed(block.pool, block.base, &backed)) {
        *out_result = cup_route_ipc_export(heap, &block, handle);
        return true;
    }
    if (cup_heap_surrender(heap, block.base))
        return false;
    *out_result = refuse_shared(&block);
    return true;
}

/* Others reach the block without our streams: what was freed in it before must be complete. */
CUresult cup_route_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    CUresult result = CUDA_SUCCESS;
    bool is_ours = false;

    cup_submit_collect();
    if (handle && cup_gate_enter(false)) {
        cup_heap_t *heap = cup_registry_acquire_owner(dptr);

        if (heap) {
            is_ours = get_pooled(heap, dptr, handle, &result);
            cup_heap_leave(heap);
        }
        cup_gate_leave();
    }
    return is_ours ? result : cup_drv.cuIpcGetMemHandle(handle, dptr);
}

/* Its order points tell when a mapping is not in use any more. */
static void follow_context(void)
{
    cup_heap_t *heap = cup_registry_acquire_current(true);

    if (heap)
        cup_heap_leave(heap);
}

CUresult cup_route_ipc_open(const cup_ipc_token_t *token, uint32_t uid, bool is_read_only,
                            CUdeviceptr *out_addr)
{
    CUcontext ctx = NULL;

    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    follow_context();
    cup_ipc_reap();
    return cup_ipc_open(token, uid, is_read_only, out_addr);
}

/* One of ours that can't be read is the driver's to refuse, but what is wrong is ours to say. */
static bool read_token(const CUipcMemHandle *handle, cup_ipc_token_t *out_token)
{
    if (cup_ipc_token_read(handle, out_token))
        return true;
    if (out_token->magic != CUP_IPC_MAGIC || out_token->version == CUP_IPC_VERSION || !cup_gate_enter(true))
        return false;
    cup_log(
        CUP_LOG_ERROR,
        "an IPC handle is of another version of this library (%u, this one speaks %u): both processes need "
        "the same",
        (unsigned)out_token->version, (unsigned)CUP_IPC_VERSION);
    cup_gate_leave();
    return false;
}

/* False: the driver answers, also to what is wrong with the call. */
static bool open_token(CUdeviceptr *dptr, const CUipcMemHandle *handle, unsigned int flags,
                       CUresult *out_result)
{
    cup_ipc_token_t token;
    CUcontext ctx = NULL;
    bool is_ours = false;

    if (!dptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !read_token(handle, &token) ||
        !cup_gate_enter(true))
        return false;
    if (cup_drv.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx) {
        *out_result = cup_route_ipc_open(&token, (uint32_t)geteuid(), false, dptr);
        is_ours = true;
    }
    cup_gate_leave();
    return is_ours;
}

#define OPEN(symbol)                                                                                     \
    CUresult cup_route_##symbol(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)            \
    {                                                                                                    \
        CUresult result;                                                                                 \
                                                                                                         \
        return open_token(dptr, &handle, flags, &result) ? result : cup_drv.symbol(dptr, handle, flags); \
    }
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)
#undef OPEN

CUresult cup_route_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    CUresult result;
    bool is_ours = false;

    cup_submit_collect();
    if (cup_gate_enter(false)) {
        cup_ipc_reap();
        is_ours = cup_ipc_close(dptr, &result);
        cup_gate_leave();
    }
    return is_ours ? result : cup_drv.cuIpcCloseMemHandle(dptr);
}
