/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: poll over the listener and the connections; nothing blocks: an answer that does not fit into the
 * socket is not given, and the other side gives up by its own clock. A connection is never closed from here
 * while it has something on loan, because its end means that the other process does not use the memory any
 * more.
 *
 * Descriptors may be closed under us by a program that closes everything: poll says so (POLLNVAL), and they
 * are forgotten.
 */
#define _GNU_SOURCE
#include "shim/ipc_server.h"
#include "shim/ipc_export.h"
#include "shim/ipc_sock.h"
#include "shim/named_table.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define CONNECTIONS_MAX 512
#define PAUSE_MS        50 /* without descriptors for a new connection */

#ifdef CUP_SANITIZED
#define STACK_BYTES (1024 * CUP_KIB)
#else
#define STACK_BYTES (64 * CUP_KIB)
#endif

typedef struct connection {
    int fd;
    cup_ipc_borrower_t borrower;
} connection_t;

static _Atomic uint64_t g_name;
static _Atomic bool g_is_listening;
static pid_t g_pid;
static char g_path[CUP_IPC_PATH_MAX];
static _Atomic uint32_t g_group = CUP_IPC_NO_GROUP; /* that may connect */

/* The thread's own: */
static int g_listener;
static connection_t g_connection[CONNECTIONS_MAX];
static size_t g_count;

const char *cup_ipc_reason_text(cup_ipc_reason_t reason)
{
    static const char *const text[] = {
#define X(name, code, words) [name] = words,
        CUP_IPC_REASON_LIST(X)
#undef X
    };

    return (size_t)reason < CUP_IPC_REASON_COUNT ? text[reason] : "";
}

CUresult cup_ipc_reason_code(cup_ipc_reason_t reason)
{
    static const CUresult codes[] = {
#define X(name, code, words) [name] = code,
        CUP_IPC_REASON_LIST(X)
#undef X
    };

    return (size_t)reason < CUP_IPC_REASON_COUNT ? codes[reason] : CUDA_ERROR_INVALID_HANDLE;
}

uint64_t cup_ipc_server_name(void)
{
    return atomic_load_explicit(&g_name, memory_order_acquire);
}

/* ---- the thread ---- */

static void accept_one(void)
{
    bool is_foreign;
    int fd = cup_ipc_accept(g_listener, atomic_load(&g_group), &is_foreign);

    if (fd < 0)
        return;
    if (g_count == CONNECTIONS_MAX) {
        close(fd);
        return;
    }
    g_connection[g_count++] = (connection_t){.fd = fd, .borrower = {.is_foreign = is_foreign}};
}

static void forget(connection_t *connection, bool is_ours)
{
    if (is_ours)
        close(connection->fd);
    cup_ipc_bereave(&connection->borrower, cup_ipc_now_ms());
    *connection = g_connection[--g_count];
}

static void answer(connection_t *connection, const cup_ipc_request_t *request)
{
    cup_ipc_reply_t reply;
    int fds[CUP_IPC_PAGE];
    uint32_t count;

    if (request->verb == CUP_IPC_FIND) {
        cup_named_answer(connection->borrower.is_foreign, request, &reply);
        (void)cup_ipc_send(connection->fd, &reply, sizeof reply, NULL, 0, 0);
        return;
    }
    if (cup_ipc_answer(&connection->borrower, request, &reply, fds, &count) &&
        !cup_ipc_send(connection->fd, &reply, sizeof reply, fds, count, 0))
        cup_ipc_unanswered(&connection->borrower, request);
}

/* One message. False: the connection is at its end. What makes no sense is not answered. */
static bool hear(connection_t *connection)
{
    cup_ipc_request_t request;
    int fds[CUP_IPC_PAGE];
    uint32_t count;
    bool has_lost;
    long length = cup_ipc_receive(connection->fd, &request, sizeof request, fds, &count, &has_lost, 0);

    while (count > 0)
        close(fds[--count]); /* nobody asked for any */
    if (length == (long)sizeof request && request.magic == CUP_IPC_MAGIC &&
        request.version == CUP_IPC_VERSION)
        answer(connection, &request);
    return length != 0;
}

