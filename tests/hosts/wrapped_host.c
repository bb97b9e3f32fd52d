/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped_host - runs under two preloads, cupola and wrap_malloc, in either order.
 * What:       both are in force: the wrapper sees this program's malloc, the pool serves its device memory,
 *             and none of the wrapper's calls came from us.
 */
#define _GNU_SOURCE
#include "driver.h"

static uint64_t ask(const char *name)
{
    uint64_t (*function)(void) = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, name);
    REQUIRE(function != NULL);
    return function();
}

int main(void)
{
    uint64_t before = ask("wrap_malloc_calls");
    void *volatile memory = malloc(100);
    free(memory);
    REQUIRE(ask("wrap_malloc_calls") >= before + 2);
    driver_t driver = driver_load();
    driver_churn(&driver, 5, 20);
    driver_require_pooled(&driver, 20 * 64);
    REQUIRE(ask("wrap_malloc_calls_from_cupola") == 0);
    return 0;
}
