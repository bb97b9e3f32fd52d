/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees, and submissions around their closes.
 */
#include "tests/model/order_steps.h"

/* ---- free ---- */

static void push(move_t *v)
{
    model_thread_t *th = TH(v);

    if (MODEL(v)->is_overlap) {
        v->s.block[th->block].stamp = th->stamp;
        v->s.block[th->block].before = th->before;
        model_put(v, STORE_PUSHED, th->block, 1);
    } else if (!th->is_limbo) {
        model_put(v, STORE_LISTED, 0, larger(th->owed[th->ctx], th->before));
    }
}

/* The free returns: what comes after it in the program owes what came before it. */
static void return_from_free(move_t *v)
{
    model_thread_t *th = TH(v);
    uint8_t *stamped = &CTX(v)->stamped[th->stamp];

    if (!MODEL(v)->is_overlap && !th->is_limbo)
        th->owed[th->ctx] = larger(th->owed[th->ctx], th->before);
    *stamped = larger(*stamped, th->before);
    if (MODEL(v)->is_tight)
        v->s.freed = larger(v->s.freed, th->before);
    model_check_stamps(v, th->ctx);
    model_idle(v);
}

/* overlap: or closes first, when enough was freed. */
static void push_and_return(move_t v)
{
    uint8_t c = TH(&v)->ctx;

    push(&v);
    return_from_free(&v);
    EMIT(&v, "mark, push; free returns");
    if (!MODEL(&v)->is_overlap)
        return;
    TH(&v)->ctx = c;
    TH(&v)->pc = AT_FREED;
    EMIT(&v, "mark, push; enough was freed");
}

/* Captures are the concern of those who mark. */
static void load_open(move_t *v)
{
    bool is_marking = !MODEL(v)->is_overlap && MODEL(v)->begins > 0;

    TH(v)->stamp = is(v, CUP_MUTANT_STAMP_IS_POINT) ? CTX(v)->point + 1 : CTX(v)->open;
    TH(v)->pc = is_marking ? AT_LOOK : AT_MARK;
}

void model_start_free(move_t v, int c)
{
    model_thread_t *th = TH(&v);

    if (!model_can_store(th))
        return;
    th->ctx = (uint8_t)c;
    th->before = v.s.launched;
    if (MODEL(&v)->is_overlap)
        th->block = v.s.frees;
    v.s.frees++;
    if (is(&v, CUP_MUTANT_STAMP_AFTER_MARK)) {
        th->pc = AT_MARK;
        EMIT(&v, "free of context %d begins", c);
    } else {
        load_open(&v);
        EMIT(&v, "free of context %d begins: open is %d", c, th->stamp);
    }
}

void model_take_stamp(move_t v)
{
    load_open(&v);
    if (is(&v, CUP_MUTANT_STAMP_AFTER_MARK))
        push_and_return(v);
    else
        EMIT(&v, "open is %d", TH(&v)->stamp);
}

void model_look_for_captures(move_t v)
{
    TH(&v)->pc = v.s.active > 0 ? AT_CLOSABLE : AT_MARK;
    EMIT(&v, "active is %d", v.s.active);
}

/* Under the lock, which is given back (can_close). */
void model_ask_closable(move_t v)
{
    model_thread_t *th = TH(&v);
    bool is_closable = CTX(&v)->captures == 0 || !CTX(&v)->several;

    if (!can_lock(&v))
        return;
    if (is_closable || is(&v, CUP_MUTANT_FREE_MARKS_UNKNOWN))
        th->pc = AT_MARK;
    else
        th->pc = is(&v, CUP_MUTANT_FREE_UNWAITED) ? AT_ORDERED : AT_AT_ONCE;
    EMIT(&v, "a later point can%s cover what is busy", is_closable ? "" : "not");
}

void model_close_at_once(move_t v)
{
    if (!can_lock(&v))
        return;
    model_begin_close(&v, WHY_FREE, is(&v, CUP_MUTANT_FREE_CLOSES_LOOSE), true);
    EMIT(&v, "the free locks; dirty = 2");
}

