/* SPDX-License-Identifier: Apache-2.0 */
/* How: plain system calls, buffers on the stack; a path is at most PATH_MAX. */
#define _GNU_SOURCE
#include "shim/outfile.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct text {
    char *out;
    size_t capacity, length;
    bool is_full;
} text_t;

static void put(text_t *text, const char *part, size_t length)
{
    if (length >= text->capacity - text->length) {
        text->is_full = true;
        return;
    }
    memcpy(text->out + text->length, part, length);
    text->length += length;
    text->out[text->length] = '\0';
}

/* %q{VAR}: returns what follows the brace, or NULL if there is none. */
static const char *put_variable(text_t *text, const char *at)
{
    const char *end = strchr(at, '}');
    char name[128];
    const char *value;

    if (!end || (size_t)(end - at) >= sizeof(name))
        return NULL;
    memcpy(name, at, (size_t)(end - at));
    name[end - at] = '\0';
    value = getenv(name);
    if (value)
        put(text, value, strlen(value));
    return end + 1;
}

/* at stands behind the '%'. Returns what follows the escape, or NULL for a broken one. */
static const char *put_escape(text_t *text, const char *at)
{
    char part[HOST_NAME_MAX + 1];

    switch (*at) {
    case '\0':
        return NULL;
    case 'p':
        put(text, part, (size_t)snprintf(part, sizeof(part), "%d", (int)getpid()));
        return at + 1;
    case 'h':
        if (gethostname(part, sizeof(part)) != 0)
            strcpy(part, "unknown");
        part[HOST_NAME_MAX] = '\0';
        put(text, part, strlen(part));
        return at + 1;
    case '%':
        put(text, "%", 1);
        return at + 1;
    case 'q':
        if (at[1] == '{')
            return put_variable(text, at + 2);
        break;
    }
    put(text, at - 1, 2);
    return at + 1;
}

bool cup_outfile_expand(const char *pattern, char *out, size_t capacity)
{
    text_t text = {out, capacity, 0, false};

    if (capacity == 0)
        return false;
    out[0] = '\0';
    while (*pattern) {
        size_t plain = strcspn(pattern, "%");

        put(&text, pattern, plain);
        pattern += plain;
        if (*pattern == '%') {
            pattern = put_escape(&text, pattern + 1);
            if (!pattern)
                return false;
        }
    }
    return !text.is_full;
}

int cup_outfile_open(const char *pattern)
{
    char path[PATH_MAX];
    int kept = errno, fd = -1;

    if (cup_outfile_expand(pattern, path, sizeof(path)))
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    errno = kept;
    return fd;
}

/* One write that raises no SIGPIPE in the program: if stderr's reader has gone, that is not for us to tell
 * it. */
static ssize_t write_quietly(int fd, const char *text, size_t length)
{
    const struct timespec now = {0, 0};
    sigset_t pipe_set, before, pending;
    ssize_t done;
    int error;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
    done = write(fd, text, length);
    error = errno;
    if (done < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return done;
}

void cup_outfile_write(int fd, const char *text, size_t length)
{
    int kept = errno;

    while (length > 0) {
        ssize_t done = write_quietly(fd, text, length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            break;
        text += done;
        length -= (size_t)done;
    }
    errno = kept;
}
