/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that end, captures, polls, allocation; and what an idle thread may start.
 */
#include "tests/model/order_steps.h"
#include <string.h>

/* ---- streams: the program itself keeps others away from one that it destroys or captures on ---- */

static bool is_used_by_another(const move_t *v, int stream)
{
    for (int h = 0; h < MODEL(v)->threads; h++) {
        const model_thread_t *th = &v->s.thread[h];

        if (h != v->h && ((th->pc != AT_IDLE && th->stream == stream) || (th->word & 3) == stream + 1))
            return true;
    }
    return false;
}

static bool is_taken(const move_t *v, int stream)
{
    for (int h = 0; h < MODEL(v)->threads; h++) {
        const model_thread_t *th = &v->s.thread[h];
        bool is_owner = th->why == WHY_STREAM || th->why == WHY_BEGIN || th->why == WHY_DESTROY;

        if (is_owner && th->stream == stream)
            return true;
    }
    return v->s.stream[stream].capturing > 0;
}

static void own_stream(move_t *v, int stream, uint8_t place)
{
    TH(v)->why = WHY_STREAM;
    TH(v)->stream = (uint8_t)stream;
    TH(v)->ctx = (uint8_t)model_ctx_of(MODEL(v), stream);
    TH(v)->pc = place;
    TH(v)->i = 0;
}

/* ---- destroy ---- */

enum { DESTROY_HOOK, DESTROY_LEAVE, DESTROY_PASSED, DESTROY_REAL };

static void start_destroy(move_t v, int stream)
{
    v.s.destroys++;
    own_stream(&v, stream, AT_DESTROY);
    if (is(&v, CUP_MUTANT_DESTROY_AFTER) || is(&v, CUP_MUTANT_DESTROY_IGNORED))
        TH(&v)->i = DESTROY_REAL;
    if (is(&v, CUP_MUTANT_DESTROY_UNCOUNTS_FIRST) && v.s.stream[stream].capturing)
        TH(&v)->pc = AT_END;
    EMIT(&v, "is about to destroy stream %d", stream);
}

static void disown(move_t *v, uint8_t stream)
{
    model_ctx_t *ctx = CTX(v);

    if (is(v, CUP_MUTANT_DESTROY_KEEPS_OWNER))
        return;
    for (int i = 0; i < MODEL(v)->ring; i++)
        if (ctx->ring[i].owner == stream)
            ctx->ring[i].owner = NOBODY;
    if (ctx->must.owner == stream)
        ctx->must.owner = NOBODY;
}

static bool is_busy(const move_t *v, int stream)
{
    for (int i = 0; i < MODEL(v)->members; i++)
        if (CTX(v)->member[i] == stream + 1)
            return true;
    return false;
}

static void end_hook(move_t *v)
{
    TH(v)->i = DESTROY_LEAVE;
    TH(v)->pc = AT_DESTROY;
}

/* Beside a capture our own stream takes over what the stream has; the lock is held until that is busy. */
static void destroy_hook(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    int stream = th->stream;

    if (!can_lock(&v))
        return;
    if (ctx->captures == 0 || ctx->several) {
        if (is(&v, CUP_MUTANT_DESTROY_NOT_SEVERAL))
            end_hook(&v);
        else
            model_begin_unknown(&v, WHY_DESTROY);
        EMIT(&v, "destroy hook: nobody can take over");
        return;
    }
    if (v.s.stream[stream].capturing && is_busy(&v, stream)) {
        model_begin_unknown(&v, WHY_DESTROY);
        EMIT(&v, "destroy hook: no event can be behind stream %d", stream);
        return;
    }
    if (!is_busy(&v, stream) || is(&v, CUP_MUTANT_TAKE_OVER_MISSING)) {
        end_hook(&v);
        EMIT(&v, "destroy hook: the stream is not busy");
        return;
    }
    if (v.s.fails < MODEL(&v)->fails) {
        move_t w = v;

        w.s.fails++;
        model_begin_unknown(&w, WHY_DESTROY);
        EMIT(&w, "destroy hook: our own stream can't be made to wait");
    }
    ctx->joiner |= model_before(&v, stream);
    if (is(&v, CUP_MUTANT_TAKE_OVER_NOT_BUSY)) {
        end_hook(&v);
    } else {
        ctx->lock = 1;
        th->i = 0;
        th->pc = AT_TAKE_OVER;
    }
    EMIT(&v, "destroy hook: our own stream waits for stream %d", stream);
}

void model_take_over(move_t v)
{
    if (!is_drained(&v))
        return;
    if (model_add_member(&v, JOINER)) {
        CTX(&v)->lock = 0;
        end_hook(&v);
    }
    EMIT(&v, "our own stream is busy");
}

