/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_state - what the model of the order points remembers, how it is packed, and the device.
 * What:       the variables of shim/order.c, shim/stream_set.h and the threads' call words; each thread's
 *             place in the protocol, with the locals that it still needs; its store buffer; the device.
 * The device: operations are numbered as they are submitted (the real call). A stream and an event have a
 *             mask of those that surely come before what is submitted to the stream next, or what waits for
 *             the event. "Done" is what the host knows to be complete.
 * Not here:   the steps of the protocol (order_steps.h).
 */
#ifndef CUP_TESTS_MODEL_ORDER_STATE_H
#define CUP_TESTS_MODEL_ORDER_STATE_H
#include "tests/model/order_model.h"

enum {
    THREADS_MAX = 3,
    STREAMS_MAX = 3,
    CONTEXTS_MAX = 2,
    RING_MAX = 2,
    HANDLES_MAX = RING_MAX + 2, /* of events: the ring's and the spare ones */
    MEMBERS_MAX = 3,
    BLOCKS_MAX = 3,
    NUMBERS_MAX = 15,
    STORES_MAX = 7,

    JOINER = STREAMS_MAX, /* our own stream, as a busy one */
    SEVERAL = 16,         /* in a set of streams, beside a bit for each */
    NO_STREAM = 3,
    NOBODY = 3,     /* an owner */
    EVERYWHERE = 4, /* in a call word, beside stream + 1 */
};

/* Why a thread holds the lock of a context, or a stream that nobody else may use meanwhile. */
enum { WHY_SUBMIT, WHY_BEGIN, WHY_POLL, WHY_FREE, WHY_DOUBT, WHY_DESTROY, WHY_STREAM };

/* How a close ended: well, with an error, or not now (a capture is in the way). */
enum { CLOSE_GOOD, CLOSE_ERROR, CLOSE_NOT_NOW };

/* Stores that may still be in a buffer. */
#define STORE_LIST(X) \
    X(WORD)           \
    X(DIRTY)          \
    X(LISTED)         \
    X(PASSED)         \
    X(AWAITED)        \
    X(PUSHED)         \
    X(OPEN)           \
    X(MEMBER)
enum {
#define CUP_X(kind) STORE_##kind,
    STORE_LIST(CUP_X)
#undef CUP_X
};

typedef struct store {
    uint8_t kind, ctx, index, value;
} store_t;

typedef struct model_thread {
    uint8_t pc;
    uint8_t word;        /* shared: the call word */
    uint8_t stream, ctx; /* of the call; whose points are being passed */
    uint8_t why, is_any, is_limbo, outcome, is_loose, may_wait;
    uint8_t words, busy, left; /* sets of streams: I, B, what is still to be recorded on or added */
    uint8_t n, i;              /* a number; a loop */
    uint8_t stamp,
        before; /* a block's number, or the point to pass; how many operations came before a free */
    uint8_t handle, owner, is_settled; /* of a point that is recorded, or waited for */
    uint8_t block;
    uint8_t owed[CONTEXTS_MAX]; /* operations below this must come before what the thread submits */
    uint8_t stores;
    store_t store[STORES_MAX]; /* oldest first */
} model_thread_t;

typedef struct model_point {
    uint8_t number, owner, handle, is_settled, is_loose;
} model_point_t;

typedef struct model_ctx {
    uint8_t dirty, open, point, due, need, awaited, open_loose, several, member[MEMBERS_MAX];
    uint8_t lock, captures, completed, count;
    model_point_t ring[RING_MAX]; /* turned so that the oldest is the first */
    model_point_t must;
    uint8_t spare[2];           /* handles */
    uint8_t event[HANDLES_MAX]; /* masks */
    uint8_t joiner;             /* mask: what our own stream comes after */
    uint8_t joiner_passed;
    uint8_t ops;    /* mask: submitted here */
    uint8_t listed; /* owed to whoever sees a block that was given away */
    uint8_t stamped[NUMBERS_MAX +
                    1]; /* by number: the most operations that came before a block with that stamp */
} model_ctx_t;

typedef struct model_stream {
    uint8_t before; /* mask */
    uint8_t capturing;
    uint8_t passed[CONTEXTS_MAX];
} model_stream_t;

typedef struct model_block {
    uint8_t is_free, stamp, before;
} model_block_t;

typedef struct model_state {
    model_ctx_t ctx[CONTEXTS_MAX];
    model_stream_t stream[STREAMS_MAX];
    model_thread_t thread[THREADS_MAX];
    model_block_t block[BLOCKS_MAX];
    uint8_t done;            /* mask */
    uint8_t begun, launched; /* submissions */
    uint8_t frees, destroys, begins, fails, polls, anys, doubts;
    uint8_t hidden; /* operations that nobody sees */
    uint8_t freed;  /* operations before the newest free */
    uint8_t capture_lock, active;
    uint8_t seen_streams, seen_threads; /* equals are used in their order */
} model_state_t;

/* 64-bit words of a packed state. */
unsigned model_state_words(const cup_model_t *model);

void model_state_pack(const cup_model_t *model, model_state_t *state, uint64_t *out_words);
void model_state_unpack(const cup_model_t *model, const uint64_t *words, model_state_t *out_state);

/* The operations below. */
static inline unsigned model_below(unsigned count)
{
    return (1U << count) - 1;
}

/* What a call that nobody knows submits is followed by nobody; a second thread's close may come between. */
static inline bool model_has_hidden(const cup_model_t *model)
{
    return model->doubts > 0 && model->threads == 1;
}

/* Our own stream may be a busy one. */
static inline bool model_has_busy_joiner(const cup_model_t *model)
{
    return model->begins > 0 && model->destroys > 0;
}

static inline int model_ctx_of(const cup_model_t *model, int stream)
{
    return model->contexts == 2 ? stream % 2 : 0;
}

/* ---- store buffers ---- */

bool model_can_store(const model_thread_t *thread);
void model_store(model_thread_t *thread, store_t store);

/* The oldest store reaches memory. */
store_t model_drain(model_state_t *state, int thread);

/* What the thread itself would load: its newest store, or memory's value. */
uint8_t model_load(const model_thread_t *thread, store_t what, uint8_t memory);

/* ---- the device ---- */

/* All that was submitted to the context, and what that comes after. */
unsigned model_all_work(const cup_model_t *model, const model_state_t *state, int ctx);

/* What the point covers. */
unsigned model_point_mask(const model_ctx_t *ctx, const model_point_t *point);

/* Also when it is complete, and out of the count. */
model_point_t *model_newest(const cup_model_t *model, model_ctx_t *ctx);

#endif /* CUP_TESTS_MODEL_ORDER_STATE_H */
