/* SPDX-License-Identifier: Apache-2.0 */
/*
 * churns - a plain program of a few threads that allocate device and host memory: what other preloads are
 * tried on.
 * What:       device blocks hold what was written to them; the host's heap is used in between; errno is
 *             kept.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 40, SECONDS = 60 };

static driver_t driver;
static CUresult (*set)(CUdeviceptr, unsigned char, size_t);
static CUresult (*back)(void *, CUdeviceptr, size_t);

static void check_block(unsigned char value)
{
    unsigned char *bytes = malloc(5000);
    CUdeviceptr block = driver_alloc(&driver, 5000);
    REQUIRE(bytes != NULL);
    REQUIRE(set(block, value, 5000) == CUDA_SUCCESS);
    REQUIRE(back(bytes, block, 5000) == CUDA_SUCCESS);
    for (int i = 0; i < 5000; i++)
        REQUIRE(bytes[i] == value);
    REQUIRE(driver.free(block) == CUDA_SUCCESS);
    free(bytes);
}

static void *churn(void *seed)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    for (unsigned round = 0; round < ROUNDS; round++) {
        check_block((unsigned char)round);
        driver_churn(&driver, (unsigned)(uintptr_t)seed + round, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    alarm(SECONDS);
    driver = driver_load();
    set = DRIVER_CALL(&driver, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t));
    back = DRIVER_CALL(&driver, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t));
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    errno = 4711;
    REQUIRE(driver.free(driver_alloc(&driver, 4096)) == CUDA_SUCCESS);
    REQUIRE(errno == 4711);
    driver_require_pooled(&driver, THREADS * ROUNDS * 64);
    printf("churned\n");
    return 0;
}
