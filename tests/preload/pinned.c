/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned - a program whose memory others could pin, under the preload on the software driver with the vmm backing.
 * What:       pinned driver|no-driver [LIBRARY] leaves holes that a large request would be served from by moving handles.
 *             With a kernel driver that lets device memory be pinned and a library that does it (loaded after the first
 *             allocation), nothing is unmapped and the request takes new memory; lacking one, handles are moved.
 *             Its access() answers for the folder of kernel modules. With "early" as a third argument the library is there
 *             before the first allocation: CUPOLA_BACKING=auto takes no handles then.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/preload/kernel_modules.h"
#include <dlfcn.h>
#include <string.h>

enum { COUNT = 10, BYTES = 20 << 20, LARGE_BYTES = 90 << 20 };

int main(int argc, char **argv)
{
    int may_pin = argc > 2 && strcmp(argv[1], "driver") == 0;
    int is_early = argc > 3 && strcmp(argv[3], "early") == 0;
    uint64_t creates, unmaps;
    CUdeviceptr block[COUNT];

    g_can_pin = argc > 1 && strcmp(argv[1], "driver") == 0;
    client_open();
    if (is_early)
        REQUIRE(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) != NULL);
    for (int i = 0; i < COUNT; i++)
        block[i] = client_alloc(BYTES);
    if (is_early) {
        REQUIRE(may_pin == (softcuda_calls("cuMemCreate") == 0));
        return 0;
    }
    if (argc > 2)
        REQUIRE(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) != NULL);
    for (int i = 1; i < COUNT; i += 2)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    churn(40, 4096);
    creates = softcuda_calls("cuMemCreate");
    unmaps = softcuda_calls("cuMemUnmap");
    errno = 0;
    client_alloc(LARGE_BYTES); /* larger than any hole, smaller than all of them */
    REQUIRE(errno == 0);
    creates = softcuda_calls("cuMemCreate") - creates;
    unmaps = softcuda_calls("cuMemUnmap") - unmaps;
    fprintf(stderr, "%llu handles made, %llu unmapped\n", (unsigned long long)creates,
            (unsigned long long)unmaps);
    REQUIRE(g_asked > 0);
    REQUIRE(may_pin ? unmaps == 0 && creates > 0 : unmaps > 0);
    REQUIRE(softcuda_violations() == 0);
    return 0;
}
