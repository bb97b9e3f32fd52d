/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_driver - asks for the driver in the ways programs do, where none is loaded.
 * What:       the answers are "no" with the C library's own message; nothing is printed, nothing crashes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int is_absent(void *handle, const char *name)
{
    const char *message;

    dlerror();
    if (dlsym(handle, name)) {
        fprintf(stderr, "%s is found\n", name);
        return 0;
    }
    message = dlerror();
    if (!message || !strstr(message, name)) {
        fprintf(stderr, "%s: dlerror says %s\n", name, message ? message : "nothing");
        return 0;
    }
    return 1;
}

int main(void)
{
    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD))
        return 77;
    return is_absent(RTLD_DEFAULT, "cuInit") && is_absent(RTLD_DEFAULT, "cuMemAlloc_v2") &&
                   is_absent(RTLD_DEFAULT, "cuGetProcAddress_v2") && dlsym(RTLD_DEFAULT, "dlsym")
               ? 0
               : 1;
}
