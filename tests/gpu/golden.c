/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden - how: the first process makes a child for each state, by exec of itself, and passes its lines on.
 * Both count the same cells in the same order; a child prints one line a cell. So the parent knows, when a
 * child ends early, which cell was to blame: it prints that cell's line itself and lets a new child go on
 * behind it.
 */
#define _GNU_SOURCE
#include "golden.h"
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIP   77
#define EXIT_ABSENT 34
#define EXIT_BROKEN 33 /* the context takes no work after this call: go on in a new process */
#define SECONDS_MAX 20 /* of one child */
#define DEATHS_MAX  40 /* of the children of one state; a hang counts for many */
#define HANG_DEATHS 15
#define CHILD_MARK  "--from"

typedef struct cell {
    const golden_call_t *call;
    const golden_kind_t *kind; /* NULL: the call takes no pointer */
    golden_bed_t bed;
} cell_t;

/* The state that this process plays. */
static struct {
    golden_program_t program; /* a copy: destructors run when main() has returned */
    const golden_state_t *state;
    cell_t *cells;
    size_t count, at;
    bool is_armed; /* the destructor is to play */
} g_play;

static char **g_stack; /* argv lies on the stack as long as the process lives */

uint64_t golden_stack(void)
{
    return (uint64_t)(uintptr_t)g_stack;
}

void golden_need(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "golden: state %s can't be had: %s: %d\n", g_play.state->name, what, code);
    exit(1);
}

void golden_not_here(void)
{
    exit(EXIT_ABSENT);
}

