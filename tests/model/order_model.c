/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: what every step shares (order_steps.h), what must hold, and the search over all steps of all
 *      threads.
 */
#include "tests/model/order_model.h"
#include "tests/model/order_steps.h"
#include <string.h>

/* ---- what must hold ---- */

const char MODEL_LATE[] = "BROKEN: submitted without coming after what a free had waited for";
const char MODEL_EARLY[] = "BROKEN: called complete before it is";
const char MODEL_UNCOVERED[] =
    "BROKEN: the point that a stamp names does not cover what came before the free";
const char MODEL_CHAIN[] = "BROKEN: a point that does not cover the one before it";
const char MODEL_TIGHT[] = "BROKEN: a wait for what was submitted after the free";
const char MODEL_SPOILED[] = "BROKEN: a record on the context while a stream captures";
const char MODEL_KEPT[] = "BROKEN: a single thread is put off or waits beside a capture, and need not";
static const char STUCK[] = "BROKEN: nobody can go on";
static const char UNCLOSED[] = "BROKEN: a number that nobody will close";

void model_check(move_t *v, bool is_good, const char *text)
{
    if (!is_good && !v->broken)
        v->broken = text;
}

unsigned model_work_below(const move_t *v, int ctx, unsigned count)
{
    return model_below(count) & (MODEL(v)->contexts == 2 ? v->s.ctx[ctx].ops : 0xffU);
}

void model_check_complete(move_t *v, int c)
{
    const model_ctx_t *ctx = &v->s.ctx[c];

    for (int k = 0; k <= ctx->completed && k <= NUMBERS_MAX; k++)
        model_check(v, !(model_work_below(v, c, ctx->stamped[k]) & ~v->s.done), MODEL_EARLY);
}

void model_check_stamps(move_t *v, int c)
{
    model_ctx_t *ctx = &v->s.ctx[c];
    const model_point_t *newest = model_newest(MODEL(v), ctx);
    unsigned covered = v->s.done | model_point_mask(ctx, newest);

    for (int k = 0; k <= ctx->point; k++) {
        bool is_covered = !(model_work_below(v, c, ctx->stamped[k]) & ~covered);

        model_check(v, is_covered, newest->is_settled ? MODEL_EARLY : MODEL_UNCOVERED);
        if (MODEL(v)->polls == 0)
            ctx->stamped[k] = 0; /* later points cover this one: checked, too */
    }
    model_check_complete(v, c);
}

/* After a record that failed the host waits for more than it must. A free that waits itself is the newest. */
void model_check_tight(move_t *v, unsigned mask, unsigned before)
{
    uint8_t freed = TH(v)->why == WHY_FREE ? TH(v)->before : v->s.freed;

    if (MODEL(v)->is_tight && v->s.fails == 0)
        model_check(v, !(mask & ~before & ~v->s.done & ~model_below(freed)), MODEL_TIGHT);
}

/* Only a free waits on the host, or the call that nobody knows; and only where there was such a call. */
void model_check_kept(move_t *v)
{
    const cup_model_t *m = MODEL(v);
    bool is_submission = TH(v)->why == WHY_SUBMIT;

    if (CTX(v)->captures > 0 && m->threads == 1 && v->s.fails == 0)
        model_check(v, v->s.doubts > 0 && !is_submission, MODEL_KEPT);
}

/* ---- one outcome ---- */

/* Handles whose events somebody may still wait for. */
static unsigned used_handles(const move_t *v, int c)
{
    const cup_model_t *m = MODEL(v);
    model_ctx_t *ctx = (model_ctx_t *)&v->s.ctx[c];
    unsigned used = 1U << model_newest(m, ctx)->handle | 1U << ctx->must.handle;

    for (int i = 0; i < ctx->count; i++)
        used |= 1U << ctx->ring[i].handle;
    for (int h = 0; h < m->threads; h++)
        if (v->s.thread[h].pc != AT_IDLE && v->s.thread[h].ctx == c)
            used |= 1U << v->s.thread[h].handle;
    return used;
}

/* What nobody will look at again is the same in all states. */
void model_forget(move_t *v)
{
    const cup_model_t *m = MODEL(v);

    for (int c = 0; c < m->contexts; c++) {
        model_ctx_t *ctx = &v->s.ctx[c];
        unsigned used = used_handles(v, c);

        for (int i = 0; i < m->ring; i++)
            if (i >= ctx->count && &ctx->ring[i] != model_newest(m, ctx))
                ctx->ring[i] = (model_point_t){.handle = ctx->ring[i].handle};
        for (int i = 0; i < m->ring + 2; i++)
            if (!(used >> i & 1))
                ctx->event[i] = 0;
    }
}

