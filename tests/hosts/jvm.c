/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm - what Jvm.java calls: a churn of the driver's, on threads of the Java machine.
 * How:        the two functions have the names and types that JNI looks for; its headers are not needed.
 */
#include "driver.h"

#define EXPORT __attribute__((visibility("default")))
EXPORT void Java_Jvm_load(void *env, void *type);
EXPORT void Java_Jvm_churn(void *env, void *type, int seed);
EXPORT void Java_Jvm_check(void *env, void *type, int allocations);

static driver_t driver;

void Java_Jvm_load(void *env, void *type)
{
    driver = driver_load();
}

void Java_Jvm_churn(void *env, void *type, int seed)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    driver_churn(&driver, (unsigned)seed, 10);
}

void Java_Jvm_check(void *env, void *type, int allocations)
{
    driver_require_pooled(&driver, (uint64_t)allocations);
}
