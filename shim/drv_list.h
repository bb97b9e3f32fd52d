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
    X(cuCtxGetDevice, (CUdevice * dev), (dev))                                                        \
    X(cuCtxGetId, (CUcontext ctx, unsigned long long *id), (ctx, id))                                 \
    X(cuCtxRecordEvent, (CUcontext ctx, CUevent event), (ctx, event))                                 \
    X(cuDeviceGetName, (char *name, int size, CUdevice dev), (name, size, dev))                       \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev))                              \
    X(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags))                           \
    X(cuEventSynchronize, (CUevent event), (event))                                                   \
    X(cuMemAddressReserve,                                                                            \
      (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), \
      (ptr, size, alignment, addr, flags))                                                            \
    X(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size))                                  \
    X(cuMemCreate,                                                                                    \
      (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,           \
       unsigned long long flags),                                                                     \
      (handle, size, prop, flags))                                                                    \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))                                  \
    X(cuMemMap,                                                                                       \
      (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,              \
       unsigned long long flags),                                                                     \
      (ptr, size, offset, handle, flags))                                                             \
    X(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),            \
      (data, attribute, ptr))                                                                         \
    X(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))                       \
    X(cuStreamGetCtx, (CUstream stream, CUcontext * ctx), (stream, ctx))                              \
    X(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status), (stream, status))       \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))

#endif /* CUP_SHIM_DRV_LIST_H */
