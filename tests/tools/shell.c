/* SPDX-License-Identifier: Apache-2.0 */
/* How: the command's stdout and stderr are files in memory, so nothing can block on a full pipe. */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "tests/tools/shell.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void change_environment(const char *const *entry)
{
    for (; entry && *entry; entry++)
        if (strchr(*entry, '='))
            putenv((char *)*entry);
        else
            unsetenv(*entry);
}

static void read_back(int fd, char *out, size_t capacity)
{
    ssize_t length = pread(fd, out, capacity - 1, 0);

    CHECK(length >= 0);
    out[length] = '\0';
    close(fd);
}

void cup_shell(char *const *argv, const char *const *environment, cup_said_t *out_said)
{
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    pid_t child = fork();

    if (child == 0) {
        dup2(out, 1);
        dup2(err, 2);
        change_environment(environment);
        execvp(argv[0], argv);
        _exit(99);
    }
    CHECK_EQ(waitpid(child, &out_said->status, 0), child);
    read_back(out, out_said->out, sizeof(out_said->out));
    read_back(err, out_said->err, sizeof(out_said->err));
}

cup_running_t cup_shell_start(char *const *argv, char *out_line, size_t capacity)
{
    int ends[2];
    cup_running_t running;
    size_t length = 0;

    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    running.pid = fork();
    if (running.pid == 0) {
        dup2(ends[1], 1);
        execvp(argv[0], argv);
        _exit(99);
    }
    close(ends[1]);
    running.out = ends[0];
    while (length + 1 < capacity && read(running.out, out_line + length, 1) == 1 && out_line[length] != '\n')
        length++;
    out_line[length] = '\0';
    return running;
}

void cup_shell_folder(char out[64])
{
    strcpy(out, "/tmp/cup_tool_XXXXXX");
    CHECK(mkdtemp(out));
}

void cup_shell_file(const char *folder, const char *name, const void *contents, size_t size,
                    char out_path[128])
{
    int fd;

    snprintf(out_path, 128, "%s/%s", folder, name);
    fd = open(out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, contents, size), size);
    close(fd);
}

void cup_shell_remove(const char *folder)
{
    cup_said_t said;

    SHELL(&said, "rm", "-rf", (char *)folder);
}
