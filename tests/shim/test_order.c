/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order - the order points against a driver of numbers, one thread: the laws of order_bed.h, for every
 * seed, under launches on many streams of two contexts, programmatic launches, frees, streams that come and go,
 * captures, failing records, copies to the host, calls that nobody knows; and what the points cost.
 */
#include "tests/shim/order_bed.h"

#ifdef __SANITIZE_THREAD__ /* one thread: little to see */
#define SEEDS 4
#else
#define SEEDS 40
#endif

typedef struct script {
    int contexts;
    bool has_captures, has_recreated, has_programmatic, has_failures, has_doubts, has_host, has_hand_outs;
    bool is_old; /* the driver records on no context */
} script_t;

static void end_captures(void)
{
    for (int c = 0; c < CONTEXTS; c++)
        for (int i = 0; i < LEGACY; i++)
            if (gpu.line[gpu.now[c][i]].is_capturing)
                capture(c, i);
}

static void work_on(cup_rng_t *rng)
{
    int i = (int)cup_rng_below(rng, (uint64_t)gpu.lines);

    if (gpu.finished[i] < gpu.submitted[i])
        gpu.finished[i] += (uint16_t)(1 + cup_rng_below(rng, (uint64_t)(gpu.submitted[i] - gpu.finished[i])));
}

static unsigned draw_rule(cup_rng_t *rng, const script_t *script)
{
    if (script->has_programmatic && cup_rng_below(rng, 3) == 0)
        return cup_rng_below(rng, 4) ? CUP_SUBMIT_PROGRAMMATIC : CUP_SUBMIT_MARK;
    return script->has_host && cup_rng_below(rng, 4) == 0 ? CUP_SUBMIT_HOST : CUP_SUBMIT_PLAIN;
}

