/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common - what the examples share: processes of one program, a board that all of them see, checks.
 * What:       start_processes() forks before any call of CUDA; meet() is a barrier; a process that is not
 *             done after LIMIT_S seconds, or that finds anything wrong, ends all.
 * Not here:   anything of cupola's.
 */
#ifndef CUPOLA_EXAMPLES_COMMON_H
#define CUPOLA_EXAMPLES_COMMON_H
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S       120
#define PROCESSES_MAX 16

/* Ends all processes of the program: nobody waits for one that is not coming. */
static inline void give_up(void)
{
    fflush(NULL);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    _exit(1);
}

static inline void check(int is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "process %d: %s\n", (int)getpid(), what);
    give_up();
}

/* A driver's or cupola's call: both return the numbers of CUresult. */
static inline void check_code(int code, const char *call)
{
    const char *words = "libcupola.so is not preloaded";

    if (code == 0)
        return;
    if (code != 302 && cuGetErrorString((CUresult)code, &words) != CUDA_SUCCESS)
        words = "?";
    fprintf(stderr, "process %d: %s: %d (%s)\n", (int)getpid(), call, code, words);
    give_up();
}
#define OK(call) check_code((int)(call), #call)

/* Memory that all processes share. */
static inline void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    check(memory != MAP_FAILED, "no shared memory");
    return memory;
}

static inline void make_meeting(pthread_barrier_t *meeting, int processes)
{
    pthread_barrierattr_t shared;

    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    check(pthread_barrier_init(meeting, &shared, (unsigned)processes) == 0, "no barrier");
}

static inline void meet(pthread_barrier_t *meeting)
{
    pthread_barrier_wait(meeting);
}

/* Forks count - 1 children. Returns the number of this process, 0 for the parent. */
static inline int start_processes(int count)
{
    setpgid(0, 0); /* what give_up() ends */
    for (int i = 1; i < count; i++) {
        pid_t child = fork();

        check(child >= 0, "no process");
        if (child == 0) {
            alarm(LIMIT_S);
            return i;
        }
    }
    alarm(LIMIT_S);
    return 0;
}

/* In the parent: whether all children ended well. */
static inline int all_ended_well(void)
{
    int status, is_good = 1;

    while (wait(&status) > 0)
        is_good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return is_good;
}

/* The first device's primary context. Returns whether it is the software driver. */
static inline int open_cuda(void)
{
    char name[64] = "";
    CUdevice device;
    CUcontext context;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetName(name, sizeof name - 1, device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return strcmp(name, "softcuda") == 0;
}

/* Over words of 8 bytes; one that differs anywhere gives another one. */
static inline uint64_t hash_bytes(const void *bytes, size_t size, uint64_t hash)
{
    const uint64_t *word = bytes;

    for (size_t i = 0; i < size / 8; i++) {
        hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

#endif /* CUPOLA_EXAMPLES_COMMON_H */