/* Under the lock. */
static void leave(move_t v)
{
    model_thread_t *th = TH(&v);

    if (!can_lock(&v))
        return;
    disown(&v, th->stream);
    for (int i = 0; i < MODEL(&v)->members; i++)
        if (CTX(&v)->member[i] == th->stream + 1)
            CTX(&v)->member[i] = 0;
    th->i = DESTROY_PASSED;
    EMIT(&v, "stream %d is not named any more", th->stream);
}

void model_destroy(move_t v)
{
    model_thread_t *th = TH(&v);
    int stream = th->stream;

    if (th->i == DESTROY_HOOK) {
        destroy_hook(v);
    } else if (th->i == DESTROY_LEAVE) {
        leave(v);
    } else if (th->i == DESTROY_PASSED) {
        if (!is(&v, CUP_MUTANT_DESTROY_KEEPS_PASSED))
            memset(v.s.stream[stream].passed, 0, sizeof(v.s.stream[stream].passed));
        th->i = DESTROY_REAL;
        if (is(&v, CUP_MUTANT_DESTROY_AFTER))
            model_idle(&v);
        EMIT(&v, "passed[stream %d] = 0", stream);
    } else {
        bool was_capturing = v.s.stream[stream].capturing;

        v.s.stream[stream].before = v.s.stream[stream].capturing = 0;
        th->i = DESTROY_HOOK;
        th->why = WHY_SUBMIT; /* the handle is anybody's */
        if (was_capturing && !is(&v, CUP_MUTANT_DESTROY_UNCOUNTS_FIRST))
            th->pc = AT_END;
        else if (!is(&v, CUP_MUTANT_DESTROY_AFTER))
            model_idle(&v);
        EMIT(&v, "stream %d is destroyed, its handle comes back", stream);
    }
}

/* ---- it is not known who is busy (make_unknown) ---- */

void model_begin_unknown(move_t *v, uint8_t why)
{
    TH(v)->why = why;
    TH(v)->i = UNKNOWN_EXCHANGE;
    TH(v)->pc = AT_UNKNOWN;
}

static void end_unknown(move_t *v)
{
    TH(v)->outcome = 0;
    if (TH(v)->why == WHY_DESTROY) {
        TH(v)->why = WHY_STREAM;
        end_hook(v);
    } else {
        TH(v)->pc = AT_DOUBT;
    }
}

/* With the lock: while frees have marked beside a capture, closes. */
static void close_unknown(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);

    if (th->outcome == CLOSE_GOOD && ctx->captures > 0 && ctx->dirty) {
        ctx->several = 0;
        model_begin_close(&v, th->why, false, true);
        EMIT(&v, "closes before it is unknown who is busy; dirty = 2");
    } else {
        ctx->lock = 0;
        end_unknown(&v);
        EMIT(&v, "nothing is marked: unknown who is busy");
    }
}

void model_make_unknown(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    bool was_several = ctx->several;

    if (th->i == UNKNOWN_EXCHANGE) {
        if (!is_drained(&v))
            return;
        ctx->several = 1;
        th->i = UNKNOWN_ACTIVE;
        if (was_several || MODEL(&v)->begins == 0 || is(&v, CUP_MUTANT_UNKNOWN_UNCLOSED))
            end_unknown(&v);
        EMIT(&v, "several are busy");
    } else if (th->i == UNKNOWN_ACTIVE) {
        th->i = UNKNOWN_LOCK;
        if (v.s.active == 0)
            end_unknown(&v);
        EMIT(&v, "active is %d", v.s.active);
    } else if (th->i == UNKNOWN_LOCK) {
        if (can_lock(&v))
            close_unknown(v);
    } else {
        ctx->several = 1;
        close_unknown(v);
    }
}

/*
 * Of a context that another's call may touch, too. Or before a call that nobody knows: what was freed is complete then
 * (cup_order_settle), and nobody sees what the call submits.
 */
static void start_doubt(move_t v)
{
    v.s.doubts++;
    model_begin_unknown(&v, WHY_DOUBT);
    EMIT(&v, "who is busy is not known any more");
    if (!model_has_hidden(MODEL(&v)) || !is_drained(&v) || v.s.ctx[0].dirty)
        return;
    v.s.done |= (uint8_t)model_point_mask(&v.s.ctx[0], &v.s.ctx[0].must);
    TH(&v)->is_any = 1;
    EMIT(&v, "is about to call what nobody knows: waits for what is due");
}

void model_call_unknown(move_t v)
{
    model_thread_t *th = TH(&v);

    if (th->is_any) {
        model_check(&v, !(model_work_below(&v, 0, th->owed[0]) & ~v.s.done), MODEL_LATE);
        v.s.launched++;
        v.s.hidden++;
    }
    model_idle(&v);
    EMIT(&v, "goes on");
}

