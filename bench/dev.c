/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev - how: one LIST of driver entry points makes the table; the LINK door fills it with linked symbols,
 * the others with dlsym, as Python's ctypes and many plug-ins do. Only allocation differs further: the
 * CUDART door calls cudaMalloc and cudaFree, which reach the driver by cuGetProcAddress. Kernels come from
 * the fat binary in the program; a driver that calls it an invalid image is asked for its built-in kernels
 * instead (the software driver). Counts are atomic, everything else is written by dev_open(),
 * dev_open_devices() and dev_limit_groups() alone.
 */
#define _GNU_SOURCE /* dlinfo */
#include "dev.h"
#include "bare.h"
#include "image.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef DEV_DOOR_CUDART
#include <cuda_runtime_api.h>
#endif

#define SOFT_IMAGE "softcuda\n"

/* The versioned names are what a linked program carries and dlsym must be asked for: cuda.h hides them. */
#define DEV_ENTRY_LIST(X)        \
    X(cuInit)                    \
    X(cuDeviceGetCount)          \
    X(cuDeviceGet)               \
    X(cuGetErrorName)            \
    X(cuDevicePrimaryCtxRetain)  \
    X(cuCtxSetCurrent)           \
    X(cuCtxSynchronize)          \
    X(cuModuleLoadData)          \
    X(cuModuleGetFunction)       \
    X(cuCtxEnablePeerAccess)     \
    X(cuDeviceCanAccessPeer)     \
    X(cuDeviceGetDefaultMemPool) \
    X(cuMemPoolSetAttribute)     \
    X(cuMemAllocAsync)           \
    X(cuMemFreeAsync)            \
    X(cuLaunchKernel)            \
    X(cuLaunchKernelEx)          \
    X(cuStreamCreate)            \
    X(cuStreamSynchronize)       \
    X(cuEventCreate)             \
    X(cuEventRecord)             \
    X(cuMemAlloc_v2)             \
    X(cuMemFree_v2)              \
    X(cuMemAllocHost_v2)         \
    X(cuMemcpyDtoH_v2)           \
    X(cuMemcpyDtoHAsync_v2)      \
    X(cuMemsetD8Async)

#define DEV_KERNEL_LIST(X) \
    X(fill)                \
    X(verify)              \
    X(hash)                \
    X(copy)                \
    X(spin)

#define DECLARE_ENTRY(entry)   __typeof__(entry) *entry;
#define DECLARE_KERNEL(kernel) CUfunction kernel;

static struct {
    DEV_ENTRY_LIST(DECLARE_ENTRY)
} drv;

/* Kernels that only a real driver has: NULL on the software one. */
#define DEV_REAL_KERNEL_LIST(X) \
    X(late_fill)                \
    X(batch_fill)               \
    X(batch_verify)

typedef struct device {
    CUcontext context;
    DEV_KERNEL_LIST(DECLARE_KERNEL)
    DEV_REAL_KERNEL_LIST(DECLARE_KERNEL)
} device_t;

static device_t devices[DEV_DEVICES_MAX];
static __thread const device_t *here; /* the device that this thread joined */

/* The software driver's own functions (tests/softcuda/softcuda.h); NULL on a real one. */
static struct {
    void (*claim)(uint64_t addr, uint64_t size_bytes); /* a new owner, for its overlap detector */
    uint64_t (*violations)(void);
    uint64_t (*calls)(const char *symbol);
} soft;

static uint64_t alloc_count, free_count;

static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    exit(DEV_SKIP);
}

void dev_check(CUresult result, const char *what)
{
    const char *name = "unknown error";
    if (result == CUDA_SUCCESS)
        return;
    drv.cuGetErrorName(result, &name);
    fprintf(stderr, "%s failed: %s (%d)\n", what, name, (int)result);
    exit(1);
}

#ifdef DEV_DOOR_LINK
#define BIND_ENTRY(entry) drv.entry = entry;
static void bind_entries(void)
{
    DEV_ENTRY_LIST(BIND_ENTRY)
}
#else
#define BIND_ENTRY(entry) bind_entry(library, #entry, (void **)&drv.entry);
static void bind_entry(void *library, const char *name, void **slot)
{
    *slot = dlsym(library, name);
    if (!*slot) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
}

static void bind_entries(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        skip("no CUDA driver (libcuda.so.1 cannot be loaded)");
    DEV_ENTRY_LIST(BIND_ENTRY)
}
#endif

