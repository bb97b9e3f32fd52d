/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: every signal but those of job control and of faults is blocked before the fork and taken with
 * sigwaitinfo, so no handler runs and none gets lost between fork and wait. The child gets the mask and the
 * disposition of SIGCHLD that we were started with. A signal with a sender (kill, sigqueue) is passed on; one
 * from the kernel (Ctrl-C, a closed terminal) went to the whole foreground group already. A failed exec comes
 * back through a pipe that a good one closes. The child dies with us, even by SIGKILL: who kills the wrapper
 * means the program.
 */
#define _GNU_SOURCE
#include "tools/launch.h"
#include "tools/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

bool cup_launch_preload(const char *library)
{
    static const char separators[] = " :"; /* ld.so(8) takes both */
    const char *before = getenv("LD_PRELOAD");
    char *list = malloc(strlen(library) + (before ? strlen(before) : 0) + 2);
    size_t length = strlen(library);
    bool is_set;

    if (!list)
        return false;
    strcpy(list, library);
    for (const char *at = before; at && *at;) {
        size_t span = strcspn(at, separators);

        if (span > 0 && !(span == strlen(library) && memcmp(at, library, span) == 0)) {
            list[length++] = ':';
            memcpy(list + length, at, span);
            length += span;
            list[length] = '\0';
        }
        at += span;
        at += *at != '\0';
    }
    is_set = setenv("LD_PRELOAD", list, 1) == 0;
    free(list);
    return is_set;
}

static int say_exec_failure(const char *program, int error)
{
    cup_tool_say("%s: %s", program, strerror(error));
    return error == ENOENT ? CUP_EXIT_NOT_FOUND : CUP_EXIT_NOT_EXEC;
}

int cup_launch_exec(char *const *argv)
{
    execvp(argv[0], argv);
    return say_exec_failure(argv[0], errno);
}

/* What the parent needs back, and the child must give back before exec. */
typedef struct inherited {
    sigset_t mask;
    struct sigaction on_child;
} inherited_t;

static void take_signals(sigset_t *out_taken, inherited_t *out_before)
{
    static const int left[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};
    struct sigaction plain = {.sa_handler = SIG_DFL};

    sigfillset(out_taken);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
        sigdelset(out_taken, left[i]);
    sigprocmask(SIG_BLOCK, out_taken, &out_before->mask);
    sigaction(SIGCHLD, &plain,
              &out_before->on_child); /* an ignored SIGCHLD would leave nothing to wait for */
}

static void give_signals_back(const inherited_t *before)
{
    sigaction(SIGCHLD, &before->on_child, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

static _Noreturn void become_program(char *const *argv, bool is_stdout_kept, const inherited_t *before,
                                     pid_t parent, int failure_pipe)
{
    int error;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CUP_EXIT_OWN);
    if (is_stdout_kept)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    give_signals_back(before);
    execvp(argv[0], argv);
    error = errno;
    if (write(failure_pipe, &error, sizeof(error)) != sizeof(error))
        _exit(CUP_EXIT_OWN);
    _exit(CUP_EXIT_NOT_EXEC);
}

/* 0 once the program runs, or the errno of its exec. */
static int read_failure(int fd)
{
    int error = 0;
    ssize_t length;

    do
        length = read(fd, &error, sizeof(error));
    while (length < 0 && errno == EINTR);
    return length == (ssize_t)sizeof(error) ? error : 0;
}

static int wait_and_forward(pid_t child, const sigset_t *taken)
{
    int status;

    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(taken, &info);

        if (number == SIGCHLD) {
            if (waitpid(child, &status, WNOHANG) == child)
                return status;
        } else if (number > 0 && info.si_code <= 0) {
            kill(child, number); /* not reaped yet: the number is still its own */
        }
    }
}

int cup_launch_wait(char *const *argv, bool is_stdout_kept, int *out_status)
{
    int ends[2], error;
    sigset_t taken;
    inherited_t before;
    pid_t parent = getpid(), child;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        cup_tool_say("pipe: %s", strerror(errno));
        return CUP_EXIT_OWN;
    }
    take_signals(&taken, &before);
    child = fork();
    if (child == 0)
        become_program(argv, is_stdout_kept, &before, parent, ends[1]);
    error = errno;
    close(ends[1]);
    if (child > 0) {
        error = read_failure(ends[0]);
        *out_status = wait_and_forward(child, &taken);
    }
    close(ends[0]);
    give_signals_back(&before);
    if (child < 0) {
        cup_tool_say("fork: %s", strerror(error));
        return CUP_EXIT_OWN;
    }
    return error ? say_exec_failure(argv[0], error) : 0;
}

int cup_launch_mirror(int status)
{
    const struct rlimit no_core = {0, 0}; /* the program has left one, where one is wanted */
    sigset_t only;
    int number;

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    number = WTERMSIG(status);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
    return 128 + number;
}