/* ---- captures ---- */

enum { BEGIN_HOOK, BEGIN_CLOSED, BEGIN_REAL };

static void start_begin(move_t v, int stream)
{
    if (v.s.capture_lock || !is_drained(&v))
        return;
    v.s.begins++;
    v.s.capture_lock = 1;
    v.s.active++;
    own_stream(&v, stream, AT_BEGIN);
    if (is(&v, CUP_MUTANT_BEGIN_LATE))
        v.s.stream[stream].capturing = 1;
    EMIT(&v, "Begin on stream %d: active = %d", stream, v.s.active);
}

/* Closes first, so that the busy streams are known and none of them goes on to capture. */
static void begin_hook(move_t v)
{
    bool is_left =
        is(&v, CUP_MUTANT_BEGIN_UNCLOSED) || (is(&v, CUP_MUTANT_SECOND_BEGIN) && CTX(&v)->captures > 0);

    if (!can_lock(&v))
        return;
    if (is_left) {
        TH(&v)->i = BEGIN_CLOSED;
        EMIT(&v, "Begin does not close");
        return;
    }
    CTX(&v)->captures += is(&v, CUP_MUTANT_BEGIN_RAISES_FIRST);
    model_begin_close(&v, WHY_BEGIN, true, false);
    EMIT(&v, "Begin locks, closes first");
}

/* The lock was given back in between; patience ends after the first close. */
void model_begin_capture(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);

    if (th->i == BEGIN_HOOK) {
        begin_hook(v);
    } else if (th->i == BEGIN_CLOSED) {
        if (!can_lock(&v) && !is(&v, CUP_MUTANT_BEGIN_UNLOCKED))
            return;
        ctx->captures += !is(&v, CUP_MUTANT_BEGIN_RAISES_FIRST);
        v.s.capture_lock = 0;
        th->i = BEGIN_REAL;
        EMIT(&v, "Begin: captures = %d", ctx->captures);
    } else {
        v.s.stream[th->stream].capturing = 1;
        model_idle(&v);
        EMIT(&v, "the stream captures");
    }
}

static void start_end(move_t v, int stream)
{
    v.s.stream[stream].capturing = 0;
    own_stream(&v, stream, AT_END);
    EMIT(&v, "the capture of stream %d ends", stream);
}

void model_end_capture(move_t v)
{
    if (TH(&v)->i == 0) {
        if (v.s.capture_lock || !is_drained(&v))
            return;
        v.s.capture_lock = 1;
        v.s.active--;
        TH(&v)->i = 1;
        EMIT(&v, "End: active = %d", v.s.active);
        return;
    }
    if (!can_lock(&v))
        return;
    CTX(&v)->captures--;
    v.s.capture_lock = 0;
    if (is(&v, CUP_MUTANT_DESTROY_UNCOUNTS_FIRST) && v.s.stream[TH(&v)->stream].capturing)
        own_stream(&v, TH(&v)->stream, AT_DESTROY);
    else
        model_idle(&v);
    EMIT(&v, "End: captures are fewer");
}

/* ---- the clock ---- */

void model_pop(move_t *v, int low)
{
    const cup_model_t *m = MODEL(v);
    model_ctx_t *ctx = CTX(v);
    model_ctx_t old = *ctx;

    if (low == 0)
        return;
    v->s.done |= (uint8_t)model_point_mask(ctx, &ctx->ring[low - 1]);
    ctx->completed = ctx->ring[low - 1].number;
    for (int i = 0; i < m->ring; i++)
        ctx->ring[i] = old.ring[(i + low) % m->ring];
    ctx->count -= (uint8_t)low;
    model_check_complete(v, TH(v)->ctx);
}

/* In overlap not after work that was submitted behind the frees: the point would not be tight. */
static bool may_close_in_poll(const move_t *v)
{
    const model_ctx_t *ctx = CTX(v);
    bool is_late = ctx->open_loose && !is(v, CUP_MUTANT_POLL_CLOSES_LATE);

    return ctx->captures == 0 && (ctx->dirty || ctx->awaited) && !is_late;
}

static void start_poll(move_t v, int c)
{
    model_ctx_t *ctx = &v.s.ctx[c];
    const model_point_t *newest = model_newest(MODEL(&v), ctx);

    TH(&v)->ctx = (uint8_t)c;
    if (!can_lock(&v))
        return;
    v.s.polls++;
    if (is(&v, CUP_MUTANT_POLL_UNLOCKED)) {
        v.s.done |= (uint8_t)model_point_mask(ctx, newest);
        TH(&v)->pc = AT_POLL;
        EMIT(&v, "asks event %d: complete", newest->handle);
        return;
    }
    for (int low = ctx->count; low > 0; low--) {
        move_t w = v;

        model_pop(&w, low);
        model_idle(&w);
        EMIT(&w, "polls: complete up to %d", w.s.ctx[c].completed);
    }
    if (!may_close_in_poll(&v))
        return;
    model_begin_close(&v, WHY_POLL, !MODEL(&v)->is_overlap, false);
    EMIT(&v, "poll locks, closes; dirty = 2");
}

