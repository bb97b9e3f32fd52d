/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_check - which configurations of the model are searched, and which mutants must be found out.
 * Use:        order_check smoke | quick | long: the rows of that part; exit 1 if one is not as it says.
 *             order_check NAME: the rows of a name, with the counterexample printed.
 * Not here:   the numbers that were seen: docs/model.md.
 */
#include "tests/model/order_model.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STATES_MAX 60000000

enum { SMOKE, QUICK, LONG, PARTS };
static const char *const g_part[PARTS] = {"smoke", "quick", "long"};

typedef struct row {
    int part;
    const char *name;
    cup_model_t model;
} row_t;

#define ROW(part, name, threads_, streams_, launches_, frees_, ...)                                   \
    {                                                                                                 \
        part, name,                                                                                   \
        {                                                                                             \
            .threads = (threads_), .streams = (streams_), .launches = (launches_), .frees = (frees_), \
            __VA_ARGS__                                                                               \
        }                                                                                             \
    }

/* The protocol: everything is reached, nothing is broken. */
static const row_t g_sound[] = {
    ROW(SMOKE, "two threads", 2, 2, 3, 2, .ring = 2),
    ROW(SMOKE, "one thread: tight", 1, 3, 4, 3, .is_tight = true, .destroys = 1),
    ROW(QUICK, "a stream destroyed", 2, 2, 3, 2, .destroys = 1),
    ROW(QUICK, "three threads", 3, 2, 2, 1, .destroys = 1),
    ROW(QUICK, "busy set of one place", 2, 3, 3, 2, .members = 1),
    ROW(QUICK, "two contexts", 2, 2, 3, 1, .contexts = 2),
    ROW(QUICK, "two contexts, calls that may touch both", 2, 2, 3, 1, .contexts = 2, .anys = 1),
    ROW(QUICK, "ring of one, polls", 2, 2, 3, 1, .ring = 1, .polls = 1),
    ROW(QUICK, "a record that fails", 2, 2, 3, 2, .ring = 1, .fails = 1),
    ROW(QUICK, "no record on contexts", 2, 2, 3, 2, .is_old = true, .destroys = 1),
    ROW(QUICK, "one thread, two captures: tight", 1, 3, 4, 2, .is_tight = true, .begins = 2),
    ROW(QUICK, "one thread, capture, polls: tight", 1, 3, 4, 2, .is_tight = true, .begins = 1, .polls = 1),
    ROW(QUICK, "one thread, capture, unknown call: tight", 1, 3, 4, 2, .is_tight = true, .begins = 1,
        .doubts = 1),
    ROW(QUICK, "one thread, capture, destroyed: tight", 1, 3, 3, 2, .members = 3, .is_tight = true,
        .begins = 1, .destroys = 1),
    ROW(QUICK, "one thread, captures, failing record", 1, 3, 4, 1, .begins = 2, .fails = 1),
    ROW(QUICK, "one thread, capture, destroyed, failing record", 1, 3, 3, 1, .members = 3, .begins = 1,
        .destroys = 1, .fails = 1),
    ROW(QUICK, "two threads, capture", 2, 3, 3, 1, .begins = 1),
    ROW(QUICK, "two threads, capture, unknown call", 2, 2, 3, 1, .begins = 1, .doubts = 1),
    ROW(QUICK, "two threads, capture, destroyed", 2, 2, 3, 1, .begins = 1, .destroys = 1),
    ROW(QUICK, "overlap, one thread: tight", 1, 3, 3, 2, .is_overlap = true, .is_tight = true, .polls = 1),
    ROW(QUICK, "overlap, one thread, capture: tight", 1, 3, 3, 2, .is_overlap = true, .is_tight = true,
        .begins = 1),
    ROW(QUICK, "overlap", 2, 2, 3, 1, .is_overlap = true, .polls = 1),
    ROW(LONG, "two threads, more", 2, 2, 4, 3, .destroys = 1),
    ROW(LONG, "three streams", 2, 3, 4, 3, .members = 3),
    ROW(LONG, "three threads, more", 3, 2, 3, 2, .ring = 2),
    ROW(LONG, "one thread, more: tight", 1, 3, 6, 5, .is_tight = true, .destroys = 1),
    ROW(LONG, "two contexts, more", 2, 2, 4, 2, .contexts = 2),
    ROW(LONG, "two contexts, calls that may touch both, more", 2, 2, 3, 2, .contexts = 2, .anys = 1),
    ROW(LONG, "ring of one, polls, failing record", 2, 2, 4, 2, .ring = 1, .polls = 1, .fails = 1),
    ROW(LONG, "one thread, two captures, destroyed: tight", 1, 3, 4, 2, .members = 3, .is_tight = true,
        .begins = 2, .destroys = 1),
    ROW(LONG, "two threads, capture, failing record", 2, 3, 3, 1, .begins = 1, .fails = 1),
    ROW(LONG, "two threads, capture, failing record, more", 2, 2, 3, 2, .begins = 1, .fails = 1),
    ROW(LONG, "two threads, two captures, destroyed", 2, 2, 2, 1, .begins = 2, .destroys = 1),
    ROW(LONG, "two threads, capture, destroyed, failing record", 2, 2, 3, 1, .begins = 1, .destroys = 1,
        .fails = 1),
    ROW(LONG, "three threads, capture, unknown call", 3, 2, 2, 1, .begins = 1, .doubts = 1),
    ROW(LONG, "one thread, two captures, unknown calls: tight", 1, 3, 3, 2, .is_tight = true, .begins = 2,
        .doubts = 2),
    ROW(LONG, "overlap, more", 2, 2, 3, 2, .is_overlap = true, .polls = 1),
    ROW(LONG, "overlap, capture", 2, 2, 3, 1, .is_overlap = true, .begins = 1),
};

