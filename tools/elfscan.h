/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elfscan - what a program's file says about how it reaches CUDA, without running it.
 * What:       the program behind a command word (PATH, one "#!" line), its kind, its libraries and imports.
 * Not here:   what its libraries load later (a run under the preload shows that: doctor.c).
 */
#ifndef CUP_TOOLS_ELFSCAN_H
#define CUP_TOOLS_ELFSCAN_H
#include <limits.h>
#include <stdbool.h>

typedef enum {
    CUP_ELF_MISSING, /* no such program, or not readable */
    CUP_ELF_OTHER,   /* not an ELF program */
    CUP_ELF_FOREIGN, /* not for this processor: 32 bits, another machine */
    CUP_ELF_STATIC,  /* no dynamic loader: a preload can't enter */
    CUP_ELF_DYNAMIC,
} cup_elf_kind_t;

typedef struct cup_elf {
    char path[PATH_MAX]; /* the file that was looked at */
    bool is_script;      /* path is the interpreter of the file that was named */
    cup_elf_kind_t kind;
    bool is_privileged; /* set-user-ID, set-group-ID or file capabilities: ld.so ignores LD_PRELOAD */
    bool needs_driver;  /* DT_NEEDED libcuda.so */
    bool needs_cudart;  /* DT_NEEDED libcudart.so */
    bool imports_dlsym, imports_dlopen;
    bool exports_alloc_door; /* defines cuMemAlloc_v2: libcupola.so itself, or a driver */
} cup_elf_t;

/* word as a shell would look it up. */
void cup_elf_scan(const char *word, cup_elf_t *out_elf);

#endif /* CUP_TOOLS_ELFSCAN_H */
