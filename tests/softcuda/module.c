/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module - images, functions, variables and launches. An image is the text "softcuda\n", then names of
 * built-in kernels and variables, one a line (none: all kernels, no variable). Any other image is
 * refused. A variable is memory of the module, from load to unload, zero at first.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

#define MAGIC          "softcuda\n"
#define VARIABLE_BYTES 4096

/* LIST of the built-in variables: X(name, kind of memory). */
#define VARIABLE_LIST(X)           \
    X(device_words, SC_MEM_DEVICE) \
    X(managed_words, SC_MEM_MANAGED)

typedef enum {
#define X(name, kind) VARIABLE_##name,
    VARIABLE_LIST(X)
#undef X
        VARIABLE_COUNT
} variable_t;

static const struct {
    const char *name;
    sc_mem_kind_t kind;
} variables[VARIABLE_COUNT] = {
#define X(name, kind) {#name, kind},
    VARIABLE_LIST(X)
#undef X
};

struct CUfunc_st {
    sc_ctx_t *ctx;
    CUfunction next; /* in its module */
    const sc_kernel_t *kernel;
};

struct CUmod_st {
    sc_ctx_t *ctx;
    char *names; /* owned; the image after the magic */
    CUfunction functions;
    uint64_t bases[VARIABLE_COUNT]; /* 0: not in this image */
    uint64_t ids[VARIABLE_COUNT];   /* of the allocations: a context takes its memory with it */
};

/* VARIABLE_COUNT for another name. */
static int find_variable(const char *name)
{
    int variable = 0;

    while (variable < VARIABLE_COUNT && strcmp(variables[variable].name, name) != 0)
        variable++;
    return variable;
}

/* Every name must exist. */
static bool is_image_good(const char *names)
{
    char name[64];

    while (*names) {
        size_t length = strcspn(names, "\n");
        if (length == 0 || length >= sizeof name)
            return false;
        memcpy(name, names, length);
        name[length] = '\0';
        if (!sc_kernel_find(name) && find_variable(name) == VARIABLE_COUNT)
            return false;
        names += length + (names[length] == '\n');
    }
    return true;
}

static bool has_name(const char *names, const char *name)
{
    size_t length = strlen(name);

    if (*names == '\0')
        return true;
    for (const char *line = names; *line;) {
        size_t line_length = strcspn(line, "\n");
        if (line_length == length && memcmp(line, name, length) == 0)
            return true;
        line += line_length + (line[line_length] == '\n');
    }
    return false;
}

static CUresult load_variables(CUmodule module)
{
    sc_ctx_t *ctx = module->ctx;

    for (int i = 0; i < VARIABLE_COUNT; i++) {
        if (*module->names == '\0' || !has_name(module->names, variables[i].name))
            continue;
        CUresult status =
            sc_heap_alloc(ctx->device, ctx, VARIABLE_BYTES, variables[i].kind, &module->bases[i]);
        if (status != CUDA_SUCCESS)
            return status;
        sc_alloc_t *alloc = sc_heap_find(module->bases[i]);
        memset((void *)(uintptr_t)alloc->base, 0, VARIABLE_BYTES);
        alloc->is_variable = true;
        module->ids[i] = alloc->id;
    }
    return CUDA_SUCCESS;
}

static void unload(CUmodule module)
{
    for (int i = 0; i < VARIABLE_COUNT; i++) {
        sc_alloc_t *alloc = module->bases[i] ? sc_heap_find(module->bases[i]) : NULL;
        if (alloc && alloc->id == module->ids[i])
            sc_heap_free(alloc);
    }
    for (CUfunction function = module->functions, next; function; function = next) {
        next = function->next;
        free(function);
    }
    free(module->names);
    free(module);
}

static CUresult load(CUmodule *out_module, const void *image)
{
    if (!out_module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, MAGIC, sizeof MAGIC - 1) != 0 ||
        !is_image_good((const char *)image + sizeof MAGIC - 1))
        return CUDA_ERROR_INVALID_IMAGE;
    const char *names = (const char *)image + sizeof MAGIC - 1;
    CUmodule module = sc_new_handle(sizeof *module);
    module->ctx = sc_ctx_root(sc_ctx_current());
    module->names = sc_zalloc(strlen(names) + 1);
    memcpy(module->names, names, strlen(names));
    CUresult status = load_variables(module);
    if (status == CUDA_SUCCESS)
        *out_module = module;
    else
        unload(module);
    return status;
}

