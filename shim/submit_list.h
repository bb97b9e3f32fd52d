/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit_list - LISTs of the driver entry points that put work on a stream.
 * What:       X(symbol, (parameters), (arguments), place, rule, far): where the work goes and what the call is,
 *             as expressions of its parameters (submit.h, submit_rule.h). One row makes the exported symbol,
 *             the real function's slot and the body (route_submit.c). Every ABI version is a row. far is there for copies
 *             between any two addresses: how the copy goes that the real call can't make (peer_copy.h), an expression of
 *             the parameters, of `at` (the place) and of `result`; false: as it is.
 * Not here:   entry points that only ask or manage (known_list.h), and those that we answer (hook_list.h):
 *             the three together are everything in the toolkit's headers (tests/lint/api_list.py).
 * Source:     the headers of CUDA 13.0, and "API synchronization behavior" in the driver API's manual.
 *
 * What "synchronous" means there for a copy: into host memory, the call returns when it is done; out of host
 * memory, when the source has been read (a pageable one is staged, its copy may still run); from device
 * to device it does not wait, nor does a set. The rules claim no more: CUP_SUBMIT_BLOCKING only for what is
 * typed as host memory. A device pointer may name pinned host memory (unified addressing): it is looked at.
 */
#ifndef CUP_SHIM_SUBMIT_LIST_H
#define CUP_SHIM_SUBMIT_LIST_H
#include "shim/collect_list.h"
#include "shim/graph_list.h"
#include "shim/query_list.h"
#include "shim/rescue_list.h"
#include "shim/hook_list.h"
#include "shim/interop_abi.h"

