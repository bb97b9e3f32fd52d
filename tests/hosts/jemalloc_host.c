/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jemalloc_host - a program whose own malloc is jemalloc, with a string of its own and MALLOC_CONF.
 * What:       its settings are in force, its arenas are its own, and our embedded copy does not show there.
 *             Run with MALLOC_CONF=dirty_decay_ms:1234.
 */
#include "driver.h"
#include <jemalloc/jemalloc.h>
#include <stdbool.h>
#include <sys/types.h>

const char *malloc_conf = "narenas:3,lg_tcache_max:14";

/* bytes: of the setting's type; little endian, so that a narrower one fills the low bytes. */
static uint64_t read_setting(const char *name, size_t bytes)
{
    uint64_t value = 0;
    REQUIRE(mallctl(name, &value, &bytes, NULL, 0) == 0);
    return value;
}

static void require_own_settings(void)
{
    REQUIRE(read_setting("opt.narenas", sizeof(unsigned)) == 3);
    REQUIRE(read_setting("opt.tcache_max", sizeof(size_t)) == 1 << 14);
    REQUIRE(read_setting("opt.dirty_decay_ms", sizeof(ssize_t)) == 1234);
    REQUIRE(read_setting("opt.tcache", sizeof(bool)) == 1);
    REQUIRE(read_setting("opt.retain", sizeof(bool)) == 1);
}

int main(void)
{
    uint64_t before = read_setting("thread.allocated", sizeof(uint64_t));
    require_own_settings();
    void *memory = malloc(100000);
    REQUIRE(memory != NULL);
    REQUIRE(read_setting("thread.allocated", sizeof(uint64_t)) >= before + 100000);
    uint64_t arenas = read_setting("arenas.narenas", sizeof(unsigned));
    driver_t driver = driver_load();
    driver_churn(&driver, 11, 20);
    driver_require_pooled(&driver, 20 * 64);
    REQUIRE(read_setting("arenas.narenas", sizeof(unsigned)) == arenas);
    require_own_settings();
    free(memory);
    return 0;
}
