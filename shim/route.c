/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: each function enters the gate, finds a heap, tries, leaves, and otherwise forwards through cup_drv.
 * Casting between CUdeviceptr and cup_addr_t happens here and in backing_raw.c alone.
 */
#include "shim/route.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/order.h"
#include "shim/registry.h"
#include "shim/stat.h"
#include "shim/submit.h"
#include <stdatomic.h>

/* ---- allocation and free ---- */

static bool alloc_pooled(size_t size_bytes, cup_addr_t *out_addr)
{
    cup_heap_t *heap;
    bool is_served = false;

    if (!cup_gate_enter(true))
        return false;
    heap = cup_registry_acquire_current(true);
    if (heap) {
        is_served = cup_heap_alloc(heap, size_bytes, out_addr);
        cup_heap_leave(heap);
    }
    cup_gate_leave();
    return is_served;
}

CUresult cup_route_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    cup_addr_t addr;
    CUresult result;

    CUP_STAT_ADD(allocs, 1);
    if (dptr && bytesize > 0 && alloc_pooled(bytesize, &addr)) {
        CUP_STAT_ADD(pool_allocs, 1);
        *dptr = addr;
        return CUDA_SUCCESS;
    }
    result = cup_drv.cuMemAlloc_v2(dptr, bytesize);
    CUP_STAT_ADD(pass_allocs, 1);
    CUP_STAT_ADD(driver_allocs, 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        CUP_STAT_ADD(ooms, 1);
    return result;
}

/*
 * Where the driver would refuse a good free: it has shut down (9 ns to ask), or the current context is one
 * that has ended (measured: 709). The block's own has not.
 */
static CUresult check_caller(const cup_heap_t *heap)
{
    CUcontext current = NULL;
    unsigned long long id;
    CUresult result = cup_drv.cuCtxGetCurrent(&current);

    if (result != CUDA_SUCCESS || !current || current == cup_heap_ctx(heap))
        return result;
    result = cup_drv.cuCtxGetId(current, &id);
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? result : CUDA_SUCCESS;
}

/*
 * False: addr is not in any chunk of ours, or its context has ended: the driver answers. But it may have the address again
 * for something that is ours alone, and would free that.
 */
static bool free_pooled(cup_addr_t addr, bool is_async, CUresult *out_result)
{
    cup_heap_t *heap;
    bool is_hidden;

    if (!cup_gate_enter(false))
        return false;
    heap = cup_registry_acquire_owner(addr);
    is_hidden = !heap && cup_order_holds(addr);
    if (is_hidden)
        *out_result = CUDA_ERROR_INVALID_VALUE;
    if (heap) {
        *out_result = check_caller(heap);
        if (*out_result == CUDA_SUCCESS)
            *out_result = cup_heap_free(heap, addr, is_async);
        cup_heap_leave(heap);
    }
    cup_gate_leave();
    return heap || is_hidden;
}

CUresult cup_route_cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult result;

    CUP_STAT_ADD(frees, 1);
    if (free_pooled(dptr, false, &result))
        return result;
    CUP_STAT_ADD(pass_frees, 1);
    CUP_STAT_ADD(driver_frees, 1);
    return cup_drv.cuMemFree_v2(dptr);
}

/*
 * In a forked child the driver still takes stream-ordered frees, by its books alone (measured: 0 of a live
 * block, 1 of anything else); of ours its books have the chunk.
 */
static bool is_inherited(CUdeviceptr dptr)
{
    return cup_gate_is_forked() && cup_pool_is_inherited(dptr);
}

/*
 * A pooled pointer must not reach the driver: it would release a chunk, or refuse. The driver takes memory of cuMemAlloc here
 * and frees it in the stream's order: nobody waits for that. The block waits until the whole context is past this, that
 * stream included.
 */
static CUresult free_async(CUresult (*real)(CUdeviceptr, CUstream), CUdeviceptr dptr, cup_place_t place)
{
    CUresult result;
    cup_call_t call;

    if (free_pooled(dptr, true, &result)) {
        CUP_STAT_ADD(frees, 1);
        return result;
    }
    cup_submit_begin(&call, place, CUP_SUBMIT_PLAIN);
    result = real(dptr, place.stream);
    cup_submit_end(&call, result);
    return result == CUDA_ERROR_INVALID_VALUE && is_inherited(dptr) ? CUDA_SUCCESS : result;
}

CUresult cup_route_cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    return free_async(cup_drv.cuMemFreeAsync, dptr, CUP_ON(stream));
}

CUresult cup_route_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    return free_async(cup_drv.cuMemFreeAsync_ptsz, dptr, CUP_ON_PTSZ(stream));
}

/* ---- captures: noted even before the first allocation, which may come inside one ---- */

#define AROUND_BEGIN(place, call)                      \
    CUresult result;                                   \
                                                       \
    cup_capture_begin(stream);                         \
    cup_submit_before_join(place);                     \
    result = (call);                                   \
    cup_capture_began(stream, result == CUDA_SUCCESS); \
    return result;

#define BEGIN(symbol, place)                        \
    CUresult cup_route_##symbol(CUstream stream)    \
    {                                               \
        AROUND_BEGIN(place, cup_drv.symbol(stream)) \
    }
