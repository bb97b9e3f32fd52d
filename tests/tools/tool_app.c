/* SPDX-License-Identifier: Apache-2.0 */
/* tool_app - a program that allocates, argv[1] times 4 KiB, and frees; prints one line. Knows nothing of
 * cupola. */
#include "tests/hosts/driver.h"

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 10;
    driver_t driver = driver_load();
    CUdeviceptr *blocks = calloc((size_t)count, sizeof(*blocks));

    for (int i = 0; i < count; i++)
        REQUIRE(driver.alloc(&blocks[i], 4096) == CUDA_SUCCESS);
    for (int i = 0; i < count; i++)
        REQUIRE(driver.free(blocks[i]) == CUDA_SUCCESS);
    free(blocks);
    printf("allocated %d times\n", count);
    return 0;
}