/* An entry point and its twin for programs built with per-thread default streams. */
#define CUP_BOTH_SZ(X, symbol, params, args, stream, rule, ...) \
    X(symbol, params, args, CUP_ON(stream), rule, __VA_ARGS__)  \
    X(symbol##_ptsz, params, args, CUP_ON_PTSZ(stream), rule, __VA_ARGS__)
#define CUP_BOTH_DS(X, symbol, params, args, rule, ...)      \
    X(symbol, params, args, CUP_ON(NULL), rule, __VA_ARGS__) \
    X(symbol##_ptds, params, args, CUP_ON_PTSZ(NULL), rule, __VA_ARGS__)

/* clang-format off */
#define CUP_SUBMIT_CUDA_LIST(X)                                                                             \
    /* kernels, host functions */                                                                           \
    CUP_BOTH_SZ(X, cuLaunchKernel, (CUfunction f, unsigned int gridDimX, unsigned int gridDimY,             \
      unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,        \
      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),                    \
      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,           \
       kernelParams, extra), hStream, CUP_SUBMIT_PLAIN)                                                     \
    CUP_BOTH_SZ(X, cuLaunchCooperativeKernel, (CUfunction f, unsigned int gridDimX, unsigned int gridDimY,  \
      unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,        \
      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),                                  \
      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,           \
       kernelParams), hStream, CUP_SUBMIT_PLAIN)                                                            \
    CUP_BOTH_SZ(X, cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData),                       \
      (hStream, fn, userData), hStream, CUP_SUBMIT_HOST)                                                    \
    CUP_BOTH_SZ(X, cuStreamAddCallback, (CUstream hStream, CUstreamCallback callback, void *userData,       \
      unsigned int flags),                                                                                  \
      (hStream, callback, userData, flags), hStream, CUP_SUBMIT_HOST)                                       \
    X(cuLaunch, (CUfunction f), (f), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                        \
    X(cuLaunchGrid, (CUfunction f, int grid_width, int grid_height),                                        \
      (f, grid_width, grid_height), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                         \
    X(cuLaunchGridAsync, (CUfunction f, int grid_width, int grid_height, CUstream hStream),                 \
      (f, grid_width, grid_height, hStream), CUP_ON(hStream), CUP_SUBMIT_PLAIN)                             \
    /* graphs may hold copies and host functions (graph.h), and nodes of any context */                     \
    CUP_BOTH_SZ(X, cuGraphLaunch, (CUgraphExec hGraph, CUstream hStream),                                   \
      (hGraph, hStream), hStream, CUP_SUBMIT_EVERYWHERE | cup_graph_rule(hGraph))                           \
    CUP_BOTH_SZ(X, cuGraphUpload, (CUgraphExec hGraph, CUstream hStream),                                   \
      (hGraph, hStream), hStream, CUP_SUBMIT_PLAIN)                                                         \
    /* events: when one is recorded comes after the frees before it */                                      \
    CUP_BOTH_SZ(X, cuEventRecord, (CUevent hEvent, CUstream hStream),                                       \
      (hEvent, hStream), hStream, CUP_SUBMIT_MARK)                                                          \
    CUP_BOTH_SZ(X, cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags),          \
      (hEvent, hStream, flags), hStream, CUP_SUBMIT_MARK)                                                   \
    /* stream-ordered memory, mapping, migration */                                                         \
    CUP_BOTH_SZ(X, cuMemAllocAsync, (CUdeviceptr *dptr, size_t bytesize, CUstream hStream),                 \
      (dptr, bytesize, hStream), hStream, CUP_SUBMIT_PLAIN)                                                 \
    CUP_BOTH_SZ(X, cuMemAllocFromPoolAsync, (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,         \
      CUstream hStream),                                                                                    \
      (dptr, bytesize, pool, hStream), hStream, CUP_SUBMIT_PLAIN)                                           \
    CUP_BOTH_SZ(X, cuMemMapArrayAsync, (CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream), \
      (mapInfoList, count, hStream), hStream, CUP_SUBMIT_PLAIN)                                             \
    CUP_BOTH_SZ(X, cuStreamAttachMemAsync, (CUstream hStream, CUdeviceptr dptr, size_t length,              \
      unsigned int flags),                                                                                  \
      (hStream, dptr, length, flags), hStream, CUP_SUBMIT_PLAIN)                                            \
    CUP_BOTH_SZ(X, cuMemPrefetchAsync, (CUdeviceptr devPtr, size_t count, CUdevice dstDevice,               \
      CUstream hStream),                                                                                    \
      (devPtr, count, dstDevice, hStream), hStream, CUP_SUBMIT_PLAIN)                                       \
    CUP_BOTH_SZ(X, cuMemPrefetchAsync_v2, (CUdeviceptr devPtr, size_t count, CUmemLocation location,        \
      unsigned int flags, CUstream hStream),                                                                \
      (devPtr, count, location, flags, hStream), hStream, CUP_SUBMIT_PLAIN)                                 \
    CUP_BOTH_SZ(X, cuMemPrefetchBatchAsync, (CUdeviceptr *dptrs, size_t *sizes, size_t count,               \
      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,                         \
      unsigned long long flags, CUstream hStream),                                                          \
      (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream), hStream,       \
       CUP_SUBMIT_PLAIN)                                                                                    \
    CUP_BOTH_SZ(X, cuMemDiscardBatchAsync, (CUdeviceptr *dptrs, size_t *sizes, size_t count,                \
      unsigned long long flags, CUstream hStream),                                                          \
      (dptrs, sizes, count, flags, hStream), hStream, CUP_SUBMIT_PLAIN)                                     \
    CUP_BOTH_SZ(X, cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *dptrs, size_t *sizes, size_t count,     \
      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,                         \
      unsigned long long flags, CUstream hStream),                                                          \
      (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream), hStream,       \
       CUP_SUBMIT_PLAIN)                                                                                    \
    CUP_BOTH_SZ(X, cuMemBatchDecompressAsync, (CUmemDecompressParams *paramsArray, size_t count,            \
      unsigned int flags, size_t *errorIndex, CUstream stream),                                             \
      (paramsArray, count, flags, errorIndex, stream), stream, CUP_SUBMIT_HOST)                             \
    /* values in memory */                                                                                  \
    CUP_BOTH_SZ(X, cuStreamWaitValue32, (CUstream stream, CUdeviceptr addr, cuuint32_t value,               \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr addr, cuuint32_t value,            \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWaitValue64, (CUstream stream, CUdeviceptr addr, cuuint64_t value,               \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr addr, cuuint64_t value,            \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWriteValue32, (CUstream stream, CUdeviceptr addr, cuuint32_t value,              \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr addr, cuuint32_t value,           \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWriteValue64, (CUstream stream, CUdeviceptr addr, cuuint64_t value,              \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr addr, cuuint64_t value,           \
      unsigned int flags),                                                                                  \
      (stream, addr, value, flags), stream, cup_rule_touch(addr))                                           \
    CUP_BOTH_SZ(X, cuStreamBatchMemOp, (CUstream stream, unsigned int count,                                \
      CUstreamBatchMemOpParams *paramArray, unsigned int flags),                                            \
      (stream, count, paramArray, flags), stream, cup_rule_memops(count, paramArray))                       \
    CUP_BOTH_SZ(X, cuStreamBatchMemOp_v2, (CUstream stream, unsigned int count,                             \
      CUstreamBatchMemOpParams *paramArray, unsigned int flags),                                            \
      (stream, count, paramArray, flags), stream, cup_rule_memops(count, paramArray))                       \
    /* others that the stream waits for or lets go */                                                       \
    CUP_BOTH_SZ(X, cuSignalExternalSemaphoresAsync, (const CUexternalSemaphore *extSemArray,                \
      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream),  \
      (extSemArray, paramsArray, numExtSems, stream), stream, CUP_SUBMIT_PLAIN)                             \
    CUP_BOTH_SZ(X, cuWaitExternalSemaphoresAsync, (const CUexternalSemaphore *extSemArray,                  \
      const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream),    \
      (extSemArray, paramsArray, numExtSems, stream), stream, CUP_SUBMIT_PLAIN)                             \
    CUP_BOTH_SZ(X, cuGraphicsMapResources, (unsigned int count, CUgraphicsResource *resources,              \
      CUstream hStream),                                                                                    \
      (count, resources, hStream), hStream, CUP_SUBMIT_PLAIN)                                               \
    CUP_BOTH_SZ(X, cuGraphicsUnmapResources, (unsigned int count, CUgraphicsResource *resources,            \
      CUstream hStream),                                                                                    \
      (count, resources, hStream), hStream, CUP_SUBMIT_PLAIN)                                               \
    /* sets */                                                                                              \
    CUP_BOTH_SZ(X, cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),  \
      (dstDevice, uc, N, hStream), hStream, cup_rule_touch(dstDevice))                                      \
    CUP_BOTH_SZ(X, cuMemsetD16Async, (CUdeviceptr dstDevice, unsigned short us, size_t N,                   \
      CUstream hStream),                                                                                    \
      (dstDevice, us, N, hStream), hStream, cup_rule_touch(dstDevice))                                      \
    CUP_BOTH_SZ(X, cuMemsetD32Async, (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),  \
      (dstDevice, ui, N, hStream), hStream, cup_rule_touch(dstDevice))                                      \
    CUP_BOTH_SZ(X, cuMemsetD2D8Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,            \
      size_t Width, size_t Height, CUstream hStream),                                                       \
      (dstDevice, dstPitch, uc, Width, Height, hStream), hStream, cup_rule_touch(dstDevice))                \
    CUP_BOTH_SZ(X, cuMemsetD2D16Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,          \
      size_t Width, size_t Height, CUstream hStream),                                                       \
      (dstDevice, dstPitch, us, Width, Height, hStream), hStream, cup_rule_touch(dstDevice))                \
    CUP_BOTH_SZ(X, cuMemsetD2D32Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,            \
      size_t Width, size_t Height, CUstream hStream),                                                       \
      (dstDevice, dstPitch, ui, Width, Height, hStream), hStream, cup_rule_touch(dstDevice))                \
    CUP_BOTH_DS(X, cuMemsetD8_v2, (CUdeviceptr dstDevice, unsigned char uc, size_t N),                      \
      (dstDevice, uc, N), CUP_SUBMIT_PLAIN)                                                                 \
    CUP_BOTH_DS(X, cuMemsetD16_v2, (CUdeviceptr dstDevice, unsigned short us, size_t N),                    \
      (dstDevice, us, N), CUP_SUBMIT_PLAIN)                                                                 \
    CUP_BOTH_DS(X, cuMemsetD32_v2, (CUdeviceptr dstDevice, unsigned int ui, size_t N),                      \
      (dstDevice, ui, N), CUP_SUBMIT_PLAIN)                                                                 \
    CUP_BOTH_DS(X, cuMemsetD2D8_v2, (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,              \
      size_t Width, size_t Height),                                                                         \
      (dstDevice, dstPitch, uc, Width, Height), CUP_SUBMIT_PLAIN)                                           \
    CUP_BOTH_DS(X, cuMemsetD2D16_v2, (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,            \
      size_t Width, size_t Height),                                                                         \
      (dstDevice, dstPitch, us, Width, Height), CUP_SUBMIT_PLAIN)                                           \
    CUP_BOTH_DS(X, cuMemsetD2D32_v2, (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,              \
      size_t Width, size_t Height),                                                                         \
      (dstDevice, dstPitch, ui, Width, Height), CUP_SUBMIT_PLAIN)                                           \
    X(cuMemsetD8, (CUdeviceptr_v1 dstDevice, unsigned char uc, unsigned int N),                             \
      (dstDevice, uc, N), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                                   \
    X(cuMemsetD16, (CUdeviceptr_v1 dstDevice, unsigned short us, unsigned int N),                           \
      (dstDevice, us, N), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                                   \
    X(cuMemsetD32, (CUdeviceptr_v1 dstDevice, unsigned int ui, unsigned int N),                             \
      (dstDevice, ui, N), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                                   \
    X(cuMemsetD2D8, (CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned char uc,                     \
      unsigned int Width, unsigned int Height),                                                             \
      (dstDevice, dstPitch, uc, Width, Height), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                             \
    X(cuMemsetD2D16, (CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned short us,                   \
      unsigned int Width, unsigned int Height),                                                             \
      (dstDevice, dstPitch, us, Width, Height), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                             \
    X(cuMemsetD2D32, (CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned int ui,                     \
      unsigned int Width, unsigned int Height),                                                             \
      (dstDevice, dstPitch, ui, Width, Height), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                             \
    /* copies that return before they are done */                                                           \
    CUP_BOTH_SZ(X, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),   \
      (dst, src, ByteCount, hStream), hStream, cup_rule_either(dst, src),                                   \
       cup_peer_copy_linear(CUP_PEER_ASYNC(at), dst, src, ByteCount, &result))                              \
    CUP_BOTH_SZ(X, cuMemcpyPeerAsync, (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,  \
      CUcontext srcContext, size_t ByteCount, CUstream hStream),                                            \
      (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream), hStream,                          \
       CUP_SUBMIT_EVERYWHERE | cup_rule_either(dstDevice, srcDevice),                                       \
       cup_peer_copy_named(CUP_PEER_ASYNC(at), dstDevice, dstContext, srcDevice, srcContext,                \
        ByteCount, &result))                                                                                \
    CUP_BOTH_SZ(X, cuMemcpyHtoDAsync_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,     \
      CUstream hStream),                                                                                    \
      (dstDevice, srcHost, ByteCount, hStream), hStream, CUP_SUBMIT_HOST | cup_rule_side(dstDevice),        \
       cup_peer_copy_linear(CUP_PEER_ASYNC(at), dstDevice, (CUdeviceptr)srcHost, ByteCount, &result))       \
    X(cuMemcpyHtoDAsync, (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount,            \
      CUstream hStream),                                                                                    \
      (dstDevice, srcHost, ByteCount, hStream), CUP_ON(hStream), CUP_SUBMIT_HOST)                           \
    CUP_BOTH_SZ(X, cuMemcpyDtoHAsync_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,           \
      CUstream hStream),                                                                                    \
      (dstHost, srcDevice, ByteCount, hStream), hStream, CUP_SUBMIT_HOST | cup_rule_side(srcDevice),        \
       cup_peer_copy_linear(CUP_PEER_ASYNC(at), (CUdeviceptr)dstHost, srcDevice, ByteCount, &result))       \
    X(cuMemcpyDtoHAsync, (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,                  \
      CUstream hStream),                                                                                    \
      (dstHost, srcDevice, ByteCount, hStream), CUP_ON(hStream), CUP_SUBMIT_HOST)                           \
    CUP_BOTH_SZ(X, cuMemcpyDtoDAsync_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,   \
      CUstream hStream),                                                                                    \
      (dstDevice, srcDevice, ByteCount, hStream), hStream, cup_rule_either(dstDevice, srcDevice),           \
       cup_peer_copy_linear(CUP_PEER_ASYNC(at), dstDevice, srcDevice, ByteCount, &result))                  \
    X(cuMemcpyDtoDAsync, (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,       \
      CUstream hStream),                                                                                    \
      (dstDevice, srcDevice, ByteCount, hStream), CUP_ON(hStream), cup_rule_either(dstDevice, srcDevice))   \
    CUP_BOTH_SZ(X, cuMemcpyHtoAAsync_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost,          \
      size_t ByteCount, CUstream hStream),                                                                  \
      (dstArray, dstOffset, srcHost, ByteCount, hStream), hStream, CUP_SUBMIT_HOST)                         \
    X(cuMemcpyHtoAAsync, (CUarray dstArray, unsigned int dstOffset, const void *srcHost,                    \
      unsigned int ByteCount, CUstream hStream),                                                            \
      (dstArray, dstOffset, srcHost, ByteCount, hStream), CUP_ON(hStream), CUP_SUBMIT_HOST)                 \
    CUP_BOTH_SZ(X, cuMemcpyAtoHAsync_v2, (void *dstHost, CUarray srcArray, size_t srcOffset,                \
      size_t ByteCount, CUstream hStream),                                                                  \
      (dstHost, srcArray, srcOffset, ByteCount, hStream), hStream, CUP_SUBMIT_HOST)                         \
    X(cuMemcpyAtoHAsync, (void *dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount,  \
      CUstream hStream),                                                                                    \
      (dstHost, srcArray, srcOffset, ByteCount, hStream), CUP_ON(hStream), CUP_SUBMIT_HOST)                 \
    CUP_BOTH_SZ(X, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),                      \
      (pCopy, hStream), hStream, cup_rule_copy_2d(pCopy, true),                                             \
       cup_peer_copy_2d(CUP_PEER_ASYNC(at), pCopy, &result))                                                \
    X(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream),                                   \
      (pCopy, hStream), CUP_ON(hStream), cup_rule_copy_2d_v1(pCopy, true))                                  \
    CUP_BOTH_SZ(X, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),                      \
      (pCopy, hStream), hStream, cup_rule_copy_3d(pCopy, true),                                             \
       cup_peer_copy_3d(CUP_PEER_ASYNC(at), pCopy, &result))                                                \
    X(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream),                                   \
      (pCopy, hStream), CUP_ON(hStream), cup_rule_copy_3d_v1(pCopy, true))                                  \
    CUP_BOTH_SZ(X, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),                \
      (pCopy, hStream), hStream, CUP_SUBMIT_EVERYWHERE | cup_rule_copy_peer(pCopy, true),                   \
       cup_peer_copy_peer(CUP_PEER_ASYNC(at), pCopy, &result))                                              \
    CUP_BOTH_SZ(X, cuMemcpyBatchAsync, (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,  \
      CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),    \
      (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream), hStream,                    \
       cup_rule_batch(dsts, srcs, attrs, numAttrs, count),                                                  \
       cup_peer_copy_batch(CUP_PEER_ASYNC(at), dsts, srcs, sizes, count,                                    \
        attrs, attrsIdxs, numAttrs, failIdx, &result))                                                      \
    CUP_BOTH_SZ(X, cuMemcpyBatchAsync_v2, (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,             \
      size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),       \
      (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream), hStream,                             \
       cup_rule_batch(dsts, srcs, attrs, numAttrs, count),                                                  \
       cup_peer_copy_batch(CUP_PEER_ASYNC(at), dsts, srcs, sizes, count,                                    \
        attrs, attrsIdxs, numAttrs, NULL, &result))                                                         \
    CUP_BOTH_SZ(X, cuMemcpy3DBatchAsync, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,   \
      unsigned long long flags, CUstream hStream),                                                          \
      (numOps, opList, failIdx, flags, hStream), hStream, cup_rule_batch_3d(opList, numOps))                \
    CUP_BOTH_SZ(X, cuMemcpy3DBatchAsync_v2, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,                 \
      unsigned long long flags, CUstream hStream),                                                          \
      (numOps, opList, flags, hStream), hStream, cup_rule_batch_3d(opList, numOps))                         \
    /* copies called synchronous */                                                                         \
    CUP_BOTH_DS(X, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),                          \
      (dst, src, ByteCount), cup_rule_either_side(dst, src),                                                \
       cup_peer_copy_linear(CUP_PEER_SYNC(at), dst, src, ByteCount, &result))                               \
    CUP_BOTH_DS(X, cuMemcpyPeer, (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,       \
      CUcontext srcContext, size_t ByteCount),                                                              \
      (dstDevice, dstContext, srcDevice, srcContext, ByteCount),                                            \
       CUP_SUBMIT_EVERYWHERE | cup_rule_either(dstDevice, srcDevice),                                       \
       cup_peer_copy_named(CUP_PEER_SYNC(at), dstDevice, dstContext, srcDevice, srcContext,                 \
        ByteCount, &result))                                                                                \
    CUP_BOTH_DS(X, cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),         \
      (dstDevice, srcHost, ByteCount), cup_rule_side(dstDevice),                                            \
       cup_peer_copy_linear(CUP_PEER_SYNC(at), dstDevice, (CUdeviceptr)srcHost, ByteCount, &result))        \
    X(cuMemcpyHtoD, (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount),                \
      (dstDevice, srcHost, ByteCount), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                                      \
    CUP_BOTH_DS(X, cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),               \
      (dstHost, srcDevice, ByteCount), CUP_SUBMIT_BLOCKING,                                                 \
       cup_peer_copy_linear(CUP_PEER_SYNC(at), (CUdeviceptr)dstHost, srcDevice, ByteCount, &result))        \
    X(cuMemcpyDtoH, (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),                      \
      (dstHost, srcDevice, ByteCount), CUP_ON(NULL), CUP_SUBMIT_BLOCKING)                                   \
    CUP_BOTH_DS(X, cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),       \
      (dstDevice, srcDevice, ByteCount), cup_rule_either(dstDevice, srcDevice),                             \
       cup_peer_copy_linear(CUP_PEER_SYNC(at), dstDevice, srcDevice, ByteCount, &result))                   \
    X(cuMemcpyDtoD, (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),           \
      (dstDevice, srcDevice, ByteCount), CUP_ON(NULL), cup_rule_either(dstDevice, srcDevice))               \
    CUP_BOTH_DS(X, cuMemcpyDtoA_v2, (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,             \
      size_t ByteCount),                                                                                    \
      (dstArray, dstOffset, srcDevice, ByteCount), cup_rule_touch(srcDevice) | cup_rule_side(srcDevice))    \
    X(cuMemcpyDtoA, (CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,                    \
      unsigned int ByteCount),                                                                              \
      (dstArray, dstOffset, srcDevice, ByteCount), CUP_ON(NULL), cup_rule_touch(srcDevice))                 \
    CUP_BOTH_DS(X, cuMemcpyAtoD_v2, (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,             \
      size_t ByteCount),                                                                                    \
      (dstDevice, srcArray, srcOffset, ByteCount), cup_rule_touch(dstDevice) | cup_rule_side(dstDevice))    \
    X(cuMemcpyAtoD, (CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,                    \
      unsigned int ByteCount),                                                                              \
      (dstDevice, srcArray, srcOffset, ByteCount), CUP_ON(NULL), cup_rule_touch(dstDevice))                 \
    CUP_BOTH_DS(X, cuMemcpyHtoA_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost,               \
      size_t ByteCount),                                                                                    \
      (dstArray, dstOffset, srcHost, ByteCount), CUP_SUBMIT_PLAIN)                                          \
    X(cuMemcpyHtoA, (CUarray dstArray, unsigned int dstOffset, const void *srcHost,                         \
      unsigned int ByteCount),                                                                              \
      (dstArray, dstOffset, srcHost, ByteCount), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                            \
    CUP_BOTH_DS(X, cuMemcpyAtoH_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),  \
      (dstHost, srcArray, srcOffset, ByteCount), CUP_SUBMIT_BLOCKING)                                       \
    X(cuMemcpyAtoH, (void *dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount),      \
      (dstHost, srcArray, srcOffset, ByteCount), CUP_ON(NULL), CUP_SUBMIT_BLOCKING)                         \
    CUP_BOTH_DS(X, cuMemcpyAtoA_v2, (CUarray dstArray, size_t dstOffset, CUarray srcArray,                  \
      size_t srcOffset, size_t ByteCount),                                                                  \
      (dstArray, dstOffset, srcArray, srcOffset, ByteCount), CUP_SUBMIT_PLAIN)                              \
    X(cuMemcpyAtoA, (CUarray dstArray, unsigned int dstOffset, CUarray srcArray, unsigned int srcOffset,    \
      unsigned int ByteCount),                                                                              \
      (dstArray, dstOffset, srcArray, srcOffset, ByteCount), CUP_ON(NULL), CUP_SUBMIT_PLAIN)                \
    CUP_BOTH_DS(X, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *pCopy), (pCopy), cup_rule_copy_2d(pCopy, false),    \
       cup_peer_copy_2d(CUP_PEER_SYNC(at), pCopy, &result))                                                 \
    X(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *pCopy),                                                          \
      (pCopy), CUP_ON(NULL), cup_rule_copy_2d_v1(pCopy, false))                                             \
    CUP_BOTH_DS(X, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *pCopy),                                    \
      (pCopy), cup_rule_copy_2d(pCopy, false),                                                              \
       cup_peer_copy_2d(CUP_PEER_SYNC(at), pCopy, &result))                                                 \
    X(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *pCopy),                                                 \
      (pCopy), CUP_ON(NULL), cup_rule_copy_2d_v1(pCopy, false))                                             \
    CUP_BOTH_DS(X, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *pCopy), (pCopy), cup_rule_copy_3d(pCopy, false),    \
       cup_peer_copy_3d(CUP_PEER_SYNC(at), pCopy, &result))                                                 \
    X(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *pCopy),                                                          \
      (pCopy), CUP_ON(NULL), cup_rule_copy_3d_v1(pCopy, false))                                             \
    CUP_BOTH_DS(X, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *pCopy),                                       \
      (pCopy), CUP_SUBMIT_EVERYWHERE | cup_rule_copy_peer(pCopy, false),                                    \
       cup_peer_copy_peer(CUP_PEER_SYNC(at), pCopy, &result))

