/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_doubt - the stubs alone: the arguments, results and errno of any signature come through, and each
 * call tells once.
 */
#include "preload/hook_doubt.h"
#include "preload/hooks.h"
#include "tests/support/unit.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { STUBS = 256 };

static int g_told, g_named;
static uintptr_t g_frame;
static int g_taken; /* stubs so far: the tests may share a process */

static void *stub_of(void *function)
{
    g_taken++;
    return cup_hook_doubt("cuNobody", function);
}

/* In the shim's place. Overwrites what any call may overwrite. */
void cup_route_doubt(const char *name)
{
    g_told++;
    g_named += name && strcmp(name, "cuNobody") == 0;
    g_frame = (uintptr_t)__builtin_frame_address(0);
    errno = ERANGE;
    /* clang-format off */
    __asm__ volatile("xorl %%edi, %%edi; xorl %%esi, %%esi; xorl %%edx, %%edx; xorl %%ecx, %%ecx\n"
                     "xorl %%eax, %%eax; xorl %%r8d, %%r8d; xorl %%r9d, %%r9d; xorl %%r10d, %%r10d\n"
                     "xorl %%r11d, %%r11d; pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm2, %%xmm2\n"
                     "pxor %%xmm3, %%xmm3; pxor %%xmm4, %%xmm4; pxor %%xmm5, %%xmm5; pxor %%xmm6, %%xmm6\n"
                     "pxor %%xmm7, %%xmm7\n" ::
                     : "rdi", "rsi", "rdx", "rcx", "rax", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory", "cc");
    /* clang-format on */
}

typedef struct {
    uint64_t word[6];
} by_value_t;

static double mixed(int a, double i, long b, double j, void *c, float k, unsigned d, double l, short e,
                    double m, char f, double n, by_value_t g, double o, long h, double p, long last, double q)
{
    return a + b * 10.0 + (double)(uintptr_t)c * 1e2 + d * 1e3 + e * 1e4 + f * 1e5 + (double)g.word[5] * 1e6 +
           h * 1e7 + last * 1e8 + i / 2 + j / 4 + k / 8 + l / 16 + m / 32 + n / 64 + o / 128 + p / 256 +
           q / 512;
}

static double call_mixed(double (*function)(int, double, long, double, void *, float, unsigned, double, short,
                                            double, char, double, by_value_t, double, long, double, long,
                                            double))
{
    return function(1, 1, 2, 1, (void *)3, 1, 4, 1, 5, 1, 6, 1, (by_value_t){{0, 0, 0, 0, 0, 7}}, 1, 8, 1, 9,
                    1);
}

static double sum(int count, ...)
{
    double total = 0;
    va_list list;

    va_start(list, count);
    for (int i = 0; i < count; i++)
        total += va_arg(list, double) * (i + 1);
    va_end(list);
    return total;
}

static by_value_t give(long seed)
{
    return (by_value_t){{1, 2, 3, 4, 5, (uint64_t)seed}};
}

TEST(doubt, any_signature_comes_through)
{
    double (*stub_mixed)(int, double, long, double, void *, float, unsigned, double, short, double, char,
                         double, by_value_t, double, long, double, long, double) =
        (__typeof__(stub_mixed))stub_of((void *)mixed);
    double (*stub_sum)(int, ...) = (__typeof__(stub_sum))stub_of((void *)sum);
    by_value_t (*stub_give)(long) = (__typeof__(stub_give))stub_of((void *)give);

    g_told = g_named = 0;
    CHECK(stub_mixed != mixed && stub_sum != sum && stub_give != give);
    CHECK(call_mixed(stub_mixed) == call_mixed(mixed));
    CHECK(stub_sum(9, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0) == 285.0);
    CHECK_EQ(stub_give(77).word[5], 77);
    CHECK_EQ(stub_give(78).word[5], 78);
    CHECK_EQ(g_told, 4);
    CHECK_EQ(g_named, 3);      /* each says its name at its first call */
    CHECK_EQ(g_frame % 16, 0); /* the saved frame pointer lies right under an aligned stack */
}

static int get_errno(void)
{
    return errno;
}

TEST(doubt, errno_is_the_programs)
{
    int (*stub)(void) = (int (*)(void))stub_of((void *)get_errno);

    errno = EXDEV;
    CHECK_EQ(stub(), EXDEV);
    CHECK_EQ(errno, EXDEV);
}

__attribute__((naked)) static void do_nothing(void)
{
    __asm__("ret");
}

/* How many vector registers a variadic function finds arguments in. */
TEST(doubt, rax_comes_through)
{
    uint64_t rax = 0x77;

    __asm__ volatile("call *%1"
                     : "+a"(rax)
                     : "b"(stub_of((void *)do_nothing))
                     : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory", "cc");
    CHECK_EQ(rax, 0x77);
}

/* Every tester asks for the same addresses: made up, nobody calls them. */
static void *ask(void *argument)
{
    void **found = argument;

    for (uintptr_t i = 0; i < STUBS + 8; i++)
        found[i] = cup_hook_doubt("cuNowhere", (void *)(0x10000 + i * 64));
    return NULL;
}

TEST(doubt, one_stub_for_one_address_until_there_are_no_more)
{
    static void *found[4][STUBS + 8];
    pthread_t thread[4];
    int stubs = 0;

    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, ask, found[i]), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
    for (uintptr_t i = 0; i < STUBS + 8; i++) {
        for (int j = 1; j < 4; j++)
            CHECK_EQ((uintptr_t)found[j][i], (uintptr_t)found[0][i]);
        for (uintptr_t j = 0; j < i; j++)
            CHECK(found[0][i] != found[0][j]);
        stubs += found[0][i] != (void *)(0x10000 + i * 64);
    }
    CHECK_EQ(stubs, STUBS - g_taken);
}
