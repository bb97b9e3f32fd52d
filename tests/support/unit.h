/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit - one way to write a unit test.
 * What:       TEST(suite, name) { ... } bodies with CHECK...(); on Criterion (a process per test), or with
 *             CUP_UNIT_INPROC on a small runner in one process: for ThreadSanitizer, under which Criterion
 *             cannot start, and for machines without Criterion.
 * Threads:    CHECK in the thread of the test only; other threads hand their findings back as values.
 */
#ifndef CUP_TESTS_UNIT_H
#define CUP_TESTS_UNIT_H

#ifdef CUP_UNIT_INPROC

typedef struct cup_unit_test {
    const char *suite, *name;
    void (*body)(void);
    struct cup_unit_test *next;
} cup_unit_test_t;

void cup_unit_register(cup_unit_test_t *test);

/* Prints the finding and leaves the test. */
void cup_unit_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

#define TEST(suite_, name_)                                                                  \
    static void suite_##_##name_(void);                                                      \
    static cup_unit_test_t suite_##_##name_##_test = {#suite_, #name_, suite_##_##name_, 0}; \
    static void __attribute__((constructor)) suite_##_##name_##_register(void)               \
    {                                                                                        \
        cup_unit_register(&suite_##_##name_##_test);                                         \
    }                                                                                        \
    static void suite_##_##name_(void)

#define CHECK_MSG(cond, ...) ((cond) ? (void)0 : cup_unit_fail(__FILE__, __LINE__, __VA_ARGS__))

#else
#include <criterion/criterion.h>

#define TEST(suite_, name_)  Test(suite_, name_)
#define CHECK_MSG(cond, ...) cr_assert((cond), __VA_ARGS__)
#endif

#define CHECK(cond) CHECK_MSG((cond), "%s", #cond)

/* Integers, addresses, enumerators. */
#define CHECK_EQ(a, b)                                                                                     \
    do {                                                                                                   \
        unsigned long long left_ = (unsigned long long)(a), right_ = (unsigned long long)(b);              \
        CHECK_MSG(left_ == right_, "%s is %llu (0x%llx), not %llu (0x%llx, %s)", #a, left_, left_, right_, \
                  right_, #b);                                                                             \
    } while (0)

/* A text that names what is broken; NULL is good. */
#define CHECK_SOUND(expression)                              \
    do {                                                     \
        const char *broken_ = (expression);                  \
        CHECK_MSG(!broken_, "%s: %s", #expression, broken_); \
    } while (0)

#endif /* CUP_TESTS_UNIT_H */
