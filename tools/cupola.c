/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cupola - the command: `cupola VERB …`. A verb is a file of its own.
 * How:        argp stops at the first word, which names the verb; the rest belongs to it.
 */
#include "tools/tool.h"
#include <argp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) const char *argp_program_version = /* argp looks it up by name */
    "cupola " CUPOLA_VERSION;

#define VERB_LIST(X)                                                              \
    X(run, "a program with the pool in it")                                       \
    X(doctor, "what is there, what a program uses, and why the pool stood aside") \
    X(list, "the blocks that programs have published under names")                \
    X(stat, "the figures of a file that CUPOLA_STATS wrote")

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
#define X(name, meaning) {#name, cup_verb_##name},
    VERB_LIST(X)
#undef X
};

static const char verb_names[] =
#define X(name, meaning) " " #name
    VERB_LIST(X);
#undef X

typedef struct choice {
    const struct verb *verb;
    int argc;
    char **argv;
} choice_t;

void cup_tool_say(const char *format, ...)
{
    char line[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "cupola: %s\n", line);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    choice_t *choice = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
            if (strcmp(arg, verbs[i].name) == 0)
                choice->verb = &verbs[i];
        if (!choice->verb)
            argp_error(state, "no verb \"%s\"; there are:%s", arg, verb_names);
        choice->argc = state->argc - state->next + 1;
        choice->argv = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static const struct argp grammar = {
    .parser = parse,
    .args_doc = "VERB …",
    .doc = "A pooled device allocator for unmodified CUDA programs.\v"
           "Verbs:\n"
#define X(name, meaning) "  " #name "\t" meaning "\n"
    VERB_LIST(X)
#undef X
        "\nExamples:\n"
        "  cupola run -- ./solver input.dat\n"
        "  cupola run CUPOLA_FREE=sync -- python3 train.py\n"
        "  cupola doctor -- ./solver input.dat\n"
        "  cupola run --help\n",
};

int main(int argc, char **argv)
{
    choice_t choice = {0};
    char name[64];

    argp_err_exit_status = CUP_EXIT_OWN;
    argp_parse(&grammar, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    snprintf(name, sizeof(name), "cupola %s", choice.verb->name);
    choice.argv[0] = name;
    return choice.verb->run(choice.argc, choice.argv);
}
