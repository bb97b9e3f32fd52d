/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_dlsym - the second door: what dlsym finds in libcuda. ctypes, cuFFT, Numba and old runtimes come
 * this way.
 *
 * How: dlsym(RTLD_NEXT) means "after the caller", and the caller is known by the return address. A
 * wrapper that calls the real dlsym would make every other preload find itself for ever. So dlsym is
 * written in assembly: unless the name is one that we hook it *jumps* to the real one with the stack as
 * it came (a test looks for the jump).
 *
 * Only names cu[A-Z]… are looked at, and only what the real dlsym returned decides: the address must be
 * the real driver's. RTLD_NEXT passes: its answer depends on the caller.
 *
 * No lock, no allocation, no environment here: dlsym runs inside constructors, inside malloc, inside
 * libcuda's own start.
 */
#define _GNU_SOURCE
#include "preload/hook_table.h"
#include "preload/hooks.h"
#include <dlfcn.h>
#include <link.h>

/* What pick() answers when the real dlsym shall be jumped to. */
#define PASS ((void *)-1)

CUP_EXPORT void *dlsym(void *restrict handle, const char *restrict name);
__attribute__((used)) void *cup_hook_dlsym_pick(void *handle, const char *name, const void *caller);
__attribute__((used)) void cup_hook_dlsym_start(void);

__attribute__((no_sanitize("address", "thread", "undefined"))) void cup_hook_dlsym_start(void)
{
    cup_drv_find_real_dlsym();
}

static void *count(void *found, void *real)
{
    if (found != real)
        cup_route_note_dlsym();
    return found;
}

/* A name in none of our LISTs is our business only where the answer is the driver's. */
static void *pick_unknown(void *handle, const char *name)
{
    void *driver = cup_drv_symbol(name);

    if (!driver || cup_drv_real_dlsym(handle, name) != driver)
        return PASS; /* the look-up behind the jump leaves its own dlerror() */
    return count(cup_hook_substitute(name, driver), driver);
}

/*
 * RTLD_DEFAULT would find our own export even where no driver is loaded, and programs ask it whether there
 * is one: look behind us first. Where there is anything the search may take its own way: it meets us, or a
 * preload in front of us, before the driver. A library out of sight has its own libraries in its search; as
 * we are not it, its handle is asked. A miss leaves its message for dlerror() as the program would have got
 * it.
 */
static void *pick_default(const char *name, const void *caller)
{
    struct link_map *map = NULL;
    Dl_info info;
    void *found;

    if (cup_drv_real_dlsym(RTLD_NEXT, name)) {
        cup_route_note_dlsym();
        return PASS;
    }
    if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || map->l_name[0] == '\0')
        return NULL;
    found = cup_drv_real_dlsym(map, name);
    return count(cup_hook_find(found), found);
}

void *cup_hook_dlsym_pick(void *handle, const char *name, const void *caller)
{
    cup_name_t kind;
    void *real;

    if (handle == RTLD_NEXT)
        return PASS;
    kind = cup_hook_classify(name);
    if (kind == CUP_NAME_KNOWN)
        return PASS;
    if (!cup_drv_real_dlsym)
        cup_drv_find_real_dlsym();
    cup_hook_prepare();
    if (kind == CUP_NAME_UNKNOWN)
        return pick_unknown(handle, name);
    if (handle == RTLD_DEFAULT)
        return pick_default(name, caller);
    real = cup_drv_real_dlsym(handle, name);
    return count(cup_hook_find(real), real);
}

#if defined(__x86_64__)
/* rdi: handle, rsi: name. The stack is 16-byte aligned at each call; nothing but the scratch registers is
 * touched. */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    testq %rsi, %rsi\n"
        "    je 1f\n"
        "    cmpb $'c', (%rsi)\n"
        "    jne 1f\n"
        "    cmpb $'u', 1(%rsi)\n"
        "    jne 1f\n"
        "    movzbl 2(%rsi), %eax\n"
        "    subl $'A', %eax\n"
        "    cmpl $25, %eax\n"
        "    ja 1f\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n" /* where dlsym returns to */
        "    call cup_hook_dlsym_pick\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    cmpq $-1, %rax\n"
        "    je 1f\n"
        "    ret\n"
        "1:  movq cup_drv_real_dlsym(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    je 2f\n"
        "    jmp *%rax\n"
        "2:  pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call cup_hook_dlsym_start\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    movq cup_drv_real_dlsym(%rip), %rax\n"
        "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#else
#error "write the tail jump for this processor: a C wrapper breaks RTLD_NEXT for every other preload"
#endif
