/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the array of states is the queue of the search, too. No label is kept: for the trace each parent is
 * expanded once more, and the successor that is the child, or is broken as the last step was, tells its
 * own.
 */
#include "tests/model/explore.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct cup_explore {
    const cup_explore_ops_t *ops;
    uint64_t *state;
    uint32_t *parent;
    uint32_t *table; /* state number + 1; 0: empty */
    uint64_t table_size, capacity;
    uint32_t count, current;
    uint64_t last[CUP_EXPLORE_WORDS_MAX]; /* the broken one */
    cup_explore_result_t result;

    /* A trace is made: the successor that is looked for. */
    FILE *trace;
    const uint64_t *wanted;
    const char *wanted_broken;
    uint32_t step;
};

static void *checked(void *memory)
{
    if (!memory) {
        fputs("no memory\n", stderr);
        exit(2);
    }
    return memory;
}

static void *grow(void *old, uint64_t bytes)
{
    return checked(realloc(old, bytes));
}

static uint64_t hash_of(const uint64_t *state, unsigned words)
{
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15);

    for (unsigned i = 0; i < words; i++) {
        hash = (hash ^ state[i]) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    return hash * UINT64_C(0xD6E8FEB86659FD93) >> 20;
}

static uint64_t *state_at(const cup_explore_t *explore, uint32_t number)
{
    return explore->state + (uint64_t)number * explore->ops->words;
}

/* The place of the state in the table, or the empty one where it belongs. */
static uint32_t *find(const cup_explore_t *explore, const uint64_t *state)
{
    unsigned words = explore->ops->words;
    uint64_t mask = explore->table_size - 1;
    uint64_t i = hash_of(state, words) & mask;

    while (explore->table[i] && memcmp(state_at(explore, explore->table[i] - 1), state, words * 8) != 0)
        i = (i + 1) & mask;
    return &explore->table[i];
}

static void enlarge_table(cup_explore_t *explore)
{
    free(explore->table);
    explore->table_size = explore->table_size ? explore->table_size * 2 : 1 << 12;
    explore->table = checked(calloc(explore->table_size, sizeof(*explore->table)));
    for (uint32_t i = 0; i < explore->count; i++)
        *find(explore, state_at(explore, i)) = i + 1;
}

static void add(cup_explore_t *explore, const uint64_t *state)
{
    unsigned words = explore->ops->words;
    uint32_t *place;

    if ((uint64_t)explore->count * 3 >= explore->table_size * 2)
        enlarge_table(explore);
    place = find(explore, state);
    if (*place)
        return;
    if (explore->count == explore->ops->states_max) {
        explore->result.is_bounded = true;
        return;
    }
    if (explore->count == explore->capacity) {
        explore->capacity = explore->capacity ? explore->capacity + explore->capacity / 2 : 1 << 12;
        explore->state = grow(explore->state, explore->capacity * words * 8);
        explore->parent = grow(explore->parent, explore->capacity * sizeof(*explore->parent));
    }
    memcpy(state_at(explore, explore->count), state, words * 8);
    explore->parent[explore->count++] = explore->current;
    *place = explore->count;
}

static void tell(cup_explore_t *explore, const uint64_t *state, const char *broken, const char *format,
                 va_list args)
{
    if (!explore->wanted || broken != explore->wanted_broken ||
        memcmp(state, explore->wanted, explore->ops->words * 8) != 0)
        return;
    fprintf(explore->trace, "  %3u  ", explore->step);
    vfprintf(explore->trace, format, args);
    fputc('\n', explore->trace);
    explore->wanted = NULL;
}

void cup_explore_emit(cup_explore_t *explore, const uint64_t *state, const char *broken, const char *format,
                      ...)
{
    va_list args;

    if (explore->trace) {
        va_start(args, format);
        tell(explore, state, broken, format, args);
        va_end(args);
        return;
    }
    explore->result.moves++;
    if (explore->result.broken)
        return;
    if (broken) {
        explore->result.broken = broken;
        memcpy(explore->last, state, explore->ops->words * 8);
        return;
    }
    add(explore, state);
}

static void expand(cup_explore_t *explore, uint32_t number)
{
    uint64_t copy[CUP_EXPLORE_WORDS_MAX]; /* the array moves when it grows */

    memcpy(copy, state_at(explore, number), explore->ops->words * 8);
    explore->current = number;
    explore->ops->expand(explore, explore->ops->self, copy);
}

/* Prints the way from the first state to explore->current and the broken step after it. */
static void print_trace(cup_explore_t *explore, FILE *trace)
{
    uint32_t length = explore->result.depth;
    uint32_t *path = grow(NULL, length * sizeof(*path));
    uint32_t number = explore->current;

    for (uint32_t i = length; i-- > 0; number = explore->parent[number])
        path[i] = number;
    explore->trace = trace;
    for (uint32_t i = 0; i < length; i++) {
        bool is_last = i + 1 == length;

        explore->step = i + 1;
        explore->wanted = is_last ? explore->last : state_at(explore, path[i + 1]);
        explore->wanted_broken = is_last ? explore->result.broken : NULL;
        expand(explore, path[i]);
    }
    fprintf(trace, "  %s\n", explore->result.broken);
    free(path);
}

static uint32_t depth_of(const cup_explore_t *explore, uint32_t number)
{
    uint32_t depth = 0;

    for (; explore->parent[number] != NONE; number = explore->parent[number])
        depth++;
    return depth;
}

cup_explore_result_t cup_explore_run(const cup_explore_ops_t *ops, FILE *trace)
{
    cup_explore_t explore = {.ops = ops, .current = NONE};

    add(&explore, ops->first);
    for (uint32_t i = 0; i < explore.count && !explore.result.broken && !explore.result.is_bounded; i++)
        expand(&explore, i);
    explore.result.states = explore.count;
    explore.result.depth = depth_of(&explore, explore.current) + (explore.result.broken ? 1 : 0);
    if (explore.result.broken && trace)
        print_trace(&explore, trace);
    free(explore.state);
    free(explore.parent);
    free(explore.table);
    return explore.result;
}
