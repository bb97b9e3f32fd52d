/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases - a program of several small cases: PROGRAM CASE runs one.
 * How:        the program defines CASE_LIST(X), X(name) for a function of that name, and calls cases_run()
 *             in main.
 */
#ifndef CUP_TESTS_HOSTS_CASES_H
#define CUP_TESTS_HOSTS_CASES_H
#include <string.h>

typedef struct {
    const char *name;
    void (*run)(void);
} case_t;

/* 0, or 2 for a case that is not there. */
static inline int cases_run(const case_t *cases, const char *name)
{
    for (; cases->name != NULL; cases++)
        if (name != NULL && strcmp(cases->name, name) == 0) {
            cases->run();
            return 0;
        }
    return 2;
}

/* main() of such a program. */
#define CASES_MAIN(LIST)                                             \
    int main(int argc, char **argv)                                  \
    {                                                                \
        static const case_t cases[] = {LIST(CASES_ROW){NULL, NULL}}; \
        return cases_run(cases, argc > 1 ? argv[1] : NULL);          \
    }
#define CASES_ROW(name) {#name, name},

#endif /* CUP_TESTS_HOSTS_CASES_H */
