/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudart - a stand-in libcudart.so.13, for our test programs: the real one verifies its driver. It reaches
 * the driver as the real one does: dlopen("libcuda.so.1"), one dlsym of a driver name, which is
 * cuGetProcAddress_v2, then every look-up of lookup_list.h, in order. cudaMalloc arrives as cuMemAlloc_v2.
 * Every block that it hands out is announced to the overlap detector, where the driver has one.
 *
 * Threads: any; the start happens once; the last error and the device are per thread.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT      __attribute__((visibility("default")))
#define DEVICES_MAX 64

/* The driver functions in use, and the ABI version that the real runtime asks for. */
#define DRIVER_LIST(X)                    \
    X(cuInit, 2000)                       \
    X(cuDriverGetVersion, 2020)           \
    X(cuDeviceGetCount, 2000)             \
    X(cuDeviceGetAttribute, 2000)         \
    X(cuGetErrorName, 6000)               \
    X(cuGetErrorString, 6000)             \
    X(cuDevicePrimaryCtxRetain, 7000)     \
    X(cuDevicePrimaryCtxReset, 7000)      \
    X(cuDevicePrimaryCtxGetState, 7000)   \
    X(cuCtxGetCurrent, 4000)              \
    X(cuCtxSetCurrent, 4000)              \
    X(cuCtxGetDevice, 2000)               \
    X(cuCtxSynchronize, 2000)             \
    X(cuMemAlloc, 3020)                   \
    X(cuMemFree, 3020)                    \
    X(cuMemAllocPitch, 3020)              \
    X(cuMemAllocManaged, 6000)            \
    X(cuMemHostAlloc, 2020)               \
    X(cuMemFreeHost, 2000)                \
    X(cuMemHostRegister, 6050)            \
    X(cuMemHostUnregister, 4000)          \
    X(cuMemHostGetDevicePointer, 3020)    \
    X(cuMemHostGetFlags, 2030)            \
    X(cuDeviceCanAccessPeer, 4000)        \
    X(cuCtxEnablePeerAccess, 4000)        \
    X(cuCtxDisablePeerAccess, 4000)       \
    X(cuIpcGetMemHandle, 4010)            \
    X(cuIpcOpenMemHandle, 11000)          \
    X(cuIpcCloseMemHandle, 4010)          \
    X(cuMemGetInfo, 3020)                 \
    X(cuMemAllocAsync, 11020)             \
    X(cuMemFreeAsync, 11020)              \
    X(cuMemcpy, 4000)                     \
    X(cuMemcpyAsync, 4000)                \
    X(cuMemcpyHtoD, 3020)                 \
    X(cuMemcpyHtoDAsync, 3020)            \
    X(cuMemcpyDtoH, 3020)                 \
    X(cuMemcpyDtoHAsync, 3020)            \
    X(cuMemcpyDtoD, 3020)                 \
    X(cuMemcpyDtoDAsync, 3020)            \
    X(cuMemsetD8, 3020)                   \
    X(cuMemsetD8Async, 3020)              \
    X(cuPointerGetAttributes, 7000)       \
    X(cuStreamCreate, 2000)               \
    X(cuStreamCreateWithPriority, 5050)   \
    X(cuStreamDestroy, 4000)              \
    X(cuStreamSynchronize, 2000)          \
    X(cuStreamQuery, 2000)                \
    X(cuStreamWaitEvent, 3020)            \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuStreamIsCapturing, 10000)         \
    X(cuLaunchHostFunc, 10000)            \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphExecDestroy, 10000)          \
    X(cuEventCreate, 2000)                \
    X(cuEventDestroy, 4000)               \
    X(cuEventRecord, 2000)                \
    X(cuEventQuery, 2000)                 \
    X(cuEventSynchronize, 2000)           \
    X(cuEventElapsedTime, 2000)

/* The toolkit shows this type to its own sources only; it is the same. */
typedef PFN_cuDevicePrimaryCtxReset_v11000 PFN_cuDevicePrimaryCtxReset_v7000;

static struct {
#define X(name, version) PFN_##name##_v##version name;
    DRIVER_LIST(X)
#undef X
} driver;