static void step(cup_rng_t *rng, const script_t *script, int focus)
{
    int context = (int)cup_rng_below(rng, (uint64_t)script->contexts);
    int index = cup_rng_below(rng, 4) ? focus % HANDLES : (int)cup_rng_below(rng, HANDLES);

    switch (cup_rng_below(rng, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        free_block(context);
        break;
    case 4:
        work_on(rng);
        break;
    case 5:
        check_poll(context);
        break;
    case 6:
        if (script->has_captures && index != LEGACY)
            capture(context, index);
        break;
    case 7:
        if (script->has_recreated && index != LEGACY && gpu.lines < LINES_MAX - 1 &&
            cup_rng_below(rng, 4) == 0)
            recreate(context, index);
        break;
    case 8:
        if (cup_rng_below(rng, 2) == 0)
            synchronize(context, index);
        else if (script->has_failures && !is_any_capturing(0) && !is_any_capturing(1)) {
            gpu.fail_record = CUDA_ERROR_UNKNOWN;
            model.is_tight = false; /* a point that could not be recorded is the host's */
        }
        break;
    case 9:
        if (script->has_doubts && cup_rng_below(rng, 8) == 0)
            call_unknown(context);
        if (script->has_hand_outs && cup_rng_below(rng, 4) == 0)
            hand_out(context);
        break;
    default:
        submit(context, index, draw_rule(rng, script));
        break;
    }
}

static struct {
    uint64_t own_records, context_records, waits, synchronizes, native_frees;
} g_seen;

static void run(uint64_t seed, cup_order_mode_t mode, const script_t *script)
{
    cup_rng_t rng = {.state = seed};

    start(mode, script->contexts);
    if (script->is_old)
        become_old(script->contexts);
    for (int i = 0; i < 3000 && model.frees < FREES_MAX - 1; i++)
        step(&rng, script, i / 200);
    end_captures();
    gpu.fail_record = CUDA_SUCCESS;
    for (int c = 0; c < script->contexts; c++) {
        gpu.current = c;
        launch(c, 0);
        memcpy(gpu.finished, gpu.submitted, sizeof(gpu.finished));
        CHECK_EQ(cup_order_close(g_order[c], true), CUDA_SUCCESS);
        CHECK_EQ(check_poll(c), 0);
    }
    g_seen.own_records += gpu.own_records;
    g_seen.context_records += gpu.context_records;
    g_seen.waits += gpu.waits;
    g_seen.synchronizes += gpu.synchronizes;
    g_seen.native_frees += gpu.native_frees;
    stop(script->contexts);
}

static void run_all(cup_order_mode_t mode, const script_t *script)
{
    uint64_t seed = cup_rng_seed(1);

    memset(&g_seen, 0, sizeof(g_seen));
    for (uint64_t i = 0; i < SEEDS; i++)
        run(seed + i, mode, script);
    CHECK(g_seen.own_records > 0 && g_seen.waits > 0 && (g_seen.context_records > 0) == !script->is_old);
    if (!script->is_old && !script->has_doubts && !script->has_failures)
        CHECK_EQ(g_seen.synchronizes + g_seen.native_frees, 0);
    if (script->is_old && !script->has_recreated) /* a context starts with several busy */
        CHECK(g_seen.synchronizes + g_seen.native_frees <= SEEDS);
}

#define LAW(name, mode, ...)                   \
    TEST(order, name)                          \
    {                                          \
        const script_t script = {__VA_ARGS__}; \
                                               \
        run_all(mode, &script);                \
    }

LAW(streams, CUP_ORDER_EXACT, .contexts = 1)
LAW(destroyed_streams, CUP_ORDER_EXACT, .contexts = 1, .has_recreated = true)
LAW(programmatic, CUP_ORDER_EXACT, .contexts = 1, .has_programmatic = true, .has_recreated = true)
LAW(captures, CUP_ORDER_EXACT, .contexts = 1, .has_captures = true, .has_recreated = true)
LAW(failing_records, CUP_ORDER_EXACT, .contexts = 1, .has_failures = true)
LAW(doubts, CUP_ORDER_EXACT, .contexts = 1, .has_captures = true, .has_recreated = true, .has_doubts = true)
LAW(host, CUP_ORDER_EXACT, .contexts = 1, .has_recreated = true, .has_host = true)
LAW(host_beside_captures, CUP_ORDER_EXACT, .contexts = 1, .has_recreated = true, .has_host = true,
    .has_captures = true)
LAW(older_driver, CUP_ORDER_EXACT, .contexts = 1, .is_old = true)
LAW(older_driver_with_everything, CUP_ORDER_EXACT, .contexts = 2, .is_old = true, .has_captures = true,
    .has_recreated = true, .has_host = true, .has_programmatic = true)
LAW(overlap, CUP_ORDER_OVERLAP, .contexts = 1, .has_recreated = true, .has_hand_outs = true)
LAW(two_contexts, CUP_ORDER_EXACT, .contexts = 2, .has_captures = true, .has_recreated = true,
    .has_programmatic = true)

/* One stream: after the first point everything is recorded on it, and nothing ever waits. */
TEST(order, one_stream_waits_for_nothing)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 500; i++) {
        launch(0, LEGACY);
        free_block(0);
    }
    CHECK(gpu.context_records >= 1 + 1 && gpu.context_records <= 1 + 8); /* of 64 points one is audited */
    CHECK_EQ(gpu.own_records, 498);
    CHECK_EQ(gpu.waits, 1);
    stop(1);
}

/* A loop that waits for each of its results costs nothing after the first point. */
TEST(order, what_is_done_needs_no_point)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 500; i++) {
        launch(0, LEGACY);
        synchronize(0, LEGACY);
        free_block(0);
    }
    CHECK_EQ(gpu.context_records, 1);
    CHECK_EQ(gpu.own_records, 0);
    CHECK_EQ(gpu.waits, 1);
    launch(0, 1); /* another stream: what is done is before it, too */
    CHECK_EQ(gpu.waits, 1);
    stop(1);
}

/* Frees alone, or launches alone, cost no driver call. */
TEST(order, nothing_without_both)
{
    start(CUP_ORDER_EXACT, 1);
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    memset(&gpu.own_records, 0, sizeof(gpu.own_records));
    gpu.context_records = gpu.waits = 0;
    for (int i = 0; i < 100; i++)
        launch(0, 0);
    for (int i = 0; i < 100; i++)
        free_block(0);
    CHECK_EQ(gpu.own_records + gpu.context_records + gpu.waits, 0);
    launch(0, 0);
    CHECK_EQ(gpu.own_records, 1);
    stop(1);
}
