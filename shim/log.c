/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the line is built on the stack and written by one write; level and descriptor are set once, before
 * READY. The program may close a descriptor that is not its own (daemons close all), and get the number for
 * a file of its own: so each time the file is looked at first.
 */
#include "shim/log.h"
#include "shim/outfile.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LINES_MAX 200

static _Atomic int g_level = CUP_LOG_ERROR;
static _Atomic int g_fd = 2;
static struct stat g_file; /* what it was when we opened it; not for stderr */
static _Atomic unsigned g_lines;

static const char *const g_level_name[] = {"off", "error", "info", "debug"};

void cup_log_setup(const char *text)
{
    size_t length = strcspn(text, ":");

    for (int level = CUP_LOG_OFF; level <= CUP_LOG_DEBUG; level++) {
        if (strlen(g_level_name[level]) != length || memcmp(g_level_name[level], text, length) != 0)
            continue;
        atomic_store(&g_level, level);
        if (text[length] == ':') {
            int fd = cup_outfile_open(text + length + 1);

            if (fd >= 0 && fstat(fd, &g_file) == 0)
                atomic_store(&g_fd, fd);
            else
                cup_log(CUP_LOG_ERROR, "CUPOLA_LOG: can't open %s; using stderr", text + length + 1);
        }
        return;
    }
    cup_log(CUP_LOG_ERROR, "CUPOLA_LOG=%s is not one of off|error|info|debug[:FILE]; using error", text);
}

/* stderr is whatever the program makes of it. */
static bool is_still_ours(int fd)
{
    struct stat now;

    return fd == 2 || (fstat(fd, &now) == 0 && now.st_dev == g_file.st_dev && now.st_ino == g_file.st_ino);
}

void cup_log(cup_log_level_t level, const char *format, ...)
{
    char line[1024] = "cupola: ";
    size_t start = strlen(line);
    int length, kept = errno, fd = atomic_load(&g_fd);
    va_list args;

    if ((int)level > atomic_load_explicit(&g_level, memory_order_relaxed))
        return;
    if (level != CUP_LOG_DEBUG && atomic_fetch_add(&g_lines, 1) >= LINES_MAX)
        return;
    va_start(args, format);
    length = vsnprintf(line + start, sizeof(line) - start - 1, format, args);
    va_end(args);
    if (length > 0 && is_still_ours(fd)) {
        size_t end = start + (size_t)length;

        if (end > sizeof(line) - 2)
            end = sizeof(line) - 2;
        line[end] = '\n';
        cup_outfile_write(fd, line, end + 1);
    }
    errno = kept;
}

void cup_log_complain(const char *line)
{
    cup_log(CUP_LOG_ERROR, "%s", line);
}
