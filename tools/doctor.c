/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - `cupola doctor`: what is there, and with a program: how it reaches CUDA and what the pool did for
 * it.
 * How:        from the bottom up: kernel, driver, library, options, program. The parts that need a file of
 *             their own are doctor_driver.c, doctor_ipc.c and doctor_app.c.
 */
#define _GNU_SOURCE
#include "tools/doctor.h"
#include "shim/conf.h"
#include "tools/elfscan.h"
#include "tools/library.h"
#include "tools/tool.h"
#include <argp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

static unsigned problems;
static cup_conf_t conf; /* some kilobytes; filled by find_options() */

void cup_doctor_find(cup_finding_t status, const char *area, const char *remedy, const char *format, ...)
{
    static const char *const words[] = {
#define X(name, text) text,
        CUP_FINDING_LIST(X)
#undef X
    };
    va_list args;

    problems += status == CUP_FINDING_PROBLEM;
    printf("%-8s %-8s ", words[status], area);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (remedy)
        printf("%-17s do: %s\n", "", remedy);
}

static void find_kernel(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct utsname name;

    if (page == MAP_FAILED || uname(&name) != 0)
        return;
    if (madvise(page, size, MADV_WIPEONFORK) == 0)
        cup_doctor_find(CUP_FINDING_OK, "kernel", NULL,
                        "%s %s, forked children are known by a page (MADV_WIPEONFORK)", name.sysname,
                        name.release);
    else
        cup_doctor_find(
            CUP_FINDING_NOTE, "kernel", NULL,
            "%s %s without MADV_WIPEONFORK (Linux 4.14): each call asks getpid() for forked children",
            name.sysname, name.release);
    munmap(page, size);
}

static void find_library(const char *path)
{
    char version[64];
    cup_elf_t elf;

    cup_elf_scan(path, &elf);
    if (elf.kind == CUP_ELF_MISSING || elf.kind == CUP_ELF_OTHER || elf.kind == CUP_ELF_FOREIGN ||
        !elf.exports_alloc_door)
        cup_doctor_find(CUP_FINDING_PROBLEM, "library", "name another with --library PATH",
                        "%s is not libcupola.so", path);
    else if (!cup_library_version(path, version, sizeof(version)))
        cup_doctor_find(CUP_FINDING_OK, "library", NULL, "%s", path);
    else if (strcmp(version, CUPOLA_VERSION) != 0)
        cup_doctor_find(CUP_FINDING_NOTE, "library", NULL, "%s is version %s, this tool " CUPOLA_VERSION,
                        path, version);
    else
        cup_doctor_find(CUP_FINDING_OK, "library", NULL, "%s, version %s", path, version);
}

static void find_bad_option(const char *line)
{
    cup_doctor_find(CUP_FINDING_PROBLEM, "option", "correct or unset it; docs/options.md lists them all",
                    "%s", line);
}

static void find_options(void)
{
    unsigned set = 0;

    cup_conf_load(environ, find_bad_option, &conf);
    for (size_t i = 0; i < cup_conf_row_count; i++) {
        const cup_conf_row_t *row = &cup_conf_rows[i];
        const cup_conf_value_t *value = (const void *)((const char *)&conf + row->offset);

        if (!value->is_set)
            continue;
        set++;
        cup_doctor_find(CUP_FINDING_NOTE, "option", NULL, "CUPOLA_%s=%s (default: %s)", row->name,
                        value->text, row->fallback);
    }
    if (set == 0)
        cup_doctor_find(CUP_FINDING_OK, "option", NULL, "all at their defaults");
    if (conf.disable.word)
        cup_doctor_find(CUP_FINDING_PROBLEM, "option", "unset CUPOLA_DISABLE",
                        "CUPOLA_DISABLE=1: the pool stands aside");
}

/* Programs that lean on luck: what natively went well is not the pool's fault, but looks like it. */
static void find_advice(void)
{
    if (conf.zero.word == CUP_ZERO_NONE)
        cup_doctor_find(
            CUP_FINDING_NOTE, "advice",
            "CUPOLA_ZERO=alloc; if that mends it, the program reads memory that it has not written",
            "if results differ only with the pool (docs/luck.md)");
    if (!conf.redzone.is_set)
        cup_doctor_find(CUP_FINDING_NOTE, "advice",
                        "CUPOLA_REDZONE=4096; if that mends it, the program writes behind its blocks, and "
                        "compute-sanitizer says where (under it the pool stands aside: CUPOLA_CHECKER)",
                        "if wrong bytes or an illegal address come only with the pool (docs/luck.md)");
}

typedef struct options {
    const char *path; /* --library */
    bool with_ipc;    /* --ipc */
    char **app;       /* NULL-terminated; NULL: none */
} options_t;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'l':
        options->path = arg;
        return 0;
    case 'i':
        options->with_ipc = true;
        return 0;
    case ARGP_KEY_ARG:
        options->app = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static const struct argp_option option_list[] = {
    {"library", 'l', "PATH", 0, "this libcupola.so instead of the one beside the tool", 0},
    {"ipc", 'i', NULL, 0, "also whether processes can share device memory: a table, before deployment", 0},
    {0},
};

static const struct argp grammar = {
    .options = option_list,
    .parser = parse,
    .args_doc = "[-- app args…]",
    .doc = "Says what is there; with app, runs it once with the pool in it and says what happened.\v"
           "Each finding is ok, note or problem, on stdout; a problem comes with what to do. app's stdout "
           "goes to "
           "stderr.\n\n"
           "Exit code: 0 if nothing is in the way, 1 if something is, 125 if cupola failed.\n\n"
           "Examples:\n"
           "  cupola doctor\n"
           "  cupola doctor --ipc\n"
           "  cupola doctor -- ./solver input.dat\n",
};

int cup_verb_doctor(int argc, char **argv)
{
    options_t options = {0};
    char library[PATH_MAX];

    argp_parse(&grammar, argc, argv, ARGP_IN_ORDER, NULL, &options);
    if (!cup_library_find(options.path, library))
        return CUP_EXIT_OWN;
    find_kernel();
    cup_doctor_driver();
    find_library(library);
    find_options();
    if (options.with_ipc)
        cup_doctor_ipc(&conf);
    fflush(stdout);
    if (options.app)
        cup_doctor_app(library, options.app);
    find_advice();
    printf("%s; next: cupola %s\n", problems ? "something is in the way" : "nothing is in the way",
           options.app ? "run -- app args…" : "doctor -- app args…");
    return problems ? CUP_EXIT_PROBLEM : CUP_EXIT_OK;
}