/* Closed: no mark is needed. Else the block is put aside. */
void model_end_at_once(move_t v)
{
    model_thread_t *th = TH(&v);

    if (!is_drained(&v))
        return;
    th->is_limbo = th->outcome != CLOSE_GOOD;
    if (th->is_limbo)
        CTX(&v)->awaited = 1;
    push(&v);
    return_from_free(&v);
    EMIT(&v, "%s; free returns", th->is_limbo ? "not closed: put aside" : "closed: push");
}

static uint8_t put_mark(move_t *v)
{
    uint8_t dirty = model_look(v, STORE_DIRTY, 0, CTX(v)->dirty);

    if (MODEL(v)->is_overlap)
        model_put(v, STORE_AWAITED, 0, 1);
    else if (dirty != 1)
        model_put(v, STORE_DIRTY, 0, 1);
    return dirty;
}

void model_mark(move_t v)
{
    uint8_t dirty;

    if (!model_can_store(TH(&v)))
        return;
    if (is(&v, CUP_MUTANT_MARK_AFTER_PUSH)) {
        push(&v);
        TH(&v)->pc = AT_MARK_LATE;
        EMIT(&v, "push");
        return;
    }
    dirty = put_mark(&v);
    if (is(&v, CUP_MUTANT_STAMP_AFTER_MARK)) {
        TH(&v)->pc = AT_STAMP;
        EMIT(&v, "dirty is %d: mark", dirty);
        return;
    }
    push_and_return(v);
}

void model_mark_late(move_t v)
{
    uint8_t dirty;

    if (!model_can_store(TH(&v)))
        return;
    dirty = put_mark(&v);
    return_from_free(&v);
    EMIT(&v, "dirty is %d: mark; free returns", dirty);
}

/* overlap: closes in the free. */
void model_close_freed(move_t v)
{
    if (!can_lock(&v))
        return;
    if (CTX(&v)->captures > 0) {
        model_idle(&v);
        EMIT(&v, "a capture is in progress: the point stays open");
        return;
    }
    model_begin_close(&v, WHY_POLL, false, false);
    EMIT(&v, "free locks; dirty = 2");
}

/* ---- submission ---- */

/* To the next context's points, or on to the call. */
static void next_ctx(move_t *v)
{
    model_thread_t *th = TH(v);
    int own = model_ctx_of(MODEL(v), th->stream);

    th->stamp = th->n = th->handle = 0;
    th->may_wait = 0;
    th->ctx++;
    if (is(v, CUP_MUTANT_OTHER_CONTEXT) && th->ctx != own)
        th->ctx++;
    th->pc = AT_PASS;
    if (th->ctx < MODEL(v)->contexts)
        return;
    th->ctx = (uint8_t)own;
    th->i = 0;
    th->pc = is(v, CUP_MUTANT_NOTE_AFTER_CALL) ? AT_CALL : AT_NOTE;
}

static uint8_t word_of(const move_t *v)
{
    bool is_everywhere = TH(v)->is_any && !is(v, CUP_MUTANT_ANY_IS_NOTHING);

    return (uint8_t)(TH(v)->stream + 1) | (is_everywhere ? EVERYWHERE : 0);
}

void model_start_submission(move_t v, int stream, bool is_any)
{
    const cup_model_t *m = MODEL(&v);
    model_thread_t *th = TH(&v);
    uint8_t word;

    v.s.begun++;
    v.s.anys += is_any;
    for (int c = 0; c < m->contexts; c++)
        th->owed[c] = larger(th->owed[c], v.s.ctx[c].listed);
    th->stream = (uint8_t)stream;
    th->is_any = is_any;
    th->pc = AT_PASS;
    word = word_of(&v);
    if (is(&v, CUP_MUTANT_OTHER_CONTEXT))
        th->ctx = (uint8_t)model_ctx_of(m, stream);
    if (is(&v, CUP_MUTANT_WORD_WITHOUT_FENCE)) {
        if (!model_can_store(th))
            return;
        model_put_word(&v, word);
    } else if (!is_drained(&v)) {
        return;
    } else {
        th->word = word;
    }
    EMIT(&v, "submits to stream %d%s: call word; owes %d", stream, is_any ? " and more" : "", th->owed[0]);
}

