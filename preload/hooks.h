/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks - prototypes of what we export in the driver's and the runtime's names.
 */
#ifndef CUP_PRELOAD_HOOKS_H
#define CUP_PRELOAD_HOOKS_H
#include "shim/route.h"

#define CUP_EXPORT __attribute__((visibility("default")))

#define X(symbol, params, args, ...) CUP_EXPORT CUresult symbol params;
CUP_EXPORT_LIST(X)
#undef X

/* cudaError_t is an int to the ABI; the runtime's headers are not needed. */
CUP_EXPORT int cudaMalloc(void **ptr, size_t size);
CUP_EXPORT int cudaFree(void *ptr);

#endif /* CUP_PRELOAD_HOOKS_H */
