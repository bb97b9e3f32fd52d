/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - `cupola run`: the program with the pool in it, and one line about what the pool did.
 * How:        the words become our own environment, which the program inherits. With nothing to say at the
 *             end (--quiet) we become the program; else we wait, and read the figures from a file in memory
 *             that CUPOLA_STATS names.
 */
#define _GNU_SOURCE
#include "shim/conf.h"
#include "tools/launch.h"
#include "tools/library.h"
#include "tools/report.h"
#include "tools/tool.h"
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *path; /* --library */
    bool is_quiet;
    char **app; /* NULL-terminated */
} options_t;

static void set_word(struct argp_state *state, char *word)
{
    char *value = strchr(word, '=');
    char *name = strndup(word, (size_t)(value - word));

    if (!name || setenv(name, value + 1, 1) != 0)
        argp_failure(state, CUP_EXIT_OWN, errno, "%s", word);
    free(name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'l':
        options->path = arg;
        return 0;
    case 'q':
        options->is_quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!state->quoted && strchr(arg, '=') && arg[0] != '=') {
            set_word(state, arg);
            return 0;
        }
        options->app = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!options->app)
            argp_error(state, "no program: cupola run -- app args…");
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static const struct argp_option option_list[] = {
    {"library", 'l', "PATH", 0, "this libcupola.so instead of the one beside the tool", 0},
    {"quiet", 'q', NULL, 0, "no line at the end: becomes the program", 0},
    {0},
};

static const struct argp grammar = {
    .options = option_list,
    .parser = parse,
    .args_doc = "[VAR=VALUE…] -- app args…",
    .doc = "Runs app with the pool in it.\v"
           "VAR=VALUE words go into app's environment; docs/options.md lists ours. stdout is app's alone; "
           "the last "
           "line on stderr says what the pool did.\n\n"
           "Exit code: app's own; 125 if cupola failed, 126 if app can't be executed, 127 if there is none. "
           "A signal "
           "that ends app ends cupola.\n\n"
           "Examples:\n"
           "  cupola run -- ./solver input.dat\n"
           "  cupola run CUPOLA_FREE=sync -- python3 train.py\n"
           "  cupola run CUPOLA_STATS=stats.%p.json -- mpirun -n 4 ./solver\n",
};

static void ignore_complaint(const char *line)
{
    (void)line; /* the program's own start says it */
}

static void say_nothing_served(const cup_figures_t *sum, const char *app)
{
    if (sum->processes == 0)
        cup_tool_say("%s reported nothing: no device allocation, or it ended without exit handlers; "
                     "next: cupola doctor -- %s",
                     app, app);
    else
        cup_tool_say("the pool served none of %" PRIu64 " allocations; next: cupola doctor -- %s",
                     sum->allocs, app);
}

static void say_served(const cup_figures_t *sum, const char *app)
{
    char processes[48] = "";

    if (sum->processes > 1)
        snprintf(processes, sizeof(processes), " in %u processes", sum->processes);
    cup_tool_say("%" PRIu64 " of %" PRIu64 " allocations%s served by the pool with %" PRIu64 " driver calls, "
                 "peak %.1f MiB held for %.1f MiB live; next, to compare: cupola run CUPOLA_DISABLE=1 -- %s",
                 sum->pool_allocs, sum->allocs, processes, sum->driver_allocs + sum->driver_frees,
                 (double)sum->footprint_peak_bytes / 0x1p20, (double)sum->live_peak_bytes / 0x1p20, app);
}

/* The user's own CUPOLA_STATS stays as it is, so there is nothing for us to read. */
static void say_without_figures(const cup_conf_t *conf, const char *app)
{
    if (conf->disable.word)
        cup_tool_say("the pool stood aside (CUPOLA_DISABLE=1); next: cupola run CUPOLA_DISABLE=0 -- %s", app);
    else if (strcmp(conf->stats.text, "0") == 0 || strcmp(conf->stats.text, "1") == 0)
        cup_tool_say(
            "CUPOLA_STATS=%s was set; next, for the figures: cupola run CUPOLA_STATS=stats.json -- %s",
            conf->stats.text, app);
    else
        cup_tool_say("figures are in %s; next: cupola stat FILE", conf->stats.text);
}

static int run_and_tell(const options_t *options, const cup_conf_t *conf)
{
    cup_report_t report;
    int status, failure;
    bool is_ours = !conf->stats.is_set && !conf->disable.word;

    if (!cup_report_open(&report))
        return CUP_EXIT_OWN;
    if (is_ours)
        setenv("CUPOLA_STATS", report.path, 1);
    failure = cup_launch_wait(options->app, false, &status);
    if (failure)
        return failure;
    if (is_ours) {
        char *text = cup_report_text(report.fd);
        cup_figures_t sum = {0};

        if (text)
            cup_figures_add_up(text, &sum);
        free(text);
        if (sum.pool_allocs > 0)
            say_served(&sum, options->app[0]);
        else
            say_nothing_served(&sum, options->app[0]);
    } else {
        say_without_figures(conf, options->app[0]);
    }
    cup_report_close(&report);
    return cup_launch_mirror(status);
}

int cup_verb_run(int argc, char **argv)
{
    static cup_conf_t conf; /* some kilobytes */
    options_t options = {0};
    char library[PATH_MAX];

    argp_parse(&grammar, argc, argv, ARGP_IN_ORDER, NULL, &options);
    if (!cup_library_find(options.path, library))
        return CUP_EXIT_OWN;
    cup_conf_load(environ, ignore_complaint, &conf);
    if (!cup_launch_preload(library)) {
        cup_tool_say("no memory");
        return CUP_EXIT_OWN;
    }
    return options.is_quiet ? cup_launch_exec(options.app) : run_and_tell(&options, &conf);
}
