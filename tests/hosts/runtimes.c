/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtimes - two CUDA runtimes in one process: one linked statically into the program, a shared one that a
 * library brings.
 * What:       both reach the pool; a block of the one is freed by the other.
 * How:        softcudart's source is compiled into the program; the library is runtimes_library.c.
 */
#define _GNU_SOURCE
#include "driver.h"

enum { ROUNDS = 200 };

/* The program's own, hidden from everybody else. */
extern int cudaMalloc(void **ptr, size_t size);
extern int cudaFree(void *ptr);

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL), *block;
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(library != NULL);
    int (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(library, "library_alloc");
    int (*release)(void *) = (int (*)(void *))dlsym(library, "library_free");
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(cudaMalloc(&block, 4096) == 0);
        REQUIRE((i % 2 ? release : cudaFree)(block) == 0);
        REQUIRE(alloc(&block, 8192) == 0);
        REQUIRE((i % 2 ? cudaFree : release)(block) == 0);
    }
    REQUIRE(cudaMalloc(&block, 4096) == 0 && cudaFree(block) == 0);
    printf("twice: %d\n", release(block));
    driver_t driver = driver_load();
    driver_require_pooled(&driver, 2 * ROUNDS);
    return 0;
}