void model_pass(move_t v)
{
    model_thread_t *th = TH(&v);
    uint8_t dirty = model_look(&v, STORE_DIRTY, 0, CTX(&v)->dirty);

    if (MODEL(&v)->is_overlap) {
        CTX(&v)->open_loose |= CTX(&v)->awaited;
        th->pc = AT_LOAD_DUE;
        EMIT(&v, "awaited is %d", CTX(&v)->awaited);
    } else {
        th->pc = dirty ? AT_LOCK : AT_LOAD_DUE;
        EMIT(&v, "dirty is %d", dirty);
    }
}

void model_close_marked(move_t v)
{
    if (!can_lock(&v))
        return;
    if (CTX(&v)->dirty) {
        model_begin_close(&v, WHY_SUBMIT, false, TH(&v)->may_wait || CTX(&v)->several);
        EMIT(&v, "locks context %d; dirty = 2", TH(&v)->ctx);
    } else {
        TH(&v)->may_wait = 0;
        TH(&v)->pc = AT_LOAD_DUE;
        EMIT(&v, "locks: no longer dirty");
    }
}

/* Not now: again; patience ends after the first time. An error: the host waits. */
void model_after_close(move_t *v, uint8_t outcome)
{
    model_thread_t *th = TH(v);

    if (outcome == CLOSE_NOT_NOW && !is(v, CUP_MUTANT_PUT_OFF_UNWAITED))
        th->pc = AT_REST;
    else if (outcome == CLOSE_ERROR && !is(v, CUP_MUTANT_FAIL_UNWAITED))
        th->pc = AT_HOST;
    else
        th->pc = AT_LOAD_DUE;
}

/* Out of its call meanwhile, or two that rest would wait for each other. */
void model_rest(move_t v)
{
    model_thread_t *th = TH(&v);

    if (!is_drained(&v))
        return;
    th->may_wait = th->word == 0;
    th->word = th->word ? 0 : word_of(&v);
    if (th->may_wait)
        th->pc = AT_LOCK;
    EMIT(&v, "rests: call word is %d", th->word);
}

void model_wait_on_host(move_t v)
{
    v.s.done |= (uint8_t)model_all_work(MODEL(&v), &v.s, TH(&v)->ctx);
    next_ctx(&v);
    EMIT(&v, "waits on the host for all that was submitted");
}

void model_load_due(move_t v)
{
    TH(&v)->stamp = MODEL(&v)->is_overlap ? CTX(&v)->need : CTX(&v)->due;
    TH(&v)->pc = AT_PASSED;
    EMIT(&v, "must have passed %d", TH(&v)->stamp);
}

void model_compare_passed(move_t v)
{
    model_thread_t *th = TH(&v);
    uint8_t passed = model_look_passed(&v, th->stream);

    if (passed >= th->stamp)
        next_ctx(&v);
    else
        th->pc = AT_COPY;
    EMIT(&v, "passed[stream %d] is %d", th->stream, passed);
}

/* What must be passed, read under the lock, used without it. */
void model_copy_must(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    model_point_t must = ctx->must;

    if (!(can_lock(&v) || is(&v, CUP_MUTANT_PUBLISH_FIRST)) || !model_can_store(th))
        return;
    if (must.owner == th->stream || must.is_settled) {
        model_put(&v, STORE_PASSED, th->stream, must.number);
        next_ctx(&v);
        EMIT(&v, "point %d is this stream's own, or complete: passed", must.number);
        return;
    }
    th->n = must.number;
    th->handle = must.handle;
    th->pc = AT_WAIT;
    if (is(&v, CUP_MUTANT_PASSED_FIRST))
        model_put(&v, STORE_PASSED, th->stream, th->n);
    if (is(&v, CUP_MUTANT_PASSED_CHECK_OUTSIDE)) {
        ctx->lock = 1;
        v.s.stream[th->stream].passed[th->ctx] = th->n;
    }
    EMIT(&v, "copies point %d: event %d", must.number, must.handle);
}

