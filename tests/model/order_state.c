/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: one walk over the fields packs and unpacks, so that there is one layout. What the configuration does
 * not have takes no bits. The walk comes first to what decides how many bits follow.
 */
#include "tests/model/order_state.h"
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    uint64_t *words;
    unsigned bit;
    bool is_packing;
} cursor_t;

static void field(cursor_t *at, uint8_t *value, unsigned bits)
{
    unsigned word = at->bit / 64, shift = at->bit % 64;

    if (bits == 0)
        return;
    if (word + (shift + bits > 64) >= CUP_EXPLORE_WORDS_MAX)
        abort();
    if (at->is_packing) {
        if (*value >> bits)
            abort();
        at->words[word] |= (uint64_t)*value << shift;
        if (shift + bits > 64)
            at->words[word + 1] |= (uint64_t)*value >> (64 - shift);
    } else {
        uint64_t low = at->words[word] >> shift;

        if (shift + bits > 64)
            low |= at->words[word + 1] << (64 - shift);
        *value = (uint8_t)(low & ((1U << bits) - 1));
    }
    at->bit += bits;
}

static void fields(cursor_t *at, uint8_t *value, int count, unsigned bits)
{
    for (int i = 0; i < count; i++)
        field(at, &value[i], bits);
}

static void walk_store(cursor_t *at, store_t *store)
{
    field(at, &store->kind, 3);
    field(at, &store->ctx, 1);
    field(at, &store->index, 2);
    field(at, &store->value, 4);
}

static void walk_thread(cursor_t *at, const cup_model_t *m, model_thread_t *thread)
{
    bool has_captures = m->begins > 0;

    field(at, &thread->pc, 6);
    field(at, &thread->word, 3);
    field(at, &thread->stream, 2);
    field(at, &thread->ctx, m->contexts - 1);
    field(at, &thread->why, 3);
    field(at, &thread->is_any, m->anys > 0 || model_has_hidden(m));
    field(at, &thread->is_limbo, has_captures);
    field(at, &thread->outcome, has_captures ? 2 : 0);
    field(at, &thread->is_loose, 1);
    field(at, &thread->may_wait, has_captures);
    field(at, &thread->words, 5);
    field(at, &thread->busy, 5);
    field(at, &thread->left, 5);
    field(at, &thread->n, 4);
    field(at, &thread->i, 2);
    field(at, &thread->stamp, 4);
    field(at, &thread->before, 3);
    field(at, &thread->handle, 2);
    field(at, &thread->owner, 2);
    field(at, &thread->is_settled, 1);
    field(at, &thread->block, m->is_overlap ? 2 : 0);
    fields(at, thread->owed, m->contexts, 3);
    field(at, &thread->stores, 3);
    for (int i = 0; i < thread->stores; i++)
        walk_store(at, &thread->store[i]);
}

static unsigned count_of_ops(const cup_model_t *m)
{
    return (unsigned)(m->launches + (model_has_hidden(m) ? m->doubts : 0));
}

static void walk_point(cursor_t *at, model_point_t *point)
{
    field(at, &point->number, 4);
    field(at, &point->owner, 2);
    field(at, &point->handle, 2);
    field(at, &point->is_settled, 1);
    field(at, &point->is_loose, 1);
}

static void walk_ctx(cursor_t *at, const cup_model_t *m, model_ctx_t *ctx)
{
    unsigned ops = count_of_ops(m);

    field(at, &ctx->dirty, 2);
    field(at, &ctx->open, 4);
    field(at, &ctx->point, 4);
    field(at, &ctx->due, 4);
    field(at, &ctx->need, m->is_overlap ? 4 : 0);
    field(at, &ctx->awaited, 1);
    field(at, &ctx->open_loose, m->is_overlap);
    field(at, &ctx->several, 1);
    fields(at, ctx->member, m->members, model_has_busy_joiner(m) ? 3 : 2);
    field(at, &ctx->lock, 1);
    field(at, &ctx->captures, m->begins > 0 ? 2 : 0);
    field(at, &ctx->completed, 4);
    field(at, &ctx->count, 2);
    for (int i = 0; i < m->ring; i++)
        walk_point(at, &ctx->ring[i]);
    walk_point(at, &ctx->must);
    fields(at, ctx->spare, 2, 2);
    fields(at, ctx->event, m->ring + 2, ops);
    field(at, &ctx->joiner, m->begins > 0 || m->is_old ? ops : 0);
    field(at, &ctx->joiner_passed, model_has_busy_joiner(m) ? 4 : 0);
    field(at, &ctx->ops, m->contexts == 2 ? ops : 0);
    field(at, &ctx->listed, 3);
    /* Without polls those at or below the newest point were checked when that was published. */
    for (int i = m->polls > 0 ? 0 : ctx->point + 1; i <= ctx->open; i++)
        field(at, &ctx->stamped[i], 3);
}

static void walk_stream(cursor_t *at, const cup_model_t *m, model_stream_t *stream)
{
    field(at, &stream->before, count_of_ops(m));
    field(at, &stream->capturing, m->begins > 0 ? 2 : 0);
    fields(at, stream->passed, m->contexts, 4);
}

