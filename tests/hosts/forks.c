/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forks - children of every kind: forked before, between and after, spawned, and those that become another
 * program.
 * What:       a child of a process that has started gets the driver's own codes, call by call; one that was
 *             forked before, or is a program of its own, is pooled as any.
 * Not here:   forks in a storm (fork_storm.c).
 */
#define _GNU_SOURCE
#include "cases.h"
#include "codes.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 4, PER_ROUND = 64, CHILD_SECONDS = 30 };

extern char **environ;
static driver_t driver;
static _Atomic int is_over;

static void churn_and_check(void)
{
    driver_churn(&driver, 5, ROUNDS);
    driver_require_pooled(&driver, ROUNDS * PER_ROUND);
}

static void start(void)
{
    driver = driver_load();
    churn_and_check();
}

static void await(pid_t child)
{
    int status = -1;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0)
        fprintf(stderr, "child: status %#x\n", (unsigned)status);
    REQUIRE(status == 0);
}

static pid_t begin_child(void)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0)
        alarm(CHILD_SECONDS);
    return child;
}

/* What a child becomes by exec. */
static void again(void)
{
    start();
    printf("another program\n");
}

/* Only what is safe in the child of a threaded process. */
static void become_another(void)
{
    execl("/proc/self/exe", "forks", "again", (char *)NULL);
    _exit(1);
}

static void before(void)
{
    pid_t child = begin_child();
    if (child == 0) {
        start();
        printf("child\n");
        exit(0);
    }
    await(child);
    start();
}

/* The context is there, and the pool is not. */
static void between(void)
{
    pid_t child;
    driver = driver_load();
    child = begin_child();
    if (child == 0) {
        codes_print(&driver, "child", 0);
        _exit(0);
    }
    await(child);
    churn_and_check();
}

static void after(void)
{
    CUdeviceptr block;
    pid_t child;
    start();
    block = driver_alloc(&driver, 4096);
    child = begin_child();
    if (child == 0) {
        codes_print(&driver, "child", block);
        codes_print(&driver, "again", block);
        _exit(0);
    }
    await(child);
    REQUIRE(driver.free(block) == CUDA_SUCCESS);
    churn_and_check();
}

/* The child ends as programs do: its exit handlers are the parent's. */
static void exits(void)
{
    pid_t child;
    start();
    child = begin_child();
    if (child == 0) {
        codes_print(&driver, "child", 0);
        exit(0);
    }
    await(child);
    churn_and_check();
}

static void execs(void)
{
    pid_t child;
    start();
    child = begin_child();
    if (child == 0)
        become_another();
    await(child);
    churn_and_check();
}

static void spawns(void)
{
    char *argv[] = {"forks", "again", NULL};
    pid_t child;
    start();
    fflush(stdout);
    REQUIRE(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    await(child);
    churn_and_check();
}

static void *churn_until_over(void *seed)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    for (unsigned round = 0; !is_over; round++)
        driver_churn(&driver, (unsigned)(uintptr_t)seed + round, 1);
    return NULL;
}

/*
 * While two other threads are inside the driver or the pool: each child asks both, and becomes another
 * program.
 */
static void busy(void)
{
    pthread_t threads[2];
    CUdeviceptr kept;
    start();
    kept = driver_alloc(&driver, 4096);
    for (uintptr_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn_until_over, (void *)(i + 1)) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = begin_child();
        if (child == 0) {
            codes_print(&driver, "child", kept);
            become_another();
        }
        await(child);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* The process becomes another program in the middle of other threads' allocations. */
static void exec_busy(void)
{
    pthread_t thread;
    start();
    for (uintptr_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&thread, NULL, churn_until_over, (void *)(i + 1)) == 0);
    driver_churn(&driver, 9, 10);
    fflush(stdout);
    become_another();
}

#define CASE_LIST(X) \
    X(again)         \
    X(before)        \
    X(between)       \
    X(after)         \
    X(exits)         \
    X(execs)         \
    X(spawns)        \
    X(busy)          \
    X(exec_busy)
CASES_MAIN(CASE_LIST)
