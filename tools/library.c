/* SPDX-License-Identifier: Apache-2.0 */
/* How: candidates relative to /proc/self/exe, the build tree's first; links are resolved, so that a cd can't
 * break it. */
#define _GNU_SOURCE
#include "tools/library.h"
#include "tools/tool.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TAG[] = "@(#)cupola ";

static bool find_beside(char out_path[PATH_MAX])
{
    static const char *const places[] = {"../libcupola.so", "libcupola.so", "../lib/cupola/libcupola.so",
                                         "../lib/libcupola.so"};
    char self[PATH_MAX], candidate[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0)
        return false;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(candidate, sizeof(candidate), "%s/%s", self, places[i]);
        if (realpath(candidate, out_path))
            return true;
    }
    return false;
}

bool cup_library_find(const char *given, char out_path[PATH_MAX])
{
    if (given ? !realpath(given, out_path) : !find_beside(out_path)) {
        cup_tool_say("can't find %s; name it with --library PATH", given ? given : "libcupola.so");
        return false;
    }
    if (strpbrk(out_path, " :")) {
        cup_tool_say("LD_PRELOAD can't name a path with a space or a colon: %s", out_path);
        return false;
    }
    return true;
}

static void copy_tag(const char *at, size_t left, char *out, size_t capacity)
{
    size_t length = 0;

    while (length < left && length + 1 < capacity && at[length] >= ' ' && at[length] <= '~')
        length++;
    memcpy(out, at, length);
    out[length] = '\0';
}

bool cup_library_version(const char *path, char *out, size_t capacity)
{
    const size_t tag_length = sizeof(TAG) - 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    const char *image, *found = NULL;

    if (fd < 0)
        return false;
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        image = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (image != MAP_FAILED) {
            found = memmem(image, (size_t)info.st_size, TAG, tag_length);
            if (found)
                copy_tag(found + tag_length, (size_t)info.st_size - (size_t)(found - image) - tag_length, out,
                         capacity);
            munmap((void *)image, (size_t)info.st_size);
        }
    }
    close(fd);
    return found != NULL;
}
