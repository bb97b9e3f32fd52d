/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden - the frame of the two golden programs: what a call answers, by state of the process.
 * What:       a program is three LISTs: calls, kinds of pointers that calls are given, states. The frame
 *             makes a line of each cell: state, call and kind, code, outputs. Outputs are made the same on
 *             every machine: sizes, yes or no, what equals what; never addresses.
 * Not here:   anything of the pool: the programs are compared natively and under the preload (golden.sh).
 * Invariants: each state is a process of its own, which starts anew where a call leaves it broken: after a
 *             crash, a hang, an asynchronous error. All memory is made before the state is entered, and
 *             what is "freed" is given back after the last was made, so that nothing takes its address.
 *             What a call allocates goes back after it. Calls without a pointer come first: where one of
 *             them crashes the process tells no counters, and that which goes on has all memory again.
 * Threads:    calls come from one thread, or each from a thread of its own (GOLDEN_THREAD).
 */
#ifndef CUP_TESTS_GOLDEN_H
#define CUP_TESTS_GOLDEN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a call is given, and leaves. */
typedef struct golden_bed {
    uint64_t addr;           /* the pointer */
    uint64_t base, bytes;    /* of the memory that it points into; 0: none */
    unsigned long long kept; /* what the call allocated; 0: nothing */
    int made;                /* not 0: the code with which such memory was refused */
} golden_bed_t;

typedef struct golden_answer {
    size_t length;
    char text[200];
} golden_answer_t;

/* Adds outputs to the line of this call. */
__attribute__((format(printf, 2, 3))) void golden_say(golden_answer_t *answer, const char *format, ...);

typedef enum golden_where {
    GOLDEN_FULL,      /* asked in the full state alone */
    GOLDEN_ALWAYS,    /* in every state but the one of first calls */
    GOLDEN_FIRST_TOO, /* also as the first call of a process */
} golden_where_t;

typedef struct golden_kind {
    const char *name;
    bool is_literal; /* a number: there is nothing to make, so it is asked without a context, too */
    golden_where_t where;
    int (*make)(golden_bed_t *bed);
    void (*spoil)(golden_bed_t *bed); /* NULL, or what is done to it when all beds are made */
} golden_kind_t;

typedef struct golden_call {
    const char *name;
    golden_where_t where;
    int (*call)(golden_bed_t *bed, golden_answer_t *answer); /* gives the code */
} golden_call_t;

typedef struct golden_table {
    const golden_call_t *calls;
    size_t count;
    bool has_pointer; /* asked for each kind */
} golden_table_t;

typedef enum golden_how {
    GOLDEN_HERE,
    GOLDEN_THREAD,     /* each call in a new thread */
    GOLDEN_FORK,       /* in a forked child */
    GOLDEN_EXIT_EARLY, /* in an exit handler that was there before the driver */
    GOLDEN_EXIT_LATE,  /* in one that came after the driver had started */
    GOLDEN_DESTRUCTOR, /* in a destructor of the program */
    GOLDEN_FIRST,      /* each call is the first of its process */
} golden_how_t;

typedef struct golden_state {
    const char *name;
    golden_how_t how;
    bool is_full;        /* every kind and every call */
    bool is_literal;     /* no memory can be made */
    bool is_checked;     /* a call that breaks the context is followed by a new process */
    void (*open)(void);  /* before memory is made */
    void (*enter)(void); /* after it; NULL: nothing. So with the next two, around each call */
    void (*begin)(void);
    void (*end)(golden_answer_t *answer);
} golden_state_t;

typedef struct golden_program {
    golden_table_t tables[2];
    const golden_kind_t *kinds;
    size_t kind_count;
    const golden_state_t *states;
    size_t state_count;
    void (*after)(golden_answer_t *answer); /* NULL, or adds what is asked after each call */
    void (*settle)(golden_bed_t *bed);      /* gives back what the call allocated */
    bool (*is_sound)(void);                 /* the context still takes work */
} golden_program_t;

#define GOLDEN_COUNT(values) (sizeof(values) / sizeof((values)[0]))

/* An address on the main thread's stack, good as long as the process lives. */
uint64_t golden_stack(void);

/* Ends the process with one line unless the code is 0: for what a state stands on. */
void golden_need(int code, const char *what);

/* Ends the process: this machine has not what the state takes, which is one line of the table. */
void golden_not_here(void) __attribute__((noreturn));

/* What main() returns. Without arguments: every state. With names of states: those. */
int golden_main(int argc, char **argv, const golden_program_t *program);

#endif /* CUP_TESTS_GOLDEN_H */
