/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logger - somebody else's preload, which follows the driver's allocations as tracers do.
 * What:       exports cuMemAlloc_v2, cuMemFree_v2 and both resolvers, counts, and calls the next one in the
 *             search. With LOGGER_DLSYM it has a dlsym of its own, too, as a plain function.
 *             LOGGER_MUST_SEE=1: a process in which it saw nothing ends with status 9.
 * Not here:   any care for our sake.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
API int cuMemAlloc_v2(unsigned long long *out, size_t bytes);
API int cuMemFree_v2(unsigned long long block);
API int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags);
API int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *status);
API unsigned long logger_calls(void);

static _Atomic unsigned long calls;

unsigned long logger_calls(void)
{
    return calls;
}

/* The C library's. RTLD_NEXT is "after us" in here, whoever asked. */
static void *real_dlsym(void *handle, const char *name)
{
    static void *(*_Atomic real)(void *, const char *);

    if (real == NULL)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}

static void *next(const char *name)
{
    void *found = real_dlsym(RTLD_NEXT, name);

    return found ? found : real_dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
}

#ifdef LOGGER_DLSYM
API void *dlsym(void *restrict handle, const char *restrict name);

void *dlsym(void *restrict handle, const char *restrict name)
{
    if (handle != RTLD_NEXT && strcmp(name, "cuMemAlloc_v2") == 0)
        return (void *)cuMemAlloc_v2;
    if (handle != RTLD_NEXT && strcmp(name, "cuMemFree_v2") == 0)
        return (void *)cuMemFree_v2;
    return real_dlsym(handle, name);
}
#endif

int cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
    calls++;
    return ((int (*)(unsigned long long *, size_t))next("cuMemAlloc_v2"))(out, bytes);
}

int cuMemFree_v2(unsigned long long block)
{
    calls++;
    return ((int (*)(unsigned long long))next("cuMemFree_v2"))(block);
}

int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags)
{
    calls++;
    return ((int (*)(const char *, void **, int, unsigned long long))next("cuGetProcAddress"))(
        name, out, version, flags);
}

int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *status)
{
    calls++;
    return ((int (*)(const char *, void **, int, unsigned long long, int *))next("cuGetProcAddress_v2"))(
        name, out, version, flags, status);
}

__attribute__((destructor)) static void check(void)
{
    if (getenv("LOGGER_MUST_SEE") != NULL && calls == 0)
        _exit(9);
}