#define MUTANT(part, name_, threads_, streams_, launches_, frees_, ...)                                    \
    ROW(part, #name_, threads_, streams_, launches_, frees_, .mutants = UINT64_C(1) << CUP_MUTANT_##name_, \
        __VA_ARGS__)
#define STARTED .is_started = true
#define OVERLAP .is_overlap = true, .is_started = true

/* Each must be found out. */
static const row_t g_mutants[] = {
    MUTANT(QUICK, CLEAR_AFTER, 2, 2, 3, 2, STARTED),
    MUTANT(SMOKE, CLEAR_BEFORE, 2, 2, 3, 1, STARTED),
    MUTANT(QUICK, SWAP_IS_STORE, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, TWO_WITHOUT_FENCE, 2, 2, 3, 2, STARTED),
    MUTANT(SMOKE, MARK_AFTER_PUSH, 2, 2, 3, 1, STARTED),
    MUTANT(LONG, WORD_WITHOUT_FENCE, 2, 2, 4, 2, STARTED),
    MUTANT(QUICK, OWN_UNPASSED, 2, 2, 3, 2, STARTED),
    MUTANT(SMOKE, NO_WORDS, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, WORDS_AFTER_RECORD, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, WORDS_FIRST_ONLY, 2, 2, 3, 2, OVERLAP),
    MUTANT(QUICK, NO_READD, 2, 2, 3, 2, STARTED),
    MUTANT(LONG, READD_UNLOCKED, 2, 2, 4, 2, STARTED),
    MUTANT(QUICK, BUSY_READ_FIRST, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, BUSY_OVERWRITTEN, 2, 2, 3, 2, OVERLAP),
    MUTANT(QUICK, NOTE_BY_STORE, 2, 2, 3, 1, STARTED),
    MUTANT(QUICK, PUBLISH_FIRST, 2, 2, 3, 1, STARTED),
    MUTANT(QUICK, PASS_NEWER, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, PASSED_FIRST, 2, 2, 3, 1, STARTED),
    MUTANT(QUICK, PASSED_CHECK_OUTSIDE, 2, 2, 3, 1, STARTED),
    MUTANT(QUICK, DESTROY_IGNORED, 1, 2, 3, 2, STARTED, .destroys = 1),
    MUTANT(QUICK, DESTROY_AFTER, 2, 2, 3, 2, STARTED, .destroys = 1),
    MUTANT(QUICK, DESTROY_KEEPS_PASSED, 1, 2, 3, 2, STARTED, .destroys = 1),
    MUTANT(QUICK, DESTROY_KEEPS_OWNER, 1, 2, 3, 2, STARTED, .destroys = 1),
    MUTANT(QUICK, DESTROY_NOT_SEVERAL, 1, 2, 3, 2, STARTED, .destroys = 1),
    MUTANT(QUICK, OPEN_UNFENCED, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, OPEN_LATE, 2, 2, 3, 2, STARTED),
    MUTANT(QUICK, RING_KEEPS_OWNER, 2, 2, 3, 2, STARTED, .ring = 1),
    MUTANT(QUICK, RING_OLD_HANDLE, 2, 2, 3, 2, STARTED, .ring = 1),
    MUTANT(QUICK, RING_REUSE, 2, 2, 3, 2, STARTED, .ring = 1, .polls = 1),
    MUTANT(QUICK, MUST_OVERWRITTEN, 1, 3, 3, 1, .begins = 1, .is_tight = true, .ring = 1),
    MUTANT(QUICK, POLL_UNLOCKED, 2, 2, 3, 2, STARTED, .ring = 1, .polls = 1),
    MUTANT(QUICK, NOTHING_IS_COMPLETE, 2, 2, 3, 2, STARTED, .polls = 1),
    MUTANT(QUICK, FAIL_CLEARS, 1, 2, 3, 2, STARTED, .fails = 1),
    MUTANT(LONG, FAIL_FORGETS, 2, 3, 4, 1, STARTED, .begins = 1, .fails = 1),
    MUTANT(QUICK, FAIL_UNWAITED, 1, 3, 3, 1, .begins = 1, .fails = 1),
    MUTANT(QUICK, LOOSE_IS_DUE, 1, 2, 3, 1, .begins = 1, .is_tight = true),
    MUTANT(QUICK, SECOND_BEGIN, 1, 3, 3, 1, .begins = 2),
    MUTANT(QUICK, DESTROY_UNCOUNTS_FIRST, 2, 2, 2, 1, .begins = 1, .destroys = 1),
    MUTANT(QUICK, TAKE_OVER_MISSING, 1, 3, 3, 1, .begins = 1, .destroys = 1),
    MUTANT(QUICK, TAKE_OVER_NOT_BUSY, 1, 3, 3, 1, .begins = 1, .destroys = 1),
    MUTANT(QUICK, BEGIN_UNLOCKED, 2, 2, 2, 1, .begins = 1),
    MUTANT(QUICK, BEGIN_LATE, 1, 2, 3, 1, .begins = 1),
    MUTANT(QUICK, BEGIN_UNCLOSED, 1, 2, 3, 1, .begins = 1),
    MUTANT(QUICK, BEGIN_RAISES_FIRST, 1, 2, 3, 1, .begins = 1),
    MUTANT(QUICK, EACH_WITHOUT_NEWEST, 1, 3, 3, 1, .begins = 1),
    MUTANT(QUICK, CAPTURE_SPOILED, 1, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, PUT_OFF_UNWAITED, 2, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, FREE_UNWAITED, 1, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, FREE_MARKS_UNKNOWN, 1, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, FREE_CLOSES_LOOSE, 2, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, UNKNOWN_UNCLOSED, 1, 2, 3, 1, .begins = 1, .doubts = 1),
    MUTANT(QUICK, OTHER_CONTEXT, 1, 2, 2, 1, .contexts = 2),
    MUTANT(LONG, ANY_IS_NOTHING, 2, 2, 3, 2, STARTED, .contexts = 2, .anys = 1),
    MUTANT(QUICK, STAMP_IS_POINT, 2, 2, 3, 2, OVERLAP),
    MUTANT(QUICK, STAMP_AFTER_MARK, 2, 2, 3, 2, OVERLAP),
    MUTANT(QUICK, HAND_OUT_NEWEST, 1, 3, 3, 1, OVERLAP, .begins = 1),
    MUTANT(QUICK, POLL_CLOSES_LATE, 1, 2, 3, 1, OVERLAP, .polls = 1, .is_tight = true),
    MUTANT(QUICK, NEED_AFTER, 2, 2, 3, 1, OVERLAP),
};

