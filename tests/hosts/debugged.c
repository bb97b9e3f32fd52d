/* SPDX-License-Identifier: Apache-2.0 */
/*
 * debugged - a program that finds itself watched: by what, its case says.
 * What:       sanitizer: a library by the name of compute-sanitizer's own is loaded (its path is the second
 *             argument); flag: a CUDA debugger has written to the driver's variable; tracer NAME: it is
 *             traced by a process of that name; alone: by nobody.
 * Not here:   what must follow (host.sh, with and without -n).
 */
#define _GNU_SOURCE
#include "driver.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 8, PER_ROUND = 64 };

static int churn(void)
{
    driver_t driver = driver_load();
    driver_churn(&driver, 5, ROUNDS);
    driver_require_pooled(&driver, ROUNDS * PER_ROUND);
    printf("churned\n");
    return 0;
}

static int load(const char *path)
{
    REQUIRE(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL);
    return churn();
}

static int set_flag(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    uint32_t *flag = handle != NULL ? dlsym(handle, "cudbgIpcFlag") : NULL;
    if (flag == NULL) {
        fprintf(stderr, "skipped: no driver, or one without cudbgIpcFlag\n");
        return 77;
    }
    *flag = 1;
    return churn();
}

/* Lets the traced child have its signals until it ends. */
static int follow(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, child, NULL, (void *)(intptr_t)WSTOPSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int trace(const char *name)
{
    pid_t child;
    REQUIRE(prctl(PR_SET_NAME, name) == 0);
    child = fork();
    if (child != 0)
        return follow(child);
    alarm(60);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        perror("skipped: ptrace");
        return 77;
    }
    return churn();
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    if (strcmp(argv[1], "sanitizer") == 0 && argc == 3)
        return load(argv[2]);
    if (strcmp(argv[1], "tracer") == 0 && argc == 3)
        return trace(argv[2]);
    return strcmp(argv[1], "flag") == 0 ? set_flag() : churn();
}
