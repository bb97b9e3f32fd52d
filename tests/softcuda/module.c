/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module - images, functions and launches. An image is the text "softcuda\n", then names of built-in
 * kernels, one a line (none: all of them). Any other image is refused.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

#define MAGIC "softcuda\n"

struct CUfunc_st {
    sc_ctx_t *ctx;
    CUfunction next; /* in its module */
    const sc_kernel_t *kernel;
};

struct CUmod_st {
    sc_ctx_t *ctx;
    char *names; /* owned; the image after the magic */
    CUfunction functions;
};

/* Every named kernel must exist. */
static bool is_image_good(const char *names)
{
    char name[64];

    while (*names) {
        size_t length = strcspn(names, "\n");
        if (length == 0 || length >= sizeof name)
            return false;
        memcpy(name, names, length);
        name[length] = '\0';
        if (!sc_kernel_find(name))
            return false;
        names += length + (names[length] == '\n');
    }
    return true;
}

static CUresult load(CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, MAGIC, sizeof MAGIC - 1) != 0 ||
        !is_image_good((const char *)image + sizeof MAGIC - 1))
        return CUDA_ERROR_INVALID_IMAGE;
    const char *names = (const char *)image + sizeof MAGIC - 1;
    *module = sc_new_handle(sizeof **module);
    (*module)->ctx = sc_ctx_current();
    (*module)->names = sc_zalloc(strlen(names) + 1);
    memcpy((*module)->names, names, strlen(names));
    return CUDA_SUCCESS;
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
    for (CUfunction function = module->functions, next; function; function = next) {
        next = function->next;
        free(function);
    }
    free(module->names);
    free(module);
    return CUDA_SUCCESS;
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

static CUresult launch(CUfunction function, const unsigned shape[6], CUstream handle, sc_null_t null,
                       void **params)
{
    sc_work_t work;
    sc_stream_t *stream;

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 6; i++)
        if (shape[i] == 0)
            return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)shape[3] * shape[4] * shape[5] > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_stream_find(handle, null, &stream);
    if (status == CUDA_SUCCESS && stream->ctx != function->ctx)
        status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS)
        status = sc_kernel_plan(function->kernel, params, &work);
    sc_time_take(SC_TIME_LAUNCH, 0);
    return status == CUDA_SUCCESS ? sc_stream_submit(stream, &work, NULL) : status;
}

/* `extra` (a packed parameter buffer) is refused. */
SC_TWINS(cuLaunchKernel, _ptsz,
         (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
          unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params,
          void **extra),
         (function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra))
{
    const unsigned shape[6] = {gx, gy, gz, bx, by, bz};

    return extra ? CUDA_ERROR_NOT_SUPPORTED : launch(function, shape, stream, null, params);
}

SC_TWINS(cuLaunchCooperativeKernel, _ptsz,
         (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
          unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params),
         (function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params))
{
    const unsigned shape[6] = {gx, gy, gz, bx, by, bz};

    return launch(function, shape, stream, null, params);
}

SC_TWINS(cuLaunchKernelEx, _ptsz,
         (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
         (config, function, params, extra))
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned shape[6] = {config->gridDimX,  config->gridDimY,  config->gridDimZ,
                               config->blockDimX, config->blockDimY, config->blockDimZ};
    return extra ? CUDA_ERROR_NOT_SUPPORTED : launch(function, shape, config->hStream, null, params);
}
