/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks_runtime - a short cut past cudart for programs that use the shared one: same pool, less way.
 * How:        whatever is not served at once goes to the real function, which reaches the driver's door.
 */
#include "preload/hooks.h"

#define SYMBOL_NOT_FOUND 302 /* cudaErrorSharedObjectSymbolNotFound */

static void *real(void *_Atomic *cached, const char *name)
{
    void *found = *cached;

    if (!found)
        *cached = found = cup_route_runtime_real(name);
    return found;
}

int cudaMalloc(void **ptr, size_t size)
{
    static void *_Atomic cached;
    int (*next)(void **, size_t);

    if (cup_route_runtime_alloc(ptr, size))
        return 0;
    next = (int (*)(void **, size_t))real(&cached, "cudaMalloc");
    return next ? next(ptr, size) : SYMBOL_NOT_FOUND;
}

int cudaFree(void *ptr)
{
    static void *_Atomic cached;
    int (*next)(void *);

    if (cup_route_runtime_free(ptr))
        return 0;
    next = (int (*)(void *))real(&cached, "cudaFree");
    return next ? next(ptr) : SYMBOL_NOT_FOUND;
}