SC_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SC_ENTER(cuModuleLoadData);
    return load(module, image);
}

SC_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                                      CUjit_option *options, void **values)
{
    SC_ENTER(cuModuleLoadDataEx);
    return load(module, image);
}

SC_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    SC_ENTER(cuModuleUnload);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    unload(module);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SC_ENTER(cuModuleGetFunction);
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    const sc_kernel_t *kernel = has_name(module->names, name) ? sc_kernel_find(name) : NULL;
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    CUfunction made = sc_zalloc(sizeof *made);
    *made = (struct CUfunc_st){.ctx = module->ctx, .next = module->functions, .kernel = kernel};
    module->functions = made;
    *function = made;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *base, size_t *size, CUmodule module, const char *name)
{
    SC_ENTER(cuModuleGetGlobal_v2);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    int variable = find_variable(name);
    if (variable == VARIABLE_COUNT || module->bases[variable] == 0)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = module->bases[variable];
    if (size)
        *size = VARIABLE_BYTES;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SC_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SC_ENTER(cuFuncGetAttribute);
    if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SC_ENTER(cuFuncSetAttribute);
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sc_launch_plan(CUfunction function, const unsigned shape[6], unsigned shared_bytes, void **params,
                        sc_work_t *out_work)
{
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 6; i++)
        if (shape[i] == 0)
            return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)shape[3] * shape[4] * shape[5] > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_kernel_plan(function->kernel, params, out_work);
    if (status != CUDA_SUCCESS)
        return status;
    out_work->kernel.function = function;
    memcpy(out_work->kernel.shape, shape, sizeof out_work->kernel.shape);
    out_work->kernel.shared_bytes = shared_bytes;
    return CUDA_SUCCESS;
}

/* A launch as its entry point gives it. */
typedef struct {
    CUfunction function;
    unsigned shape[6], shared_bytes;
    CUstream handle;
    sc_null_t null;
    void **params;
    bool is_programmatic;
} launch_t;

static CUresult launch(const launch_t *launch)
{
    sc_work_t work;
    sc_stream_t *stream;
    CUresult status =
        sc_launch_plan(launch->function, launch->shape, launch->shared_bytes, launch->params, &work);

    if (status == CUDA_SUCCESS)
        status = sc_stream_find(launch->handle, launch->null, &stream);
    if (status == CUDA_SUCCESS && sc_ctx_root(stream->ctx) != launch->function->ctx)
        status = CUDA_ERROR_INVALID_HANDLE;
    sc_time_take(SC_TIME_LAUNCH, 0);
    if (status != CUDA_SUCCESS)
        return status;
    work.kernel.is_programmatic = launch->is_programmatic;
    return sc_stream_submit(stream, &work, NULL);
}

/* `extra` (a packed parameter buffer) is refused. */
SC_TWINS(cuLaunchKernel, _ptsz,
         (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
          unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params,
          void **extra),
         (function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra))
{
    const launch_t plain = {function, {gx, gy, gz, bx, by, bz}, shared_bytes, stream, null, params, false};

    return extra ? CUDA_ERROR_NOT_SUPPORTED : launch(&plain);
}

SC_TWINS(cuLaunchCooperativeKernel, _ptsz,
         (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
          unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params),
         (function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params))
{
    const launch_t cooperative = {function, {gx, gy, gz, bx, by, bz}, shared_bytes, stream, null, params,
                                  false};

    return launch(&cooperative);
}

/* Attributes that the model has no use for are taken and ignored; those that record an event are
 * refused. */
static CUresult read_attributes(const CUlaunchConfig *config, launch_t *launch)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        switch ((int)config->attrs[i].id) {
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            launch->is_programmatic = config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    return CUDA_SUCCESS;
}

SC_TWINS(cuLaunchKernelEx, _ptsz,
         (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
         (config, function, params, extra))
{
    if (!config || (config->numAttrs > 0 && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    launch_t made = {function,
                     {config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                      config->blockDimY, config->blockDimZ},
                     config->sharedMemBytes,
                     config->hStream,
                     null,
                     params,
                     false};
    CUresult status = read_attributes(config, &made);
    if (status == CUDA_SUCCESS && extra)
        status = CUDA_ERROR_NOT_SUPPORTED;
    return status == CUDA_SUCCESS ? launch(&made) : status;
}
