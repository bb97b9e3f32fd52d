/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newer - a program on a driver that is newer than the LISTs: what nobody has classified is answered
 * with a stub, whichever door it is asked at; what is known, and what is ours, is not.
 * Not here:   what a stub does (test_doubt.c).
 */
#define _GNU_SOURCE
#include "tests/support/require.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*resolver_t)(const char *, void **, int, cuuint64_t, int *);

static void *driver;

static void *by_name(const char *name)
{
    void *found;

    dlerror();
    found = dlsym(driver, name);
    REQUIRE(found && !dlerror());
    return found;
}

static void *by_version(const char *name, int version)
{
    void *found = NULL;
    int status = -1;

    REQUIRE(((resolver_t)by_name("cuGetProcAddress_v2"))(name, &found, version, 0, &status) == 0 && found);
    return found;
}

static int is_of(const void *address, const char *library)
{
    Dl_info info;

    REQUIRE(dladdr(address, &info) && info.dli_fname);
    return strstr(info.dli_fname, library) != NULL;
}

int main(void)
{
    void *found;

    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver);

    /* In no LIST: a stub, one for both doors, that ends in the driver's function. */
    found = by_name("cuNovelWork");
    REQUIRE(is_of(found, "libcupola") && by_version("cuNovelWork", 13010) == found);
    REQUIRE(((int (*)(int, double))found)(1, 2.0) == CUDA_ERROR_NOT_SUPPORTED);

    /* A newer ABI of a submission, and of a hook; the ABIs that we know are still ours. */
    REQUIRE(by_name("cuMemcpyAsync_v2") == by_version("cuMemcpyAsync", 13010));
    REQUIRE(is_of(by_name("cuMemcpyAsync_v2"), "libcupola"));
    REQUIRE(by_version("cuMemcpyAsync", 13000) == by_name("cuMemcpyAsync"));
    REQUIRE(by_name("cuMemcpyAsync") != by_name("cuMemcpyAsync_v2"));
    REQUIRE(is_of(by_version("cuMemAlloc", 13010), "libcupola"));
    REQUIRE(by_version("cuMemAlloc", 13000) == by_name("cuMemAlloc_v2"));

    /* Known to be harmless, and a newer ABI of such: the driver's own. */
    REQUIRE(is_of(by_version("cuMemAlloc", 2000), "libcuda.so") &&
            is_of(by_name("cuMemAlloc"), "libcuda.so"));
    REQUIRE(is_of(by_name("cuInit_v2"), "libcuda.so") && is_of(by_version("cuInit", 13010), "libcuda.so"));

    /* Not the driver's: none of our business, and dlerror() is the program's. */
    REQUIRE(!dlsym(driver, "cuNoSuchThing") && strstr(dlerror(), "cuNoSuchThing"));
    REQUIRE(dlsym(RTLD_DEFAULT, "cuPluginOfTheProgram") && !dlerror());
    REQUIRE(is_of(dlsym(RTLD_DEFAULT, "cuPluginOfTheProgram"), "newer"));
    return 0;
}

/* What programs call theirs. */
__attribute__((visibility("default"))) int cuPluginOfTheProgram(void);
int cuPluginOfTheProgram(void)
{
    return 0;
}
