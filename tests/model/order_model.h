/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_model - the protocol of shim/order.c as a state machine, one load, store or driver call a step.
 * What:       threads that submit, free, destroy streams, begin and end captures, allocate and poll in any
 *             order, within budgets; their store buffers (TSO); the device as a relation: what surely runs
 *             after what.
 * Not here:   the search (explore.c); which configurations and mutants are run (order_check.c).
 * Invariants: those that it checks: docs/model.md.
 */
#ifndef CUP_TESTS_MODEL_ORDER_MODEL_H
#define CUP_TESTS_MODEL_ORDER_MODEL_H
#include "tests/model/explore.h"

/* What is left out or changed, one at a time. */
#define CUP_MUTANT_LIST(X)                                                                           \
    X(NONE, "as built")                                                                              \
    X(CLEAR_AFTER, "dirty cleared after the record, without the 2")                                  \
    X(CLEAR_BEFORE, "dirty cleared before the record")                                               \
    X(SWAP_IS_STORE, "the swap of dirty from 2 to 0 is a store")                                     \
    X(TWO_WITHOUT_FENCE, "dirty = 2 without a fence")                                                \
    X(MARK_AFTER_PUSH, "mark after the push")                                                        \
    X(WORD_WITHOUT_FENCE, "call word without a fence")                                               \
    X(OWN_UNPASSED, "own-stream record by a stream that had not passed")                             \
    X(NO_WORDS, "no call words are read")                                                            \
    X(WORDS_FIRST_ONLY, "call words read before the busy set only")                                  \
    X(WORDS_LAST_ONLY, "call words read after the busy set only")                                    \
    X(WORDS_AFTER_RECORD, "call words read after the record only")                                   \
    X(NO_READD, "the call words' streams do not go back into the busy set")                          \
    X(READD_UNLOCKED, "they go back after the swap, without the lock")                               \
    X(BUSY_READ_FIRST, "busy set read, call words, then the set overwritten with them")              \
    X(BUSY_OVERWRITTEN, "call words, busy set read, then the set overwritten with them")             \
    X(NOTE_BY_STORE, "a stream noted as busy by load and store")                                     \
    X(NOTE_AFTER_CALL, "a stream noted as busy after the real call")                                 \
    X(PUBLISH_FIRST, "published before recorded, and read without the lock")                         \
    X(PASS_NEWER, "waits for the old event, stores the newer number")                                \
    X(PASSED_FIRST, "passed stored before the wait is issued")                                       \
    X(PASSED_CHECK_OUTSIDE, "the same under the lock, with the check outside it")                    \
    X(DESTROY_IGNORED, "destroy ignored")                                                            \
    X(DESTROY_AFTER, "destroy hook after the real destroy")                                          \
    X(DESTROY_KEEPS_PASSED, "passed kept for a destroyed handle")                                    \
    X(DESTROY_KEEPS_OWNER, "the newest point's owner kept for a destroyed handle")                   \
    X(DESTROY_NOT_SEVERAL, "destroy without several busy")                                           \
    X(OPEN_UNFENCED, "open + 1 stored without a fence")                                              \
    X(OPEN_LATE, "open + 1 stored after the record")                                                 \
    X(RING_KEEPS_OWNER, "a full ring: the newer point keeps the older one's owner")                  \
    X(RING_OLD_HANDLE, "a full ring: the newer number with the older event")                         \
    X(RING_REUSE, "a full ring: the oldest entry is taken, complete or not, and counts as complete") \
    X(MUST_OVERWRITTEN, "the event of the point that must be passed is recorded again")              \
    X(POLL_UNLOCKED, "complete: the event asked first, its number read later, without the lock")     \
    X(NOTHING_IS_COMPLETE, "a point of no work is complete")                                         \
    X(FAIL_CLEARS, "a record that fails: published, dirty cleared, nothing waited for")              \
    X(FAIL_FORGETS, "a record that fails under a capture: the busy set is not given back")           \
    X(FAIL_UNWAITED, "a record that fails under a capture: the submission goes on")                  \
    X(LOOSE_IS_DUE, "points that no free had marked must be passed, too")                            \
    X(SECOND_BEGIN, "a Begin beside another capture does not close")                                 \
    X(DESTROY_UNCOUNTS_FIRST, "destroy: the capture counts as ended before the real destroy")        \
    X(TAKE_OVER_MISSING, "destroy beside a capture: nobody takes over what is busy")                 \
    X(TAKE_OVER_NOT_BUSY, "destroy beside a capture: who takes over is not busy")                    \
    X(BEGIN_UNLOCKED, "Begin counts up without the lock")                                            \
    X(BEGIN_LATE, "the hook of Begin after the real Begin")                                          \
    X(BEGIN_UNCLOSED, "Begin does not close")                                                        \
    X(BEGIN_RAISES_FIRST, "Begin counts up before it closes")                                        \
    X(EACH_WITHOUT_NEWEST, "our own stream waits for the busy ones, not for the newest point")       \
    X(CAPTURE_SPOILED, "beside a capture the context is recorded, not waited for")                   \
    X(PUT_OFF_UNWAITED, "a point that a capture keeps open: the submission goes on")                 \
    X(FREE_UNWAITED, "a free that must wait beside a capture neither waits nor marks")               \
    X(FREE_MARKS_UNKNOWN, "a free that must wait beside a capture only marks")                       \
    X(FREE_CLOSES_LOOSE, "a free that must wait beside a capture closes a loose point")              \
    X(UNKNOWN_UNCLOSED, "unknown who is busy beside a capture: marks are not closed")                \
    X(OTHER_CONTEXT, "a submission does not pass the other context's points")                        \
    X(ANY_IS_NOTHING, "a call that may touch everything: its call word does not say so")             \
    X(STAMP_IS_POINT, "overlap: stamp = point + 1")                                                  \
    X(STAMP_AFTER_MARK, "overlap: stamp after the mark")                                             \
    X(HAND_OUT_NEWEST, "overlap: hands out up to the newest point, loose or not")                    \
    X(POLL_CLOSES_LATE, "overlap: a poll closes behind later work, and it must be passed")           \
    X(NEED_AFTER, "overlap: need raised after the block was handed out")

typedef enum {
#define CUP_X(name, text) CUP_MUTANT_##name,
    CUP_MUTANT_LIST(CUP_X)
#undef CUP_X
        CUP_MUTANT_COUNT
} cup_mutant_t;

/* How much there is of everything. */
typedef struct cup_model {
    int threads, streams; /* <= 3 */
    int contexts;         /* 1 (or 0), or 2: then stream i belongs to context i % 2 */
    int ring, members;    /* entries of the ring (<= 2), places in the busy set (<= 3); 0 stands for 2 */
    int launches, frees;  /* <= 7 */
    int destroys, begins, fails, polls, anys, doubts; /* <= 3 */
    bool is_overlap;
    bool is_tight;    /* with one thread: what no wait may cover, and what one thread must never reach */
    bool is_started;  /* something was recorded before: not several busy */
    bool is_old;      /* the driver can't record on a context */
    uint64_t mutants; /* a bit for each */
} cup_model_t;

/* Everything that can be reached, or the shortest way to something broken. states_max: where to stop. */
cup_explore_result_t cup_model_run(const cup_model_t *model, uint32_t states_max, FILE *trace);

#endif /* CUP_TESTS_MODEL_ORDER_MODEL_H */