/* OpenGL's and EGL's, which are not in cuda.h: types of the same ABI (interop_abi.h). */
#define CUP_SUBMIT_INTEROP_LIST(X)                                                                          \
    X(cuGLMapBufferObjectAsync,                                                                             \
      (CUdeviceptr_v1 *dptr, unsigned int *size, unsigned int buffer, CUstream hStream),                    \
      (dptr, size, buffer, hStream), CUP_ON(hStream), CUP_SUBMIT_PLAIN)                                     \
    CUP_BOTH_SZ(X, cuGLMapBufferObjectAsync_v2,                                                             \
      (CUdeviceptr *dptr, size_t *size, unsigned int buffer, CUstream hStream),                             \
      (dptr, size, buffer, hStream), hStream, CUP_SUBMIT_PLAIN)                                             \
    X(cuGLUnmapBufferObjectAsync, (unsigned int buffer, CUstream hStream),                                  \
      (buffer, hStream), CUP_ON(hStream), CUP_SUBMIT_PLAIN)                                                 \
    X(cuEGLStreamConsumerAcquireFrame,                                                                      \
      (cup_egl_connection_t *conn, CUgraphicsResource *pCudaResource, CUstream *pStream,                    \
       unsigned int timeout),                                                                               \
      (conn, pCudaResource, pStream, timeout), cup_place_at(pStream), CUP_SUBMIT_PLAIN)                     \
    X(cuEGLStreamConsumerReleaseFrame,                                                                      \
      (cup_egl_connection_t *conn, CUgraphicsResource pCudaResource, CUstream *pStream),                    \
      (conn, pCudaResource, pStream), cup_place_at(pStream), CUP_SUBMIT_PLAIN)                              \
    X(cuEGLStreamProducerPresentFrame,                                                                      \
      (cup_egl_connection_t *conn, cup_egl_frame_t eglframe, CUstream *pStream),                            \
      (conn, eglframe, pStream), cup_place_at(pStream), CUP_SUBMIT_PLAIN)                                   \
    X(cuEGLStreamProducerReturnFrame,                                                                       \
      (cup_egl_connection_t *conn, cup_egl_frame_t *eglframe, CUstream *pStream),                           \
      (conn, eglframe, pStream), cup_place_at(pStream), CUP_SUBMIT_PLAIN)