void model_idle(move_t *v)
{
    model_thread_t *th = TH(v);
    model_thread_t next = {
        .word = th->word, .stream = NO_STREAM, .owed = {th->owed[0], th->owed[1]}, .stores = th->stores};

    memcpy(next.store, th->store, sizeof(next.store));
    *th = next;
}

void model_put(move_t *v, int kind, int index, unsigned value)
{
    model_store(TH(v), (store_t){(uint8_t)kind, TH(v)->ctx, (uint8_t)index, (uint8_t)value});
}

void model_put_word(move_t *v, unsigned value)
{
    model_store(TH(v), (store_t){.kind = STORE_WORD, .value = (uint8_t)value});
}

uint8_t model_look(const move_t *v, int kind, int index, uint8_t memory)
{
    return model_load(TH(v), (store_t){(uint8_t)kind, TH(v)->ctx, (uint8_t)index, 0}, memory);
}

uint8_t model_look_passed(const move_t *v, int stream)
{
    return model_look(v, STORE_PASSED, stream, v->s.stream[stream].passed[TH(v)->ctx]);
}

/* ---- the search ---- */

static void (*const g_step[])(move_t) = {
#define CUP_X(place, step) model_##step,
    PLACE_LIST(CUP_X)
#undef CUP_X
};

static const char *const g_store[] = {
#define CUP_X(kind) #kind,
    STORE_LIST(CUP_X)
#undef CUP_X
};

/* No step is possible. */
static void check_end(move_t *v)
{
    for (int h = 0; h < MODEL(v)->threads; h++)
        model_check(v, v->s.thread[h].pc == AT_IDLE, STUCK);
    for (int c = 0; c < MODEL(v)->contexts; c++) {
        const model_ctx_t *ctx = &v->s.ctx[c];

        model_check(v, ctx->dirty != 2 && !ctx->lock, STUCK);
        for (int k = ctx->point + 1; !ctx->dirty && !ctx->awaited && k <= NUMBERS_MAX; k++)
            model_check(v, !ctx->stamped[k], UNCLOSED);
    }
    if (v->broken)
        EMIT(v, "nothing is left to do");
}

static void expand(cup_explore_t *explore, void *self, const uint64_t *words)
{
    run_t *run = self;
    move_t v = {.run = run};

    run->explore = explore;
    run->emitted = 0;
    model_state_unpack(run->model, words, &v.s);
    for (v.h = 0; v.h < run->model->threads; v.h++) {
        if (v.s.thread[v.h].stores > 0) {
            move_t w = v;
            store_t store = model_drain(&w.s, w.h);

            EMIT(&w, "(store of %s reaches memory: %d)", g_store[store.kind], store.value);
        }
        g_step[v.s.thread[v.h].pc](v);
    }
    v.h = 0;
    if (run->emitted == 0)
        check_end(&v);
}

static void make_first(const cup_model_t *model, model_state_t *state)
{
    for (int h = 0; h < model->threads; h++)
        state->thread[h].stream = NO_STREAM;
    for (int c = 0; c < model->contexts; c++) {
        model_ctx_t *ctx = &state->ctx[c];

        ctx->open = 1;
        ctx->several = !model->is_started;
        for (int i = 0; i < model->ring; i++)
            ctx->ring[i].handle = (uint8_t)i;
        for (int i = 0; i < 2; i++)
            ctx->spare[i] = (uint8_t)(model->ring + i);
    }
}

cup_explore_result_t cup_model_run(const cup_model_t *given, uint32_t states_max, FILE *trace)
{
    cup_model_t model = *given;
    run_t run = {.model = &model};
    model_state_t state = {.done = 0};
    uint64_t words[CUP_EXPLORE_WORDS_MAX];
    cup_explore_ops_t ops = {expand, &run, words, 0, states_max};

    model.contexts = given->contexts ? given->contexts : 1;
    model.ring = given->ring ? given->ring : 2;
    model.members = given->members ? given->members : 2;
    ops.words = model_state_words(&model);
    make_first(&model, &state);
    model_state_pack(&model, &state, words);
    return cup_explore_run(&ops, trace);
}
