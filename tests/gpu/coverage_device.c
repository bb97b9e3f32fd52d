/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: work in one context, a record or a free in another: of the same device, or of a second one. And
 * libraries, where the loader finds them, with the stream handed to them; what they do on streams of
 * their own is behind it.
 */
#define _GNU_SOURCE
#include "tests/gpu/coverage.h"
#include <dlfcn.h>
#include <stdio.h>

/* ---- libraries ---- */

static void *library(const char *const *names)
{
    void *found = NULL;

    for (; !dev_is_simulated() && !found && *names; names++)
        found = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return found;
}

static CUresult code_of(int status)
{
    return status == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* C = A * B, floats: cublas_api.h. */
CUresult coverage_cublas(coverage_bed_t *bed)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    static void *handle;
    const float one = 1, zero = 0;
    const int n = 128;
    void *at = library(names);
    int (*create)(void **), (*set_stream)(void *, CUstream);
    int (*sgemm)(void *, int, int, int, int, int, const float *, CUdeviceptr, int, CUdeviceptr, int,
                 const float *, CUdeviceptr, int);

    if (!at)
        return COVERAGE_ABSENT;
    create = (__typeof__(create))dlsym(at, "cublasCreate_v2");
    set_stream = (__typeof__(set_stream))dlsym(at, "cublasSetStream_v2");
    sgemm = (__typeof__(sgemm))dlsym(at, "cublasSgemm_v2");
    if (!handle && create(&handle) != 0)
        return CUDA_ERROR_UNKNOWN;
    if (set_stream(handle, bed->stream) != 0)
        return CUDA_ERROR_UNKNOWN;
    coverage_late(bed->stream);
    return code_of(sgemm(handle, 0, 0, n, n, n, &one, bed->from, n, bed->from, n, &zero, bed->to, n));
}

/* 1-D, complex to complex: cufft.h. */
CUresult coverage_cufft(coverage_bed_t *bed)
{
    static const char *const names[] = {"libcufft.so.12", "libcufft.so.11", NULL};
    static int plan = -1;
    void *at = library(names);
    int (*make)(int *, int, int, int), (*set_stream)(int, CUstream);
    int (*exec)(int, CUdeviceptr, CUdeviceptr, int);

    if (!at)
        return COVERAGE_ABSENT;
    make = (__typeof__(make))dlsym(at, "cufftPlan1d");
    set_stream = (__typeof__(set_stream))dlsym(at, "cufftSetStream");
    exec = (__typeof__(exec))dlsym(at, "cufftExecC2C");
    if (plan < 0 && make(&plan, 4096, 0x29, 1) != 0)
        return CUDA_ERROR_UNKNOWN;
    if (set_stream(plan, bed->stream) != 0)
        return CUDA_ERROR_UNKNOWN;
    coverage_late(bed->stream);
    return code_of(exec(plan, bed->from, bed->to, -1));
}

/* A tensor of floats is set: cudnn_ops.h. */
CUresult coverage_cudnn(coverage_bed_t *bed)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8", NULL};
    static void *handle, *tensor;
    const float one = 1;
    void *at = library(names);
    int (*create)(void **), (*make)(void **), (*shape)(void *, int, int, int, int, int, int);
    int (*set_stream)(void *, CUstream), (*set)(void *, void *, CUdeviceptr, const float *);

    if (!at)
        return COVERAGE_ABSENT;
    create = (__typeof__(create))dlsym(at, "cudnnCreate");
    make = (__typeof__(make))dlsym(at, "cudnnCreateTensorDescriptor");
    shape = (__typeof__(shape))dlsym(at, "cudnnSetTensor4dDescriptor");
    set_stream = (__typeof__(set_stream))dlsym(at, "cudnnSetStream");
    set = (__typeof__(set))dlsym(at, "cudnnSetTensor");
    if (!handle && (create(&handle) != 0 || make(&tensor) != 0 || shape(tensor, 0, 0, 1, 1, 64, 64) != 0))
        return CUDA_ERROR_UNKNOWN;
    if (set_stream(handle, bed->stream) != 0)
        return CUDA_ERROR_UNKNOWN;
    coverage_late(bed->stream);
    return code_of(set(handle, tensor, bed->to, &one));
}

/* ---- contexts and devices ---- */

/* Work on a stream of one context; then a record on another, or a free of memory there. */
typedef struct scene {
    const char *name;
    CUcontext working, other;
    CUresult (*submit)(const struct scene *scene, CUstream stream);
    CUdeviceptr from, to; /* for submit */
} scene_t;

