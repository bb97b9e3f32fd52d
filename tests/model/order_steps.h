/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_steps - what the files of steps share: a move, its emission, the places of a thread.
 * What:       a thread is at a place; the place's function makes one copy of the state for each outcome,
 *             changes it and emits it. A step that needs an empty store buffer is not possible until the
 *             buffer is drained.
 * Merged:     thread-local work with the access before it; taking a lock with the access after it, and
 *             releasing one with the access before it (both commute); stores that are followed by a fence
 *             before any load.
 * Not here:   the steps: order_submit.c (frees and submissions), order_close.c (steps a to d),
 *             order_other.c (streams that end, captures, polls, allocation). Their names are those of
 *             shim/order.c.
 */
#ifndef CUP_TESTS_MODEL_ORDER_STEPS_H
#define CUP_TESTS_MODEL_ORDER_STEPS_H
#include "tests/model/order_state.h"

typedef struct run {
    const cup_model_t *model;
    cup_explore_t *explore;
    unsigned emitted;
} run_t;

/* One outcome of one step of one thread. */
typedef struct move {
    run_t *run;
    int h;
    const char *broken;
    model_state_t s;
} move_t;

#define PLACE_LIST(X)            \
    X(IDLE, start_anything)      \
    X(STAMP, take_stamp)         \
    X(LOOK, look_for_captures)   \
    X(CLOSABLE, ask_closable)    \
    X(AT_ONCE, close_at_once)    \
    X(ORDERED, end_at_once)      \
    X(MARK, mark)                \
    X(MARK_LATE, mark_late)      \
    X(FREED, close_freed)        \
    X(PASS, pass)                \
    X(LOCK, close_marked)        \
    X(REST, rest)                \
    X(AWAITED, clear_awaited)    \
    X(OPEN, advance_open)        \
    X(WORDS, read_word)          \
    X(TAKE, take_busy)           \
    X(WORDS_AGAIN, read_word)    \
    X(RECORD, record_work)       \
    X(CONTEXT, record_context)   \
    X(JOIN, join_next)           \
    X(JOINED, record_joined)     \
    X(OWN, note_own)             \
    X(DUE, raise_due)            \
    X(PUBLISH, publish)          \
    X(WORDS_LATE, read_word)     \
    X(GIVE_BACK, give_back_busy) \
    X(SWAP, swap_dirty)          \
    X(HOST, wait_on_host)        \
    X(LOAD_DUE, load_due)        \
    X(PASSED, compare_passed)    \
    X(COPY, copy_must)           \
    X(WAIT, wait_for)            \
    X(NOTE, note_busy)           \
    X(NOTE_STORE, note_by_store) \
    X(CALL, call_driver)         \
    X(UNKNOWN, make_unknown)     \
    X(DOUBT, call_unknown)       \
    X(TAKE_OVER, take_over)      \
    X(DESTROY, destroy)          \
    X(BEGIN, begin_capture)      \
    X(END, end_capture)          \
    X(POLL, poll_later)          \
    X(RAISE_NEED, raise_need)    \
    X(HAND_OUT, hand_out)

enum {
#define CUP_X(place, step) AT_##place,
    PLACE_LIST(CUP_X)
#undef CUP_X
};

#define CUP_X(place, step) void model_##step(move_t v);
PLACE_LIST(CUP_X)
#undef CUP_X

#define TH(v)    (&(v)->s.thread[(v)->h])
#define CTX(v)   (&(v)->s.ctx[TH(v)->ctx])
#define MODEL(v) ((v)->run->model)

static inline bool is(const move_t *v, cup_mutant_t mutant)
{
    return MODEL(v)->mutants >> mutant & 1;
}

static inline uint8_t larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* Places within AT_UNKNOWN. */
enum { UNKNOWN_EXCHANGE, UNKNOWN_ACTIVE, UNKNOWN_LOCK, UNKNOWN_AGAIN };

/* ---- what must hold ---- */

extern const char MODEL_LATE[], MODEL_EARLY[], MODEL_UNCOVERED[], MODEL_CHAIN[], MODEL_TIGHT[],
    MODEL_SPOILED[], MODEL_KEPT[];

void model_check(move_t *v, bool is_good, const char *text);
unsigned model_work_below(const move_t *v, int ctx, unsigned count);

/* What is called complete is; and stamps up to the newest point are covered by its event. */
void model_check_complete(move_t *v, int ctx);
void model_check_stamps(move_t *v, int ctx);

/* A wait for the mask, by a stream that comes after `before` anyway. */
void model_check_tight(move_t *v, unsigned mask, unsigned before);

/* Beside a capture, a close is put off or the host waits. */
void model_check_kept(move_t *v);

/* ---- one outcome ---- */

void model_forget(move_t *v);

#define EMIT(v, text, ...)                                                                                  \
    do {                                                                                                    \
        uint64_t words_[CUP_EXPLORE_WORDS_MAX];                                                             \
        model_forget(v);                                                                                    \
        model_state_pack(MODEL(v), &(v)->s, words_);                                                        \
        (v)->run->emitted++;                                                                                \
        cup_explore_emit((v)->run->explore, words_, (v)->broken, "%c: " text, 'A' + (v)->h, ##__VA_ARGS__); \
    } while (0)

/* The thread is done; its locals are forgotten. */
void model_idle(move_t *v);

/* A fence, or an access that is one, waits for the store buffer. */
static inline bool is_drained(const move_t *v)
{
    return TH(v)->stores == 0;
}

static inline bool can_lock(const move_t *v)
{
    return is_drained(v) && !CTX(v)->lock;
}

void model_put(move_t *v, int kind, int index, unsigned value);
void model_put_word(move_t *v, unsigned value);
uint8_t model_look(const move_t *v, int kind, int index, uint8_t memory);
uint8_t model_look_passed(const move_t *v, int stream);

/* ---- between the files ---- */

/* Step a, with the lock taken; what comes after it is told by `why`. */
void model_begin_close(move_t *v, uint8_t why, bool is_loose, bool may_wait);

/* The close of a submission is over, and the lock released. */
void model_after_close(move_t *v, uint8_t outcome);

/* The event of entry low - 1 of the ring was asked and is complete: so are those before it. */
void model_pop(move_t *v, int low);

/* Which streams are busy is not known from now on; what comes after it is told by `why`. */
void model_begin_unknown(move_t *v, uint8_t why);

/* What our own stream, or another one, comes after. */
uint8_t model_before(const move_t *v, int stream);

/* Adds the stream to the busy set, or looks at one more place of it. True: it is in. */
bool model_add_member(move_t *v, int stream);

void model_start_free(move_t v, int ctx);
void model_start_submission(move_t v, int stream, bool is_any);

#endif /* CUP_TESTS_MODEL_ORDER_STEPS_H */