static PFN_cuGetProcAddress_v12000 get_address;
static void (*claim)(uint64_t addr, uint64_t size_bytes); /* NULL on a driver without a detector */
static cudaError_t start_error;
static pthread_once_t start_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primaries[DEVICES_MAX]; /* retained by us; NULL before, and after a reset; guarded by lock */

static __thread cudaError_t last_error;
static __thread int current_device;

/* Keeps what this look-up found, if it is one that we use. */
static void keep(const char *name, int version, void *address)
{
#define X(function, function_version)                                \
    if (version == function_version && strcmp(name, #function) == 0) \
        driver.function = (PFN_##function##_v##function_version)address;
    DRIVER_LIST(X)
#undef X
}

static void look_up(const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;

    if (get_address(name, &address, version, flags, NULL) == CUDA_SUCCESS && flags == 0)
        keep(name, version, address);
}

static bool is_complete(void)
{
    bool is_all = true;

#define X(name, version) is_all = is_all && driver.name;
    DRIVER_LIST(X)
#undef X
    return is_all;
}

static void start(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int version = 0;

    start_error = cudaErrorInsufficientDriver;
    if (!library)
        return;
    get_address = (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    if (!get_address)
        return;
#define SC_LOOKUP(name, lookup_version, flags) look_up(name, lookup_version, flags);
#include "lookup_list.h"
#undef SC_LOOKUP
    claim = (void (*)(uint64_t, uint64_t))dlsym(library, "softcuda_claim");
    if (!is_complete() || driver.cuDriverGetVersion(&version) != CUDA_SUCCESS || version < 12000)
        return;
    start_error = (cudaError_t)driver.cuInit(0);
}

/* Every call ends here: an error is kept for cudaGetLastError. NOT_READY is an answer. */
static cudaError_t finish(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

static cudaError_t begin(void)
{
    pthread_once(&start_once, start);
    return start_error;
}

/* Makes the primary context of the device current. */
static cudaError_t bind_device(int device)
{
    CUcontext ctx;
    CUresult status = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    ctx = primaries[device];
    if (!ctx) {
        status = driver.cuDevicePrimaryCtxRetain(&ctx, device);
        if (status == CUDA_SUCCESS)
            primaries[device] = ctx;
    }
    pthread_mutex_unlock(&lock);
    if (status == CUDA_SUCCESS)
        status = driver.cuCtxSetCurrent(ctx);
    return (cudaError_t)status;
}

static bool is_retained(CUcontext ctx)
{
    bool is_ours = false;

    pthread_mutex_lock(&lock);
    for (int device = 0; device < DEVICES_MAX; device++)
        is_ours = is_ours || primaries[device] == ctx;
    pthread_mutex_unlock(&lock);
    return is_ours;
}

static bool is_reset_primary(CUcontext ctx)
{
    unsigned flags;
    int is_active = 1;

    return !is_retained(ctx) &&
           driver.cuDevicePrimaryCtxGetState(current_device, &flags, &is_active) == CUDA_SUCCESS &&
           !is_active;
}

/* A context is current afterwards: the program's own, or the primary one of the thread's device. */
static cudaError_t enter(void)
{
    CUcontext ctx = NULL;
    cudaError_t error = begin();

    if (error != cudaSuccess)
        return error;
    error = (cudaError_t)driver.cuCtxGetCurrent(&ctx);
    if (error == cudaSuccess && (!ctx || is_reset_primary(ctx)))
        error = bind_device(current_device);
    return error;
}

static void announce(const void *block, size_t size)
{
    if (claim)
        claim((uint64_t)(uintptr_t)block, size);
}

/* A runtime call that is one driver call in a context. */
#define FORWARD(name, params, call)                                             \
    EXPORT cudaError_t name params                                              \
    {                                                                           \
        cudaError_t error = enter();                                            \
        return finish(error == cudaSuccess ? (cudaError_t)driver.call : error); \
    }

/* ---- errors, versions, devices ---- */

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = NULL;

    if (begin() != cudaSuccess || driver.cuGetErrorName((CUresult)error, &name) != CUDA_SUCCESS)
        return "unrecognized error code";
    return name;
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;

    if (begin() != cudaSuccess || driver.cuGetErrorString((CUresult)error, &text) != CUDA_SUCCESS)
        return "unrecognized error code";
    return text;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return finish(cudaErrorInvalidValue);
    *version = getenv("SOFTCUDA_RUNTIME") ? atoi(getenv("SOFTCUDA_RUNTIME")) : CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return finish(cudaErrorInvalidValue);
    *version = 0; /* no driver: 0, and no error */
    begin();
    if (driver.cuDriverGetVersion)
        driver.cuDriverGetVersion(version);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = begin();

    return finish(error == cudaSuccess ? (cudaError_t)driver.cuDeviceGetCount(count) : error);
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t error = begin();

    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
    return finish(error);
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    cudaError_t error = begin();

    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuDeviceGetCount(&count);
    if (error == cudaSuccess && (device < 0 || device >= count))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        error = bind_device(device); /* since 12.0 the context is made here */
    if (error == cudaSuccess)
        current_device = device;
    return finish(error);
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    CUcontext ctx = NULL;
    cudaError_t error = begin();

    if (!device)
        return finish(cudaErrorInvalidValue);
    if (error != cudaSuccess)
        return finish(error);
    *device = current_device;
    if (driver.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx)
        driver.cuCtxGetDevice(device);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceReset(void)
{
    cudaError_t error = begin();

    if (error != cudaSuccess)
        return finish(error);
    pthread_mutex_lock(&lock);
    primaries[current_device] = NULL;
    pthread_mutex_unlock(&lock);
    return finish((cudaError_t)driver.cuDevicePrimaryCtxReset(current_device));
}

FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize())

/* ---- memory ---- */

/* A driver that refuses writes 0, and so it arrives (measured). */
static cudaError_t hand_out(void **block, CUdeviceptr base, size_t size, CUresult status)
{
    *block = (void *)(uintptr_t)base;
    if (status == CUDA_SUCCESS)
        announce(*block, size);
    return finish((cudaError_t)status);
}

/* What is asked for without a place for the answer. */
static cudaError_t enter_for(const void *out)
{
    cudaError_t error = enter();

    return error == cudaSuccess && !out ? cudaErrorInvalidValue : error;
}

EXPORT cudaError_t cudaMalloc(void **block, size_t size)
{
    CUdeviceptr base = 0;
    CUresult status = CUDA_SUCCESS;
    cudaError_t error = enter_for(block);

    if (error != cudaSuccess)
        return finish(error);
    if (size > 0)
        status = driver.cuMemAlloc(&base, size);
    return hand_out(block, base, size, status);
}

EXPORT cudaError_t cudaMallocManaged(void **block, size_t size, unsigned int flags)
{
    CUdeviceptr base = 0;
    CUresult status = CUDA_SUCCESS;
    cudaError_t error = enter_for(block);

    if (error != cudaSuccess)
        return finish(error);
    if (size > 0)
        status = driver.cuMemAllocManaged(&base, size, flags);
    return hand_out(block, base, size, status);
}

EXPORT cudaError_t cudaMallocPitch(void **block, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr base = 0;
    CUresult status = CUDA_SUCCESS;
    cudaError_t error = enter_for(block && pitch ? block : NULL);

    if (error != cudaSuccess)
        return finish(error);
    *pitch = 0;
    if (width && height)
        status = driver.cuMemAllocPitch(&base, pitch, width, height, 4);
    return hand_out(block, base, *pitch * height, status);
}

EXPORT cudaError_t cudaMallocAsync(void **block, size_t size, cudaStream_t stream)
{
    CUdeviceptr base = 0;
    CUresult status = CUDA_SUCCESS;
    cudaError_t error = enter_for(block);

    if (error != cudaSuccess)
        return finish(error);
    status = driver.cuMemAllocAsync(&base, size, stream);
    return hand_out(block, base, size, status);
}

EXPORT cudaError_t cudaHostAlloc(void **block, size_t size, unsigned int flags)
{
    cudaError_t error = enter_for(block);

    if (error != cudaSuccess)
        return finish(error);
    *block = NULL;
    return finish(size ? (cudaError_t)driver.cuMemHostAlloc(block, size, flags) : cudaSuccess);
}

EXPORT cudaError_t cudaMallocHost(void **block, size_t size)
{
    return cudaHostAlloc(block, size, 0);
}

/* NULL starts the context and frees nothing. */
EXPORT cudaError_t cudaFree(void *block)
{
    cudaError_t error = enter();

    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuMemFree((CUdeviceptr)(uintptr_t)block);
    return finish(error);
}

EXPORT cudaError_t cudaFreeHost(void *block)
{
    cudaError_t error = enter();

    if (error == cudaSuccess && block)
        error = (cudaError_t)driver.cuMemFreeHost(block);
    return finish(error);
}

FORWARD(cudaHostRegister, (void *block, size_t size, unsigned int flags),
        cuMemHostRegister(block, size, flags))
FORWARD(cudaHostUnregister, (void *block), cuMemHostUnregister(block))
FORWARD(cudaHostGetDevicePointer, (void **out, void *block, unsigned int flags),
        cuMemHostGetDevicePointer((CUdeviceptr *)out, block, flags))
FORWARD(cudaHostGetFlags, (unsigned int *flags, void *block), cuMemHostGetFlags(flags, block))
FORWARD(cudaFreeAsync, (void *block, cudaStream_t stream),
        cuMemFreeAsync((CUdeviceptr)(uintptr_t)block, stream))
FORWARD(cudaMemGetInfo, (size_t * idle, size_t *total), cuMemGetInfo(idle, total))
FORWARD(cudaMemset, (void *block, int value, size_t size),
        cuMemsetD8((CUdeviceptr)(uintptr_t)block, (unsigned char)value, size))
FORWARD(cudaMemsetAsync, (void *block, int value, size_t size, cudaStream_t stream),
        cuMemsetD8Async((CUdeviceptr)(uintptr_t)block, (unsigned char)value, size, stream))

EXPORT cudaError_t cudaMemcpy(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind)
{
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst, from = (CUdeviceptr)(uintptr_t)src;
    cudaError_t error = enter();

    if (error != cudaSuccess)
        return finish(error);
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return finish((cudaError_t)driver.cuMemcpyHtoD(to, src, size));
    case cudaMemcpyDeviceToHost:
        return finish((cudaError_t)driver.cuMemcpyDtoH(dst, from, size));
    case cudaMemcpyDeviceToDevice:
        return finish((cudaError_t)driver.cuMemcpyDtoD(to, from, size));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return finish((cudaError_t)driver.cuMemcpy(to, from, size));
    default:
        return finish(cudaErrorInvalidMemcpyDirection);
    }
}

EXPORT cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind,
                                   cudaStream_t stream)
{
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst, from = (CUdeviceptr)(uintptr_t)src;
    cudaError_t error = enter();

    if (error != cudaSuccess)
        return finish(error);
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return finish((cudaError_t)driver.cuMemcpyHtoDAsync(to, src, size, stream));
    case cudaMemcpyDeviceToHost:
        return finish((cudaError_t)driver.cuMemcpyDtoHAsync(dst, from, size, stream));
    case cudaMemcpyDeviceToDevice:
        return finish((cudaError_t)driver.cuMemcpyDtoDAsync(to, from, size, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return finish((cudaError_t)driver.cuMemcpyAsync(to, from, size, stream));
    default:
        return finish(cudaErrorInvalidMemcpyDirection);
    }
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    unsigned type = 0, is_managed = 0;
    int device = -2;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &is_managed, &device, &on_device, &on_host};
    cudaError_t error = enter();

    if (error == cudaSuccess && !attributes)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuPointerGetAttributes(5, wanted, data, (CUdeviceptr)(uintptr_t)pointer);
    if (error != cudaSuccess)
        return finish(error);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = is_managed                     ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                      : cudaMemoryTypeUnregistered;
    attributes->device = device;
    attributes->devicePointer = (void *)(uintptr_t)on_device;
    attributes->hostPointer = type == 0 ? (void *)(uintptr_t)pointer : on_host;
    return cudaSuccess;
}

/* The software driver has no arrays. */
EXPORT cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *format,
                                   size_t width, size_t height, unsigned int flags)
{
    cudaError_t error = enter();

    return finish(error == cudaSuccess ? cudaErrorNotSupported : error);
}

EXPORT cudaError_t cudaFreeArray(cudaArray_t array)
{
    cudaError_t error = enter();

    return finish(error == cudaSuccess && array ? cudaErrorNotSupported : error);
}

EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
    void *block = NULL;
    size_t pitch = 0, rows = extent.height * extent.depth;
    cudaError_t error = cudaSuccess;

    if (extent.depth && rows / extent.depth != extent.height)
        return finish(cudaErrorMemoryAllocation);
    if (extent.width && rows)
        error = cudaMallocPitch(&block, &pitch, extent.width, rows);
    if (error == cudaSuccess)
        *out = (struct cudaPitchedPtr){block, pitch, extent.width, extent.height};
    return finish(error);
}

