/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - a second process for a test program: a new instance of the program itself, at the other end of a
 * socket.
 * What:       start, say and hear (whole messages, 20 s at most), end. A forked child may not use the
 *             driver, so the other side is executed anew: the last argument of its main() is the number of
 *             its socket. It may have a world of its own: other variables, and what is done before it is executed.
 * Threads:    one.
 */
#ifndef CUP_TESTS_PEER_H
#define CUP_TESTS_PEER_H
#include "tests/support/require.h"
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_TIMEOUT_S 20
#define PEER_ARGS_MAX  8

typedef struct peer {
    pid_t pid;
    int socket;
} peer_t;

/* env: NAME=VALUE, beside what is there, NULL at the end; enter: called in the new process. Either may be NULL. */
typedef struct peer_world {
    const char *const *env;
    void (*enter)(void);
} peer_world_t;

/* In the new process. */
static inline void peer_enter(const peer_world_t *world)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also one that is stopped: nobody waits for it in vain */
    for (const char *const *one = world->env; one && *one; one++)
        REQUIRE(putenv((char *)*one) == 0);
    if (world->enter)
        world->enter();
}

/* Runs this program with these arguments (NULL at the end) and the number of its socket behind them. */
static inline peer_t peer_start_in(const peer_world_t *world, const char *const *args)
{
    const struct timeval timeout = {.tv_sec = PEER_TIMEOUT_S};
    const char *argv[PEER_ARGS_MAX] = {"peer"};
    char number[16];
    int ends[2], count = 1;
    peer_t peer;

    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    for (int i = 0; i < 2; i++)
        REQUIRE(setsockopt(ends[i], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    while (*args && count < PEER_ARGS_MAX - 2)
        argv[count++] = *args++;
    snprintf(number, sizeof number, "%d", ends[1]);
    argv[count++] = number;
    argv[count] = NULL;
    peer = (peer_t){fork(), ends[0]};
    if (peer.pid == 0) {
        close(ends[0]);
        peer_enter(world);
        execv("/proc/self/exe", (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    return peer;
}

static inline peer_t peer_start(const char *const *args)
{
    const peer_world_t same = {NULL, NULL};

    return peer_start_in(&same, args);
}

static inline void peer_say(int to, const void *bytes, size_t size)
{
    REQUIRE(send(to, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
}

/* False: the other side is gone. */
static inline int peer_try_hear(int from, void *bytes, size_t size)
{
    ssize_t length;

    do {
        length = recv(from, bytes, size, 0);
    } while (length < 0 && errno == EINTR); /* stopped, and let go on */
    return length == (ssize_t)size;
}

static inline void peer_hear(int from, void *bytes, size_t size)
{
    REQUIRE(peer_try_hear(from, bytes, size));
}

/* Its exit code; 128 and more: the signal that ended it. */
static inline int peer_end(const peer_t *peer)
{
    int status = 0;

    close(peer->socket);
    REQUIRE(waitpid(peer->pid, &status, 0) == peer->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif /* CUP_TESTS_PEER_H */
