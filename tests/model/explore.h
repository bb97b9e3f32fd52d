/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore - every state that a model can reach, breadth first: the first counterexample is a shortest one.
 * What:       states of a fixed number of 64-bit words, each kept once, in the order in which they were
 *             found; a hash table of their numbers; the parent of each, for the trace.
 * Not here:   what a state means (order_model.c).
 * Costs:      the words, 4 bytes for the parent and 8 to 16 bytes for the table, for each state.
 * Threads:    one.
 */
#ifndef CUP_TESTS_MODEL_EXPLORE_H
#define CUP_TESTS_MODEL_EXPLORE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CUP_EXPLORE_WORDS_MAX 16

typedef struct cup_explore cup_explore_t;

typedef struct cup_explore_ops {
    /* Emits every successor of the state. */
    void (*expand)(cup_explore_t *explore, void *self, const uint64_t *state);
    void *self;
    const uint64_t *first;
    unsigned words;
    uint32_t states_max; /* then it stops: "bounded" */
} cup_explore_ops_t;

typedef struct cup_explore_result {
    uint32_t states;
    uint64_t moves;
    uint32_t depth;     /* of the state found last; with a violation, the steps of the counterexample */
    const char *broken; /* what was violated, or NULL */
    bool is_bounded;    /* stopped at states_max */
} cup_explore_result_t;

/* With a trace the counterexample is printed there, a line a step. */
cup_explore_result_t cup_explore_run(const cup_explore_ops_t *ops, FILE *trace);

/*
 * A successor; broken: what is wrong about reaching it, or NULL. The label is made only where it is
 * printed.
 */
void cup_explore_emit(cup_explore_t *explore, const uint64_t *state, const char *broken, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));

#endif /* CUP_TESTS_MODEL_EXPLORE_H */
