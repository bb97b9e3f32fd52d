/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: one page tells a process from its forked child: MADV_WIPEONFORK (Linux 4.14) zeroes it there, so a
 * load answers what getpid() would, without the system call. Where the kernel lacks it, getpid() is asked
 * each time.
 *
 * The start takes a mutex; whoever comes meanwhile waits for it (it only parses the environment). A checker
 * and the driver's functions are looked for before that: this takes the loader's lock, which whoever comes
 * may hold (a constructor that allocates).
 * In a child that was forked before the start everything is as in a fresh process: the pool may live there.
 */
#define _GNU_SOURCE
#include "shim/gate.h"
#include "shim/checker.h"
#include "shim/conf.h"
#include "shim/drv.h"
#include "shim/log.h"
#include "shim/registry.h"
#include "shim/stat.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef enum { UNBORN, READY, PASS_THROUGH } life_t;

static _Atomic int g_life = UNBORN;
static pthread_mutex_t g_start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int *_Atomic g_parent_mark; /* 1 in the process that started, 0 in its forked children */
static pid_t g_pid;                        /* without MADV_WIPEONFORK */

static _Thread_local struct {
    int depth;
    int kept_errno;
} t_call __attribute__((tls_model("initial-exec")));

static cup_conf_t g_conf;

static bool is_forked_child(void)
{
    _Atomic int *mark = atomic_load_explicit(&g_parent_mark, memory_order_acquire);

    if (mark)
        return atomic_load_explicit(mark, memory_order_relaxed) == 0;
    return g_pid != getpid();
}

static void mark_process(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_pid = getpid();
    if (page == MAP_FAILED)
        return;
    if (madvise(page, size, MADV_WIPEONFORK) != 0) {
        munmap(page, size);
        return;
    }
    atomic_store((_Atomic int *)page, 1);
    atomic_store_explicit(&g_parent_mark, page, memory_order_release);
}

/* The executable by either name: as it was called, and the file behind it (a python3 that is really
 * python3.12). */
static bool is_named_in(const char *list)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    const char *base;

    if (cup_conf_names(list, program_invocation_short_name))
        return true;
    if (length <= 0)
        return false;
    path[length] = '\0';
    base = strrchr(path, '/');
    return cup_conf_names(list, base ? base + 1 : path);
}

static const char *find_aside_reason(void)
{
    if (g_conf.disable.word)
        return "CUPOLA_DISABLE=1";
    if (g_conf.exclude.text[0] && is_named_in(g_conf.exclude.text))
        return "CUPOLA_EXCLUDE names this executable";
    if (g_conf.only.text[0] && !is_named_in(g_conf.only.text))
        return "CUPOLA_ONLY names other executables";
    return NULL;
}

/* At exit, from counters only. The program's own exit handlers that were registered later have run; earlier
 * ones not. */
static void report_at_exit(void)
{
    cup_pool_stat_t pools;

    if (is_forked_child())
        return;
    cup_registry_stat(&pools);
    cup_stat_report(g_conf.stats.text, &pools);
}

static void ignore(const char *line)
{
    (void)line;
}

/* Says why, if so; in a line that is seen where that is a checker, as it was not asked for. */
static bool is_to_stand_aside(const char *checker)
{
    const char *reason = find_aside_reason();

    if (reason) {
        cup_log(CUP_LOG_INFO, "standing aside: %s", reason);
        return true;
    }
    if (!checker || g_conf.checker.word == CUP_CHECKER_POOL)
        return false;
    cup_log(
        CUP_LOG_ERROR,
        "standing aside: %s must see the driver's own allocations (CUPOLA_CHECKER=pool: serve all the same)",
        checker);
    return true;
}

static void start_locked(const char *checker)
{
    /* Twice: what the first pass finds wrong goes where the log was told to go. */
    cup_conf_load(environ, ignore, &g_conf);
    cup_log_setup(g_conf.log.text);
    cup_conf_load(environ, cup_log_complain, &g_conf);
    if (is_to_stand_aside(checker)) {
        atomic_store_explicit(&g_life, PASS_THROUGH, memory_order_release);
        return;
    }
    mark_process();
    if (strcmp(g_conf.stats.text, "0") != 0)
        atexit(report_at_exit);
    cup_log(CUP_LOG_INFO, "pooling (free: %s)", g_conf.free_mode.text);
    atomic_store_explicit(&g_life, READY, memory_order_release);
}

static void start(void)
{
    const char *checker = cup_checker_find(environ);

    cup_drv_prepare();
    pthread_mutex_lock(&g_start_lock);
    if (atomic_load_explicit(&g_life, memory_order_acquire) == UNBORN)
        start_locked(checker);
    pthread_mutex_unlock(&g_start_lock);
}

/* Anything but a call of the process that has a pool. */
static bool enter_slowly(bool may_start)
{
    int life = atomic_load_explicit(&g_life, memory_order_acquire);
    int kept = errno;

    if (life == PASS_THROUGH || t_call.depth > 0)
        return false;
    if (life == UNBORN) {
        if (!may_start)
            return false;
        t_call.depth++;
        start();
        t_call.depth--;
        errno = kept;
        if (atomic_load_explicit(&g_life, memory_order_acquire) != READY)
            return false;
    }
    if (is_forked_child()) {
        errno = kept;
        return false;
    }
    t_call.depth++;
    t_call.kept_errno = kept;
    return true;
}

bool cup_gate_enter(bool may_start)
{
    _Atomic int *mark = atomic_load_explicit(&g_parent_mark, memory_order_acquire);

    if (!mark || atomic_load_explicit(mark, memory_order_relaxed) == 0 || t_call.depth > 0 ||
        atomic_load_explicit(&g_life, memory_order_acquire) != READY)
        return enter_slowly(may_start);
    t_call.depth = 1;
    t_call.kept_errno = errno;
    return true;
}

bool cup_gate_is_forked(void)
{
    int kept = errno;
    bool is_forked = atomic_load_explicit(&g_life, memory_order_acquire) == READY && is_forked_child();

    errno = kept;
    return is_forked;
}

void cup_gate_leave(void)
{
    t_call.depth--;
    errno = t_call.kept_errno;
}

const cup_conf_t *cup_gate_conf(void)
{
    return &g_conf;
}
