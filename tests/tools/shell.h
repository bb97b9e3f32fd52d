/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - starts a command as a shell would and keeps what it said.
 * What:       wait status, stdout and stderr of a command; folders to throw away.
 * Threads:    one.
 */
#ifndef CUP_TESTS_TOOLS_SHELL_H
#define CUP_TESTS_TOOLS_SHELL_H
#include <stdbool.h>
#include <sys/types.h>

typedef struct cup_said {
    int status; /* as of waitpid */
    char out[16384], err[16384];
} cup_said_t;

/* The command is still running; its stdout is a pipe to us. */
typedef struct cup_running {
    pid_t pid;
    int out;
} cup_running_t;

/*
 * Runs argv (NULL-terminated, looked up in PATH). environment holds "NAME=value" entries, and "NAME" to
 * unset, on top of ours; it may be NULL.
 */
void cup_shell(char *const *argv, const char *const *environment, cup_said_t *out_said);
#define SHELL(out_said, ...) cup_shell((char *const[]){__VA_ARGS__, NULL}, NULL, out_said)

/* Starts argv and waits for its first line. */
cup_running_t cup_shell_start(char *const *argv, char *out_line, size_t capacity);

/* Makes a folder, and with contents (may be NULL) an executable file of that name in it. */
void cup_shell_folder(char out[64]);
void cup_shell_file(const char *folder, const char *name, const void *contents, size_t size,
                    char out_path[128]);
void cup_shell_remove(const char *folder);

#endif /* CUP_TESTS_TOOLS_SHELL_H */
