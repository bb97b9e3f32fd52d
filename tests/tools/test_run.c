/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run - `cupola run` and the command's own manners.
 * How:        where the preload must not be real (a sanitized library can't enter a shell), any other
 *             library stands in.
 */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "tests/tools/shell.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef CUP_SANITIZED
#define PRELOAD OTHER_LIBRARY
#else
#define PRELOAD LIBRARY
#endif
#define RUN TOOL, "run", "--library", PRELOAD

static cup_said_t said;

static void check_code(int expected)
{
    CHECK_MSG(WIFEXITED(said.status) && WEXITSTATUS(said.status) == expected, "status 0x%x, not code %d: %s",
              said.status, expected, said.err);
}

/* The last line on stderr is ours and names what to do next. */
static void check_closing_line(void)
{
    const char *last = said.err;

    for (const char *at = said.err; *at; at = strchr(at, '\n') + 1) {
        last = at;
        CHECK_MSG(strchr(at, '\n'), "no newline at the end: %s", said.err);
    }
    CHECK_MSG(strncmp(last, "cupola: ", 8) == 0 && strstr(last, "next"), "%s", said.err);
}

TEST(run, passes_the_exit_code_on)
{
    SHELL(&said, RUN, "--", "true");
    check_code(0);
    SHELL(&said, RUN, "--", "sh", "-c", "exit 7");
    check_code(7);
    SHELL(&said, RUN, "--", "sh", "-c", "exit 127");
    check_code(127);
    check_closing_line(); /* the program's own 127, not ours */
    SHELL(&said, RUN, "-q", "--", "sh", "-c", "exit 7");
    check_code(7);
}

TEST(run, has_codes_of_its_own)
{
    SHELL(&said, TOOL, "run");
    check_code(125);
    SHELL(&said, RUN, "--no-such-option", "--", "true");
    check_code(125);
    SHELL(&said, TOOL, "run", "--library", "/nonexistent/libcupola.so", "--", "true");
    check_code(125);
    CHECK(strstr(said.err, "/nonexistent/libcupola.so"));
    SHELL(&said, RUN, "--", "/etc/passwd");
    check_code(126);
    SHELL(&said, RUN, "-q", "--", "/etc/passwd");
    check_code(126);
    SHELL(&said, RUN, "--", "no-such-program-anywhere");
    check_code(127);
    CHECK_MSG(strcmp(said.err, "cupola: no-such-program-anywhere: No such file or directory\n") == 0, "%s",
              said.err);
    SHELL(&said, RUN, "-q", "--", "no-such-program-anywhere");
    check_code(127);
}

static void check_ended_by(int expected, char *script)
{
    SHELL(&said, RUN, "--", "sh", "-c", script);
    CHECK_MSG(WIFSIGNALED(said.status) && WTERMSIG(said.status) == expected, "status 0x%x, not signal %d",
              said.status, expected);
    check_closing_line();
}

TEST(run, ends_by_the_signal_that_ended_the_program)
{
    check_ended_by(SIGKILL, "kill -KILL $$");
    check_ended_by(SIGTERM, "kill -TERM $$");
    check_ended_by(SIGSEGV, "kill -SEGV $$");
    check_ended_by(SIGINT, "kill -INT $$");
}

#define UNTIL_TOLD "trap 'exit 9' USR1 TERM INT; echo up; while :; do sleep 0.05; done"

static int end_of(cup_running_t running)
{
    int status;

    close(running.out);
    CHECK_EQ(waitpid(running.pid, &status, 0), running.pid);
    return status;
}

TEST(run, sends_signals_on)
{
    static const int numbers[] = {SIGUSR1, SIGTERM, SIGINT};
    char line[64];

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        cup_running_t running =
            cup_shell_start((char *const[]){RUN, "--", "sh", "-c", UNTIL_TOLD, NULL}, line, sizeof(line));
        int status;

        CHECK_MSG(strcmp(line, "up") == 0, "%s", line);
        kill(running.pid, numbers[i]);
        status = end_of(running);
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 9, "signal %d: status 0x%x", numbers[i],
                  status);
    }
}

TEST(run, takes_the_program_along_when_killed)
{
    char line[64], rest;
    cup_running_t running = cup_shell_start(
        (char *const[]){RUN, "--", "sh", "-c", "echo up; exec sleep 30", NULL}, line, sizeof(line));

    CHECK_MSG(strcmp(line, "up") == 0, "%s", line);
    kill(running.pid, SIGKILL);
    alarm(20); /* the pipe ends when the program does; else this test is ended */
    CHECK_EQ(read(running.out, &rest, 1), 0);
    alarm(0);
    CHECK(WIFSIGNALED(end_of(running)));
}