/* Not needed where nothing else is changed: docs/model.md says why. */
static const row_t g_redundant[] = {
    MUTANT(LONG, WORDS_FIRST_ONLY, 2, 2, 4, 2, STARTED), MUTANT(LONG, WORDS_LAST_ONLY, 2, 2, 4, 2, STARTED),
    MUTANT(LONG, WORDS_LAST_ONLY, 2, 2, 3, 2, OVERLAP),  MUTANT(LONG, BUSY_OVERWRITTEN, 2, 2, 4, 2, STARTED),
    MUTANT(LONG, NOTE_AFTER_CALL, 2, 2, 4, 2, STARTED),  MUTANT(LONG, NOTE_AFTER_CALL, 2, 2, 3, 2, OVERLAP),
};

/* What a mutant changes. */
static const char *text_of(const row_t *row)
{
    static const char *const text[CUP_MUTANT_COUNT] = {
#define CUP_X(name, text) text,
        CUP_MUTANT_LIST(CUP_X)
#undef CUP_X
    };

    for (int i = 1; i < CUP_MUTANT_COUNT; i++)
        if (row->model.mutants >> i & 1)
            return text[i];
    return text[CUP_MUTANT_NONE];
}

/* Returns whether the row is as it should be. */
static bool search(const row_t *row, bool is_broken, FILE *trace)
{
    clock_t begin = clock();
    cup_explore_result_t found = cup_model_run(&row->model, STATES_MAX, trace);
    bool is_good = !found.is_bounded && is_broken == (found.broken != NULL);

    printf("%-7s %9u states %9llu moves  %3u %s %5.1f s  %s: %s\n", is_good ? "ok" : "NOT OK", found.states,
           (unsigned long long)found.moves, found.depth, found.broken ? "steps" : "deep ",
           (double)(clock() - begin) / CLOCKS_PER_SEC, row->name, text_of(row));
    fflush(stdout);
    if (!is_good && found.broken && !trace)
        cup_model_run(&row->model, STATES_MAX, stdout);
    return is_good;
}

static int g_bad, g_run;

static void search_all(const row_t *row, size_t count, bool is_broken, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        bool is_named = strcmp(row[i].name, what) == 0;

        if (!is_named && strcmp(g_part[row[i].part], what) != 0)
            continue;
        g_run++;
        g_bad += !search(&row[i], is_broken, is_named ? stdout : NULL);
    }
}

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "quick";

    search_all(g_sound, COUNT(g_sound), false, what);
    search_all(g_mutants, COUNT(g_mutants), true, what);
    search_all(g_redundant, COUNT(g_redundant), false, what);
    printf("%d of %d as they should be\n", g_run - g_bad, g_run);
    return g_bad > 0 || g_run == 0;
}
