/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin - a library that is linked with libcuda, as loads.c loads and unloads it.
 * What:       allocates and frees through its own imports. PLUGIN_CONSTRUCTOR=1: already in its
 *             constructor, while the loader holds its lock; "early": before anybody has called cuInit.
 * Threads:    any thread that has a context current.
 */
#define _GNU_SOURCE
#include "plugin.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int plugin_alloc(unsigned long long *out, size_t bytes)
{
    return (int)cuMemAlloc((CUdeviceptr *)out, bytes);
}

int plugin_free(unsigned long long block)
{
    return (int)cuMemFree((CUdeviceptr)block);
}

/* By the plainest look-up: our own libraries are in its search, though the program may not see them. */
int plugin_default(int rounds)
{
    int (*alloc)(void *, size_t) = (int (*)(void *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    int (*release)(unsigned long long) = (int (*)(unsigned long long))dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    unsigned long long block;
    int code = 0;

    if (alloc == NULL || release == NULL)
        return -1;
    for (int i = 0; i < rounds && code == 0; i++)
        if ((code = alloc(&block, 4096)) == 0)
            code = release(block);
    return code;
}

/* What a context of one's own takes; returns the last code. */
int plugin_open(void)
{
    CUcontext context;
    CUdevice device;
    int code;

    if ((code = (int)cuInit(0)) != 0 || (code = (int)cuDeviceGet(&device, 0)) != 0 ||
        (code = (int)cuDevicePrimaryCtxRetain(&context, device)) != 0)
        return code;
    return (int)cuCtxSetCurrent(context);
}

int plugin_churn(int rounds)
{
    unsigned long long block;
    int code = 0;

    for (int i = 0; i < rounds && code == 0; i++)
        if ((code = plugin_alloc(&block, 4096)) == 0)
            code = plugin_free(block);
    return code;
}

__attribute__((constructor)) static void construct(void)
{
    const char *what = getenv("PLUGIN_CONSTRUCTOR");
    unsigned long long block = 0;

    if (what == NULL)
        return;
    if (strcmp(what, "early") == 0) {
        int freed = plugin_free(4096), got = plugin_alloc(&block, 4096);

        printf("before cuInit: free %d, alloc %d\n", freed, got);
        return;
    }
    printf("constructor: open %d\n", plugin_open());
    if (&host_is_constructing != NULL)
        host_is_constructing = 1;
    usleep(50000);
    printf("constructor: churn %d\n", plugin_churn(100));
}
