/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rescue_list - LIST of the driver entry points that take device memory which is not pooled: where they find none, what the
 * pools hold idle goes back, and they are called once more.
 * What:       X(symbol, (parameters), (arguments)).
 * Not here:   what is pooled (hook_list.h); submissions (submit_list.h, not yet those by hand) and managed memory
 *             (collect_list.h) do likewise.
 * Source:     the driver API's manual: they may answer CUDA_ERROR_OUT_OF_MEMORY. Natively what was freed is free.
 */
#ifndef CUP_SHIM_RESCUE_LIST_H
#define CUP_SHIM_RESCUE_LIST_H

/* clang-format off */
#define CUP_RESCUE_LIST(X)                                                                                   \
    X(cuMemCreate,                                                                                           \
      (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,                   \
       unsigned long long flags), (handle, size, prop, flags))                                               \
    X(cuMemImportFromShareableHandle,                                                                        \
      (CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type),                  \
      (handle, shared, type))                                                                                \
    X(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc), (array, desc))                  \
    X(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc), (array, desc))              \
    X(cuMipmappedArrayCreate,                                                                                \
      (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels),                   \
      (array, desc, levels))                                                                                 \
    X(cuCtxCreate, (CUcontext *ctx, unsigned int flags, CUdevice dev), (ctx, flags, dev))                    \
    X(cuCtxCreate_v2, (CUcontext *ctx, unsigned int flags, CUdevice dev), (ctx, flags, dev))                 \
    X(cuCtxCreate_v3,                                                                                        \
      (CUcontext *ctx, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice dev),            \
      (ctx, params, count, flags, dev))                                                                      \
    X(cuCtxCreate_v4, (CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev),         \
      (ctx, params, flags, dev))                                                                             \
    X(cuModuleLoad, (CUmodule *module, const char *file), (module, file))                                    \
    X(cuModuleLoadData, (CUmodule *module, const void *image), (module, image))                              \
    X(cuModuleLoadDataEx,                                                                                    \
      (CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values),       \
      (module, image, count, options, values))                                                               \
    X(cuModuleLoadFatBinary, (CUmodule *module, const void *image), (module, image))                         \
    X(cuLibraryLoadData,                                                                                     \
      (CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,   \
       CUlibraryOption *options, void **values, unsigned int count),                                         \
      (library, code, jit, jit_values, jit_count, options, values, count))                                   \
    X(cuLibraryLoadFromFile,                                                                                 \
      (CUlibrary *library, const char *file, CUjit_option *jit, void **jit_values, unsigned int jit_count,   \
       CUlibraryOption *options, void **values, unsigned int count),                                         \
      (library, file, jit, jit_values, jit_count, options, values, count))
/* clang-format on */

#endif /* CUP_SHIM_RESCUE_LIST_H */
