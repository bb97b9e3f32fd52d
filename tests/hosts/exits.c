/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exits - every way for a process to end, with work of the pool in all the places that run then.
 * What:       the end (status, output) is the native one, and what exit handlers, static destructors and
 *             thread destructors ask of the driver gets the native answers, also once the driver has shut
 *             down.
 */
#define _GNU_SOURCE
#include "cases.h"
#include "codes.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { ROUNDS = 4, PER_ROUND = 64, SECONDS = 30 };

static driver_t driver;
static CUdeviceptr kept;
static int late; /* the destructor has something to do */

static void start(void)
{
    alarm(SECONDS); /* no end at all is the worst one */
    driver = driver_load();
    driver_churn(&driver, 5, ROUNDS);
    driver_require_pooled(&driver, ROUNDS * PER_ROUND);
    kept = driver_alloc(&driver, 4096);
}

/* The pool serves as ever: nothing has been torn down. */
static void work_late(const char *when)
{
    CUdeviceptr out = 0;
    int freed = driver.free(kept);
    printf("%s: free %d, again %d", when, freed, driver.free(kept));
    printf(", alloc %d\n", driver.alloc(&out, 4096));
    fflush(stdout);
    kept = out;
}

static void at_exit(void)
{
    work_late("exit handler");
}

__attribute__((destructor)) static void destructor(void)
{
    if (late)
        work_late("destructor");
}

/* While the process exits the driver answers that it has shut down: the thread stays, and does no more. */
static void *churn_for_ever(void *seed)
{
    CUresult result = driver.set_current(driver.context);
    CUdeviceptr block;
    for (size_t bytes = 512 * (uintptr_t)seed; result == CUDA_SUCCESS; bytes = bytes * 5 % 262144 + 512) {
        result = driver.alloc(&block, bytes);
        if (result == CUDA_SUCCESS)
            result = driver.free(block);
    }
    REQUIRE(result == CUDA_ERROR_DEINITIALIZED);
    for (;;)
        pause();
    return NULL;
}

static void start_busy(void)
{
    pthread_t thread;
    start();
    for (uintptr_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&thread, NULL, churn_for_ever, (void *)(i + 1)) == 0);
    driver_churn(&driver, 7, 4);
}

static void *call_exit(void *unused)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    driver_churn(&driver, 3, 1);
    exit(3);
}

static void exit_from_thread(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, call_exit, NULL) == 0);
    for (;;)
        pause();
}

static void returns(void)
{
    start();
}

static void returns_busy(void)
{
    start_busy();
}

static void thread_exits(void)
{
    start();
    exit_from_thread();
}

static void thread_exits_busy(void)
{
    start_busy();
    exit_from_thread();
}

static void at_quick(void)
{
    work_late("quick handler");
}

static void quick(void)
{
    start();
    at_quick_exit(at_quick);
    quick_exit(4);
}

static void underscore(void)
{
    start_busy();
    _exit(5);
}

static void aborts(void)
{
    start_busy();
    abort();
}

static void killed(void)
{
    start_busy();
    kill(getpid(), SIGTERM);
    for (;;)
        pause();
}

/* The process ends with its last thread, which is not the first. */
static void *last_thread(void *unused)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    usleep(20000);
    driver_churn(&driver, 3, 4);
    work_late("last thread");
    return NULL;
}

static void last(void)
{
    pthread_t thread;
    start();
    REQUIRE(pthread_create(&thread, NULL, last_thread, NULL) == 0);
    pthread_exit(NULL);
}

/* Registered before the pool was born, so that it runs after its report; and one behind it. */
static void handlers(void)
{
    late = 1;
    atexit(at_exit);
    start();
    atexit(at_exit);
}

static void thread_end(void *unused)
{
    work_late("thread destructor");
}

static void *end_with_destructor(void *key)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    REQUIRE(pthread_setspecific(*(pthread_key_t *)key, &kept) == 0);
    return NULL;
}

static void thread_destructors(void)
{
    pthread_key_t key;
    pthread_t thread;
    REQUIRE(pthread_key_create(&key, thread_end) == 0);
    start();
    for (int i = 0; i < 20; i++) {
        REQUIRE(pthread_create(&thread, NULL, end_with_destructor, &key) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
}

/* The driver's own exit handler has run: everything answers DEINITIALIZED. */
static void deinit(void)
{
    void (*shut_down)(void) = (void (*)(void))dlsym(driver.handle, "softcuda_deinit");
    shut_down();
    codes_print(&driver, "exit handler", kept);
}

static void after_driver(void)
{
    start();
    if (dlsym(driver.handle, "softcuda_deinit") == NULL) {
        fprintf(stderr, "skipped: only the software driver can be shut down\n");
        _Exit(77);
    }
    atexit(deinit);
}

#define CASE_LIST(X)      \
    X(returns)            \
    X(returns_busy)       \
    X(thread_exits)       \
    X(thread_exits_busy)  \
    X(quick)              \
    X(underscore)         \
    X(aborts)             \
    X(killed)             \
    X(last)               \
    X(handlers)           \
    X(thread_destructors) \
    X(after_driver)
CASES_MAIN(CASE_LIST)