static void join(CUcontext ctx)
{
    dev_check(cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
}

static CUresult spin(const scene_t *scene, CUstream stream)
{
    (void)scene;
    coverage_late(stream);
    return CUDA_SUCCESS;
}

/* A kernel that writes memory of the other context. */
static CUresult write_other(const scene_t *scene, CUstream stream)
{
    coverage_late(stream);
    dev_fill(scene->to, 4096, 1, stream);
    return CUDA_SUCCESS;
}

static CUresult copy_over(const scene_t *scene, CUstream stream)
{
    coverage_late(stream);
    return cuMemcpyPeerAsync(scene->to, scene->other, scene->from, scene->working, COVERAGE_BYTES, stream);
}

static bool is_recorded_after(const scene_t *scene, CUcontext on, CUstream stream)
{
    bool is_covered;
    CUevent mark;

    join(on);
    dev_check(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    dev_check(cuCtxRecordEvent(on, mark), "cuCtxRecordEvent");
    dev_check(cuEventSynchronize(mark), "cuEventSynchronize");
    join(scene->working);
    is_covered = cuStreamQuery(stream) == CUDA_SUCCESS;
    join(on);
    dev_check(cuEventDestroy(mark), "cuEventDestroy");
    return is_covered;
}

static bool is_freed_after(const scene_t *scene, CUstream stream, CUdeviceptr block)
{
    join(scene->other);
    dev_check(cuMemFree(block), "cuMemFree");
    join(scene->working);
    return cuStreamQuery(stream) == CUDA_SUCCESS;
}

static CUresult start(const scene_t *scene, CUstream *out_stream, CUdeviceptr *out_block)
{
    join(scene->other);
    *out_block = dev_alloc(4096);
    join(scene->working);
    *out_stream = dev_stream();
    return scene->submit(scene, *out_stream);
}

static void play(const scene_t *scene)
{
    bool is_covered[2] = {false, false}, is_waited = false;
    CUdeviceptr block;
    CUstream stream;
    CUresult code = CUDA_SUCCESS;

    for (int i = 0; i < 3 && code == CUDA_SUCCESS; i++) {
        code = start(scene, &stream, &block);
        if (i < 2 && code == CUDA_SUCCESS)
            is_covered[i] = is_recorded_after(scene, i ? scene->other : scene->working, stream);
        else if (code == CUDA_SUCCESS)
            is_waited = is_freed_after(scene, stream, block);
        join(scene->working);
        dev_sync();
        dev_check(cuStreamDestroy(stream), "cuStreamDestroy");
        join(scene->other);
        if (i < 2)
            dev_check(cuMemFree(block), "cuMemFree");
    }
    printf("%s submit %d record there %s, record on the other %s, free in the other %s\n", scene->name, code,
           is_covered[0] ? "covered" : "not", is_covered[1] ? "covered" : "not", is_waited ? "waits" : "not");
    fflush(stdout);
}

static void play_contexts(const coverage_bed_t *bed)
{
    scene_t scene = {.name = "two-contexts", .working = bed->ctx, .submit = spin};

    dev_check(cuCtxCreate(&scene.other, NULL, 0, 0), "cuCtxCreate");
    play(&scene);
    dev_check(cuCtxDestroy(scene.other), "cuCtxDestroy");
    join(bed->ctx);
}

void coverage_print_devices(coverage_bed_t *bed)
{
    static const struct {
        const char *name;
        CUresult (*submit)(const scene_t *, CUstream);
    } rows[] = {{"two-devices", spin}, {"peer-kernel", write_other}, {"peer-copy", copy_over}};
    int count = 0;

    play_contexts(bed);
    dev_check(cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (size_t i = 0; count < 2 && i < sizeof(rows) / sizeof(rows[0]); i++)
        printf("skipped %s\nskipped %s-back\n", rows[i].name, rows[i].name);
    if (count < 2)
        return;
    dev_open_peers(2);
    dev_join_device(1);
    CUdeviceptr there = dev_alloc(COVERAGE_BYTES);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char back[32];

        snprintf(back, sizeof back, "%s-back", rows[i].name);
        dev_join_device(0);
        play(&(scene_t){rows[i].name, dev_context(0), dev_context(1), rows[i].submit, bed->from, there});
        dev_join_device(1);
        play(&(scene_t){back, dev_context(1), dev_context(0), rows[i].submit, there, bed->from});
    }
}
