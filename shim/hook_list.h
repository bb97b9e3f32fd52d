/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_list - LIST of the driver entry points that we answer in the driver's place.
 * What:       X(symbol, (parameters), (arguments)): one row makes the exported symbol and its slot in the
 *             table of substitutes (preload/), the route function's prototype (route.h) and the slot of the
 *             real function (drv.h).
 * Not here:   what a hook does (route.c). Entry points that we only call are in drv_list.h.
 *
 * Every ABI version of one function is a row: cudart 13 asks for the unsuffixed primary-context calls, direct
 * driver users for _v2, per-thread-stream builds for _ptsz. The 32-bit cuMemAlloc/cuMemFree can't carry our
 * addresses: not hooked.
 */
#ifndef CUP_SHIM_HOOK_LIST_H
#define CUP_SHIM_HOOK_LIST_H

/* clang-format off */
#define CUP_HOOK_LIST(X)                                                                                     \
    /* memory */                                                                                             \
    X(cuMemAlloc_v2, (CUdeviceptr *dptr, size_t bytesize), (dptr, bytesize))                                 \
    X(cuMemAllocPitch_v2,                                                                                    \
      (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element),                 \
      (dptr, pitch, width, height, element))                                                                 \
    X(cuMemFree_v2, (CUdeviceptr dptr), (dptr))                                                              \
    X(cuMemFreeAsync, (CUdeviceptr dptr, CUstream stream), (dptr, stream))                                   \
    X(cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream stream), (dptr, stream))                              \
    X(cuMemGetInfo_v2, (size_t *free, size_t *total), (free, total))                                         \
    X(cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *size, CUdeviceptr dptr), (base, size, dptr))      \
    X(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr dptr), (handle, dptr))                         \
    X(cuIpcOpenMemHandle, (CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags),                    \
      (dptr, handle, flags))                                                                                 \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags),                 \
      (dptr, handle, flags))                                                                                 \
    X(cuIpcCloseMemHandle, (CUdeviceptr dptr), (dptr))                                                       \
    X(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props), (pool, props))                     \
    X(cuMemGetDefaultMemPool, (CUmemoryPool * pool, CUmemLocation * location, CUmemAllocationType type),     \
      (pool, location, type))                                                                                \
    X(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation * location, CUmemAllocationType type),            \
      (pool, location, type))                                                                                \
    /* the life of a context */                                                                              \
    X(cuCtxDestroy, (CUcontext ctx), (ctx))                                                                  \
    X(cuCtxDestroy_v2, (CUcontext ctx), (ctx))                                                               \
    X(cuCtxDetach, (CUcontext ctx), (ctx))                                                                   \
    X(cuDevicePrimaryCtxRetain, (CUcontext *ctx, CUdevice dev), (ctx, dev))                                  \
    X(cuDevicePrimaryCtxRelease, (CUdevice dev), (dev))                                                      \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev))                                                   \
    X(cuDevicePrimaryCtxReset, (CUdevice dev), (dev))                                                        \
    X(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev))                                                     \
    X(cuGreenCtxCreate, (CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev, unsigned int flags),       \
      (green, desc, dev, flags))                                                                             \
    X(cuGreenCtxDestroy, (CUgreenCtx green), (green))                                                        \
    /* access to other contexts' memory */                                                                   \
    X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags), (peer, flags))                            \
    X(cuCtxDisablePeerAccess, (CUcontext peer), (peer))                                                      \
    /* captures in progress */                                                                               \
    X(cuStreamBeginCapture, (CUstream stream), (stream))                                                     \
    X(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))                                                \
    X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))                  \
    X(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))             \
    X(cuStreamBeginCaptureToGraph,                                                                           \
      (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,  \
       CUstreamCaptureMode mode), (stream, graph, deps, edges, count, mode))                                 \
    X(cuStreamBeginCaptureToGraph_ptsz,                                                                      \
      (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,  \
       CUstreamCaptureMode mode), (stream, graph, deps, edges, count, mode))                                 \
    X(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))                                \
    X(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph), (stream, graph))                           \
    X(cuStreamDestroy, (CUstream stream), (stream))                                                          \
    X(cuStreamDestroy_v2, (CUstream stream), (stream))
/* clang-format on */

/* The two resolvers are hooks too, but their bodies are the preload layer's own: the real one first, then a
 * substitute. */
#define CUP_RESOLVER_LIST(X)                                                                                 \
    X(cuGetProcAddress, (const char *name, void **pfn, int version, cuuint64_t flags),                       \
      (name, pfn, version, flags))                                                                           \
    X(cuGetProcAddress_v2,                                                                                   \
      (const char *name, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status), \
      (name, pfn, version, flags, status))

#endif /* CUP_SHIM_HOOK_LIST_H */
