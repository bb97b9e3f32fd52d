/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors - the same program through every way to the driver, under the preload on the software driver.
 * What:       doors WAY: takes its alloc and free that way, allocates and frees, and asks the driver how often it was
 *             called itself: a door that is not held shows as a call for each allocation.
 * Ways:       link (exported symbol), dlsym, default (dlsym of RTLD_DEFAULT), getproc (cuGetProcAddress_v2),
 *             getproc1 (its older ABI), runtime (cudaMalloc of a runtime loaded out of sight, which looks up its driver
 *             itself), short (cudaMalloc bound to the preload's own).
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <pthread.h>
#include <string.h>

#define ROUNDS 1000

typedef int (*alloc_fn)(void *, size_t);
typedef int (*free_fn)(CUdeviceptr);

extern int cudaMalloc(void **ptr, size_t size);
extern int cudaFree(void *ptr);

static alloc_fn g_alloc;
static free_fn g_free;

static void take(void *alloc_symbol, void *free_symbol)
{
    REQUIRE(alloc_symbol && free_symbol);
    g_alloc = (alloc_fn)alloc_symbol;
    g_free = (free_fn)free_symbol;
}

static void take_by_getproc(const char *resolver, int has_status)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *alloc_symbol = NULL, *free_symbol = NULL;
    void *found = dlsym(driver, resolver);
    int (*with_status)(const char *, void **, int, cuuint64_t, int *) =
        (int (*)(const char *, void **, int, cuuint64_t, int *))found;
    int (*without)(const char *, void **, int, cuuint64_t) =
        (int (*)(const char *, void **, int, cuuint64_t))found;
    int status = -1;

    REQUIRE(found);
    if (has_status) {
        REQUIRE(with_status("cuMemAlloc", &alloc_symbol, 3020, 0, &status) == 0 && status == 0);
        REQUIRE(with_status("cuMemFree", &free_symbol, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                            NULL) == 0);
        REQUIRE(with_status("cuNoSuchThing", &found, 13000, 0, &status) != 0 || !found);
    } else {
        REQUIRE(without("cuMemAlloc", &alloc_symbol, 3020, 0) == 0);
        REQUIRE(without("cuMemFree", &free_symbol, 13000, 0) == 0);
    }
    take(alloc_symbol, free_symbol);
}

static void choose(const char *way)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    if (strcmp(way, "link") == 0) {
        take((void *)cuMemAlloc, (void *)cuMemFree);
    } else if (strcmp(way, "dlsym") == 0) {
        take(dlsym(driver, "cuMemAlloc_v2"), dlsym(driver, "cuMemFree_v2"));
        REQUIRE(!dlsym(driver, "cuNoSuchThing") && strstr(dlerror(), "cuNoSuchThing"));
    } else if (strcmp(way, "default") == 0) {
        take(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    } else if (strcmp(way, "getproc") == 0) {
        take_by_getproc("cuGetProcAddress_v2", 1);
    } else if (strcmp(way, "getproc1") == 0) {
        take_by_getproc("cuGetProcAddress", 0);
    } else if (strcmp(way, "runtime") == 0) {
        void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);

        take(dlsym(runtime, "cudaMalloc"), dlsym(runtime, "cudaFree"));
    } else if (strcmp(way, "short") == 0) {
        take((void *)cudaMalloc, (void *)cudaFree);
    } else {
        exit(2);
    }
}

/* The runtime binds a thread to the device with its first call, also with a free. */
static void *free_first(void *block)
{
    CUcontext context = NULL;

    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS && !context);
    REQUIRE(cudaFree(block) == 0);
    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS && context);
    return NULL;
}

static void free_on_another_thread(void)
{
    pthread_t thread;
    void *block;

    REQUIRE(cudaMalloc(&block, 4096) == 0);
    REQUIRE(pthread_create(&thread, NULL, free_first, block) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    CUdeviceptr kept[64];

    client_open();
    choose(argc > 1 ? argv[1] : "");
    softcuda_reset_counters();
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block = 0;

        REQUIRE(g_alloc(&block, 4096) == 0);
        client_fill(NULL, block, 4096, (uint64_t)i);
        REQUIRE(g_free(block) == 0);
    }
    for (int i = 0; i < 64; i++)
        REQUIRE(g_alloc(&kept[i], 1 << 16) == 0);
    for (int i = 0; i < 64; i++) /* freed through another door than it came by */
        REQUIRE(cuMemFree(kept[i]) == CUDA_SUCCESS);
    REQUIRE(g_free(kept[0]) != 0);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(driver_calls() > 0 && driver_calls() < 10);
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
    if (strcmp(argv[1], "short") == 0)
        free_on_another_thread();
    REQUIRE(softcuda_violations() == 0);
    return 0;
}
