/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing a point: steps a to d of shim/order.c, from the lock to the swap of dirty.
 */
#include "tests/model/order_steps.h"
#include <stdlib.h>
#include <string.h>

/* ---- step a ---- */

void model_begin_close(move_t *v, uint8_t why, bool is_loose, bool may_wait)
{
    model_thread_t *th = TH(v);
    bool may_await = MODEL(v)->begins > 0 || MODEL(v)->is_overlap;

    CTX(v)->lock = 1;
    th->why = why;
    th->may_wait = may_wait;
    th->pc = may_await ? AT_AWAITED : AT_OPEN;
    th->is_loose = is_loose && CTX(v)->dirty == 0 && !is(v, CUP_MUTANT_LOOSE_IS_DUE);
    if (is(v, CUP_MUTANT_CLEAR_AFTER))
        return;
    if (is(v, CUP_MUTANT_TWO_WITHOUT_FENCE))
        model_put(v, STORE_DIRTY, 0, 2);
    else
        CTX(v)->dirty = is(v, CUP_MUTANT_CLEAR_BEFORE) ? 0 : 2;
}

void model_clear_awaited(move_t v)
{
    CTX(&v)->awaited = 0;
    CTX(&v)->open_loose = 0;
    TH(&v)->pc = AT_OPEN;
    EMIT(&v, "awaited = 0");
}

static void next_word(move_t *v, uint8_t place, uint8_t after)
{
    model_thread_t *th = TH(v);

    if (th->i == v->h)
        th->i++;
    th->pc = th->i < MODEL(v)->threads ? place : after;
    if (th->pc == after)
        th->i = 0;
}

static bool reads_words_first(const move_t *v)
{
    return !is(v, CUP_MUTANT_NO_WORDS) && !is(v, CUP_MUTANT_WORDS_LAST_ONLY) &&
           !is(v, CUP_MUTANT_WORDS_AFTER_RECORD) && !is(v, CUP_MUTANT_BUSY_READ_FIRST);
}

static bool reads_words_again(const move_t *v)
{
    return !is(v, CUP_MUTANT_NO_WORDS) && !is(v, CUP_MUTANT_WORDS_FIRST_ONLY) &&
           !is(v, CUP_MUTANT_WORDS_AFTER_RECORD) && !is(v, CUP_MUTANT_BUSY_OVERWRITTEN);
}

void model_advance_open(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);

    th->n = model_look(&v, STORE_OPEN, 0, ctx->open);
    if (th->n == NUMBERS_MAX)
        abort();
    if (is(&v, CUP_MUTANT_OPEN_UNFENCED))
        model_put(&v, STORE_OPEN, 0, th->n + 1U);
    else if (!is(&v, CUP_MUTANT_OPEN_LATE))
        ctx->open = th->n + 1;
    th->i = 0;
    if (reads_words_first(&v))
        next_word(&v, AT_WORDS, AT_TAKE);
    else
        th->pc = AT_TAKE;
    EMIT(&v, "open = %d", th->n + 1);
}

/* ---- step b ---- */

void model_read_word(move_t v)
{
    model_thread_t *th = TH(&v);
    uint8_t place = th->pc;
    uint8_t after = place == AT_WORDS ? AT_TAKE : place == AT_WORDS_AGAIN ? AT_RECORD : AT_GIVE_BACK;
    int other = th->i++;
    uint8_t word = v.s.thread[other].word;
    int stream = (word & 3) - 1;

    if (stream >= 0 && model_ctx_of(MODEL(&v), stream) == th->ctx)
        th->words |= (uint8_t)(1 << stream);
    else if (word & EVERYWHERE)
        th->words |= SEVERAL;
    next_word(&v, place, after);
    if (th->pc == AT_GIVE_BACK)
        th->left = th->words;
    EMIT(&v, "%c's call word is %d", 'A' + other, word);
}

