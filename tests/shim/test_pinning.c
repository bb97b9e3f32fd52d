/* SPDX-License-Identifier: Apache-2.0 */
/* test_pinning - the names of libraries that pin; tests/preload/pinned.c has the rest, in a process each. */
#include "tests/support/unit.h"
#include "shim/pinning.h"
#include <string.h>

#define FINDS(path, expected)                                                                               \
    do {                                                                                                    \
        const char *found_ = cup_pinning_find_library(path);                                                \
        CHECK_MSG(found_ &&strcmp(found_, expected) == 0, "%s is %s", path, found_ ? found_ : "not known"); \
    } while (0)

TEST(pinning, libraries_by_name)
{
    FINDS("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0", "libibverbs.so");
    FINDS("libibverbs.so.1", "libibverbs.so");
    FINDS("/opt/amazon/efa/lib64/libfabric.so.1", "libfabric.so");
    FINDS("/usr/lib/libucp.so.0", "libucp.so");
    FINDS("/usr/lib/libuct.so", "libuct.so");
    FINDS("libgdrapi.so.2", "libgdrapi.so");
    FINDS("/usr/lib/python3/site-packages/nvidia/cufile/lib/libcufile.so.0", "libcufile.so");
    FINDS("./libnvshmem_host.so.3", "libnvshmem");
}

TEST(pinning, other_libraries)
{
    static const char *const paths[] = {
        "",
        "/",
        "linux-vdso.so.1",
        "/usr/lib/libcuda.so.1",
        "/usr/lib/libcufile_rdma.so.1", /* loads libibverbs itself */
        "/opt/libibverbs.so.1/libother.so",
        "/usr/lib/mylibibverbs.so.1",
        "/usr/lib/libucs.so.0",
    };

    for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        CHECK_MSG(cup_pinning_find_library(paths[i]) == NULL, "%s", paths[i]);
}
