/* SPDX-License-Identifier: Apache-2.0 */
/* runtimes_library - a library that is linked with the shared CUDA runtime. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
EXPORT int library_alloc(void **out, size_t bytes);
EXPORT int library_free(void *block);
extern int cudaMalloc(void **ptr, size_t size);
extern int cudaFree(void *ptr);

int library_alloc(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}

int library_free(void *block)
{
    return cudaFree(block);
}