static void walk(cursor_t *at, const cup_model_t *m, model_state_t *state)
{
    field(at, &state->done, count_of_ops(m));
    field(at, &state->begun, 3);
    field(at, &state->launched, 3);
    field(at, &state->frees, 3);
    field(at, &state->destroys, m->destroys > 0 ? 2 : 0);
    field(at, &state->begins, m->begins > 0 ? 2 : 0);
    field(at, &state->fails, m->fails > 0 ? 2 : 0);
    field(at, &state->polls, m->polls > 0 ? 2 : 0);
    field(at, &state->anys, m->anys > 0 ? 2 : 0);
    field(at, &state->doubts, m->doubts > 0 ? 2 : 0);
    field(at, &state->hidden, model_has_hidden(m) ? 2 : 0);
    field(at, &state->freed, m->is_tight ? 3 : 0);
    field(at, &state->capture_lock, m->begins > 0);
    field(at, &state->active, m->begins > 0 ? 2 : 0);
    field(at, &state->seen_streams, 2);
    field(at, &state->seen_threads, 2);
    for (int i = 0; i < m->contexts; i++)
        walk_ctx(at, m, &state->ctx[i]);
    for (int i = 0; i < m->streams; i++)
        walk_stream(at, m, &state->stream[i]);
    for (int i = 0; m->is_overlap && i < m->frees; i++) {
        field(at, &state->block[i].is_free, 1);
        field(at, &state->block[i].stamp, 4);
        field(at, &state->block[i].before, 3);
    }
    for (int i = 0; i < m->threads; i++)
        walk_thread(at, m, &state->thread[i]);
}

void model_state_pack(const cup_model_t *model, model_state_t *state, uint64_t *out_words)
{
    cursor_t at = {out_words, 0, true};

    memset(out_words, 0, CUP_EXPLORE_WORDS_MAX * sizeof(*out_words));
    walk(&at, model, state);
    if (at.bit > model_state_words(model) * 64)
        abort();
}

void model_state_unpack(const cup_model_t *model, const uint64_t *words, model_state_t *out_state)
{
    cursor_t at = {(uint64_t *)words, 0, false};

    memset(out_state, 0, sizeof(*out_state));
    walk(&at, model, out_state);
}

/* The most that the walk can take. */
unsigned model_state_words(const cup_model_t *model)
{
    static uint64_t scratch[CUP_EXPLORE_WORDS_MAX];
    model_state_t state = {.done = 0};
    cursor_t at = {scratch, 0, true};

    for (int i = 0; i < model->contexts; i++)
        state.ctx[i].open = model->polls > 0    ? NUMBERS_MAX
                            : model->begins > 0 ? 6
                                                : 3; /* above the newest point */
    for (int i = 0; i < model->threads; i++)         /* never more were seen as built: pack would stop */
        state.thread[i].stores = model->mutants ? STORES_MAX : model->threads > 1 ? 4 : 3;
    walk(&at, model, &state);
    return (at.bit + 63) / 64;
}

/* ---- store buffers ---- */

bool model_can_store(const model_thread_t *thread)
{
    return thread->stores + 3 <= STORES_MAX; /* as many as one step makes */
}

void model_store(model_thread_t *thread, store_t store)
{
    thread->store[thread->stores++] = store;
}

uint8_t model_load(const model_thread_t *thread, store_t what, uint8_t memory)
{
    for (int i = thread->stores; i-- > 0;) {
        const store_t *store = &thread->store[i];

        if (store->kind == what.kind && store->ctx == what.ctx && store->index == what.index)
            return store->value;
    }
    return memory;
}

static uint8_t larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

store_t model_drain(model_state_t *state, int number)
{
    model_thread_t *thread = &state->thread[number];
    store_t store = thread->store[0];
    model_ctx_t *ctx = &state->ctx[store.ctx];

    memmove(thread->store, thread->store + 1, sizeof(store_t) * --thread->stores);
    thread->store[thread->stores] = (store_t){0};
    switch (store.kind) {
    case STORE_WORD:
        thread->word = store.value;
        break;
    case STORE_DIRTY:
        ctx->dirty = store.value;
        break;
    case STORE_LISTED:
        ctx->listed = larger(ctx->listed, store.value);
        break;
    case STORE_PASSED:
        state->stream[store.index].passed[store.ctx] = store.value;
        break;
    case STORE_AWAITED:
        ctx->awaited = 1;
        break;
    case STORE_PUSHED:
        state->block[store.index].is_free = 1;
        break;
    case STORE_OPEN:
        ctx->open = store.value;
        break;
    case STORE_MEMBER:
        ctx->member[store.index] = store.value;
        break;
    default:
        abort();
    }
    return store;
}

/* ---- the device ---- */

unsigned model_all_work(const cup_model_t *model, const model_state_t *state, int ctx)
{
    unsigned mask = model->contexts == 2 ? state->ctx[ctx].ops : model_below(state->launched);

    for (int i = 0; i < model->streams; i++)
        if (model_ctx_of(model, i) == ctx)
            mask |= state->stream[i].before;
    return mask;
}

unsigned model_point_mask(const model_ctx_t *ctx, const model_point_t *point)
{
    return point->is_settled || point->number == 0 ? 0 : ctx->event[point->handle];
}

model_point_t *model_newest(const cup_model_t *model, model_ctx_t *ctx)
{
    return &ctx->ring[(ctx->count + model->ring - 1) % model->ring];
}