void golden_say(golden_answer_t *answer, const char *format, ...)
{
    size_t room = sizeof answer->text - answer->length;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(answer->text + answer->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        answer->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* ---- cells ---- */

static bool is_asked(const golden_state_t *state, const golden_call_t *call, const golden_kind_t *kind)
{
    if (kind && !kind->is_literal && (state->is_literal || state->how == GOLDEN_FIRST))
        return false;
    if (state->is_full)
        return true;
    if (kind && kind->where == GOLDEN_FULL)
        return false;
    return call->where >= (state->how == GOLDEN_FIRST ? GOLDEN_FIRST_TOO : GOLDEN_ALWAYS);
}

static void add_cell(const golden_call_t *call, const golden_kind_t *kind)
{
    if (is_asked(g_play.state, call, kind))
        g_play.cells[g_play.count++] = (cell_t){.call = call, .kind = kind};
}

static void add_table(const golden_table_t *table)
{
    for (size_t i = 0; i < table->count; i++)
        for (size_t k = 0; k < (table->has_pointer ? g_play.program.kind_count : 1); k++)
            add_cell(&table->calls[i], table->has_pointer ? &g_play.program.kinds[k] : NULL);
}

static void list_cells(const golden_program_t *program, const golden_state_t *state)
{
    size_t most = program->tables[0].count + program->tables[1].count;

    free(g_play.cells);
    g_play.program = *program;
    g_play.state = state;
    g_play.count = 0;
    g_play.cells = calloc(most * (program->kind_count + 1), sizeof *g_play.cells);
    golden_need(!g_play.cells, "host memory");
    add_table(&program->tables[0]);
    add_table(&program->tables[1]);
}

static void print_line(const cell_t *cell, const char *code, const char *text)
{
    printf("%s %s", g_play.state->name, cell->call->name);
    if (cell->kind)
        printf("(%s)", cell->kind->name);
    printf(" %s%s\n", code, text);
    fflush(stdout);
}

/* ---- the child ---- */

static void make_beds(void)
{
    for (size_t i = g_play.at; i < g_play.count; i++)
        if (g_play.cells[i].kind)
            g_play.cells[i].bed.made = g_play.cells[i].kind->make(&g_play.cells[i].bed);
    for (size_t i = g_play.at; i < g_play.count; i++)
        if (g_play.cells[i].kind && g_play.cells[i].kind->spoil && !g_play.cells[i].bed.made)
            g_play.cells[i].kind->spoil(&g_play.cells[i].bed);
}

static void *play_cell(void *argument)
{
    cell_t *cell = argument;
    golden_answer_t answer = {0};
    char code[32] = "no-such-memory";

    if (cell->bed.made) {
        golden_say(&answer, " %d", cell->bed.made);
    } else {
        if (g_play.state->begin)
            g_play.state->begin();
        snprintf(code, sizeof code, "%d", cell->call->call(&cell->bed, &answer));
        if (g_play.program.after)
            g_play.program.after(&answer);
        if (g_play.state->end)
            g_play.state->end(&answer);
        g_play.program.settle(&cell->bed);
    }
    print_line(cell, code, answer.text);
    return NULL;
}

static void play_elsewhere(cell_t *cell)
{
    pthread_t thread;

    golden_need(pthread_create(&thread, NULL, play_cell, cell), "pthread_create");
    pthread_join(thread, NULL);
}

/* The exit code that it ends with. */
static int play(void)
{
    for (; g_play.at < g_play.count; g_play.at++) {
        if (g_play.state->how == GOLDEN_THREAD)
            play_elsewhere(&g_play.cells[g_play.at]);
        else
            play_cell(&g_play.cells[g_play.at]);
        if (g_play.at + 1 == g_play.count)
            break;
        if (g_play.state->how == GOLDEN_FIRST || (g_play.state->is_checked && !g_play.program.is_sound()))
            return EXIT_BROKEN;
    }
    return 0;
}

/* The exit goes on natively if it can: what it does is asked, too. */
static void play_at_exit(void)
{
    int code = play();

    if (code)
        _exit(code);
}

static void play_early(void)
{
    if (g_play.state->how == GOLDEN_EXIT_EARLY)
        play_at_exit();
}

__attribute__((destructor)) static void play_last(void)
{
    if (g_play.is_armed)
        play_at_exit();
}

static int play_forked(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        alarm(SECONDS_MAX);
        _exit(play());
    }
    golden_need(child < 0 || waitpid(child, &status, 0) != child, "fork");
    if (WIFSIGNALED(status))
        raise(WTERMSIG(status));
    return WEXITSTATUS(status);
}

static int be_child(size_t first)
{
    const golden_state_t *state = g_play.state;

    g_play.at = first;
    golden_need(state->how == GOLDEN_EXIT_EARLY && atexit(play_early), "atexit");
    if (state->open)
        state->open();
    make_beds();
    if (state->enter)
        state->enter();
    switch (state->how) {
    case GOLDEN_FORK:
        return play_forked();
    case GOLDEN_EXIT_EARLY:
        return 0;
    case GOLDEN_EXIT_LATE:
        golden_need(atexit(play_at_exit), "atexit");
        return 0;
    case GOLDEN_DESTRUCTOR:
        g_play.is_armed = true;
        return 0;
    default:
        return play();
    }
}

/* ---- the parent ---- */

static void exec_self(const char *state, size_t first, int out)
{
    const struct rlimit no_core = {0, 0};
    char from[24];

    setrlimit(RLIMIT_CORE, &no_core);
    snprintf(from, sizeof from, "%zu", first);
    dup2(out, STDOUT_FILENO);
    close(out);
    setenv("GOLDEN_STATE", state, 1); /* for who gives each state a file of its own */
    alarm(SECONDS_MAX);
    execl("/proc/self/exe", "golden", CHILD_MARK, state, from, (char *)NULL);
    _exit(1);
}

/* Passes its lines on; how it ended. */
static int run_child(size_t first, size_t *out_lines)
{
    char line[512];
    int ends[2], status = 0;
    pid_t child;
    FILE *lines;

    fflush(stdout);
    golden_need(pipe(ends), "pipe");
    child = fork();
    if (child == 0) {
        close(ends[0]);
        exec_self(g_play.state->name, first, ends[1]);
    }
    close(ends[1]);
    lines = fdopen(ends[0], "r");
    golden_need(child < 0 || !lines, "fork");
    for (*out_lines = 0; fgets(line, sizeof line, lines); ++*out_lines)
        fputs(line, stdout);
    fclose(lines);
    golden_need(waitpid(child, &status, 0) != child, "waitpid");
    return status;
}

/* The line of the cell at which a child died; how much of the state's patience that took. */
static int blame(size_t at, int status)
{
    bool is_hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    char code[32];

    if (is_hang)
        snprintf(code, sizeof code, "hang");
    else if (WIFSIGNALED(status))
        snprintf(code, sizeof code, "signal-%d", WTERMSIG(status));
    else
        snprintf(code, sizeof code, "exit-%d", WEXITSTATUS(status));
    if (at < g_play.count)
        print_line(&g_play.cells[at], code, "");
    else
        printf("%s (its-end) %s\n", g_play.state->name, code);
    return is_hang ? HANG_DEATHS : 1;
}

/* The lines of one state, whatever becomes of its processes. */
static int run_state(const golden_program_t *program, const golden_state_t *state)
{
    size_t at = 0, lines;
    int deaths = 0, status;

    list_cells(program, state);
    while (at < g_play.count && deaths < DEATHS_MAX) {
        status = run_child(at, &lines);
        at += lines;
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
            return EXIT_SKIP;
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ABSENT) {
            printf("%s (not-here)\n", state->name);
            return 0;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_BROKEN && lines > 0)
            continue;
        if (status || at < g_play.count)
            deaths += blame(at++, status);
    }
    if (at < g_play.count)
        printf("%s (given-up)\n", state->name);
    return 0;
}

static bool is_wanted(int argc, char **argv, const char *state)
{
    bool is_named = argc == 1;

    for (int i = 1; i < argc; i++)
        is_named = is_named || strcmp(argv[i], state) == 0;
    return is_named;
}

static const golden_state_t *find_state(const golden_program_t *program, const char *name)
{
    for (size_t i = 0; i < program->state_count; i++)
        if (strcmp(program->states[i].name, name) == 0)
            return &program->states[i];
    return NULL;
}

int golden_main(int argc, char **argv, const golden_program_t *program)
{
    int code = 0;

    g_stack = argv;
    if (argc == 4 && strcmp(argv[1], CHILD_MARK) == 0) {
        list_cells(program, find_state(program, argv[2]));
        return be_child(strtoul(argv[3], NULL, 10));
    }
    for (int i = 1; i < argc; i++) {
        if (!find_state(program, argv[i])) {
            fprintf(stderr, "golden: no such state: %s\n", argv[i]);
            return 2;
        }
    }
    for (size_t i = 0; i < program->state_count && !code; i++)
        if (is_wanted(argc, argv, program->states[i].name))
            code = run_state(program, &program->states[i]);
    return code;
}
