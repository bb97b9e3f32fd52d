/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck_pinned - CUPOLA_ZERO where others can reach memory without a CUDA call: blocks are set when the
 * allocation returns.
 * What:       luck_pinned LIBRARY loads a library that can pin; its access() answers for the folder of
 *             kernel modules, as in pinned.c. A block comes back that a kernel in flight still writes, and
 *             is read without any call.
 * Not here:   everything else about the option (luck.c).
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/preload/kernel_modules.h"
#include <dlfcn.h>
#include <string.h>

#define BYTES 65536

int main(int argc, char **argv)
{
    static unsigned char seen[BYTES];
    CUdeviceptr block;
    CUstream stream;
    size_t dirty = 0;

    client_open();
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    REQUIRE(argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) != NULL);
    block = client_alloc(BYTES);
    client_spin(stream, 50000);
    client_fill(stream, block, BYTES, 7);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(client_alloc(BYTES) == block);
    memcpy(seen, (const void *)(uintptr_t)block, BYTES); /* memory of this device is memory of the host */
    for (size_t i = 0; i < BYTES; i++)
        dirty += seen[i] != 0;
    REQUIRE(dirty == 0 && softcuda_unfinished() == 0);
    REQUIRE(softcuda_violations() == 0);
    printf("zeroed 2\n");
    return 0;
}
