/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: compute-sanitizer is there before the first allocation, as a library that the driver has loaded (its
 * launcher leaves variables, too; one of them is enough where the library goes by another name). The ports
 * are named PORT_BASE by 2025.3 and 2025.4, PORT_RANGE_BEGIN by older ones.
 *
 * cuda-gdb writes into variables that libcuda exports for debuggers (cudadebugger.h): that is what the
 * driver itself goes by. Where a driver hides them, the tracer's name tells; a plain gdb or strace traces
 * as well, and is no checker.
 */
#define _GNU_SOURCE
#include "shim/checker.h"
#include "shim/drv.h"
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/*
 * The tools' own libraries; what else they bring (libTreeLauncher..., libInterceptor...) comes with Nsight,
 * too.
 */
static bool is_sanitizer(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return begins(name, "libsanitizer-collection.so") || begins(name, "libsanitizer-public.so");
}

static const char *find_variable(char *const *environment)
{
    static const char injection[] = "CUDA_INJECTION64_PATH=";

    for (char *const *entry = environment; entry && *entry; entry++) {
        if (begins(*entry, "NV_SANITIZER_INJECTION_PORT_"))
            return "compute-sanitizer (NV_SANITIZER_INJECTION_PORT_...)";
        if (begins(*entry, injection) && is_sanitizer(*entry + sizeof(injection) - 1))
            return "compute-sanitizer (CUDA_INJECTION64_PATH)";
    }
    return NULL;
}

/* Under the loader's lock. */
static int visit(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    return info->dlpi_name && is_sanitizer(info->dlpi_name);
}

static bool is_debugged(void)
{
    static const char *const flags[] = {"cudbgIpcFlag", "cudbgDebuggerInitialized"};

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const volatile uint32_t *flag = cup_drv_symbol(flags[i]);

        if (flag && *flag != 0)
            return true;
    }
    return false;
}

/* The beginning of a small file of /proc, as text; "" where there is none. */
static void read_text(const char *path, char *out, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, out, capacity - 1) : 0;

    out[length > 0 ? length : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static bool is_traced_by_cuda_gdb(void)
{
    char text[2048], path[64];
    const char *tracer;
    int pid;

    read_text("/proc/self/status", text, sizeof(text));
    tracer = strstr(text, "TracerPid:");
    pid = tracer ? atoi(tracer + strlen("TracerPid:")) : 0;
    if (pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    read_text(path, text, sizeof(text));
    return begins(text, "cuda-gdb");
}

const char *cup_checker_find(char *const *environment)
{
    const char *variable = find_variable(environment);

    if (variable)
        return variable;
    if (dl_iterate_phdr(visit, NULL))
        return "compute-sanitizer (its library is loaded)";
    if (is_debugged())
        return "cuda-gdb (a CUDA debugger is attached)";
    return is_traced_by_cuda_gdb() ? "cuda-gdb (it traces this process)" : NULL;
}
