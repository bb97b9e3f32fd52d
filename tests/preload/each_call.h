/* SPDX-License-Identifier: Apache-2.0 */
/*
 * each_call - the frame of tests in which every driver call fails once, for every N.
 * What:       for each symbol, N and code a child process of its own, which sets *g_calls to how often the
 *             symbol was called and ends by _exit(0).
 * Invariants: a symbol that is never reached fails the test.
 */
#ifndef TESTS_EACH_CALL_H
#define TESTS_EACH_CALL_H
#include "tests/support/require.h"
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *g_calls; /* shared with the child */

static inline void each_call_run(void (*child)(const char *, uint64_t, int), const char *symbol, uint64_t nth,
                                 int code)
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        child(symbol, nth, code);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    fprintf(stderr, "call %llu of %s failing with %d: status %d\n", (unsigned long long)nth, symbol, code,
            status);
    _Exit(1);
}

/* symbols end with NULL. child(symbol, 0, 0) fails nothing. Up to nth_max calls of each. */
static inline void each_call_fails(const char *const *symbol, uint64_t nth_max,
                                   void (*child)(const char *, uint64_t, int))
{
    static const int codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY};
    size_t count = sizeof(codes) / sizeof(codes[0]);
#ifdef __SANITIZE_THREAD__ /* a second for each child: the first call, one code */
    nth_max = count = 1;
#endif

    g_calls = mmap(NULL, sizeof(*g_calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(g_calls != MAP_FAILED);
    for (; *symbol; symbol++) {
        uint64_t reached;

        each_call_run(child, *symbol, 0, 0);
        reached = *g_calls;
        fprintf(stderr, "%s: %llu calls\n", *symbol, (unsigned long long)reached);
        REQUIRE(reached > 0);
        for (uint64_t nth = 1; nth <= reached && nth <= nth_max; nth++)
            for (size_t c = 0; c < count; c++)
                each_call_run(child, *symbol, nth, codes[c]);
    }
}

#endif /* TESTS_EACH_CALL_H */