TEST(run, waits_where_children_are_ignored)
{
    /* dash can't ignore SIGCHLD, env can */
    SHELL(&said, "env", "--ignore-signal=CHLD", RUN, "--", "sh", "-c", "exit 7");
    check_code(7);
}

TEST(run, quiet_becomes_the_program)
{
    char line[64], expected[64];
    cup_running_t running = cup_shell_start(
        (char *const[]){RUN, "--quiet", "--", "sh", "-c", "echo $$", NULL}, line, sizeof(line));

    snprintf(expected, sizeof(expected), "%d", (int)running.pid);
    CHECK_MSG(strcmp(line, expected) == 0, "%s is not %s", line, expected);
    end_of(running);
    SHELL(&said, RUN, "--quiet", "--", "echo", "out");
    CHECK_MSG(said.err[0] == '\0', "%s", said.err);
    CHECK(strcmp(said.out, "out\n") == 0);
}

TEST(run, stdout_is_the_programs_alone)
{
    SHELL(&said, RUN, "--", "printf", "%s", "no newline");
    check_code(0);
    CHECK_MSG(strcmp(said.out, "no newline") == 0, "%s", said.out);
    check_closing_line();
    SHELL(&said, RUN, "--", "cat", "/dev/null");
    CHECK(said.out[0] == '\0');
}

TEST(run, keeps_what_is_preloaded)
{
    static const struct {
        const char *before, *after;
    } table[] = {
        {"LD_PRELOAD", PRELOAD},
        {"LD_PRELOAD=", PRELOAD},
        {"LD_PRELOAD=libm.so.6", PRELOAD ":libm.so.6"},
        {"LD_PRELOAD=libm.so.6:" PRELOAD, PRELOAD ":libm.so.6"},
        {"LD_PRELOAD=" PRELOAD, PRELOAD},
        {"LD_PRELOAD=libm.so.6 " PRELOAD ":libdl.so.2", PRELOAD ":libm.so.6:libdl.so.2"},
    };
    char real[4096];

    CHECK(realpath(PRELOAD, real));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const char *environment[] = {table[i].before, "ASAN_OPTIONS=verify_asan_link_order=0", NULL};
        const char *rest = table[i].after + strlen(PRELOAD);

        if (strcmp(real, PRELOAD) != 0 && strstr(table[i].before, PRELOAD))
            continue; /* the stand-in is a link: by that name it is another library */
        cup_shell((char *const[]){RUN, "--", "sh", "-c", "echo $LD_PRELOAD", NULL}, environment, &said);
        check_code(0);
        said.out[strcspn(said.out, "\n")] = '\0';
        CHECK_MSG(strncmp(said.out, real, strlen(real)) == 0 && strcmp(said.out + strlen(real), rest) == 0,
                  "%s became %s", table[i].before, said.out);
    }
}

TEST(run, sets_words_in_the_environment)
{
    SHELL(&said, RUN, "CUP_A=1", "CUP_B=x=y z", "CUP_C=", "--", "sh", "-c",
          "echo \"[$CUP_A][$CUP_B][${CUP_C-unset}][${CUP_D-unset}]\"");
    check_code(0);
    CHECK_MSG(strcmp(said.out, "[1][x=y z][][unset]\n") == 0, "%s", said.out);
    SHELL(&said, RUN, "CUP_A=1", "sh", "-c", "echo $CUP_A; exit 4"); /* as env(1): no -- */
    check_code(4);
    CHECK(strcmp(said.out, "1\n") == 0);
    SHELL(&said, RUN, "PATH=/nonexistent", "--", "sh");
    check_code(127);
    SHELL(&said, RUN, "--", "CUP_A=1", "true"); /* behind -- it is a program */
    check_code(127);
}

TEST(run, says_what_a_program_without_cuda_did)
{
    SHELL(&said, RUN, "--", "true");
    check_closing_line();
    CHECK_MSG(strstr(said.err, "cupola doctor -- true"), "%s", said.err);
    SHELL(&said, RUN, "CUPOLA_DISABLE=1", "--", "true");
    check_closing_line();
    CHECK_MSG(strstr(said.err, "CUPOLA_DISABLE=1"), "%s", said.err);
    SHELL(&said, RUN, "CUPOLA_CONF=stats:/tmp/%p.json", "--", "sh", "-c", "echo ${CUPOLA_STATS-unset}");
    check_closing_line();
    CHECK_MSG(strcmp(said.out, "unset\n") == 0, "%s", said.out); /* the user's wish stays as it is */
}

