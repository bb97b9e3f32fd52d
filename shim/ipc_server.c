/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: poll over the listener and the connections; nothing blocks: an answer that does not fit into the
 * socket is not given, and the other side gives up by its own clock.
 *
 * A connection may end although both processes live: a program that closes everything it does not know closes
 * our sockets, too, here or there, and what it has mapped it goes on using. So what a connection has on loan
 * stays on loan until its process is dead. That is asked for by its number again and again, with nothing held
 * open meanwhile; one that comes again as another's makes it too long, never too short.
 */
#define _GNU_SOURCE
#include "shim/ipc_server.h"
#include "shim/ipc_export.h"
#include "shim/ipc_file.h"
#include "shim/ipc_sock.h"
#include "shim/named_table.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONNECTIONS_MAX 512
#define PAUSE_MS        50  /* without descriptors for a new connection */
#define WATCH_MS        250 /* between looks at processes whose connection has ended */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#ifdef CUP_SANITIZED
#define STACK_BYTES (1024 * CUP_KIB)
#else
#define STACK_BYTES (64 * CUP_KIB)
#endif

typedef struct connection {
    cup_ipc_file_t socket; /* none: it has ended, and something is on loan */
    pid_t pid;             /* 0: in a namespace that we can't see into */
    cup_ipc_borrower_t borrower;
} connection_t;

static _Atomic uint64_t g_name;
static _Atomic bool g_is_listening;
static pid_t g_pid;
static char g_path[CUP_IPC_PATH_MAX];
static _Atomic uint32_t g_group = CUP_IPC_NO_GROUP; /* that may connect */

/* The thread's own: */
static cup_ipc_file_t g_listener;
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

/* False: no descriptors. */
static bool accept_one(void)
{
    connection_t new = {.pid = 0};
    int fd = cup_ipc_accept(g_listener.fd, atomic_load(&g_group), &new.pid, &new.borrower.is_foreign);

    if (fd < 0)
        return errno != EMFILE && errno != ENFILE;
    if (g_count == CONNECTIONS_MAX) {
        close(fd);
        return true;
    }
    new.socket = cup_ipc_file_adopt(fd);
    g_connection[g_count++] = new;
    return true;
}

/* Killed ones, too, that nobody has waited for; unless pidfd_open is not there (Linux 5.3). */
static bool is_dead(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0), ready;
    struct pollfd one = {.fd = fd, .events = POLLIN};

    if (fd < 0)
        return errno == ESRCH || (kill(pid, 0) != 0 && errno == ESRCH);
    ready = poll(&one, 1, 0);
    close(fd);
    return ready > 0;
}

static void forget(connection_t *connection)
{
    cup_ipc_bereave(&connection->borrower, cup_ipc_now_ms());
    *connection = g_connection[--g_count];
}

/*
 * The connection is no more. was_lost: by this process. Of a process that can't be seen the end of the
 * connection has to do as its death; what this process has lost tells nothing of it.
 */
static void part(connection_t *connection, bool was_lost)
{
    cup_ipc_file_close(&connection->socket);
    if (!connection->borrower.loans || (connection->pid == 0 && !was_lost))
        forget(connection);
}

/* Those whose connection has ended. Returns the time until the next look, or -1 for none. */
static int watch(void)
{
    int next_ms = -1;

    for (size_t i = g_count; i-- > 0;) { /* downwards: the last takes the place of one that goes */
        connection_t *connection = &g_connection[i];

        if (connection->socket.fd >= 0)
            continue;
        if (connection->pid != 0 && is_dead(connection->pid))
            forget(connection);
        else if (connection->pid != 0)
            next_ms = WATCH_MS;
    }
    return next_ms;
}

static void answer(connection_t *connection, const cup_ipc_request_t *request)
{
    cup_ipc_reply_t reply;
    int fds[CUP_IPC_PAGE];
    uint32_t count;

    if (request->verb == CUP_IPC_FIND) {
        cup_named_answer(connection->borrower.is_foreign, request, &reply);
        (void)cup_ipc_send(connection->socket.fd, &reply, sizeof reply, NULL, 0, 0);
        return;
    }
    if (cup_ipc_answer(&connection->borrower, request, &reply, fds, &count) &&
        !cup_ipc_send(connection->socket.fd, &reply, sizeof reply, fds, count, 0))
        cup_ipc_unanswered(&connection->borrower, request);
}

/* One message. False: the connection is at its end. What makes no sense is not answered. */
static bool hear(connection_t *connection)
{
    cup_ipc_request_t request;
    int fds[CUP_IPC_PAGE];
    uint32_t count;
    bool has_lost;
    long length = cup_ipc_receive(connection->socket.fd, &request, sizeof request, fds, &count, &has_lost, 0);

    while (count > 0)
        close(fds[--count]); /* nobody asked for any */
    if (length == (long)sizeof request && request.magic == CUP_IPC_MAGIC &&
        request.version == CUP_IPC_VERSION)
        answer(connection, &request);
    return length != 0;
}

/* False: no descriptors for a new connection. */
static bool serve_round(const struct pollfd *polled, size_t count, bool has_listener)
{
    for (size_t i = count; i-- > 0;) { /* downwards, as above */
        connection_t *connection = &g_connection[i];

        if (!polled[i].revents)
            continue;
        if (!cup_ipc_file_is_ours(&connection->socket))
            part(connection, true);
        else if (!hear(connection))
            part(connection, false);
    }
    if (!has_listener || !polled[count].revents)
        return true;
    if (cup_ipc_file_is_ours(&g_listener))
        return accept_one();
    atomic_store(&g_is_listening, false);
    return true;
}

static int least_ms(int one, int other)
{
    if (one < 0 || other < 0)
        return one < 0 ? other : one;
    return one < other ? one : other;
}

/* What was closed under us is not polled again: it may be a file of the program's by now. */
static void drop_lost(void)
{
    for (size_t i = g_count; i-- > 0;)
        if (g_connection[i].socket.fd >= 0 && !cup_ipc_file_is_ours(&g_connection[i].socket))
            part(&g_connection[i], true);
    if (!cup_ipc_file_is_ours(&g_listener))
        atomic_store(&g_is_listening, false);
}

static void *serve(void *unused)
{
    static struct pollfd polled[CONNECTIONS_MAX + 1];
    bool has_room = true;

    (void)unused;
    for (;;) {
        drop_lost();
        int wait_ms = least_ms(watch(), has_room ? -1 : PAUSE_MS);
        bool has_listener = has_room && atomic_load(&g_is_listening);
        size_t count = g_count;

        for (size_t i = 0; i < count; i++) /* a negative number is passed over */
            polled[i] = (struct pollfd){.fd = g_connection[i].socket.fd, .events = POLLIN};
        polled[count] = (struct pollfd){.fd = g_listener.fd, .events = POLLIN};
        wait_ms = least_ms(cup_ipc_forgive(cup_ipc_now_ms()), wait_ms);
        has_room =
            poll(polled, count + has_listener, wait_ms) < 0 || serve_round(polled, count, has_listener);
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
    g_listener = cup_ipc_file_adopt(cup_ipc_listen(name, g_path, &reason));
    if (g_listener.fd < 0)
        return reason;
    atomic_store(&g_is_listening, true);
    if (!start_thread()) {
        atomic_store(&g_is_listening, false);
        cup_ipc_file_close(&g_listener);
        unlink(g_path);
        return CUP_IPC_SYSTEM;
    }
    g_pid = getpid();
    atexit(unlink_at_exit);
    atomic_store_explicit(&g_name, name, memory_order_release);
    return CUP_IPC_OK;
}
