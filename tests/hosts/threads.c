/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads - 10,000 threads are born, allocate, submit to a stream of their own, and die.
 * What:       the process does not grow with them: what we remember of a thread goes with it. Grown by more
 *             than GROWTH_KIB after the first tenth is a leak; natively it has to hold as well, so that it
 *             is ours.
 * Not here:   per-thread streams, which the software driver keeps for ever.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <unistd.h>

#ifdef CUP_SANITIZED /* a sanitizer remembers the dead */
enum { THREADS = 500, AT_ONCE = 20, GROWTH_KIB = 1 << 20 };
#else
enum { THREADS = 10000, AT_ONCE = 50, GROWTH_KIB = 1024 };
#endif

static driver_t driver;
static CUresult (*set)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*create)(CUstream *, unsigned);
static CUresult (*synchronize)(CUstream);
static CUresult (*destroy)(CUstream);

static void *live(void *unused)
{
    CUdeviceptr blocks[4];
    CUstream stream;
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    REQUIRE(create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    for (int i = 0; i < 4; i++)
        blocks[i] = driver_alloc(&driver, 4096u << i);
    REQUIRE(set(blocks[0], 1, 4096, stream) == CUDA_SUCCESS);
    for (int i = 0; i < 4; i++)
        REQUIRE(driver.free(blocks[i]) == CUDA_SUCCESS);
    REQUIRE(synchronize(stream) == CUDA_SUCCESS);
    REQUIRE(destroy(stream) == CUDA_SUCCESS);
    return NULL;
}

static void generation(void)
{
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        REQUIRE(pthread_create(&threads[i], NULL, live, NULL) == 0);
    for (int i = 0; i < AT_ONCE; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static long resident_kib(void)
{
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%ld %ld", &total, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void)
{
    long before = 0, after;
    driver = driver_load();
    set = DRIVER_CALL(&driver, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream));
    create = DRIVER_CALL(&driver, "cuStreamCreate", (CUstream *, unsigned));
    synchronize = DRIVER_CALL(&driver, "cuStreamSynchronize", (CUstream));
    destroy = DRIVER_CALL(&driver, "cuStreamDestroy_v2", (CUstream));
    for (int born = 0; born < THREADS; born += AT_ONCE) {
        if (born == THREADS / 10)
            before = resident_kib();
        generation();
    }
    after = resident_kib();
    if (after - before > GROWTH_KIB)
        fprintf(stderr, "%ld KiB after %d threads, %ld KiB after %d\n", before, THREADS / 10, after, THREADS);
    REQUIRE(after - before <= GROWTH_KIB);
    driver_require_pooled(&driver, THREADS * 4);
    printf("%d lived\n", THREADS);
    return 0;
}
