/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collect_list - LISTs of the driver entry points that submit nothing, but notice what a free leaves undone: natively it
 * had waited for the GPU.
 * What:       X(symbol, (parameters), (arguments)). COLLECT: unmaps, exports or destroys what work may be using, or asks for
 *             the time between two events: what was freed before becomes complete first. ASK: a question that may be
 *             answered "not ready" for work that a free had waited for: asked again after that. MANAGED: may hand out
 *             memory that the CPU reads and writes without a call (its first parameter points to the address).
 * Not here:   submissions (submit_list.h), what collecting is (submit.h), what is about addresses (query_list.h).
 * Source:     docs/free.md: which of them notice, measured; the others of COLLECT are there because they are rare and end
 *             the life of something that kernels use.
 */
#ifndef CUP_SHIM_COLLECT_LIST_H
#define CUP_SHIM_COLLECT_LIST_H

/* clang-format off */
#define CUP_COLLECT_LIST(X)                                                                                  \
    X(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), (ms, start, end))                         \
    X(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), (ms, start, end))                      \
    X(cuMemExportToShareableHandle,                                                                          \
      (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,                 \
       unsigned long long flags), (shareable, handle, type, flags))                                          \
    X(cuMemPoolExportPointer, (CUmemPoolPtrExportData *data, CUdeviceptr ptr), (data, ptr))                  \
    X(cuMemPoolExportToShareableHandle,                                                                      \
      (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),           \
      (handle, pool, type, flags))                                                                           \
    X(cuMemPoolTrimTo, (CUmemoryPool pool, size_t kept), (pool, kept))                                       \
    X(cuMemPoolDestroy, (CUmemoryPool pool), (pool))                                                         \
    X(cuMulticastUnbind, (CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset, size_t size),    \
      (handle, dev, offset, size))                                                                           \
    X(cuModuleUnload, (CUmodule module), (module))                                                           \
    X(cuLibraryUnload, (CUlibrary library), (library))                                                       \
    X(cuArrayDestroy, (CUarray array), (array))                                                              \
    X(cuMipmappedArrayDestroy, (CUmipmappedArray array), (array))                                            \
    X(cuTexObjectDestroy, (CUtexObject texture), (texture))                                                  \
    X(cuSurfObjectDestroy, (CUsurfObject surface), (surface))                                                \
    X(cuDestroyExternalMemory, (CUexternalMemory memory), (memory))                                          \
    X(cuGraphicsUnregisterResource, (CUgraphicsResource resource), (resource))

#define CUP_ASK_LIST(X)                                                                                      \
    X(cuEventQuery, (CUevent event), (event))                                                                \
    X(cuStreamQuery, (CUstream stream), (stream))                                                            \
    X(cuStreamQuery_ptsz, (CUstream stream), (stream))

/* WAIT: returns when the work of a stream is done: X(symbol, (parameters), (arguments), place). */
#define CUP_WAIT_LIST(X)                                                                                     \
    X(cuStreamSynchronize, (CUstream stream), (stream), CUP_ON(stream))                                      \
    X(cuStreamSynchronize_ptsz, (CUstream stream), (stream), CUP_ON_PTSZ(stream))

/* WAIT_CONTEXT: likewise, for all streams of a context, NULL: the current one: X(symbol, (parameters), (arguments), context). */
#define CUP_WAIT_CONTEXT_LIST(X)                                                                             \
    X(cuCtxSynchronize, (void), (), NULL)                                                                    \
    X(cuCtxSynchronize_v2, (CUcontext ctx), (ctx), ctx)

/* JOIN: may make a stream a part of a capture in progress: X(symbol, (parameters), (arguments), place). */
#define CUP_JOIN_LIST(X)                                                                                     \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags),       \
      CUP_ON(stream))                                                                                        \
    X(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags),  \
      CUP_ON_PTSZ(stream))

#define CUP_MANAGED_LIST(X)                                                                                  \
    X(cuMemAllocManaged, (CUdeviceptr *dptr, size_t size, unsigned int flags), (dptr, size, flags))          \
    X(cuModuleGetGlobal_v2, (CUdeviceptr *dptr, size_t *size, CUmodule module, const char *name),            \
      (dptr, size, module, name))                                                                            \
    X(cuLibraryGetGlobal, (CUdeviceptr *dptr, size_t *size, CUlibrary library, const char *name),            \
      (dptr, size, library, name))                                                                           \
    X(cuLibraryGetManaged, (CUdeviceptr *dptr, size_t *size, CUlibrary library, const char *name),           \
      (dptr, size, library, name))
/* clang-format on */

#endif /* CUP_SHIM_COLLECT_LIST_H */
