/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_app - a program: by which doors it reaches CUDA, and what the pool did.
 * How:        first its file, then one run under the preload that reports into two files in memory. Which
 *             door an allocation came through is not counted: imports and look-ups tell it well enough.
 */
#define _GNU_SOURCE
#include "tools/doctor.h"
#include "tools/elfscan.h"
#include "tools/launch.h"
#include "tools/report.h"
#include "tools/tool.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SAID_MAX 10 /* lines of the pool's own that are repeated */

static const char *linked_doors(const cup_elf_t *elf)
{
    if (elf->needs_driver && elf->needs_cudart)
        return "links libcuda and the shared cudart: symbols";
    if (elf->needs_driver)
        return "links libcuda: symbols";
    if (elf->needs_cudart)
        return "links the shared cudart: cudaMalloc, and its look-ups (cuGetProcAddress)";
    if (elf->imports_dlopen || elf->imports_dlsym)
        return "links no CUDA library: a static cudart or what it loads, found by look-ups (dlsym, "
               "cuGetProcAddress)";
    return "links no CUDA library itself; one of its libraries may";
}

/* False: no preload can enter, so a run would show nothing. */
static bool find_file(const char *word, const cup_elf_t *elf)
{
    const char *path = elf->path[0] ? elf->path : word;

    if (elf->is_script)
        cup_doctor_find(CUP_FINDING_NOTE, "app", NULL, "%s is a script for %s", word, path);
    switch (elf->kind) {
    case CUP_ELF_MISSING:
        cup_doctor_find(CUP_FINDING_PROBLEM, "app", "check the name and PATH",
                        "%s: no such program, or not readable", path);
        return false;
    case CUP_ELF_OTHER:
        cup_doctor_find(CUP_FINDING_NOTE, "app", NULL,
                        "%s is not an ELF program: what it starts is not looked at", path);
        return true;
    case CUP_ELF_FOREIGN:
        cup_doctor_find(CUP_FINDING_PROBLEM, "app", "build it for x86-64",
                        "%s is for another processor or 32 bits", path);
        return false;
    case CUP_ELF_STATIC:
        cup_doctor_find(CUP_FINDING_PROBLEM, "app",
                        "link it dynamically (-static and -static-pie shut preloads out)",
                        "%s is fully static: no preload can enter", path);
        return false;
    case CUP_ELF_DYNAMIC:
        break;
    }
    cup_doctor_find(CUP_FINDING_OK, "app", NULL, "%s %s", path, linked_doors(elf));
    if (elf->is_privileged)
        cup_doctor_find(CUP_FINDING_PROBLEM, "app", "run a copy of it without these privileges",
                        "%s has set-user-ID, set-group-ID or capabilities: the loader ignores LD_PRELOAD",
                        path);
    return !elf->is_privileged;
}

static void find_ending(int status)
{
    if (WIFSIGNALED(status))
        cup_doctor_find(CUP_FINDING_PROBLEM, "run",
                        "run it without the pool to see whether it is its own fault",
                        "signal %d (%s) ended it", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        cup_doctor_find(WEXITSTATUS(status) ? CUP_FINDING_NOTE : CUP_FINDING_OK, "run", NULL,
                        "it ended with code %d", WEXITSTATUS(status));
}

/* The pool's own lines: why it stood aside, and what it could not do. */
static void find_said(const char *log)
{
    unsigned said = 0;

    while (*log) {
        size_t length = strcspn(log, "\n");
        const char *prefix = "cupola: ";
        size_t skip = strncmp(log, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
        bool is_aside = memmem(log, length, "standing aside", 14) != NULL;

        if (said++ < SAID_MAX)
            cup_doctor_find(is_aside ? CUP_FINDING_PROBLEM : CUP_FINDING_NOTE, "pool",
                            is_aside ? "change what the line names, if you want the pool here" : NULL,
                            "says: %.*s", (int)(length - skip), log + skip);
        log += length;
        log += *log == '\n';
    }
    if (said > SAID_MAX)
        cup_doctor_find(CUP_FINDING_NOTE, "pool", NULL, "says %u lines more; CUPOLA_LOG=info shows them",
                        said - SAID_MAX);
}

static void find_figures(const cup_figures_t *sum, bool has_said)
{
    if (sum->getproc_hits + sum->dlsym_hits + sum->runtime_calls > 0)
        cup_doctor_find(CUP_FINDING_OK, "doors", NULL,
                        "answered with the pool's functions: %" PRIu64
                        " look-ups by cuGetProcAddress (a CUDA runtime), "
                        "%" PRIu64 " by dlsym; %" PRIu64 " calls of a shared runtime took the short way",
                        sum->getproc_hits, sum->dlsym_hits, sum->runtime_calls);
    else if (sum->allocs > 0)
        cup_doctor_find(CUP_FINDING_OK, "doors", NULL, "the program is linked with libcuda");
    if (sum->pool_allocs > 0)
        cup_doctor_find(CUP_FINDING_OK, "pool", NULL,
                        "served %" PRIu64 " of %" PRIu64 " allocations; driver allocations made: %" PRIu64,
                        sum->pool_allocs, sum->allocs, sum->driver_allocs);
    else if (sum->allocs > 0)
        cup_doctor_find(CUP_FINDING_PROBLEM, "pool", "look at what the pool says; CUPOLA_LOG=debug says more",
                        "served none of %" PRIu64 " allocations", sum->allocs);
    else if (has_said)
        cup_doctor_find(CUP_FINDING_PROBLEM, "pool", "see above", "no figures came back");
    else
        cup_doctor_find(
            CUP_FINDING_PROBLEM, "pool",
            "check that this program, with these arguments, uses a GPU, by cudaMalloc or cuMemAlloc",
            "saw no device allocation");
    if (sum->ooms > 0)
        cup_doctor_find(CUP_FINDING_NOTE, "pool", NULL, "%" PRIu64 " requests were refused by the driver",
                        sum->ooms);
}

static void find_reports(int log_fd, int stats_fd)
{
    char *log = cup_report_text(log_fd), *stats = cup_report_text(stats_fd);
    cup_figures_t sum = {0};

    if (log && stats) {
        cup_figures_add_up(stats, &sum);
        find_said(log);
        find_figures(&sum, log[0] != '\0');
    }
    free(log);
    free(stats);
}

static void run_once(const char *library, char *const *argv)
{
    cup_report_t log, stats;
    char level[sizeof(log.path) + 8];
    int status;

    if (!cup_report_open(&log))
        return;
    if (cup_report_open(&stats)) {
        snprintf(level, sizeof(level), "info:%s", log.path);
        setenv("CUPOLA_LOG", level, 1);
        setenv("CUPOLA_STATS", stats.path, 1);
        if (!cup_launch_preload(library) || cup_launch_wait(argv, true, &status) != 0) {
            cup_doctor_find(CUP_FINDING_PROBLEM, "run", "see stderr", "it did not start");
        } else {
            find_ending(status);
            find_reports(log.fd, stats.fd);
        }
        cup_report_close(&stats);
    }
    cup_report_close(&log);
}

void cup_doctor_app(const char *library, char *const *argv)
{
    cup_elf_t elf;

    cup_elf_scan(argv[0], &elf);
    if (find_file(argv[0], &elf))
        run_once(library, argv);
}
