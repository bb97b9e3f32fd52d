/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_list - LIST of the driver entry points that submit nothing, so that they may go by us.
 * What:       K(symbol), as exported. A newer ABI version of one (the same name before _v2, _ptsz) is taken
 *             to be as harmless; a name that is in no LIST is not (preload/hook_doubt.h).
 * Not here:   entry points that we export (submit_list.h, hook_list.h).
 */
#ifndef CUP_SHIM_KNOWN_LIST_H
#define CUP_SHIM_KNOWN_LIST_H

/* clang-format off */
#define CUP_KNOWN_LIST(K)                                                                                   \
    /* the library itself */                                                                                \
    K(cuCheckpointProcessCheckpoint) K(cuCheckpointProcessGetRestoreThreadId)                               \
    K(cuCheckpointProcessGetState) K(cuCheckpointProcessLock) K(cuCheckpointProcessRestore)                 \
    K(cuCheckpointProcessUnlock) K(cuCoredumpGetAttribute) K(cuCoredumpGetAttributeGlobal)                  \
    K(cuCoredumpSetAttribute) K(cuCoredumpSetAttributeGlobal) K(cuDriverGetVersion)                         \
    K(cuFlushGPUDirectRDMAWrites) K(cuGetErrorName) K(cuGetErrorString) K(cuGetExportTable) K(cuInit)       \
    K(cuLogsCurrent) K(cuLogsDumpToFile) K(cuLogsDumpToMemory) K(cuLogsRegisterCallback)                    \
    K(cuLogsUnregisterCallback) K(cuProfilerInitialize) K(cuProfilerStart) K(cuProfilerStop)                \
    /* devices */                                                                                           \
    K(cuDevResourceGenerateDesc) K(cuDevSmResourceSplitByCount) K(cuDeviceCanAccessPeer)                    \
    K(cuDeviceComputeCapability) K(cuDeviceGet) K(cuDeviceGetAttribute) K(cuDeviceGetByPCIBusId)            \
    K(cuDeviceGetCount) K(cuDeviceGetDefaultMemPool) K(cuDeviceGetDevResource)                              \
    K(cuDeviceGetExecAffinitySupport) K(cuDeviceGetGraphMemAttribute) K(cuDeviceGetHostAtomicCapabilities)  \
    K(cuDeviceGetLuid) K(cuDeviceGetMemPool) K(cuDeviceGetName) K(cuDeviceGetNvSciSyncAttributes)           \
    K(cuDeviceGetP2PAtomicCapabilities) K(cuDeviceGetP2PAttribute) K(cuDeviceGetPCIBusId)                   \
    K(cuDeviceGetProperties) K(cuDeviceGetTexture1DLinearMaxWidth) K(cuDeviceGetUuid)                       \
    K(cuDeviceGetUuid_v2) K(cuDeviceGraphMemTrim) K(cuDevicePrimaryCtxGetState)                             \
    K(cuDevicePrimaryCtxSetFlags) K(cuDevicePrimaryCtxSetFlags_v2)              \
    K(cuDeviceRegisterAsyncNotification) K(cuDeviceSetGraphMemAttribute) K(cuDeviceSetMemPool)              \
    K(cuDeviceTotalMem) K(cuDeviceTotalMem_v2) K(cuDeviceUnregisterAsyncNotification)                       \
    /* contexts; recorded and waited for as a whole, they already cover what was freed */                   \
    K(cuCtxAttach)      \
    K(cuCtxFromGreenCtx) K(cuCtxGetApiVersion)           \
    K(cuCtxGetCacheConfig) K(cuCtxGetCurrent) K(cuCtxGetDevResource) K(cuCtxGetDevice)                      \
    K(cuCtxGetDevice_v2) K(cuCtxGetExecAffinity) K(cuCtxGetFlags) K(cuCtxGetId) K(cuCtxGetLimit)            \
    K(cuCtxGetSharedMemConfig) K(cuCtxGetStreamPriorityRange) K(cuCtxPopCurrent) K(cuCtxPopCurrent_v2)      \
    K(cuCtxPushCurrent) K(cuCtxPushCurrent_v2) K(cuCtxRecordEvent) K(cuCtxResetPersistingL2Cache)           \
    K(cuCtxSetCacheConfig) K(cuCtxSetCurrent) K(cuCtxSetFlags) K(cuCtxSetLimit) K(cuCtxSetSharedMemConfig)  \
    K(cuCtxWaitEvent)                                                                                       \
    K(cuGreenCtxGetDevResource) K(cuGreenCtxGetId) K(cuGreenCtxStreamCreate) K(cuGreenCtxWaitEvent)         \
    K(cuThreadExchangeStreamCaptureMode)                                                                    \
    /* modules, libraries, kernels: loading fills memory that is not the program's yet */                   \
    K(cuFuncGetAttribute) K(cuFuncGetModule) K(cuFuncGetName) K(cuFuncGetParamInfo) K(cuFuncIsLoaded)       \
    K(cuFuncLoad) K(cuFuncSetAttribute) K(cuFuncSetBlockShape) K(cuFuncSetCacheConfig)                      \
    K(cuFuncSetSharedMemConfig) K(cuFuncSetSharedSize) K(cuKernelGetAttribute) K(cuKernelGetFunction)       \
    K(cuKernelGetLibrary) K(cuKernelGetName) K(cuKernelGetParamInfo) K(cuKernelSetAttribute)                \
    K(cuKernelSetCacheConfig) K(cuLibraryEnumerateKernels) K(cuLibraryGetKernel)      \
    K(cuLibraryGetKernelCount) K(cuLibraryGetModule) K(cuLibraryGetUnifiedFunction)  \
    K(cuLinkAddData) K(cuLinkAddData_v2)   \
    K(cuLinkAddFile) K(cuLinkAddFile_v2) K(cuLinkComplete) K(cuLinkCreate) K(cuLinkCreate_v2)               \
    K(cuLinkDestroy) K(cuModuleEnumerateFunctions) K(cuModuleGetFunction) K(cuModuleGetFunctionCount)       \
    K(cuModuleGetGlobal) K(cuModuleGetLoadingMode) K(cuModuleGetSurfRef)            \
    K(cuModuleGetTexRef)                          \
    K(cuOccupancyAvailableDynamicSMemPerBlock)                   \
    K(cuOccupancyMaxActiveBlocksPerMultiprocessor) K(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)  \
    K(cuOccupancyMaxActiveClusters) K(cuOccupancyMaxPotentialBlockSize)                                     \
    K(cuOccupancyMaxPotentialBlockSizeWithFlags) K(cuOccupancyMaxPotentialClusterSize) K(cuParamSetSize)    \
    K(cuParamSetTexRef) K(cuParamSetf) K(cuParamSeti) K(cuParamSetv)                                        \
    /* the 32-bit ABI of functions that we hook */                                                          \
    K(cuMemAlloc) K(cuMemFree) K(cuMemGetAddressRange) K(cuMemGetInfo)                                      \
    /* memory: allocations, mappings, handles, hints */                                                     \
    K(cuIpcGetEventHandle) K(cuIpcOpenEventHandle)             \
    K(cuMemAddressReserve) K(cuMemAdvise) K(cuMemAdvise_v2)    \
    K(cuMemAllocHost) K(cuMemAllocHost_v2) K(cuMemAllocPitch)    \
    K(cuMemFreeHost)                       \
    K(cuMemGetAllocationGranularity) K(cuMemGetAllocationPropertiesFromHandle)    \
    K(cuMemHostAlloc) K(cuMemHostGetDevicePointer)      \
    K(cuMemHostRegister) K(cuMemHostRegister_v2)       \
    K(cuMemPoolGetAccess) K(cuMemPoolGetAttribute) K(cuMemPoolImportFromShareableHandle)                    \
    K(cuMemPoolImportPointer) K(cuMemPoolSetAccess) K(cuMemPoolSetAttribute)             \
    K(cuMemRangeGetAttribute) K(cuMemRangeGetAttributes) K(cuMemRelease)     \
    K(cuMemSetMemPool) K(cuMulticastAddDevice)       \
    K(cuMulticastBindMem) K(cuMulticastCreate) K(cuMulticastGetGranularity)            \
    /* streams: waiting adds nothing that touches memory */                                                 \
    K(cuStreamCopyAttributes) K(cuStreamCopyAttributes_ptsz) K(cuStreamCreate)                              \
    K(cuStreamCreateWithPriority) K(cuStreamGetAttribute) K(cuStreamGetAttribute_ptsz)                      \
    K(cuStreamGetCaptureInfo) K(cuStreamGetCaptureInfo_ptsz) K(cuStreamGetCaptureInfo_v2)                   \
    K(cuStreamGetCaptureInfo_v2_ptsz) K(cuStreamGetCaptureInfo_v3) K(cuStreamGetCaptureInfo_v3_ptsz)        \
    K(cuStreamGetCtx) K(cuStreamGetCtx_ptsz) K(cuStreamGetCtx_v2) K(cuStreamGetCtx_v2_ptsz)                 \
    K(cuStreamGetDevice) K(cuStreamGetDevice_ptsz) K(cuStreamGetFlags) K(cuStreamGetFlags_ptsz)             \
    K(cuStreamGetGreenCtx) K(cuStreamGetId) K(cuStreamGetId_ptsz) K(cuStreamGetPriority)                    \
    K(cuStreamGetPriority_ptsz) K(cuStreamIsCapturing) K(cuStreamIsCapturing_ptsz)         \
    K(cuStreamSetAttribute) K(cuStreamSetAttribute_ptsz)       \
    K(cuStreamUpdateCaptureDependencies)                                        \
    K(cuStreamUpdateCaptureDependencies_ptsz) K(cuStreamUpdateCaptureDependencies_v2)                       \
    K(cuStreamUpdateCaptureDependencies_v2_ptsz)             \
    /* events */                                                                                            \
    K(cuEventCreate) K(cuEventCreateFromEGLSync) K(cuEventDestroy) K(cuEventDestroy_v2)                     \
    K(cuEventSynchronize)                    \
    /* graphs: only a launch submits */                                                                     \
    K(cuGraphAddBatchMemOpNode) K(cuGraphAddChildGraphNode) K(cuGraphAddDependencies)                       \
    K(cuGraphAddDependencies_v2) K(cuGraphAddEmptyNode) K(cuGraphAddEventRecordNode)                        \
    K(cuGraphAddEventWaitNode) K(cuGraphAddExternalSemaphoresSignalNode)                                    \
    K(cuGraphAddExternalSemaphoresWaitNode) K(cuGraphAddHostNode) K(cuGraphAddKernelNode)                   \
    K(cuGraphAddKernelNode_v2) K(cuGraphAddMemAllocNode) K(cuGraphAddMemFreeNode) K(cuGraphAddMemcpyNode)   \
    K(cuGraphAddMemsetNode) K(cuGraphAddNode) K(cuGraphAddNode_v2) K(cuGraphBatchMemOpNodeGetParams)        \
    K(cuGraphBatchMemOpNodeSetParams) K(cuGraphChildGraphNodeGetGraph) K(cuGraphClone)                      \
    K(cuGraphConditionalHandleCreate) K(cuGraphCreate) K(cuGraphDebugDotPrint) K(cuGraphDestroy)            \
    K(cuGraphDestroyNode) K(cuGraphEventRecordNodeGetEvent) K(cuGraphEventRecordNodeSetEvent)               \
    K(cuGraphEventWaitNodeGetEvent) K(cuGraphEventWaitNodeSetEvent) K(cuGraphExecBatchMemOpNodeSetParams)   \
    K(cuGraphExecEventRecordNodeSetEvent)                                                                   \
    K(cuGraphExecEventWaitNodeSetEvent) K(cuGraphExecExternalSemaphoresSignalNodeSetParams)                 \
    K(cuGraphExecExternalSemaphoresWaitNodeSetParams) K(cuGraphExecGetFlags)                                \
    K(cuGraphExecHostNodeSetParams) K(cuGraphExecKernelNodeSetParams) K(cuGraphExecKernelNodeSetParams_v2)  \
    K(cuGraphExternalSemaphoresSignalNodeGetParams)                                                         \
    K(cuGraphExternalSemaphoresSignalNodeSetParams) K(cuGraphExternalSemaphoresWaitNodeGetParams)           \
    K(cuGraphExternalSemaphoresWaitNodeSetParams) K(cuGraphGetEdges) K(cuGraphGetEdges_v2)                  \
    K(cuGraphGetNodes) K(cuGraphGetRootNodes) K(cuGraphHostNodeGetParams) K(cuGraphHostNodeSetParams)       \
    K(cuGraphKernelNodeCopyAttributes) K(cuGraphKernelNodeGetAttribute) K(cuGraphKernelNodeGetParams)       \
    K(cuGraphKernelNodeGetParams_v2) K(cuGraphKernelNodeSetAttribute) K(cuGraphKernelNodeSetParams)         \
    K(cuGraphKernelNodeSetParams_v2) K(cuGraphMemAllocNodeGetParams) K(cuGraphMemFreeNodeGetParams)         \
    K(cuGraphMemcpyNodeGetParams) K(cuGraphMemcpyNodeSetParams) K(cuGraphMemsetNodeGetParams)               \
    K(cuGraphMemsetNodeSetParams) K(cuGraphNodeFindInClone) K(cuGraphNodeGetDependencies)                   \
    K(cuGraphNodeGetDependencies_v2) K(cuGraphNodeGetDependentNodes) K(cuGraphNodeGetDependentNodes_v2)     \
    K(cuGraphNodeGetEnabled) K(cuGraphNodeGetType) K(cuGraphNodeSetEnabled) K(cuGraphNodeSetParams)         \
    K(cuGraphReleaseUserObject) K(cuGraphRemoveDependencies) K(cuGraphRemoveDependencies_v2)                \
    K(cuGraphRetainUserObject) K(cuUserObjectCreate) K(cuUserObjectRelease) K(cuUserObjectRetain)           \
    /* arrays, textures, surfaces, tensor maps */                                                           \
    K(cuArray3DCreate) K(cuArray3DGetDescriptor) K(cuArray3DGetDescriptor_v2)         \
    K(cuArrayCreate) K(cuArrayGetDescriptor)                          \
    K(cuArrayGetDescriptor_v2) K(cuArrayGetMemoryRequirements) K(cuArrayGetPlane)                           \
    K(cuArrayGetSparseProperties)                      \
    K(cuMipmappedArrayGetLevel) K(cuMipmappedArrayGetMemoryRequirements)                                    \
    K(cuMipmappedArrayGetSparseProperties) K(cuSurfObjectCreate)                     \
    K(cuSurfObjectGetResourceDesc) K(cuSurfRefGetArray) K(cuSurfRefSetArray) K(cuTensorMapEncodeIm2col)     \
    K(cuTensorMapEncodeIm2colWide) K(cuTensorMapEncodeTiled) K(cuTensorMapReplaceAddress)                   \
    K(cuTexObjectCreate) K(cuTexObjectGetResourceDesc)                                \
    K(cuTexObjectGetResourceViewDesc) K(cuTexObjectGetTextureDesc) K(cuTexRefCreate) K(cuTexRefDestroy)     \
    K(cuTexRefGetAddress) K(cuTexRefGetAddressMode) K(cuTexRefGetAddress_v2) K(cuTexRefGetArray)            \
    K(cuTexRefGetBorderColor) K(cuTexRefGetFilterMode) K(cuTexRefGetFlags) K(cuTexRefGetFormat)             \
    K(cuTexRefGetMaxAnisotropy) K(cuTexRefGetMipmapFilterMode) K(cuTexRefGetMipmapLevelBias)                \
    K(cuTexRefGetMipmapLevelClamp) K(cuTexRefGetMipmappedArray) K(cuTexRefSetAddress)                       \
    K(cuTexRefSetAddress2D) K(cuTexRefSetAddress2D_v2) K(cuTexRefSetAddress2D_v3)                           \
    K(cuTexRefSetAddressMode) K(cuTexRefSetAddress_v2) K(cuTexRefSetArray) K(cuTexRefSetBorderColor)        \
    K(cuTexRefSetFilterMode) K(cuTexRefSetFlags) K(cuTexRefSetFormat) K(cuTexRefSetMaxAnisotropy)           \
    K(cuTexRefSetMipmapFilterMode) K(cuTexRefSetMipmapLevelBias) K(cuTexRefSetMipmapLevelClamp)             \
    K(cuTexRefSetMipmappedArray)                                                                            \
    /* others' memory and semaphores */                                                                     \
    K(cuDestroyExternalSemaphore) K(cuExternalMemoryGetMappedBuffer)             \
    K(cuExternalMemoryGetMappedMipmappedArray) K(cuImportExternalMemory) K(cuImportExternalSemaphore)       \
    /* graphics: registering, connecting */                                                                 \
    K(cuEGLStreamConsumerConnect) K(cuEGLStreamConsumerConnectWithFlags) K(cuEGLStreamConsumerDisconnect)   \
    K(cuEGLStreamProducerConnect) K(cuEGLStreamProducerDisconnect) K(cuGLCtxCreate) K(cuGLCtxCreate_v2)     \
    K(cuGLGetDevices) K(cuGLGetDevices_v2) K(cuGLInit) K(cuGLRegisterBufferObject)                          \
    K(cuGLSetBufferObjectMapFlags) K(cuGLUnregisterBufferObject) K(cuGraphicsEGLRegisterImage)              \
    K(cuGraphicsGLRegisterBuffer) K(cuGraphicsGLRegisterImage) K(cuGraphicsResourceGetMappedEglFrame)       \
    K(cuGraphicsResourceGetMappedMipmappedArray) K(cuGraphicsResourceGetMappedPointer)                      \
    K(cuGraphicsResourceGetMappedPointer_v2) K(cuGraphicsResourceSetMapFlags)                               \
    K(cuGraphicsResourceSetMapFlags_v2) K(cuGraphicsSubResourceGetMappedArray)                              \
    K(cuGraphicsVDPAURegisterOutputSurface)                                 \
    K(cuGraphicsVDPAURegisterVideoSurface) K(cuVDPAUCtxCreate) K(cuVDPAUCtxCreate_v2) K(cuVDPAUGetDevice)   \
    K(cuWGLGetDevice)
/* clang-format on */

#endif /* CUP_SHIM_KNOWN_LIST_H */
