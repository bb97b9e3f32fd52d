/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the loader's own list, and the folder that each kernel module has in sysfs. Both are needed: PyTorch always loads
 * libcufile, and most machines have no driver for it. Where sysfs can't be read, the drivers count as present.
 *
 * The names end where the versions begin: libibverbs.so.1, libnvshmem_host.so.3, libcufile.so.0.
 */
#define _GNU_SOURCE
#include "shim/pinning.h"
#include "shim/log.h"
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MODULES "/sys/module"

static const char *const g_library[] = {
    "libibverbs.so", "libfabric.so", "libucp.so", "libuct.so", "libgdrapi.so", "libcufile.so", "libnvshmem",
};

/* nv_peer_mem is nvidia_peermem as Mellanox shipped it; efa is Amazon's network card, which pins by itself. */
static const char *const g_module[] = {
    MODULES "/nvidia_peermem", MODULES "/nv_peer_mem", MODULES "/gdrdrv",
    MODULES "/nvidia_fs",      MODULES "/efa",
};

typedef enum { UNKNOWN, ABSENT, PRESENT } presence_t;

static _Atomic int g_drivers;  /* presence_t */
static atomic_bool g_possible; /* found once */

const char *cup_pinning_find_library(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < sizeof(g_library) / sizeof(g_library[0]); i++)
        if (strncmp(name, g_library[i], strlen(g_library[i])) == 0)
            return g_library[i];
    return NULL;
}

/* Under the loader's lock. */
static int visit(struct dl_phdr_info *info, size_t size, void *out_name)
{
    const char *name = info->dlpi_name ? cup_pinning_find_library(info->dlpi_name) : NULL;

    (void)size;
    if (name)
        *(const char **)out_name = name;
    return name != NULL;
}

static presence_t find_drivers(void)
{
    if (access(MODULES, F_OK) != 0)
        return PRESENT;
    for (size_t i = 0; i < sizeof(g_module) / sizeof(g_module[0]); i++)
        if (access(g_module[i], F_OK) == 0)
            return PRESENT;
    return ABSENT;
}

static bool has_drivers(void)
{
    int presence = atomic_load(&g_drivers);
    int kept = errno;

    if (presence == UNKNOWN) {
        presence = find_drivers();
        atomic_store(&g_drivers, presence);
        errno = kept;
    }
    return presence == PRESENT;
}

bool cup_pinning_is_possible(void)
{
    const char *name = NULL;

    if (atomic_load(&g_possible))
        return true;
    if (!has_drivers() || !dl_iterate_phdr(visit, &name))
        return false;
    if (!atomic_exchange(&g_possible, true))
        cup_log(CUP_LOG_INFO, "%s can pin device memory: what was handed out is neither moved nor given back",
                name);
    return true;
}