/* The members one by one, then "several". */
void model_take_busy(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    bool is_read_only = is(&v, CUP_MUTANT_BUSY_READ_FIRST) || is(&v, CUP_MUTANT_BUSY_OVERWRITTEN);
    uint8_t *from = th->i < MODEL(&v)->members ? &ctx->member[th->i] : &ctx->several;
    uint8_t value = *from;
    bool is_last = from == &ctx->several;

    if (value && !is_drained(&v) && !is_read_only) /* what is empty is only read */
        return;
    if (value)
        th->busy |= is_last ? SEVERAL : (uint8_t)(1 << (value - 1));
    if (!is_read_only)
        *from = 0;
    th->i++;
    if (is_last) {
        th->i = 0;
        if (reads_words_again(&v))
            next_word(&v, AT_WORDS_AGAIN, AT_RECORD);
        else
            th->pc = AT_RECORD;
    }
    EMIT(&v, "%s busy: %s%d", is_read_only ? "reads" : "takes",
         is_last ? "several " : "stream + 1 = ", value);
}

/* ---- step c ---- */

static void go_on(move_t *v, uint8_t owner, bool is_settled, uint8_t place)
{
    TH(v)->owner = owner;
    TH(v)->is_settled = is_settled;
    TH(v)->pc = place;
}

/* Also where the point was not closed: then with all that was busy. */
static void begin_give_back(move_t *v, uint8_t outcome)
{
    model_thread_t *th = TH(v);
    bool is_overwritten = is(v, CUP_MUTANT_BUSY_READ_FIRST) || is(v, CUP_MUTANT_BUSY_OVERWRITTEN);
    bool is_left = is(v, CUP_MUTANT_NO_READD) || is(v, CUP_MUTANT_READD_UNLOCKED) ||
                   (outcome && is(v, CUP_MUTANT_FAIL_FORGETS));

    th->outcome = outcome;
    th->i = 0;
    th->left = is_left ? 0 : outcome ? th->words | th->busy : th->words;
    th->pc = th->left || is_overwritten ? AT_GIVE_BACK : AT_SWAP;
}

static uint8_t place_of_published(const move_t *v)
{
    return TH(v)->is_loose ? AT_PUBLISH : AT_DUE;
}

/* The host waits for all (record_nothing). */
static void settle(move_t v)
{
    unsigned work = model_all_work(MODEL(&v), &v.s, TH(&v)->ctx);

    model_check_kept(&v);
    model_check_tight(&v, work, 0);
    v.s.done |= (uint8_t)work;
    go_on(&v, NOBODY, true, place_of_published(&v));
    EMIT(&v, "no record: the host waits for everything");
}

/* A record fails: the host waits for all. Under a capture the point stays open, and the caller sees to it. */
static void fail(move_t v)
{
    v.s.fails++;
    if (is(&v, CUP_MUTANT_FAIL_CLEARS)) {
        go_on(&v, NOBODY, true, place_of_published(&v));
        EMIT(&v, "the record fails, and nobody cares");
    } else if (CTX(&v)->captures == 0) {
        settle(v);
    } else {
        begin_give_back(&v, CLOSE_ERROR);
        EMIT(&v, "the record fails under a capture: the point stays open");
    }
}

static bool may_fail(const move_t *v)
{
    return v->s.fails < MODEL(v)->fails;
}

static int first_of(unsigned set)
{
    int i = 0;

    while (!(set >> i & 1))
        i++;
    return i;
}

static bool is_capturing(const move_t *v, unsigned set)
{
    for (int i = 0; i < MODEL(v)->streams; i++)
        if (set >> i & 1 && v->s.stream[i].capturing)
            return true;
    return false;
}

uint8_t model_before(const move_t *v, int stream)
{
    return stream == JOINER ? v->s.ctx[0].joiner : v->s.stream[stream].before;
}

static uint8_t passed_of(const move_t *v, int stream)
{
    return stream == JOINER ? CTX(v)->joiner_passed : model_look_passed(v, stream);
}

/* Nobody submits to our own stream: what it has passed is read under the lock, and it owns nothing. */
static void record_own(move_t v, int stream)
{
    if (may_fail(&v))
        fail(v);
    CTX(&v)->event[TH(&v)->handle] = model_before(&v, stream);
    if (stream == JOINER) {
        CTX(&v)->joiner_passed = TH(&v)->n;
        go_on(&v, NOBODY, false, place_of_published(&v));
    } else {
        go_on(&v, (uint8_t)stream, false, AT_OWN);
    }
    EMIT(&v, "records event %d on its stream %d", TH(&v)->handle, stream);
}

