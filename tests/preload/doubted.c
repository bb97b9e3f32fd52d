/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doubted - what a stub in front of an unknown entry point does in the whole: nothing when it is looked
 * up; when it is called, whatever was freed before is complete first, and the call is counted. Run on a
 * driver that is newer than the LISTs.
 * What:       the last line is what CUPOLA_STATS must say.
 * Not here:   the stub's own code (test_doubt.c), which names get one (newer.c).
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <dlfcn.h>

#define LATE_US 100000
#define CALLS   3

typedef int (*novel_t)(int, double);

static novel_t by_name(void *driver)
{
    novel_t found = (novel_t)dlsym(driver, "cuNovelWork");

    REQUIRE(found);
    return found;
}

static novel_t by_version(void)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    REQUIRE(cuGetProcAddress("cuNovelWork", &found, 13010, 0, &status) == CUDA_SUCCESS && found);
    return (novel_t)found;
}

/* A block is freed under a kernel, and the call comes. */
static void call(novel_t novel)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(4096);

    client_spin(stream, LATE_US);
    client_fill(stream, block, 4096, 1);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(softcuda_unfinished() > 0);
    REQUIRE(novel(1, 2.0) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(softcuda_unfinished() == 0);
    REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    REQUIRE(driver);
    REQUIRE(by_name(driver)(1, 2.0) == CUDA_ERROR_NOT_SUPPORTED); /* nothing was pooled: nothing to doubt */
    client_open();
    REQUIRE(cuMemFree(client_alloc(4096)) == CUDA_SUCCESS);
    for (int i = 0; i < 100; i++)
        REQUIRE(by_name(driver) == by_version());
    for (int i = 0; i < CALLS; i++)
        call(i == 0 ? by_version() : by_name(driver));
    printf("doubts %d %d\n", CALLS, CALLS);
    return 0;
}