static void bind_soft(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    soft.claim = (void (*)(uint64_t, uint64_t))dlsym(library, "softcuda_claim");
    soft.violations = (uint64_t(*)(void))dlsym(library, "softcuda_violations");
    soft.calls = (uint64_t(*)(const char *))dlsym(library, "softcuda_calls");
    if (!soft.claim || !soft.violations || !soft.calls) {
        fprintf(stderr, "libcuda.so.1 takes softcuda images but has no softcuda functions\n");
        exit(1);
    }
}

static void load_kernels(device_t *device)
{
    CUmodule module = NULL;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    if (dev_has_image)
        result = drv.cuModuleLoadData(&module, dev_image);
    if (result == CUDA_ERROR_INVALID_IMAGE) {
        result = drv.cuModuleLoadData(&module, SOFT_IMAGE);
        if (result == CUDA_SUCCESS)
            bind_soft();
        else if (!dev_has_image)
            skip("built without nvcc: no kernels for a real GPU");
    }
    dev_check(result, "cuModuleLoadData");
#define GET_KERNEL(kernel) \
    dev_check(drv.cuModuleGetFunction(&device->kernel, module, #kernel), "kernel " #kernel);
    DEV_KERNEL_LIST(GET_KERNEL)
    if (!dev_is_simulated()) {
        DEV_REAL_KERNEL_LIST(GET_KERNEL)
    }
}

static void open_device(int number)
{
    CUdevice device;
    dev_check(drv.cuDeviceGet(&device, number), "cuDeviceGet");
    dev_check(drv.cuDevicePrimaryCtxRetain(&devices[number].context, device), "cuDevicePrimaryCtxRetain");
    dev_join_device(number);
    load_kernels(&devices[number]);
}

void dev_open(void)
{
    int count = 0;
    bind_entries();
    if (drv.cuInit(0) != CUDA_SUCCESS)
        skip("the CUDA driver does not start (cuInit)");
    if (drv.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        skip("no CUDA device");
    open_device(0);
}

static void enable_access(int from, int to)
{
    int may_access = 0;
    dev_check(drv.cuDeviceCanAccessPeer(&may_access, from, to), "cuDeviceCanAccessPeer");
    if (!may_access)
        skip("the devices do not reach each other");
    dev_join_device(from);
    dev_check(drv.cuCtxEnablePeerAccess(devices[to].context, 0), "cuCtxEnablePeerAccess");
}

void dev_open_devices(int count)
{
    int available = 0;
    dev_check(drv.cuDeviceGetCount(&available), "cuDeviceGetCount");
    if (available < count || count > DEV_DEVICES_MAX)
        skip("fewer devices than asked for");
    for (int i = 1; i < count; i++)
        open_device(i);
    dev_join();
}

void dev_open_peers(int count)
{
    dev_open_devices(count);
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++)
            if (from != to)
                enable_access(from, to);
    dev_join();
}

void dev_join_device(int number)
{
    here = &devices[number];
    dev_check(drv.cuCtxSetCurrent(here->context), "cuCtxSetCurrent");
#ifdef DEV_DOOR_CUDART
    if (cudaSetDevice(number) != cudaSuccess)
        skip("cudart does not accept this driver (cudaSetDevice)");
#endif
}

void dev_join(void)
{
    dev_join_device(0);
}

CUcontext dev_context(int number)
{
    return devices[number].context;
}

bool dev_is_simulated(void)
{
    return soft.claim != NULL;
}

#ifdef DEV_DOOR_CUDART
static CUresult door_alloc(CUdeviceptr *out_block, uint64_t bytes)
{
    return (CUresult)cudaMalloc((void **)out_block,
                                bytes); /* for these two calls the codes are the driver's numbers */
}

static CUresult door_free(CUdeviceptr block)
{
    return (CUresult)cudaFree((void *)block);
}
#else
static CUresult door_alloc(CUdeviceptr *out_block, uint64_t bytes)
{
    return drv.cuMemAlloc_v2(out_block, bytes);
}

static CUresult door_free(CUdeviceptr block)
{
    return drv.cuMemFree_v2(block);
}
#endif

bool dev_try_alloc(uint64_t bytes, CUdeviceptr *out_block)
{
    CUresult result = door_alloc(out_block, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    dev_check(result, "allocation");
    __atomic_fetch_add(&alloc_count, 1, __ATOMIC_RELAXED);
    if (soft.claim)
        soft.claim(*out_block, bytes);
    return true;
}

CUdeviceptr dev_alloc(uint64_t bytes)
{
    CUdeviceptr block = 0;
    if (!dev_try_alloc(bytes, &block))
        dev_check(CUDA_ERROR_OUT_OF_MEMORY, "allocation");
    return block;
}

void dev_free(CUdeviceptr block)
{
    dev_check(door_free(block), "free");
    __atomic_fetch_add(&free_count, 1, __ATOMIC_RELAXED);
}

void dev_open_async(void)
{
    CUmemoryPool pool;
    CUdevice device;
    cuuint64_t keep = UINT64_MAX;
    dev_check(drv.cuDeviceGet(&device, (int)(here - devices)), "cuDeviceGet");
    CUresult result = drv.cuDeviceGetDefaultMemPool(&pool, device);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        skip("no stream-ordered memory");
    dev_check(result, "cuDeviceGetDefaultMemPool");
    dev_check(drv.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
              "cuMemPoolSetAttribute");
}

CUdeviceptr dev_alloc_async(uint64_t bytes, CUstream stream)
{
    CUdeviceptr block;
    dev_check(drv.cuMemAllocAsync(&block, bytes, stream), "cuMemAllocAsync");
    return block;
}

void dev_free_async(CUdeviceptr block, CUstream stream)
{
    dev_check(drv.cuMemFreeAsync(block, stream), "cuMemFreeAsync");
}

CUstream dev_stream(void)
{
    CUstream stream;
    dev_check(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

void dev_launch_bare(bool is_bare)
{
    static __typeof__(drv.cuLaunchKernel) hooked, bare;
    if (!bare) {
        hooked = drv.cuLaunchKernel;
        bare = (__typeof__(bare))bare_symbol("libcuda.so.1", "cuLaunchKernel");
    }
    if (bare)
        drv.cuLaunchKernel = is_bare ? bare : hooked;
}

void dev_record(CUstream stream)
{
    static __thread CUevent event;
    if (!event)
        dev_check(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    dev_check(drv.cuEventRecord(event, stream), "cuEventRecord");
}

void dev_sync(void)
{
    dev_check(drv.cuCtxSynchronize(), "cuCtxSynchronize");
}

void dev_stream_sync(CUstream stream)
{
    dev_check(drv.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void *dev_host_alloc(uint64_t bytes)
{
    void *block;
    dev_check(drv.cuMemAllocHost_v2(&block, bytes), "cuMemAllocHost");
    return block;
}

void dev_read(void *to, CUdeviceptr from, uint64_t bytes)
{
    dev_check(drv.cuMemcpyDtoH_v2(to, from, bytes), "cuMemcpyDtoH");
}

void dev_read_async(void *to, CUdeviceptr from, uint64_t bytes, CUstream stream)
{
    dev_check(drv.cuMemcpyDtoHAsync_v2(to, from, bytes, stream), "cuMemcpyDtoHAsync");
}

void dev_zero(CUdeviceptr block, uint64_t bytes, CUstream stream)
{
    dev_check(drv.cuMemsetD8Async(block, 0, bytes, stream), "cuMemsetD8Async");
}

typedef struct shape {
    unsigned x, y;
    bool is_programmatic; /* may start before the kernel in front of it has ended */
} shape_t;

static void launch_shape(CUfunction kernel, shape_t shape, void **parameters, CUstream stream)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = shape.x,
                             .gridDimY = shape.y,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    if (shape.is_programmatic)
        dev_check(drv.cuLaunchKernelEx(&config, kernel, parameters, NULL), "cuLaunchKernelEx");
    else
        dev_check(drv.cuLaunchKernel(kernel, shape.x, shape.y, 1, 256, 1, 1, 0, stream, parameters, NULL),
                  "cuLaunchKernel");
}

/* 132 x 256 threads are resident together on the GPUs of today, or take turns on smaller ones: kernels
 * stride. */
static unsigned groups_max = 132;

void dev_limit_groups(unsigned groups)
{
    groups_max = groups;
}

static void launch(CUfunction kernel, uint64_t bytes, void **parameters, CUstream stream)
{
    uint64_t groups = bytes / (8 * 256) + 1;
    unsigned width = groups < groups_max ? (unsigned)groups : groups_max;
    launch_shape(kernel, (shape_t){width, 1, false}, parameters, stream);
}

void dev_fill(CUdeviceptr block, uint64_t bytes, uint64_t seed, CUstream stream)
{
    void *parameters[] = {&block, &bytes, &seed};
    launch(here->fill, bytes, parameters, stream);
}

void dev_verify(CUdeviceptr block, uint64_t bytes, uint64_t seed, CUdeviceptr mismatches, CUstream stream)
{
    void *parameters[] = {&block, &bytes, &seed, &mismatches};
    launch(here->verify, bytes, parameters, stream);
}

void dev_hash(CUdeviceptr block, uint64_t bytes, CUdeviceptr out, CUstream stream)
{
    void *parameters[] = {&block, &bytes, &out};
    launch(here->hash, bytes, parameters, stream);
}

void dev_copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream stream)
{
    void *parameters[] = {&to, &from, &bytes};
    launch(here->copy, bytes, parameters, stream);
}

void dev_spin(uint64_t us, CUstream stream)
{
    void *parameters[] = {&us};
    dev_check(drv.cuLaunchKernel(here->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL),
              "cuLaunchKernel spin");
}

void dev_late_fill(CUdeviceptr block, uint64_t bytes, uint64_t seed, uint64_t us, CUstream stream)
{
    void *parameters[] = {&block, &bytes, &seed, &us};
    if (here->late_fill) {
        launch(here->late_fill, bytes, parameters, stream);
    } else {
        dev_spin(us, stream);
        dev_fill(block, bytes, seed, stream);
    }
}

/* A row of the grid for each block, as wide as the largest one needs: 8 words a thread, at most 64
 * groups. */
static void launch_batch(CUfunction kernel, const dev_batch_t *batch, CUstream stream, bool is_programmatic)
{
    uint64_t largest = 0;
    void *parameters[] = {(void *)batch};
    for (uint64_t i = 0; i < batch->count; i++)
        largest = batch->blocks[i].bytes > largest ? batch->blocks[i].bytes : largest;
    uint64_t groups = largest / (8 * 8 * 256) + 1;
    shape_t shape = {groups < 64 ? (unsigned)groups : 64, (unsigned)batch->count, is_programmatic};
    launch_shape(kernel, shape, parameters, stream);
}

void dev_batch_fill(const dev_batch_t *batch, CUstream stream, bool is_programmatic)
{
    if (here->batch_fill) {
        launch_batch(here->batch_fill, batch, stream, is_programmatic);
        return;
    }
    if (batch->delay_us)
        dev_spin(batch->delay_us, stream);
    for (uint64_t i = 0; i < batch->count; i++) {
        dev_block_t block = batch->blocks[i];
        void *parameters[] = {&block.base, &block.bytes, &block.seed};
        launch_shape(here->fill, (shape_t){1, 1, is_programmatic}, parameters, stream);
    }
}

void dev_batch_verify(const dev_batch_t *batch, CUstream stream)
{
    if (here->batch_verify) {
        launch_batch(here->batch_verify, batch, stream, false);
        return;
    }
    if (batch->delay_us)
        dev_spin(batch->delay_us, stream);
    for (uint64_t i = 0; i < batch->count; i++)
        dev_verify(batch->blocks[i].base, batch->blocks[i].bytes, batch->blocks[i].seed, batch->wrong,
                   stream);
}

double dev_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double dev_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static bool parse_number(const char *text, uint64_t *out_value)
{
    static const char suffixes[] = "kmg";
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        value <<= 10 * (suffix - suffixes + 1);
        end++;
    }
    if (end == text || *end || *text == '-')
        return false;
    *out_value = value;
    return true;
}

static void usage(const char *program, const dev_option_t *options, int count)
{
    fprintf(stderr, "usage: %s", program);
    for (int i = 0; i < count; i++)
        fprintf(stderr, " [%s N]", options[i].name);
    fprintf(stderr, "   (N with suffix k, m or g)\n");
    exit(2);
}

void dev_options(int argc, char **argv, const dev_option_t *options, int count)
{
    for (int i = 1; i < argc; i += 2) {
        int at = 0;
        while (at < count && strcmp(argv[i], options[at].name))
            at++;
        if (at == count || i + 1 == argc || !parse_number(argv[i + 1], options[at].value))
            usage(argv[0], options, count);
    }
}

uint64_t dev_violations(void)
{
    return soft.violations ? soft.violations() : 0;
}

/* What reached the driver: only the software driver can be asked. */
static void report_soft(void)
{
    static const char *const symbols[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemRelease"};
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        calls += soft.calls(symbols[i]);
    printf(" driver_calls=%" PRIu64 " violations=%" PRIu64, calls, soft.violations());
}

void dev_report(const char *name, double time_s, uint64_t passes, uint64_t hash)
{
    printf("name=%s time_s=%.9f passes=%" PRIu64 " hash=0x%016" PRIx64, name, time_s, passes, hash);
    printf(" allocs=%" PRIu64 " frees=%" PRIu64, alloc_count, free_count);
    if (dev_is_simulated())
        report_soft();
    printf("\n");
}
