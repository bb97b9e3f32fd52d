/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/apps/nccl_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

nccl_api_t nccl;

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "nccl: the library has no %s\n", name);
        exit(1);
    }
    return function;
}

bool nccl_load(void)
{
    const char *path = getenv("BENCH_NCCL");
    void *library = dlopen(path && *path ? path : "libnccl.so.2", RTLD_NOW);
    if (!library)
        return false;
#define X(name, parameters) nccl.name = (__typeof__(nccl.name))find(library, #name);
    NCCL_API_LIST(X)
#undef X
    nccl.ncclGetErrorString = (const char *(*)(int))find(library, "ncclGetErrorString");
    return true;
}

void nccl_check(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "nccl: %s failed: %s (%d)\n", what, nccl.ncclGetErrorString(code), code);
    exit(1);
}
