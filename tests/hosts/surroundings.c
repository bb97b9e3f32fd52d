/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surroundings - a process that takes things away from everything in it: files, system calls, addresses.
 * What:       the answers stay the native ones; no file of the program's ever gets a byte of ours.
 */
#define _GNU_SOURCE
#include "cases.h"
#include "codes.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 8, PER_ROUND = 64 };

static driver_t driver;

static void churn_and_check(void)
{
    driver_churn(&driver, 5, ROUNDS);
    driver_require_pooled(&driver, ROUNDS * PER_ROUND);
}

/* A file of the program's own: fd, and nothing in it but what it writes. */
static int open_own(void)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    REQUIRE(fd >= 0 && write(fd, "mine", 4) == 4);
    return fd;
}

static void require_only_own(int fd)
{
    char text[64];
    REQUIRE(pread(fd, text, sizeof(text), 0) == 4 && memcmp(text, "mine", 4) == 0);
}

/* A context more: something to tell for whoever logs. */
static void churn_elsewhere(void)
{
    CUcontext context;
    REQUIRE(DRIVER_CALL(&driver, "cuCtxCreate_v2", (CUcontext *, unsigned, CUdevice))(&context, 0, 0) ==
            CUDA_SUCCESS);
    driver_churn(&driver, 5, ROUNDS);
}

/* As daemons do. What we had open is closed, and its number is the program's now. */
static void close_all(void)
{
    int fds[20];
    driver = driver_load();
    churn_and_check();
    REQUIRE(close_range(3, ~0u, 0) == 0);
    for (int i = 0; i < 20; i++)
        fds[i] = open_own();
    churn_elsewhere();
    for (int i = 0; i < 20; i++)
        require_only_own(fds[i]);
}

static void closed(void)
{
    close_all();
    printf("closed\n");
}

static void closed_log(void)
{
    char path[] = "/tmp/host-log-XXXXXX", variable[64], text[64] = "";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    snprintf(variable, sizeof(variable), "info:%s", path);
    setenv("CUPOLA_LOG", variable, 1);
    close_all();
    fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0 && unlink(path) == 0);
    REQUIRE(driver_expects_native() || (read(fd, text, 8) == 8 && strcmp(text, "cupola: ") == 0));
    printf("closed\n");
}

/* Without standard streams, so that the program's first file is number 0, 1 or 2. */
static void silent(void)
{
    int fds[3], out = dup(1);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    for (int i = 0; i < 3; i++)
        fds[i] = open_own();
    driver = driver_load();
    churn_and_check();
    for (int i = 0; i < 3; i++)
        require_only_own(fds[i]);
    REQUIRE(write(out, "silent\n", 7) == 7);
}

/* From now on call fails with error, where its argument `which` has value; which < 0: always. */
static void refuse(int call, int which, unsigned value, int error)
{
    unsigned offset = which < 0 ? offsetof(struct seccomp_data, nr)
                                : (unsigned)(offsetof(struct seccomp_data, args) + 8 * (size_t)which);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, which < 0 ? (unsigned)call : value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void child_gets_native_codes(void)
{
    CUdeviceptr block = driver_alloc(&driver, 4096);
    int status = -1;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(30);
        codes_print(&driver, "child", block);
        _exit(0);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    REQUIRE(driver.free(block) == CUDA_SUCCESS);
}

/* A sandbox that knows none of what is not of every program. */
static void sandbox(void)
{
    static const int calls[] = {SYS_membarrier, SYS_getrandom, SYS_readlink, SYS_readlinkat,
                                SYS_getcpu,     SYS_mremap,    SYS_madvise,  SYS_sched_getaffinity};
    driver = driver_load();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        refuse(calls[i], -1, 0, EPERM);
    churn_and_check();
    child_gets_native_codes();
}

/* Linux before 4.14: the child is told by its number. */
static void old_kernel(void)
{
    driver = driver_load();
    refuse(SYS_madvise, 2, MADV_WIPEONFORK, EINVAL);
    REQUIRE(madvise(NULL, 0, MADV_WIPEONFORK) != 0 && errno == EINVAL);
    churn_and_check();
    child_gets_native_codes();
}

static void limit_addresses(size_t more)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    REQUIRE(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) == 0);
}

/* Next to no room for bookkeeping. */
static void addresses(void)
{
    enum { COUNT = 3000 };
    static CUdeviceptr blocks[COUNT];
    driver = driver_load();
    driver_churn(&driver, 5, 1);
    limit_addresses((size_t)2 << 20);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = driver_alloc(&driver, 512u << (i % 6));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(driver.free(blocks[i]) == CUDA_SUCCESS);
    printf("tight\n");
}

#define CASE_LIST(X) \
    X(closed)        \
    X(closed_log)    \
    X(silent)        \
    X(sandbox)       \
    X(old_kernel)    \
    X(addresses)
CASES_MAIN(CASE_LIST)