void model_poll_later(move_t v)
{
    int c = TH(&v)->ctx;

    v.s.ctx[c].completed = model_newest(MODEL(&v), &v.s.ctx[c])->number;
    model_idle(&v);
    model_check_complete(&v, c);
    EMIT(&v, "its number is %d", v.s.ctx[c].completed);
}

/* ---- overlap: what is not complete is handed out (cup_order_hand_out, then the pool under its lock) ---- */

static uint8_t tight_point(const move_t *v)
{
    return is(v, CUP_MUTANT_HAND_OUT_NEWEST) ? v->s.ctx[0].point : v->s.ctx[0].due;
}

static void start_allocation(move_t v)
{
    bool is_any = false;

    for (int i = 0; i < MODEL(&v)->frees; i++)
        is_any |= v.s.block[i].is_free;
    if (!is_any || tight_point(&v) == 0)
        return;
    v.run->emitted--; /* who can do nothing else has nothing left to do */
    TH(&v)->stamp = tight_point(&v);
    TH(&v)->pc = is(&v, CUP_MUTANT_NEED_AFTER) ? AT_HAND_OUT : AT_RAISE_NEED;
    EMIT(&v, "may hand out up to %d", TH(&v)->stamp);
}

void model_raise_need(move_t v)
{
    if (!is_drained(&v))
        return;
    v.s.ctx[0].need = larger(v.s.ctx[0].need, TH(&v)->stamp);
    TH(&v)->pc = AT_HAND_OUT;
    if (is(&v, CUP_MUTANT_NEED_AFTER))
        model_idle(&v);
    EMIT(&v, "need is %d", v.s.ctx[0].need);
}

void model_hand_out(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = &v.s.ctx[0];

    if (!is_drained(&v))
        return;
    for (int i = 0; i < MODEL(&v)->frees; i++) {
        model_block_t *block = &v.s.block[i];

        if (!block->is_free || block->stamp > th->stamp)
            continue;
        ctx->listed = larger(ctx->listed, block->before);
        *block = (model_block_t){0};
    }
    if (is(&v, CUP_MUTANT_NEED_AFTER))
        th->pc = AT_RAISE_NEED;
    else
        model_idle(&v);
    EMIT(&v, "hands out: owed %d", ctx->listed);
}

/* ---- what an idle thread may start ---- */

static void start_on_stream(const move_t *v, int stream)
{
    const cup_model_t *m = MODEL(v);
    move_t w = *v;
    bool is_new = stream >= v->s.seen_streams && m->contexts == 1;

    if (is_new)
        w.s.seen_streams++;
    if (v->s.stream[stream].capturing && !is_used_by_another(v, stream)) {
        start_end(w, stream);
        if (v->s.destroys < m->destroys && is_drained(v))
            start_destroy(w, stream);
    }
    if (is_taken(v, stream))
        return;
    if (v->s.begun < m->launches) {
        model_start_submission(w, stream, false);
        if (v->s.anys < m->anys)
            model_start_submission(w, stream, true);
    }
    if (is_new || is_used_by_another(v, stream))
        return;
    if (v->s.destroys < m->destroys && is_drained(v))
        start_destroy(w, stream);
    if (v->s.begins < m->begins)
        start_begin(w, stream);
}

/*
 * Streams, and two threads, are alike: the first to be used is the first. With three the order of call
 * words matters.
 */
void model_start_anything(move_t v)
{
    const cup_model_t *m = MODEL(&v);
    bool is_first = v.h >= v.s.seen_threads && m->threads <= 2;
    int streams = m->contexts == 1 ? v.s.seen_streams + 1 : m->streams;

    if (is_first && v.h > v.s.seen_threads)
        return;
    v.s.seen_threads += is_first;
    for (int i = 0; i < m->streams && i < streams; i++)
        start_on_stream(&v, i);
    for (int c = 0; c < m->contexts; c++) {
        if (v.s.frees < m->frees && v.s.launched - v.s.hidden < m->launches)
            model_start_free(v, c);
        if (v.s.polls < m->polls)
            start_poll(v, c);
    }
    if (v.s.doubts < m->doubts)
        start_doubt(v);
    if (m->is_overlap)
        start_allocation(v);
}
