/* SPDX-License-Identifier: Apache-2.0 */
/*
 * require - what must hold in a test that is a program of its own: else one line on stderr and exit code 1, without exit
 * handlers.
 * Not here:   unit.h, for tests inside a runner.
 */
#ifndef CUP_TESTS_REQUIRE_H
#define CUP_TESTS_REQUIRE_H
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(cond)                                                          \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            _Exit(1);                                                          \
        }                                                                      \
    } while (0)

#endif /* CUP_TESTS_REQUIRE_H */
