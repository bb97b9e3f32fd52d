/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit_inproc - the in-process runner: all tests, or those named `suite` or `suite/name` on the command
 * line. The last line counts; exit code 1 when one failed or nothing ran.
 */
#include "tests/support/unit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static cup_unit_test_t *first, **last = &first;
static jmp_buf leave;

void cup_unit_register(cup_unit_test_t *test)
{
    *last = test;
    last = &test->next;
}

void cup_unit_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    longjmp(leave, 1);
}

static int is_wanted(const cup_unit_test_t *test, int argc, char **argv)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", test->suite, test->name);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], full) || !strcmp(argv[i], test->suite))
            return 1;
    return argc < 2;
}

static int run(const cup_unit_test_t *test)
{
    if (setjmp(leave) == 0) {
        test->body();
        return 1;
    }
    fprintf(stderr, "FAILED %s/%s\n", test->suite, test->name);
    return 0;
}

int main(int argc, char **argv)
{
    int counts[2] = {0, 0};
    for (const cup_unit_test_t *test = first; test; test = test->next)
        if (is_wanted(test, argc, argv))
            counts[run(test)]++;
    fflush(stderr);
    printf("%d passed, %d failed\n", counts[1], counts[0]);
    return counts[0] > 0 || counts[1] == 0;
}
