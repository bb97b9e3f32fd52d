/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_stack - the hooks run on a thread with little stack, the process's first allocation (our start)
 * included.
 * What:       32 KiB, or the least that pthreads allow; static TLS comes out of the same memory.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <limits.h>
#include <pthread.h>

/* Instrumented frames are several times as large. */
#ifdef CUP_SANITIZED
enum { STACK_BYTES = 512 << 10 };
#else
enum { STACK_BYTES = 32 << 10 };
#endif

static driver_t driver;

static void *allocate(void *unused)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    driver_churn(&driver, 3, 20);
    return NULL;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    size_t stack_bytes = (size_t)PTHREAD_STACK_MIN > STACK_BYTES ? (size_t)PTHREAD_STACK_MIN : STACK_BYTES;
    driver = driver_load();
    REQUIRE(pthread_attr_init(&attr) == 0);
    REQUIRE(pthread_attr_setstacksize(&attr, stack_bytes) == 0);
    REQUIRE(pthread_create(&thread, &attr, allocate, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    driver_require_pooled(&driver, 20 * 64);
    return 0;
}