/* Where a stream captures it is refused, and the capture is lost (measured). */
void model_record_context(move_t v)
{
    model_check(&v, !is_capturing(&v, 7), MODEL_SPOILED);
    if (may_fail(&v))
        fail(v);
    CTX(&v)->event[TH(&v)->handle] = (uint8_t)model_all_work(MODEL(&v), &v.s, TH(&v)->ctx);
    go_on(&v, NOBODY, false, place_of_published(&v));
    EMIT(&v, "records event %d on context %d", TH(&v)->handle, TH(&v)->ctx);
}

/* Our own stream waits for the newest point, then for an event on each busy stream. */
static void begin_each(move_t v, unsigned set)
{
    model_ctx_t *ctx = CTX(&v);

    if (!is(&v, CUP_MUTANT_EACH_WITHOUT_NEWEST))
        ctx->joiner |= (uint8_t)model_point_mask(ctx, model_newest(MODEL(&v), ctx));
    TH(&v)->left = (uint8_t)set;
    TH(&v)->pc = set ? AT_JOIN : AT_JOINED;
    EMIT(&v, "our own stream waits for the newest point");
}

void model_join_next(move_t v)
{
    model_thread_t *th = TH(&v);
    int stream = first_of(th->left);

    if (may_fail(&v))
        fail(v);
    CTX(&v)->joiner |= model_before(&v, stream);
    th->left &= (uint8_t)(th->left - 1);
    th->pc = th->left ? AT_JOIN : AT_JOINED;
    EMIT(&v, "our own stream waits for stream %d", stream);
}

void model_record_joined(move_t v)
{
    if (may_fail(&v))
        fail(v);
    CTX(&v)->event[TH(&v)->handle] = CTX(&v)->joiner;
    go_on(&v, NOBODY, false, place_of_published(&v));
    EMIT(&v, "records event %d on our own stream", TH(&v)->handle);
}

static void not_now(move_t v)
{
    model_check_kept(&v);
    begin_give_back(&v, CLOSE_NOT_NOW);
    EMIT(&v, "a capture is in the way: not now");
}

static model_point_t *place_of_next(move_t *v)
{
    model_ctx_t *ctx = CTX(v);
    int ring = MODEL(v)->ring;

    return &ctx->ring[ctx->count < ring ? ctx->count : ring - 1];
}

/* Until it is published, no event changes that is in the ring or that streams are to pass. */
static uint8_t handle_of_next(move_t *v)
{
    const model_ctx_t *ctx = CTX(v);
    uint8_t handle = place_of_next(v)->handle;
    bool is_must = handle == ctx->must.handle && ctx->must.number > 0 && !is(v, CUP_MUTANT_MUST_OVERWRITTEN);

    if (ctx->count < MODEL(v)->ring && !is_must)
        return handle;
    return ctx->spare[ctx->spare[0] == ctx->must.handle && ctx->must.number > 0];
}

static void record(move_t v)
{
    model_thread_t *th = TH(&v);
    const model_ctx_t *ctx = CTX(&v);
    unsigned work = th->busy | th->words;
    bool is_one = work && !(work & (work - 1)) && !(work & SEVERAL);
    bool is_passed =
        is_one && (is(&v, CUP_MUTANT_OWN_UNPASSED) || passed_of(&v, first_of(work)) >= ctx->point);
    bool may_wait = th->may_wait || ctx->captures == 0;

    th->handle = handle_of_next(&v);
    if (is(&v, CUP_MUTANT_FAIL_CLEARS) && may_fail(&v))
        fail(v);
    if (is_passed && !is_capturing(&v, work)) {
        record_own(v, first_of(work));
    } else if (ctx->captures == 0 && !MODEL(&v)->is_old) {
        th->pc = AT_CONTEXT;
        EMIT(&v, "no stream captures: the context can be recorded");
    } else if (!(work & SEVERAL) && !is_capturing(&v, work)) {
        begin_each(v, work);
    } else if (may_wait && is(&v, CUP_MUTANT_CAPTURE_SPOILED)) {
        model_record_context(v);
    } else if (may_wait) {
        settle(v);
    } else {
        not_now(v);
    }
}

