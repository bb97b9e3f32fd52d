/* SPDX-License-Identifier: Apache-2.0 */
/*
 * other - another process of the same program, made before CUDA starts: messages of one size there and
 *         back.
 * What:       other_start(body): body runs there with its end; other_tell, other_hear on both sides.
 * Invariants: whoever loses the other one ends with exit code 1; nobody waits longer than a minute
 *             (alarm).
 * Threads:    one on each side.
 */
#ifndef CUP_TESTS_REPORTS_OTHER_H
#define CUP_TESTS_REPORTS_OTHER_H
#include "tests/reports/report.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    pid_t pid; /* 0 on the other side */
    int fd;
} other_t;

static inline void other_tell(const other_t *other, const void *message, size_t bytes)
{
    REQUIRE(send(other->fd, message, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static inline void other_hear(const other_t *other, void *message, size_t bytes)
{
    REQUIRE(recv(other->fd, message, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static inline other_t other_start(void (*body)(const other_t *here))
{
    other_t here = {0};
    int ends[2];

    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fflush(stdout);
    here.pid = fork();
    REQUIRE(here.pid >= 0);
    here.fd = ends[here.pid == 0];
    close(ends[here.pid != 0]);
    alarm(60);
    if (here.pid == 0) {
        body(&here);
        exit(0);
    }
    return here;
}

static inline void other_end(const other_t *other)
{
    int status = 1;

    close(other->fd);
    REQUIRE(waitpid(other->pid, &status, 0) == other->pid && status == 0);
}

#endif /* CUP_TESTS_REPORTS_OTHER_H */
