/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - a storm of signals during allocations, as a sampling profiler or a runtime's collector makes
 * it.
 * What:       a timer on processor time, and another thread that signals this one, with handlers that set
 *             errno; the handlers run (counted), every call gets its native answer, errno is as it was
 *             before each call.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 40, SECONDS = 60 };
#else
enum { ROUNDS = 200, SECONDS = 60 };
#endif

static driver_t driver;
static _Atomic int is_over;
static _Atomic unsigned signals;

static void count(int number)
{
    int kept = errno;
    errno = number;
    signals++;
    errno = kept;
}

static void *send(void *target)
{
    while (!is_over) {
        pthread_kill(*(pthread_t *)target, SIGUSR1);
        usleep(50);
    }
    return NULL;
}

static void start_timer(void)
{
    struct itimerval every = {{0, 500}, {0, 500}};
    struct sigaction restarting = {.sa_handler = count, .sa_flags = SA_RESTART};
    struct sigaction interrupting = {.sa_handler = count};
    REQUIRE(sigaction(SIGPROF, &restarting, NULL) == 0);
    REQUIRE(sigaction(SIGUSR1, &interrupting, NULL) == 0);
    REQUIRE(setitimer(ITIMER_PROF, &every, NULL) == 0);
}

int main(void)
{
    pthread_t thread, self = pthread_self();
    alarm(SECONDS);
    driver = driver_load();
    start_timer();
    REQUIRE(pthread_create(&thread, NULL, send, &self) == 0);
    for (unsigned round = 0; round < ROUNDS || signals < 100; round++) {
        errno = 4711;
        driver_churn(&driver, round + 1, 1);
        REQUIRE(errno == 4711 || driver_expects_native());
    }
    is_over = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);
    driver_require_pooled(&driver, ROUNDS * 64);
    printf("survived\n");
    return 0;
}
