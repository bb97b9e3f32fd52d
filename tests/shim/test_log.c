/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_log - levels, files, the limit, manners.
 * How:        level, file and count are the process's, so each example runs in a forked child whose stdout
 *             and stderr are files in memory.
 */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "shim/log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAID_MAX 65536

static char said_out[SAID_MAX], said_err[SAID_MAX];

static void read_back(int fd, char *out)
{
    ssize_t length = pread(fd, out, SAID_MAX - 1, 0);

    CHECK(length >= 0);
    out[length] = '\0';
    close(fd);
}

/* Runs body in a child; a child that does not end well fails the test. */
static void speak(void (*body)(void))
{
    int out = memfd_create("out", 0), err = memfd_create("err", 0), status;
    pid_t child = fork();

    if (child == 0) {
        dup2(out, 1);
        dup2(err, 2);
        body();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    read_back(out, said_out);
    read_back(err, said_err);
    CHECK_MSG(status == 0, "the child ended with status %d: %s", status, said_err);
    CHECK_MSG(said_out[0] == '\0', "stdout: %s", said_out);
}

static unsigned count(const char *text, const char *what)
{
    unsigned found = 0;

    for (text = strstr(text, what); text; text = strstr(text + 1, what))
        found++;
    return found;
}

static void say_each(void)
{
    cup_log(CUP_LOG_ERROR, "an %s", "error");
    cup_log(CUP_LOG_INFO, "an %s", "info");
    cup_log(CUP_LOG_DEBUG, "a %s", "debug");
}

static void say_at_off(void)
{
    cup_log_setup("off");
    say_each();
}

static void say_at_error(void)
{
    cup_log_setup("error");
    say_each();
}

static void say_at_info(void)
{
    cup_log_setup("info");
    say_each();
}

static void say_at_debug(void)
{
    cup_log_setup("debug");
    say_each();
}

TEST(log, levels)
{
    static const char *const lines[] = {"cupola: an error\n", "cupola: an error\ncupola: an info\n",
                                        "cupola: an error\ncupola: an info\ncupola: a debug\n"};

    speak(say_each); /* before any setup: error */
    CHECK_MSG(strcmp(said_err, lines[0]) == 0, "%s", said_err);
    speak(say_at_off);
    CHECK_MSG(said_err[0] == '\0', "%s", said_err);
    speak(say_at_error);
    CHECK_MSG(strcmp(said_err, lines[0]) == 0, "%s", said_err);
    speak(say_at_info);
    CHECK_MSG(strcmp(said_err, lines[1]) == 0, "%s", said_err);
    speak(say_at_debug);
    CHECK_MSG(strcmp(said_err, lines[2]) == 0, "%s", said_err);
}

static void say_with_nonsense(void)
{
    cup_log_setup("loud");
    say_each();
}

static void say_with_a_prefix_of_a_level(void)
{
    cup_log_setup("err");
    say_each();
}

TEST(log, bad_level_is_one_line_and_error)
{
    speak(say_with_nonsense);
    CHECK_EQ(count(said_err, "\n"), 2);
    CHECK(strstr(said_err, "loud") && strstr(said_err, "an error"));
    speak(say_with_a_prefix_of_a_level);
    CHECK_EQ(count(said_err, "\n"), 2);
}

static char folder[64];

/* The parent does not know our process id, so the file gets another name in the end. */
static void say_into_a_file(void)
{
    char setup[128], from[96], to[96];

    snprintf(setup, sizeof(setup), "info:%s/log.%%p", folder);
    snprintf(from, sizeof(from), "%s/log.%d", folder, (int)getpid());
    snprintf(to, sizeof(to), "%s/log", folder);
    cup_log_setup(setup);
    say_each();
    if (rename(from, to) != 0)
        _exit(1);
}

static void read_log(char *out)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/log", folder);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    read_back(fd, out);
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/cup_log_XXXXXX");
    CHECK(mkdtemp(folder));
}

TEST(log, a_file_with_the_process_in_its_name)
{
    static char text[SAID_MAX];

    make_folder();
    speak(say_into_a_file);
    CHECK_MSG(said_err[0] == '\0', "stderr: %s", said_err);
    read_log(text);
    CHECK_MSG(strcmp(text, "cupola: an error\ncupola: an info\n") == 0, "%s", text);
}

static void say_into_nowhere(void)
{
    cup_log_setup("info:/nonexistent/log");
    say_each();
}

TEST(log, a_file_that_cannot_be_opened_is_one_line_and_stderr)
{
    speak(say_into_nowhere);
    CHECK_EQ(count(said_err, "\n"), 3);
    CHECK_EQ(count(said_err, "/nonexistent/log"), 1);
}

static void say_a_thousand(void)
{
    cup_log_setup("debug");
    for (int i = 0; i < 1000; i++)
        cup_log(CUP_LOG_ERROR, "again");
    for (int i = 0; i < 300; i++)
        cup_log(CUP_LOG_DEBUG, "detail");
}

TEST(log, a_loop_of_errors_ends_but_debug_does_not)
{
    speak(say_a_thousand);
    CHECK_EQ(count(said_err, "again\n"), 200);
    CHECK_EQ(count(said_err, "detail\n"), 300);
}

static void keep_errno(void)
{
    cup_log_setup("debug:/nonexistent/log");
    errno = 4711;
    cup_log_setup("info:/nonexistent/log");
    if (errno != 4711)
        _exit(1);
    close(2);
    say_each();
    cup_log_complain("nobody hears this");
    if (errno != 4711)
        _exit(2);
}

TEST(log, errno_is_the_programs)
{
    speak(keep_errno);
}

static void say_too_much(void)
{
    static char text[5000];

    memset(text, 'x', sizeof(text) - 1);
    cup_log(CUP_LOG_ERROR, "%s", text);
    cup_log(CUP_LOG_ERROR, "the next");
}

TEST(log, a_long_line_is_cut_and_stays_a_line)
{
    speak(say_too_much);
    CHECK_EQ(count(said_err, "\n"), 2);
    CHECK(strcspn(said_err, "\n") < 1024);
    CHECK_EQ(count(said_err, "\ncupola: the next\n"), 1);
}

#define THREADS 4
#define LINES   40

static void *say_from_a_thread(void *argument)
{
    for (int i = 0; i < LINES; i++)
        cup_log(CUP_LOG_ERROR, "[%c%c%c%c]", *(char *)argument, *(char *)argument, *(char *)argument,
                *(char *)argument);
    return NULL;
}

static void say_from_threads(void)
{
    static char names[THREADS] = {'a', 'b', 'c', 'd'};
    pthread_t thread[THREADS];

    cup_log_setup("error:/proc/self/fd/2"); /* O_APPEND, as with any file */
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, say_from_a_thread, &names[i]) != 0)
            _exit(1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

TEST(log, lines_of_several_threads_stay_whole)
{
    speak(say_from_threads);
    CHECK_EQ(count(said_err, "\n"), THREADS * LINES);
    CHECK_EQ(count(said_err, "cupola: [aaaa]\n"), LINES);
    CHECK_EQ(count(said_err, "cupola: [bbbb]\n"), LINES);
    CHECK_EQ(count(said_err, "cupola: [cccc]\n"), LINES);
    CHECK_EQ(count(said_err, "cupola: [dddd]\n"), LINES);
}