static void after_publish(move_t *v)
{
    if (is(v, CUP_MUTANT_WORDS_AFTER_RECORD)) {
        TH(v)->i = 0;
        next_word(v, AT_WORDS_LATE, AT_SWAP);
    } else {
        begin_give_back(v, CLOSE_GOOD);
    }
}

/* Nothing was submitted since the newest point: that stands for the new number, too. */
static void relabel(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    model_point_t *newest = model_newest(MODEL(&v), ctx);

    if (is(&v, CUP_MUTANT_NOTHING_IS_COMPLETE))
        newest->is_settled = 1;
    newest->number = th->n;
    newest->is_loose &= th->is_loose;
    if (!newest->is_loose) {
        ctx->must = *newest;
        ctx->due = th->n;
    }
    if (ctx->count == 0)
        ctx->completed = th->n;
    ctx->point = th->n;
    model_check_stamps(&v, th->ctx);
    after_publish(&v);
    EMIT(&v, "no work: point = %d", th->n);
}

void model_record_work(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    bool is_full = ctx->count == MODEL(&v)->ring;

    if (!(th->busy | th->words) && model_newest(MODEL(&v), ctx)->number > 0) {
        relabel(v);
        return;
    }
    if (is(&v, CUP_MUTANT_PUBLISH_FIRST) && ctx->due != th->n) {
        ctx->due = th->n;
        ctx->must = (model_point_t){th->n, NOBODY, handle_of_next(&v), 0, 0};
        EMIT(&v, "due = %d, before it is recorded", th->n);
        return;
    }
    if (is_full && is(&v, CUP_MUTANT_RING_REUSE)) {
        uint8_t done = v.s.done;

        model_pop(&v, 1);
        v.s.done = done;
        v.broken = NULL; /* the harm must show by itself */
        is_full = false;
    }
    for (int low = is_full ? ctx->count : 0; low >= 0; low--) {
        move_t w = v;

        model_pop(&w, low);
        record(w);
    }
}

/* passed[s] = n before n is published. */
void model_note_own(move_t v)
{
    v.s.stream[TH(&v)->owner].passed[TH(&v)->ctx] = TH(&v)->n;
    TH(&v)->pc = place_of_published(&v);
    EMIT(&v, "passed[stream %d] = %d", TH(&v)->owner, TH(&v)->n);
}

/* ---- step d ---- */

static model_point_t made_point(const move_t *v)
{
    const model_thread_t *th = TH(v);

    return (model_point_t){th->n, th->owner, th->handle, th->is_settled, th->is_loose};
}

/* What is made to be passed; `must` itself is under the lock. */
void model_raise_due(move_t v)
{
    model_ctx_t *ctx = CTX(&v);
    bool is_full = ctx->count == MODEL(&v)->ring;

    if (is_full && is(&v, CUP_MUTANT_RING_KEEPS_OWNER))
        TH(&v)->owner = model_newest(MODEL(&v), ctx)->owner;
    ctx->must = made_point(&v);
    if (is_full && is(&v, CUP_MUTANT_RING_OLD_HANDLE))
        ctx->must.handle = model_newest(MODEL(&v), ctx)->handle;
    ctx->due = TH(&v)->n;
    TH(&v)->pc = AT_PUBLISH;
    EMIT(&v, "due = %d", ctx->due);
}

/* The place's old event takes the spare one's part. */
static void enter_ring(move_t *v)
{
    model_ctx_t *ctx = CTX(v);
    model_point_t *place = place_of_next(v);
    model_point_t made = made_point(v);

    for (int i = 0; i < 2; i++)
        if (ctx->spare[i] == made.handle)
            ctx->spare[i] = place->handle;
    *place = made;
    if (ctx->count < MODEL(v)->ring)
        ctx->count++;
}