/* ---- other devices, other processes ---- */

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = begin();

    return finish(error == cudaSuccess ? (cudaError_t)driver.cuDeviceCanAccessPeer(can, device, peer)
                                       : error);
}

/* The primary context of the peer, which is made if need be. */
static cudaError_t enter_beside(int peer, CUcontext *out_ctx)
{
    int count = 0;
    cudaError_t error = enter();

    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuDeviceGetCount(&count);
    if (error == cudaSuccess && (peer < 0 || peer >= count))
        error = cudaErrorInvalidDevice;
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    if (!primaries[peer])
        error = (cudaError_t)driver.cuDevicePrimaryCtxRetain(&primaries[peer], peer);
    *out_ctx = primaries[peer];
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext ctx = NULL;
    cudaError_t error = enter_beside(peer, &ctx);

    return finish(error == cudaSuccess ? (cudaError_t)driver.cuCtxEnablePeerAccess(ctx, flags) : error);
}

EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext ctx = NULL;
    cudaError_t error = enter_beside(peer, &ctx);

    return finish(error == cudaSuccess ? (cudaError_t)driver.cuCtxDisablePeerAccess(ctx) : error);
}

FORWARD(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *block),
        cuIpcGetMemHandle((CUipcMemHandle *)handle, (CUdeviceptr)(uintptr_t)block))