static void serve_round(struct pollfd *polled, size_t count, bool has_listener)
{
    for (size_t i = count; i-- > 0;) { /* downwards: the last takes the place of one that goes */
        bool is_ours = !(polled[i].revents & POLLNVAL);

        if (polled[i].revents && (!is_ours || !hear(&g_connection[i])))
            forget(&g_connection[i], is_ours);
    }
    if (has_listener && polled[count].revents & POLLNVAL)
        atomic_store(&g_is_listening, false);
    else if (has_listener && polled[count].revents)
        accept_one();
}

static int least_ms(int one, int other)
{
    if (one < 0 || other < 0)
        return one < 0 ? other : one;
    return one < other ? one : other;
}

static void *serve(void *unused)
{
    static struct pollfd polled[CONNECTIONS_MAX + 1];
    bool has_room = true;

    (void)unused;
    for (;;) {
        bool has_listener = has_room && atomic_load(&g_is_listening);
        size_t count = g_count;

        for (size_t i = 0; i < count; i++)
            polled[i] = (struct pollfd){.fd = g_connection[i].fd, .events = POLLIN};
        polled[count] = (struct pollfd){.fd = g_listener, .events = POLLIN};
        errno = 0;
        if (poll(polled, count + has_listener,
                 least_ms(cup_ipc_forgive(cup_ipc_now_ms()), has_room ? -1 : PAUSE_MS)) >= 0)
            serve_round(polled, count, has_listener);
        has_room = errno != EMFILE && errno != ENFILE;
    }
    return NULL;
}

/* ---- its start and end ---- */

/* At exit: the name, which else the next exporter takes away. The thread runs on until the process ends. */
static void unlink_at_exit(void)
{
    if (g_pid == getpid())
        unlink(g_path);
}

cup_ipc_reason_t cup_ipc_server_let_in(uint32_t gid)
{
    uint32_t before = atomic_load(&g_group);
    cup_ipc_reason_t reason;

    if (before != CUP_IPC_NO_GROUP)
        return before == gid ? CUP_IPC_OK : CUP_IPC_GROUPS;
    reason = cup_ipc_let_in(g_path, gid);
    if (reason == CUP_IPC_OK)
        atomic_store(&g_group, gid);
    return reason;
}

/* A program with large thread-local storage needs a larger stack: then the usual one. */
static bool start_thread(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int failed;

    if (pthread_attr_init(&attr) != 0)
        return false;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attr, serve, NULL);
    if (failed == EINVAL) {
        pthread_attr_destroy(&attr);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        failed = pthread_create(&thread, &attr, serve, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (failed == 0)
        pthread_setname_np(thread, "cupola-ipc");
    return failed == 0;
}

cup_ipc_reason_t cup_ipc_server_start(void)
{
    cup_ipc_reason_t reason;
    uint64_t name;

    if (cup_ipc_server_name() != 0)
        return atomic_load(&g_is_listening) ? CUP_IPC_OK : CUP_IPC_SYSTEM;
    if (getrandom(&name, sizeof name, 0) != sizeof name || name == 0)
        return CUP_IPC_SYSTEM;
    g_listener = cup_ipc_listen(name, g_path, &reason);
    if (g_listener < 0)
        return reason;
    atomic_store(&g_is_listening, true);
    if (!start_thread()) {
        atomic_store(&g_is_listening, false);
        close(g_listener);
        unlink(g_path);
        return CUP_IPC_SYSTEM;
    }
    g_pid = getpid();
    atexit(unlink_at_exit);
    atomic_store_explicit(&g_name, name, memory_order_release);
    return CUP_IPC_OK;
}