/* Bodies by hand: a launch that may have to go without an attribute, a launch on several streams, an upload
 * (route_graph.c). */
#define CUP_SUBMIT_HAND_LIST(X)                                                                             \
    X(cuGraphInstantiateWithParams, (CUgraphExec *phGraphExec, CUgraph hGraph,                              \
      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),                                                    \
      (phGraphExec, hGraph, instantiateParams))                                                             \
    X(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *phGraphExec, CUgraph hGraph,                         \
      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),                                                    \
      (phGraphExec, hGraph, instantiateParams))                                                             \
    X(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),    \
      (config, f, kernelParams, extra))                                                                     \
    X(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction f, void **kernelParams,              \
      void **extra),                                                                                        \
      (config, f, kernelParams, extra))                                                                     \
    X(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *launchParamsList,                          \
      unsigned int numDevices, unsigned int flags),                                                         \
      (launchParamsList, numDevices, flags))

/* These touch a whole context, or a part of one, and name no stream: what was freed before them becomes
 * complete first, as natively it was. */
#define CUP_SUBMIT_DOUBT_CUDA_LIST(X)                                                                       \
    X(cuGreenCtxRecordEvent, (CUgreenCtx hCtx, CUevent hEvent), (hCtx, hEvent))
#define CUP_SUBMIT_DOUBT_INTEROP_LIST(X)                                                                    \
    X(cuGLMapBufferObject, (CUdeviceptr_v1 *dptr, unsigned int *size, unsigned int buffer),                 \
      (dptr, size, buffer))                                                                                 \
    X(cuGLMapBufferObject_v2, (CUdeviceptr *dptr, size_t *size, unsigned int buffer),                       \
      (dptr, size, buffer))                                                                                 \
    X(cuGLMapBufferObject_v2_ptds, (CUdeviceptr *dptr, size_t *size, unsigned int buffer),                  \
      (dptr, size, buffer))                                                                                 \
    X(cuGLUnmapBufferObject, (unsigned int buffer), (buffer))
