/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/seeds.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = (*argv)[*argc - 1];
    struct stat info;
    uint8_t seed[4096];
    size_t size;

    if (*argc < 2 || folder[0] == '-')
        return 0;
    mkdir(folder, 0755);
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) /* an input to run again */
        return 0;
    for (unsigned i = 0; (size = cup_fuzz_seed(i, seed, sizeof(seed))) > 0; i++) {
        char path[4096];
        FILE *file;

        snprintf(path, sizeof(path), "%s/seed-%u", folder, i);
        file = fopen(path, "w");
        if (!file)
            return 0;
        fwrite(seed, 1, size, file);
        fclose(file);
    }
    return 0;
}

void cup_fuzz_fail(const char *file, int line, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort();
}
