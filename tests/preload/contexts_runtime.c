/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts_runtime - cudaDeviceReset: the runtime's own way to end and begin a context.
 * What:       what was allocated before is gone, what comes after is served by a new pool; by the driver's
 *             own counts. `native` as its argument: nothing is expected of the pool.
 * Not here:   contexts of the driver interface (contexts.c).
 * Invariants: exit 0 only when every REQUIRE held.
 */
#include "tests/preload/client.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

#define BLOCKS   64
#define BYTES    65536
#define OK(call) REQUIRE((call) == cudaSuccess)

static uint64_t calls(void)
{
    return driver_calls() + softcuda_calls("cuMemFree_v2") + softcuda_calls("cuMemRelease");
}

static void require_served(bool is_native)
{
    uint64_t before = 0;
    void *block;

    for (int i = 0; i < 50; i++) {
        if (i == 1)
            before = calls();
        OK(cudaMalloc(&block, BYTES));
        OK(cudaFree(block));
    }
    REQUIRE(is_native || calls() == before);
}

int main(int argc, char **argv)
{
    bool is_native = argc > 1 && strcmp(argv[1], "native") == 0;
    void *block[BLOCKS];

    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            OK(cudaMalloc(&block[i], BYTES));
            OK(cudaMemset(block[i], 1, BYTES)); /* memory that is there */
        }
        require_served(is_native);
        OK(cudaDeviceReset());
        REQUIRE(softcuda_held_bytes() == 0);
        for (int i = 0; i < BLOCKS; i++)
            REQUIRE(cudaFree(block[i]) != cudaSuccess);
        (void)cudaGetLastError();
    }
    require_served(is_native);
    return 0;
}