/* clang-format on */

#define CUP_SUBMIT_LIST(X)  \
    CUP_SUBMIT_CUDA_LIST(X) \
    CUP_SUBMIT_INTEROP_LIST(X)

#define CUP_SUBMIT_DOUBT_LIST(X)  \
    CUP_SUBMIT_DOUBT_CUDA_LIST(X) \
    CUP_SUBMIT_DOUBT_INTEROP_LIST(X)

/* Every symbol that we export in the driver's name: X(symbol, (parameters), (arguments), ...). */
#define CUP_EXPORT_LIST(X)   \
    CUP_HOOK_LIST(X)         \
    CUP_RESOLVER_LIST(X)     \
    CUP_SUBMIT_LIST(X)       \
    CUP_SUBMIT_HAND_LIST(X)  \
    CUP_SUBMIT_DOUBT_LIST(X) \
    CUP_COLLECT_LIST(X)      \
    CUP_ASK_LIST(X)          \
    CUP_WAIT_LIST(X)         \
    CUP_WAIT_CONTEXT_LIST(X) \
    CUP_JOIN_LIST(X)         \
    CUP_MANAGED_LIST(X)      \
    CUP_RESCUE_LIST(X)       \
    CUP_GRAPH_LIST(X)        \
    CUP_QUERY_LIST(X)

#endif /* CUP_SHIM_SUBMIT_LIST_H */
