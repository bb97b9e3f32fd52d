/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_modules - a folder of kernel modules of the test's own: the C library's access() in this process.
 * Include it in one file of a program whose symbols are exported (ENABLE_EXPORTS).
 */
#ifndef CUP_TESTS_PRELOAD_KERNEL_MODULES_H
#define CUP_TESTS_PRELOAD_KERNEL_MODULES_H
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int g_can_pin = 1; /* nvidia_peermem is loaded */
static int g_asked;       /* how often somebody looked */

__attribute__((visibility("default"))) int access(const char *path, int mode)
{
    static const char modules[] = "/sys/module";
    const char *module = path + sizeof(modules) - 1;

    if (strncmp(path, modules, sizeof(modules) - 1) != 0)
        return faccessat(AT_FDCWD, path, mode, 0);
    g_asked++;
    if (*module == '\0' || (g_can_pin && strcmp(module, "/nvidia_peermem") == 0))
        return 0;
    errno = ENOENT;
    return -1;
}

#endif /* CUP_TESTS_PRELOAD_KERNEL_MODULES_H */
