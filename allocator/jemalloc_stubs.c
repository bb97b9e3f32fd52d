/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jemalloc_stubs - what the embedded jemalloc gets for the libc functions that a guest may not use.
 * What:       a function per name of REDEFINED in cmake/embed_jemalloc.sh: there the reference to `name`
 *             became one to `cup_je_name`.
 * Not here:   what jemalloc may call as it is (mmap, memcpy, pthread_mutex_lock).
 * Invariants: a service is refused the way libc would refuse it, so that jemalloc falls back.
 * Threads:    any thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* jemalloc alone calls these, so no header declares them: the compiler checks the list against the bodies. */
char *cup_je_secure_getenv(const char *name);
ssize_t cup_je_readlink(const char *path, char *out_target, size_t target_bytes);
int cup_je_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int cup_je_atexit(void (*function)(void));
void *cup_je_dlsym(void *handle, const char *name);
int cup_je_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int cup_je_pthread_join(pthread_t thread, void **out_value);
int cup_je_pthread_setname_np(pthread_t thread, const char *name);
int cup_je_pthread_getname_np(pthread_t thread, char *out_name, size_t name_bytes);
void *cup_je_sbrk(intptr_t increment);
double cup_je_exp(double x);
double cup_je_log(double x);
double cup_je_round(double x);
int cup_je_Unwind_Backtrace(void *trace, void *arg);
uintptr_t cup_je_Unwind_GetIP(void *context);
int cup_je_popcountdi2(uint64_t x);
int cup_je_pthread_key_create(pthread_key_t *out_key, void (*destructor)(void *));
int cup_je_pthread_setspecific(pthread_key_t key, const void *value);
int cup_je_pthread_mutex_trylock(pthread_mutex_t *mutex);
int cup_je_pthread_mutexattr_init(pthread_mutexattr_t *attr);
int cup_je_pthread_mutexattr_settype(pthread_mutexattr_t *attr, int type);
int cup_je_pthread_mutexattr_destroy(pthread_mutexattr_t *attr);
int cup_je_pthread_sigmask(int how, const sigset_t *set, sigset_t *out_old);

/* Deaf: MALLOC_CONF and /etc/malloc.conf are the host's. */
char *cup_je_secure_getenv(const char *name)
{
    return NULL;
}

ssize_t cup_je_readlink(const char *path, char *out_target, size_t target_bytes)
{
    return -1;
}

/* No trace in the host's fork and exit: a forked child never enters jemalloc (the gate sees to it). */
int cup_je_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    return 0;
}

int cup_je_atexit(void (*function)(void))
{
    return 0;
}

/* No threads of ours, and no look-up of pthread_create (background_thread.c is the one caller of all these).
 */
void *cup_je_dlsym(void *handle, const char *name)
{
    return NULL;
}

int cup_je_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    return EAGAIN;
}

int cup_je_pthread_join(pthread_t thread, void **out_value)
{
    return ESRCH;
}

int cup_je_pthread_setname_np(pthread_t thread, const char *name)
{
    return 0;
}

int cup_je_pthread_getname_np(pthread_t thread, char *out_name, size_t name_bytes)
{
    return ERANGE;
}

/* The break is the host's. */
void *cup_je_sbrk(intptr_t increment)
{
    errno = ENOMEM;
    return (void *)-1;
}

/* The heap profiler, always off (prof:false), is the one user of libm and libgcc_s. */
double cup_je_exp(double x)
{
    return 0;
}

double cup_je_log(double x)
{
    return 0;
}

double cup_je_round(double x)
{
    return x;
}

int cup_je_Unwind_Backtrace(void *trace, void *arg)
{
    return 5; /* _URC_END_OF_STACK */
}

uintptr_t cup_je_Unwind_GetIP(void *context)
{
    return 0;
}

/* libgcc's, when linked without it. */
int cup_je_popcountdi2(uint64_t x)
{
    int count = 0;
    for (; x != 0; x &= x - 1)
        count++;
    return count;
}

/*
 * glibc 2.34 moved these from libpthread into libc and gave them a new version; bound at their first version,
 * weakly, they also resolve in older processes. A process without them (no libpthread before 2.34) has no
 * CUDA: jemalloc's start fails then.
 */
#define AT_FIRST_VERSION(result, name, ...)                        \
    extern result first_##name(__VA_ARGS__) __attribute__((weak)); \
    __asm__(".symver first_" #name ", " #name "@GLIBC_2.2.5")
AT_FIRST_VERSION(int, pthread_key_create, pthread_key_t *, void (*)(void *));
AT_FIRST_VERSION(int, pthread_setspecific, pthread_key_t, const void *);
AT_FIRST_VERSION(int, pthread_mutex_trylock, pthread_mutex_t *);
AT_FIRST_VERSION(int, pthread_mutexattr_init, pthread_mutexattr_t *);
AT_FIRST_VERSION(int, pthread_mutexattr_settype, pthread_mutexattr_t *, int);
AT_FIRST_VERSION(int, pthread_mutexattr_destroy, pthread_mutexattr_t *);
AT_FIRST_VERSION(int, pthread_sigmask, int, const sigset_t *, sigset_t *);
#define CALL_OR_ENOSYS(name, ...) (first_##name != NULL ? first_##name(__VA_ARGS__) : ENOSYS)

static void (*thread_destructor)(void *);
static pid_t birth_pid;

/*
 * At a thread's exit jemalloc takes the thread off its list, under a lock. In a forked child nobody may ever
 * release that lock, and the list is a copy that no one reads: leave it. Without this, a child that ends its
 * thread hangs now and then (3 of 5 runs of tests/hosts/fork_storm_meta).
 */
static void run_thread_destructor(void *tsd)
{
    if (getpid() == birth_pid)
        thread_destructor(tsd);
}

/* Called once, in jemalloc's start, before the key exists for any other thread. */
int cup_je_pthread_key_create(pthread_key_t *out_key, void (*destructor)(void *))
{
    thread_destructor = destructor;
    birth_pid = getpid();
    return CALL_OR_ENOSYS(pthread_key_create, out_key, run_thread_destructor);
}

int cup_je_pthread_setspecific(pthread_key_t key, const void *value)
{
    return CALL_OR_ENOSYS(pthread_setspecific, key, value);
}

int cup_je_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return CALL_OR_ENOSYS(pthread_mutex_trylock, mutex);
}

int cup_je_pthread_mutexattr_init(pthread_mutexattr_t *attr)
{
    return CALL_OR_ENOSYS(pthread_mutexattr_init, attr);
}

int cup_je_pthread_mutexattr_settype(pthread_mutexattr_t *attr, int type)
{
    return CALL_OR_ENOSYS(pthread_mutexattr_settype, attr, type);
}

int cup_je_pthread_mutexattr_destroy(pthread_mutexattr_t *attr)
{
    return CALL_OR_ENOSYS(pthread_mutexattr_destroy, attr);
}

int cup_je_pthread_sigmask(int how, const sigset_t *set, sigset_t *out_old)
{
    return CALL_OR_ENOSYS(pthread_sigmask, how, set, out_old);
}