BEGIN(cuStreamBeginCapture, CUP_ON(stream))
BEGIN(cuStreamBeginCapture_ptsz, CUP_ON_PTSZ(stream))
#undef BEGIN

#define BEGIN(symbol, place)                                               \
    CUresult cup_route_##symbol(CUstream stream, CUstreamCaptureMode mode) \
    {                                                                      \
        AROUND_BEGIN(place, cup_drv.symbol(stream, mode))                  \
    }
BEGIN(cuStreamBeginCapture_v2, CUP_ON(stream))
BEGIN(cuStreamBeginCapture_v2_ptsz, CUP_ON_PTSZ(stream))
#undef BEGIN

#define BEGIN(symbol, place)                                                                          \
    CUresult cup_route_##symbol(CUstream stream, CUgraph graph, const CUgraphNode *deps,              \
                                const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) \
    {                                                                                                 \
        AROUND_BEGIN(place, cup_drv.symbol(stream, graph, deps, edges, count, mode))                  \
    }
BEGIN(cuStreamBeginCaptureToGraph, CUP_ON(stream))
BEGIN(cuStreamBeginCaptureToGraph_ptsz, CUP_ON_PTSZ(stream))
#undef BEGIN

#define END(symbol)                                              \
    CUresult cup_route_##symbol(CUstream stream, CUgraph *graph) \
    {                                                            \
        CUresult result = cup_drv.symbol(stream, graph);         \
                                                                 \
        cup_capture_ended(stream, result);                       \
        return result;                                           \
    }
END(cuStreamEndCapture)
END(cuStreamEndCapture_ptsz)
#undef END

#define DESTROY(symbol)                                            \
    CUresult cup_route_##symbol(CUstream stream)                   \
    {                                                              \
        bool is_capturing = cup_capture_destroying(stream);        \
        CUresult result;                                           \
                                                                   \
        cup_submit_destroyed(stream);                              \
        result = cup_drv.symbol(stream);                           \
        if (is_capturing)                                          \
            cup_capture_destroyed(stream, result == CUDA_SUCCESS); \
        return result;                                             \
    }
DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
#undef DESTROY

/* ---- resolvers, look-ups, the runtime's short cut ---- */

#define X(symbol, params, args)        \
    CUresult cup_route_##symbol params \
    {                                  \
        return cup_drv.symbol args;    \
    }
CUP_RESOLVER_LIST(X)
#undef X

void *cup_route_real(cup_hook_t hook)
{
    /* The hook rows come first in CUP_DRV_LIST, in the same order. */
    _Static_assert((int)CUP_DRV_cuGetProcAddress_v2 == (int)CUP_HOOK_cuGetProcAddress_v2,
                   "one order in both");
    return cup_drv_address((cup_drv_entry_t)hook);
}

void cup_route_note_dlsym(void)
{
    CUP_STAT_ADD(dlsym_hits, 1);
}

void cup_route_note_getproc(void)
{
    CUP_STAT_ADD(getproc_hits, 1);
}

void *cup_route_runtime_real(const char *name)
{
    return cup_drv_runtime_address(name);
}

/* Before runtime 12.0 cudaSetDevice did not bind the context: the current one may not be the one cudart would
 * use. */
static bool is_runtime_bound(void)
{
    static _Atomic int version; /* 0: not asked yet */
    int known = atomic_load_explicit(&version, memory_order_relaxed);

    if (known == 0) {
        int (*get_version)(int *) = (int (*)(int *))cup_drv_runtime_address("cudaRuntimeGetVersion");

        if (!get_version || get_version(&known) != 0)
            known = -1;
        atomic_store_explicit(&version, known, memory_order_relaxed);
    }
    return known >= 12000;
}

bool cup_route_runtime_alloc(void **ptr, size_t size_bytes)
{
    cup_heap_t *heap;
    cup_addr_t addr;
    bool is_served = false;

    if (!ptr || size_bytes == 0 || !cup_gate_enter(false))
        return false;
    if (is_runtime_bound() && (heap = cup_registry_acquire_current(false)) != NULL) {
        is_served = cup_heap_alloc_quick(heap, size_bytes, &addr);
        cup_heap_leave(heap);
    }
    cup_gate_leave();
    if (!is_served)
        return false;
    CUP_STAT_ADD(allocs, 1);
    CUP_STAT_ADD(pool_allocs, 1);
    CUP_STAT_ADD(runtime_calls, 1);
    *ptr = (void *)(uintptr_t)addr;
    return true;
}

bool cup_route_runtime_free(void *ptr)
{
    CUcontext ctx;
    CUresult result;

    /* A thread without a context gets one by the runtime's own call. */
    if (!ptr || !is_runtime_bound() || cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return false;
    if (!free_pooled((cup_addr_t)(uintptr_t)ptr, false, &result) || result != CUDA_SUCCESS)
        return false; /* a failed free changed nothing: cudart asks again and keeps the error for
                         cudaGetLastError */
    CUP_STAT_ADD(frees, 1);
    CUP_STAT_ADD(runtime_calls, 1);
    return true;
}
