/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm - 300 forks while two threads are busy with something that takes locks.
 * What:       no child hangs (each has an alarm) and each ends with status 0, whether it leaves at once,
 *             uses the host's heap, or ends its only thread, which runs the thread's destructors, jemalloc's
 *             included.
 * Not here:   what the threads do (the caller's churn); a child that uses CUDA: no driver supports that.
 */
#ifndef CUP_TESTS_HOSTS_STORM_H
#define CUP_TESTS_HOSTS_STORM_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STORM_FORKS = 300, STORM_THREADS = 2, STORM_CHILD_SECONDS = 20, STORM_SECONDS = 100 };

/* One round of work from a seed, on a thread of its own or on the one that forks. */
typedef void (*storm_churn_t)(unsigned seed);

static storm_churn_t storm_churn;
static _Atomic bool storm_is_over;
static _Atomic uint64_t storm_rounds;

static void *storm_work(void *seed)
{
    for (unsigned round = 0; !storm_is_over; round++, storm_rounds++)
        storm_churn((unsigned)(uintptr_t)seed + round);
    return NULL;
}

/* The sanitizers' own heap locks are not safe in a child of a threaded process: every child leaves at once
 * there. */
static void storm_child(int index)
{
    alarm(STORM_CHILD_SECONDS);
#ifndef CUP_SANITIZED
    if (index % 3 == 1)
        for (size_t i = 1; i < 200; i++) {
            void *volatile memory = malloc(i * 100);
            memset(memory, 1, i * 100);
            free(memory);
        }
    if (index % 3 == 2)
        pthread_exit(NULL);
#endif
    _exit(0);
}

static bool storm_fork(int index)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        storm_child(index);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Returns how many rounds the threads did, or 0 when a child did not end well. */
static uint64_t storm_run(storm_churn_t churn)
{
    pthread_t threads[STORM_THREADS];
    int survived = 0;
    alarm(STORM_SECONDS);
    storm_churn = churn;
    churn(7); /* so that the thread that the children inherit has been inside, too */
    for (uintptr_t i = 0; i < STORM_THREADS; i++)
        if (pthread_create(&threads[i], NULL, storm_work, (void *)(i + 1)) != 0)
            return 0;
    while (survived < STORM_FORKS && storm_fork(survived))
        survived++;
    storm_is_over = true;
    for (int i = 0; i < STORM_THREADS; i++)
        pthread_join(threads[i], NULL);
    return survived == STORM_FORKS ? storm_rounds + 1 : 0;
}

#endif /* CUP_TESTS_HOSTS_STORM_H */
