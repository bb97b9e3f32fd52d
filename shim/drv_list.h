/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drv_list - LIST of the driver entry points that we call and do not hook (those are in hook_list.h).
 * What:       X(symbol, (parameters), (arguments)); the same shape as a hook row, so one macro makes a slot
 *             of either.
 */
#ifndef CUP_SHIM_DRV_LIST_H
#define CUP_SHIM_DRV_LIST_H

#define CUP_DRV_ONLY_LIST(X)                                                                          \
    X(cuCtxGetCurrent, (CUcontext * ctx), (ctx))                                                      \
    X(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))                                                    \
    X(cuCtxPopCurrent_v2, (CUcontext * ctx), (ctx))                                                   \
    X(cuCtxFromGreenCtx, (CUcontext * ctx, CUgreenCtx green), (ctx, green))                           \
    X(cuCtxGetDevice, (CUdevice * dev), (dev))                                                        \
    X(cuCtxGetFlags, (unsigned int *flags), (flags))                                                  \
    X(cuCtxSetFlags, (unsigned int flags), (flags))                                                   \
    X(cuCtxGetId, (CUcontext ctx, unsigned long long *id), (ctx, id))                                 \
    X(cuCtxRecordEvent, (CUcontext ctx, CUevent event), (ctx, event))                                 \
    X(cuDeviceGetCount, (int *count), (count))                                                        \
    X(cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer))               \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice dev),                 \
      (value, attribute, dev))                                                                        \
    X(cuDeviceGetName, (char *name, int size, CUdevice dev), (name, size, dev))                       \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev))                              \
    X(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags))                           \
    X(cuEventSynchronize, (CUevent event), (event))                                                   \
    X(cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t * count), (graph, nodes, count))   \
    X(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType * type), (node, type))                   \
    X(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D * params), (node, params))         \
    X(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS * set), (node, set))     \
    X(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph * graph), (node, graph))              \
    X(cuMemAddressReserve,                                                                            \
      (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), \
      (ptr, size, alignment, addr, flags))                                                            \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))                                  \
    X(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))                       \
    X(cuStreamGetCtx, (CUstream stream, CUcontext * ctx), (stream, ctx))                              \
    X(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status), (stream, status))       \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))

#endif /* CUP_SHIM_DRV_LIST_H */