void model_wait_for(move_t v)
{
    model_thread_t *th = TH(&v);
    model_ctx_t *ctx = CTX(&v);
    model_stream_t *stream = &v.s.stream[th->stream];
    unsigned handle = th->handle, mask = ctx->event[handle];
    uint8_t number = is(&v, CUP_MUTANT_PASS_NEWER) ? ctx->due : th->n;

    if (!model_can_store(th))
        return;
    model_check_tight(&v, mask, stream->before);
    stream->before |= (uint8_t)mask;
    if (is(&v, CUP_MUTANT_PASSED_CHECK_OUTSIDE))
        ctx->lock = 0;
    else if (!is(&v, CUP_MUTANT_PASSED_FIRST))
        model_put(&v, STORE_PASSED, th->stream, number);
    next_ctx(&v);
    EMIT(&v, "stream %d waits for event %u: operations 0x%x; passed %d", th->stream, handle, mask, number);
}

static void after_note(move_t *v)
{
    TH(v)->i = 0;
    TH(v)->before = 0;
    TH(v)->pc = AT_CALL;
    if (!is(v, CUP_MUTANT_NOTE_AFTER_CALL))
        return;
    model_put_word(v, 0);
    model_idle(v);
}

/* A call that may touch everything makes the other context several busy, first. `before`: that was done. */
static void note_other(move_t v)
{
    if (!is_drained(&v))
        return;
    v.s.ctx[!TH(&v)->ctx].several = 1;
    TH(&v)->before = 1;
    EMIT(&v, "notes the other context as several busy");
}

void model_note_busy(move_t v)
{
    const cup_model_t *m = MODEL(&v);
    model_thread_t *th = TH(&v);
    bool is_new = th->i == m->members || CTX(&v)->member[th->i] == 0;
    bool is_plain = is(&v, CUP_MUTANT_NOTE_BY_STORE) && th->i < m->members && is_new;

    if (th->is_any && m->contexts == 2 && !th->before) {
        note_other(v);
        return;
    }
    if (!model_can_store(th) || (is_new && !is_drained(&v) && !is_plain))
        return;
    if (is_plain)
        th->pc = AT_NOTE_STORE;
    else if (model_add_member(&v, th->stream))
        after_note(&v);
    EMIT(&v, "notes its stream as busy");
}

void model_note_by_store(move_t v)
{
    model_put(&v, STORE_MEMBER, TH(&v)->i, TH(&v)->stream + 1U);
    after_note(&v);
    EMIT(&v, "stores its stream");
}

void model_call_driver(move_t v)
{
    model_thread_t *th = TH(&v);
    model_stream_t *stream = &v.s.stream[th->stream];
    uint8_t op = v.s.launched++;
    int on = th->stream;

    if (!model_can_store(th))
        return;
    for (int c = 0; c < MODEL(&v)->contexts; c++) {
        model_check(&v, !(model_work_below(&v, c, th->owed[c]) & ~(stream->before | v.s.done)), MODEL_LATE);
        if (c == th->ctx || th->is_any)
            v.s.ctx[c].ops |= (uint8_t)(1 << op);
    }
    stream->before |= (uint8_t)(1 << op);
    if (is(&v, CUP_MUTANT_NOTE_AFTER_CALL)) {
        th->pc = AT_NOTE;
        EMIT(&v, "operation %d on stream %d", op, on);
        return;
    }
    model_put_word(&v, 0);
    model_idle(&v);
    EMIT(&v, "operation %d on stream %d; call word = none", op, on);
}