#ifndef CUP_SANITIZED
TEST(run, says_what_the_pool_did)
{
    static const char *const environment[] = {"LD_LIBRARY_PATH=" SOFTCUDA, NULL};

    cup_shell((char *const[]){RUN, "--", APP, "1000", NULL}, environment, &said);
    check_code(0);
    CHECK_MSG(strcmp(said.out, "allocated 1000 times\n") == 0, "%s", said.out);
    check_closing_line();
    CHECK_MSG(strstr(said.err, "cupola: 1000 of 1000 allocations served by the pool"), "%s", said.err);
    cup_shell((char *const[]){RUN, "--", "sh", "-c", APP " 100; " APP " 23", NULL}, environment, &said);
    CHECK_MSG(strstr(said.err, "cupola: 123 of 123 allocations in 2 processes"), "%s", said.err);
    cup_shell((char *const[]){RUN, "CUPOLA_EXCLUDE=tool_app", "--", APP, "10", NULL}, environment, &said);
    check_code(0);
    check_closing_line();
    CHECK_MSG(strstr(said.err, "cupola doctor"), "%s", said.err);
}

TEST(run, figures_of_a_file)
{
    static const char *const environment[] = {"LD_LIBRARY_PATH=" SOFTCUDA, NULL};
    char folder[64], path[128], word[192];

    cup_shell_folder(folder);
    snprintf(path, sizeof(path), "%s/stats", folder);
    snprintf(word, sizeof(word), "CUPOLA_STATS=%s", path);
    for (int i = 0; i < 2; i++)
        cup_shell((char *const[]){RUN, word, "--", APP, "50", NULL}, environment, &said);
    CHECK_MSG(strstr(said.err, path), "%s", said.err);
    SHELL(&said, TOOL, "stat", path);
    check_code(0);
    CHECK_MSG(strstr(said.out, "  2  processes\n"), "%s", said.out);
    CHECK_MSG(strstr(said.out, " 100  pool_allocs "), "%s", said.out);
    cup_shell_file(folder, "stats", "nonsense\n", 9, path);
    SHELL(&said, TOOL, "stat", path);
    check_code(1);
    cup_shell_remove(folder);
    SHELL(&said, TOOL, "stat", path);
    check_code(125);
}
#endif

TEST(run, the_command_itself)
{
    SHELL(&said, TOOL, "--version");
    check_code(0);
    CHECK_MSG(strncmp(said.out, "cupola ", 7) == 0, "%s", said.out);
    SHELL(&said, TOOL, "--help");
    check_code(0);
    CHECK(strstr(said.out, "cupola run -- "));
    SHELL(&said, TOOL, "run", "--help");
    check_code(0);
    CHECK(strstr(said.out, "CUPOLA_FREE=sync"));
    SHELL(&said, TOOL, "fly");
    check_code(125);
    CHECK_MSG(strstr(said.err, "fly") && strstr(said.err, "run doctor list stat"), "%s", said.err);
    CHECK(said.out[0] == '\0');
    SHELL(&said, TOOL);
    check_code(125);
}

/* Copies of the tool and of a library, arranged as an installation may be. */
static void check_found(const char *tool, const char *library, int expected)
{
    char folder[64], script[1024];

    cup_shell_folder(folder);
    snprintf(script, sizeof(script),
             "cd '%s' && mkdir -p \"$(dirname '%s')\" \"$(dirname '%s')\" && cp '" TOOL
             "' '%s' && cp '" PRELOAD "' '%s' && "
             "'./%s' run -- sh -c 'case $LD_PRELOAD in %s/*) ;; *) exit 3;; esac'",
             folder, tool, library, tool, library, tool, folder);
    SHELL(&said, "sh", "-c", script);
    check_code(expected);
    cup_shell_remove(folder);
}

TEST(run, finds_the_library)
{
    check_found("bin/cupola", "libcupola.so", 0);
    check_found("cupola", "libcupola.so", 0);
    check_found("bin/cupola", "lib/cupola/libcupola.so", 0);
    check_found("bin/cupola", "lib/libcupola.so", 0);
    check_found("bin/cupola", "elsewhere/libcupola.so", 125);
    check_found("a folder/cupola", "a folder/libcupola.so", 125); /* LD_PRELOAD can't name it */
}
