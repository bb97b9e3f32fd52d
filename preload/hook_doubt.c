/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the stubs are assembly, because they must not know their function's signature. Each loads its
 * number and goes to the common part, which saves every register that can carry an argument (rax tells
 * variadic functions how many vector registers do), calls C, restores, and jumps. The caller's stack is
 * as it came.
 */
#include "preload/hook_doubt.h"
#include "shim/route.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define STUB_COUNT      256 /* the .rept below, too */
#define STUB_SIZE_BYTES 16
#define NAME_BYTES      64

extern const char cup_hook_doubt_stubs[];
__attribute__((used)) void cup_hook_doubt_called(unsigned number);
__attribute__((used)) _Atomic(void *) cup_hook_doubt_real[STUB_COUNT];

/* What to say at the stub's first call: the name it was looked up by. */
static struct {
    char text[NAME_BYTES];
    _Atomic bool is_told, is_there;
} g_name[STUB_COUNT];

static void keep_name(size_t number, const char *name)
{
    strncpy(g_name[number].text, name, NAME_BYTES - 1);
    atomic_store_explicit(&g_name[number].is_there, true, memory_order_release);
}

/* Slots are taken in order and never given back, so a search that meets an empty one has seen all that
 * are taken. */
void *cup_hook_doubt(const char *name, void *real)
{
    for (size_t i = 0; i < STUB_COUNT; i++) {
        void *there = NULL;

        if (atomic_compare_exchange_strong(&cup_hook_doubt_real[i], &there, real))
            keep_name(i, name);
        else if (there != real)
            continue;
        return (void *)(cup_hook_doubt_stubs + i * STUB_SIZE_BYTES);
    }
    return real;
}

void cup_hook_doubt_called(unsigned number)
{
    int saved = errno;
    bool is_new = atomic_load_explicit(&g_name[number].is_there, memory_order_acquire) &&
                  !atomic_exchange_explicit(&g_name[number].is_told, true, memory_order_relaxed);

    cup_route_doubt(is_new ? g_name[number].text : NULL);
    errno = saved;
}

#if defined(__x86_64__)
/* clang-format off */
__asm__(".text\n"
        ".balign 16\n"
        ".hidden cup_hook_doubt_stubs\n"
        ".globl cup_hook_doubt_stubs\n"
        ".type cup_hook_doubt_stubs, @function\n"
        "cup_hook_doubt_stubs:\n"
        ".cfi_startproc\n"
        ".set stub_number, 0\n"
        ".rept 256\n"
        "    .balign 16\n"
        "    endbr64\n"
        "    movl $stub_number, %r11d\n"
        "    jmp cup_hook_doubt_common\n"
        "    .set stub_number, stub_number + 1\n"
        ".endr\n"
        ".cfi_endproc\n"
        ".size cup_hook_doubt_stubs, .-cup_hook_doubt_stubs\n"

        ".balign 16\n"
        ".type cup_hook_doubt_common, @function\n"
        "cup_hook_doubt_common:\n"
        ".cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %rbp, 0\n"
        "    movq %rsp, %rbp\n"
        "    .cfi_def_cfa_register %rbp\n"
        /* Eight words and eight vectors; the caller's stack may be as odd as its function allows. */
        "    subq $192, %rsp\n"
        "    andq $-16, %rsp\n"
        "    movq %rdi, 0(%rsp)\n"
        "    movq %rsi, 8(%rsp)\n"
        "    movq %rdx, 16(%rsp)\n"
        "    movq %rcx, 24(%rsp)\n"
        "    movq %r8, 32(%rsp)\n"
        "    movq %r9, 40(%rsp)\n"
        "    movq %rax, 48(%rsp)\n"
        "    movq %r11, 56(%rsp)\n"
        "    movaps %xmm0, 64(%rsp)\n"
        "    movaps %xmm1, 80(%rsp)\n"
        "    movaps %xmm2, 96(%rsp)\n"
        "    movaps %xmm3, 112(%rsp)\n"
        "    movaps %xmm4, 128(%rsp)\n"
        "    movaps %xmm5, 144(%rsp)\n"
        "    movaps %xmm6, 160(%rsp)\n"
        "    movaps %xmm7, 176(%rsp)\n"
        "    movl %r11d, %edi\n"
        "    call cup_hook_doubt_called\n"
        "    movq 0(%rsp), %rdi\n"
        "    movq 8(%rsp), %rsi\n"
        "    movq 16(%rsp), %rdx\n"
        "    movq 24(%rsp), %rcx\n"
        "    movq 32(%rsp), %r8\n"
        "    movq 40(%rsp), %r9\n"
        "    movq 48(%rsp), %rax\n"
        "    movq 56(%rsp), %r11\n"
        "    movaps 64(%rsp), %xmm0\n"
        "    movaps 80(%rsp), %xmm1\n"
        "    movaps 96(%rsp), %xmm2\n"
        "    movaps 112(%rsp), %xmm3\n"
        "    movaps 128(%rsp), %xmm4\n"
        "    movaps 144(%rsp), %xmm5\n"
        "    movaps 160(%rsp), %xmm6\n"
        "    movaps 176(%rsp), %xmm7\n"
        "    leave\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    .cfi_restore %rbp\n"
        "    leaq cup_hook_doubt_real(%rip), %r10\n"
        "    jmp *(%r10, %r11, 8)\n"
        ".cfi_endproc\n"
        ".size cup_hook_doubt_common, .-cup_hook_doubt_common\n");
/* clang-format on */
#else
#error "write the stubs for this processor"
#endif