void model_publish(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    unsigned before = model_point_mask(ctx, model_newest(MODEL(&v), ctx));

    if (is(&v, CUP_MUTANT_OPEN_LATE))
        ctx->open = th->n + 1;
    enter_ring(&v);
    ctx->point = th->n;
    if (MODEL(&v)->mutants == 0 && !th->is_settled)
        model_check(&v, !(before & ~(v.s.done | ctx->event[th->handle])), MODEL_CHAIN);
    model_check_stamps(&v, th->ctx);
    after_publish(&v);
    EMIT(&v, "point = %d", ctx->point);
}

bool model_add_member(move_t *v, int stream)
{
    model_ctx_t *ctx = CTX(v);
    model_thread_t *th = TH(v);

    if (th->i == MODEL(v)->members) {
        ctx->several = 1;
        return true;
    }
    if (ctx->member[th->i] == stream + 1)
        return true;
    if (ctx->member[th->i] == 0) {
        ctx->member[th->i] = (uint8_t)(stream + 1);
        return true;
    }
    th->i++;
    return false;
}

static void overwrite_busy(move_t v)
{
    model_thread_t *th = TH(&v);
    int count = 0;

    memset(CTX(&v)->member, 0, sizeof(CTX(&v)->member));
    CTX(&v)->several = (th->words & SEVERAL) != 0;
    for (int i = 0; i < MODEL(&v)->streams; i++)
        if (th->words >> i & 1 && count < MODEL(&v)->members)
            CTX(&v)->member[count++] = (uint8_t)(i + 1);
    th->left = 0;
    th->pc = AT_SWAP;
    EMIT(&v, "busy = the call words' streams");
}

static void leave_close(move_t *v);

void model_give_back_busy(move_t v)
{
    model_thread_t *th = TH(&v);

    if (is(&v, CUP_MUTANT_BUSY_READ_FIRST) || is(&v, CUP_MUTANT_BUSY_OVERWRITTEN)) {
        overwrite_busy(v);
        return;
    }
    if (th->left == SEVERAL) {
        CTX(&v)->several = 1;
        th->left = 0;
    } else if (th->left && model_add_member(&v, first_of(th->left))) {
        th->left &= (uint8_t)(th->left - 1);
        th->i = 0;
    }
    if (!th->left) {
        th->pc = AT_SWAP;
        th->i = 0;
        if (is(&v, CUP_MUTANT_READD_UNLOCKED))
            leave_close(&v);
    }
    EMIT(&v, "gives back to busy");
}

/* The lock was released, but for who goes on under it. */
static void leave_close(move_t *v)
{
    model_thread_t *th = TH(v);
    uint8_t why = th->why, outcome = th->outcome;

    th->words = th->busy = th->left = th->n = th->i = 0;
    th->handle = th->owner = th->is_settled = th->is_loose = th->outcome = th->may_wait = 0;
    th->why = WHY_SUBMIT;
    if (why == WHY_SUBMIT) {
        model_after_close(v, outcome);
    } else if (why == WHY_POLL) {
        model_idle(v);
    } else if (why == WHY_BEGIN) {
        th->why = WHY_STREAM;
        th->i = 1;
        th->pc = AT_BEGIN;
    } else {
        th->why = why == WHY_FREE ? WHY_SUBMIT : why;
        th->outcome = outcome;
        th->i = why == WHY_FREE ? 0 : UNKNOWN_AGAIN;
        th->pc = why == WHY_FREE ? AT_ORDERED : AT_UNKNOWN;
    }
}

void model_swap_dirty(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    bool is_cleared = ctx->dirty == 2 || is(&v, CUP_MUTANT_SWAP_IS_STORE) || is(&v, CUP_MUTANT_CLEAR_AFTER);

    if (!is_drained(&v))
        return;
    if (th->outcome)
        ctx->awaited = 1;
    if (th->outcome && !th->is_loose)
        ctx->dirty = 1;
    else if (is_cleared)
        ctx->dirty = 0;
    ctx->lock = th->why == WHY_DOUBT || th->why == WHY_DESTROY;
    if (is(&v, CUP_MUTANT_READD_UNLOCKED) && th->words) {
        th->left = th->words;
        th->i = 0;
        th->pc = AT_GIVE_BACK;
    } else {
        leave_close(&v);
    }
    EMIT(&v, "dirty is %d now", ctx->dirty);
}