FORWARD(cudaIpcCloseMemHandle, (void *block), cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)block))

EXPORT cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle same;
    cudaError_t error = enter();

    memcpy(&same, &handle, sizeof same);
    if (error == cudaSuccess)
        error = (cudaError_t)driver.cuIpcOpenMemHandle((CUdeviceptr *)out, same, flags);
    return finish(error);
}

/* ---- streams, captures, events ---- */

FORWARD(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate(stream, CU_STREAM_DEFAULT))
FORWARD(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags), cuStreamCreate(stream, flags))
FORWARD(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
        cuStreamCreateWithPriority(stream, flags, priority))
FORWARD(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy(stream))
FORWARD(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
FORWARD(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
FORWARD(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
        cuStreamWaitEvent(stream, event, flags))
FORWARD(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *user),
        cuLaunchHostFunc(stream, fn, user))
FORWARD(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
        cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
FORWARD(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), cuStreamEndCapture(stream, graph))
FORWARD(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
        cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
FORWARD(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        cuGraphInstantiateWithFlags(exec, graph, flags))
FORWARD(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphLaunch(exec, stream))
FORWARD(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))
FORWARD(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy(exec))
FORWARD(cudaEventCreate, (cudaEvent_t * event), cuEventCreate(event, CU_EVENT_DEFAULT))
FORWARD(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), cuEventCreate(event, flags))
FORWARD(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy(event))
FORWARD(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
FORWARD(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
FORWARD(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
FORWARD(cudaEventElapsedTime, (float *ms, cudaEvent_t start_event, cudaEvent_t end_event),
        cuEventElapsedTime(ms, start_event, end_event))

/* ---- driver entry points ---- */

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **address, unsigned int version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *out_status)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    cudaError_t error = enter();

    if (error == cudaSuccess)
        error = (cudaError_t)get_address(symbol, address, (int)version, flags, &status);
    if (error == cudaErrorSymbolNotFound) /* told by the status */
        error = cudaSuccess;
    if (out_status)
        *out_status = (enum cudaDriverEntryPointQueryResult)status;
    return finish(error);
}

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **address, unsigned long long flags,
                                           enum cudaDriverEntryPointQueryResult *out_status)
{
    return cudaGetDriverEntryPointByVersion(symbol, address, CUDART_VERSION, flags, out_status);
}
