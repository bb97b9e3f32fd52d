/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order - the order points against a driver of numbers, one thread.
 * What:       the real driver's slots are replaced by functions over vector clocks: for each stream, how much of each
 *             other stream's work its next operation is known to run after. Laws, for every seed, under launches on many
 *             streams of two contexts, programmatic launches, frees, streams that come and go, captures and failing records:
 *             order        an operation submitted after a free runs after all that was submitted to its context before
 *             tightness    no stream is made to wait for anything that was submitted after the last free
 *             completeness a stamp that a poll calls complete covers finished work only; in the end all are
 *             captures     nothing that would invalidate a capture is called while one is in progress
 * Threads:    one.
 */
#include <string.h>
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/idle.h"
#include "shim/order.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#ifdef __SANITIZE_THREAD__ /* one thread: little to see */
#define SEEDS 4
#else
#define SEEDS 40
#endif
#define CONTEXTS   2
#define HANDLES    6   /* streams that live at one time, of each context; the last is the legacy one */
#define LINES_MAX  400 /* streams that ever lived */
#define EVENTS_MAX 4000
#define FREES_MAX  4000
#define LEGACY     (HANDLES - 1)
#define JOINER     ((CUstream)(uintptr_t)0x900000) /* the stream of the order's own; of the second context: + 1 */

typedef struct clocks {
    uint16_t seen[LINES_MAX];
} clocks_t;

/* One stream's life. */
typedef struct line {
    int context;
    bool is_legacy;
    clocks_t at;     /* what its next operation runs after, for an operation without programmatic overlap */
    uint16_t sure;   /* how much of its own work a programmatic launch would run after */
    bool has_waited; /* since its last operation: then a programmatic launch runs after all of it, too */
    bool is_capturing;
} line_t;

static struct {
    line_t line[LINES_MAX];
    int lines;
    uint16_t submitted[LINES_MAX], finished[LINES_MAX];
    int now[CONTEXTS][HANDLES]; /* the line behind a handle */
    int joiner[CONTEXTS];
    clocks_t host; /* what the host has waited for */
    clocks_t event[EVENTS_MAX];
    int event_context[EVENTS_MAX];
    int events;
    int current; /* context */
    bool is_relaxed, has_record;
    CUresult fail_record;
    uint64_t waits, own_records, context_records, synchronizes;
} gpu;

static struct {
    clocks_t required[CONTEXTS]; /* by the frees so far */
    clocks_t last[CONTEXTS];     /* what was submitted at the last free */
    struct {
        cup_order_t *order;
        cup_point_t stamp;
        clocks_t work;
        int context;
    } free[FREES_MAX];
    int frees;
    bool is_tight; /* the script so far allows the law of tightness */
} model;

static CUcontext ctx_of(int context)
{
    return (CUcontext)(uintptr_t)(context + 1);
}

static CUstream handle_of(int context, int index)
{
    return index == LEGACY ? CU_STREAM_LEGACY
                           : (CUstream)(uintptr_t)(0x1000 + 16 * (context * HANDLES + index));
}

static line_t *line_of(CUstream stream)
{
    uintptr_t number = ((uintptr_t)stream - 0x1000) / 16;

    if (stream == CU_STREAM_LEGACY)
        return &gpu.line[gpu.now[gpu.current][LEGACY]];
    if (stream >= JOINER)
        return &gpu.line[gpu.joiner[stream > JOINER]];
    return &gpu.line[gpu.now[number / HANDLES][number % HANDLES]];
}

static bool is_any_capturing(int context)
{
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context && gpu.line[i].is_capturing)
            return true;
    return false;
}

static void join(clocks_t *into, const clocks_t *from)
{
    for (int i = 0; i < gpu.lines; i++)
        if (into->seen[i] < from->seen[i])
            into->seen[i] = from->seen[i];
}

/* ---- the driver ---- */

static CUresult fake_current(CUcontext *ctx)
{
    *ctx = ctx_of(gpu.current);
    return CUDA_SUCCESS;
}

static int g_pushed[8], g_depth;

static CUresult fake_push(CUcontext ctx)
{
    g_pushed[g_depth++] = gpu.current;
    gpu.current = (int)(uintptr_t)ctx - 1;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ctx)
{
    *ctx = ctx_of(gpu.current);
    gpu.current = g_pushed[--g_depth];
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUevent *event, unsigned flags)
{
    CHECK(++gpu.events < EVENTS_MAX);
    gpu.event_context[gpu.events] = gpu.current;
    *event = (CUevent)(uintptr_t)gpu.events;
    return CUDA_SUCCESS;
}

static CUresult fail_once(void)
{
    CUresult result = gpu.fail_record;

    gpu.fail_record = CUDA_SUCCESS;
    return result;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    line_t *line = line_of(stream);
    CUresult result = fail_once();

    if (result != CUDA_SUCCESS)
        return result;
    CHECK(!line->is_capturing);
    CHECK_EQ(gpu.event_context[(uintptr_t)event], line->context);
    gpu.event[(uintptr_t)event] = line->at;
    gpu.own_records++;
    return CUDA_SUCCESS;
}

static CUresult fake_record_context(CUcontext ctx, CUevent event)
{
    int context = (int)(uintptr_t)ctx - 1;
    CUresult result = fail_once();

    if (result != CUDA_SUCCESS)
        return result;
    CHECK(!is_any_capturing(context));
    memset(&gpu.event[(uintptr_t)event], 0, sizeof(clocks_t));
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context)
            join(&gpu.event[(uintptr_t)event], &gpu.line[i].at);
    gpu.context_records++;
    return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    line_t *line = line_of(stream);

    CHECK(!line->is_capturing);
    if (model.is_tight && stream < JOINER)
        for (int i = 0; i < gpu.lines; i++)
            CHECK_MSG(gpu.event[(uintptr_t)event].seen[i] <= model.last[gpu.line[i].context].seen[i] ||
                          gpu.event[(uintptr_t)event].seen[i] <= line->at.seen[i],
                      "a wait for operation %d of stream %d, submitted after the last free",
                      gpu.event[(uintptr_t)event].seen[i], i);
    join(&line->at, &gpu.event[(uintptr_t)event]);
    gpu.waits++;
    return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent event)
{
    CHECK(gpu.is_relaxed); /* plain, it would invalidate a capture */
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.event[(uintptr_t)event].seen[i] > gpu.finished[i])
            return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

static void finish(const clocks_t *clocks)
{
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.finished[i] < clocks->seen[i])
            gpu.finished[i] = clocks->seen[i];
}

static CUresult fake_event_synchronize(CUevent event)
{
    finish(&gpu.event[(uintptr_t)event]);
    return CUDA_SUCCESS;
}

/* The host has waited for the stream: its work is before everything that comes. */
static void wait_on_host(const line_t *line)
{
    finish(&line->at);
    join(&gpu.host, &line->at);
    for (int t = 0; t < gpu.lines; t++) {
        join(&gpu.line[t].at, &line->at);
        gpu.line[t].has_waited |= gpu.finished[t] == gpu.submitted[t];
    }
}

static CUresult fake_synchronize(void)
{
    CHECK(!is_any_capturing(gpu.current));
    gpu.synchronizes++;
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == gpu.current)
            wait_on_host(&gpu.line[i]);
    return CUDA_SUCCESS;
}

static CUresult fake_stream_ctx(CUstream stream, CUcontext *ctx)
{
    *ctx = ctx_of(line_of(stream)->context);
    return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = line_of(stream)->is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult fake_exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before =
        gpu.is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;

    gpu.is_relaxed = *mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    *mode = before;
    return CUDA_SUCCESS;
}

static void new_line(int context, int index)
{
    CHECK(gpu.lines < LINES_MAX);
    gpu.line[gpu.lines] = (line_t){.context = context, .is_legacy = index == LEGACY, .at = gpu.host};
    gpu.now[context][index] = gpu.lines++;
}

static CUresult fake_stream_create(CUstream *stream, unsigned flags)
{
    CHECK_EQ(flags, CU_STREAM_NON_BLOCKING);
    *stream = JOINER;
    if (gpu.current == 1)
        *stream = (CUstream)((char *)JOINER + 1);
    CHECK(gpu.lines < LINES_MAX);
    gpu.line[gpu.lines] = (line_t){.context = gpu.current};
    gpu.joiner[gpu.current] = gpu.lines++;
    return CUDA_SUCCESS;
}

static cup_order_t *g_order[CONTEXTS];

static void start(cup_order_mode_t mode, int contexts)
{
    memset(&gpu, 0, sizeof(gpu));
    memset(&model, 0, sizeof(model));
    model.is_tight = true;
    cup_drv.cuCtxGetCurrent = fake_current;
    cup_drv.cuCtxPushCurrent_v2 = fake_push;
    cup_drv.cuCtxPopCurrent_v2 = fake_pop;
    cup_drv.cuCtxSynchronize = fake_synchronize;
    cup_drv.cuEventCreate = fake_create;
    cup_drv.cuEventRecord = fake_record;
    cup_drv.cuCtxRecordEvent = fake_record_context;
    cup_drv.cuStreamWaitEvent = fake_wait;
    cup_drv.cuStreamCreate = fake_stream_create;
    cup_drv.cuStreamGetCtx = fake_stream_ctx;
    cup_drv.cuStreamIsCapturing = fake_is_capturing;
    cup_drv.cuEventQuery = fake_query;
    cup_drv.cuEventSynchronize = fake_event_synchronize;
    cup_drv.cuThreadExchangeStreamCaptureMode = fake_exchange;
    CHECK(cup_gate_enter(true));
    cup_gate_leave();
    for (int c = 0; c < contexts; c++) {
        for (int i = 0; i < HANDLES; i++)
            new_line(c, i);
        gpu.current = c;
        g_order[c] = cup_order_create(ctx_of(c), mode);
        CHECK(g_order[c] != NULL);
    }
    gpu.current = 0;
}

static void stop(int contexts)
{
    for (int c = 0; c < contexts; c++)
        cup_order_end(g_order[c]);
}

/* ---- what a program does ---- */

static void check_order(const line_t *line, bool is_programmatic)
{
    int self = (int)(line - gpu.line);
    uint16_t own = is_programmatic && !line->has_waited ? line->sure : gpu.submitted[self];

    for (int c = 0; c < CONTEXTS; c++) {
        for (int i = 0; i < gpu.lines; i++) {
            uint16_t seen = i == self ? own : line->at.seen[i];

            CHECK_MSG(seen >= model.required[c].seen[i],
                      "stream %d runs beside operation %d of stream %d, which a free had waited for", self,
                      model.required[c].seen[i], i);
        }
    }
}

static void launch(int context, int index, bool is_programmatic)
{
    CUstream handle = handle_of(context, index);
    cup_call_t call;
    line_t *line;
    int self;

    gpu.current = context;
    line = line_of(handle);
    self = (int)(line - gpu.line);
    cup_submit_begin(&call, CUP_ON(handle), is_programmatic ? CUP_SUBMIT_PROGRAMMATIC : CUP_SUBMIT_PLAIN);
    if (!line->is_capturing) {
        is_programmatic = is_programmatic && !call.must_be_plain;
        check_order(line, is_programmatic);
        line->sure = is_programmatic && !line->has_waited ? line->sure : gpu.submitted[self];
        line->has_waited = false;
        line->at.seen[self] = ++gpu.submitted[self];
    }
    cup_submit_end(&call, CUDA_SUCCESS);
}

/* The program waits for a stream by itself. */
static void synchronize(int context, int index)
{
    CUstream handle = handle_of(context, index);
    cup_idle_t idle;

    gpu.current = context;
    if (line_of(handle)->is_capturing)
        return;
    idle = cup_submit_look(CUP_ON(handle));
    wait_on_host(line_of(handle));
    cup_idle_note(&idle);
}

static void free_block(int context)
{
    bool is_marked = cup_order_can_close(g_order[context]);
    cup_point_t stamp = cup_order_stamp(g_order[context], is_marked);
    clocks_t work = {{0}};

    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context)
            join(&work, &gpu.line[i].at);
    if (is_marked) {
        model.last[context] = work;
        join(&model.required[context], &work);
    }
    CHECK(model.frees < FREES_MAX);
    model.free[model.frees].order = g_order[context];
    model.free[model.frees].stamp = stamp;
    model.free[model.frees].context = context;
    model.free[model.frees++].work = work;
}

/* The handle comes back as another stream, which is ordered behind nothing. */
static void recreate(int context, int index)
{
    cup_capture_destroyed(handle_of(context, index));
    cup_submit_destroyed(handle_of(context, index));
    gpu.line[gpu.now[context][index]].is_capturing = false;
    new_line(context, index);
}

static void capture(int context, int index)
{
    CUstream handle = handle_of(context, index);
    line_t *line;

    gpu.current = context;
    line = line_of(handle);
    if (line->is_capturing) {
        line->is_capturing = false;
        cup_capture_ended(handle, CUDA_SUCCESS);
    } else {
        cup_capture_begin(handle);
        line->is_capturing = true;
        cup_capture_began(handle, true);
    }
}

static void end_captures(void)
{
    for (int c = 0; c < CONTEXTS; c++)
        for (int i = 0; i < LEGACY; i++)
            if (gpu.line[gpu.now[c][i]].is_capturing)
                capture(c, i);
}

static bool is_finished(const clocks_t *work)
{
    for (int i = 0; i < gpu.lines; i++)
        if (work->seen[i] > gpu.finished[i])
            return false;
    return true;
}

static unsigned check_poll(int context)
{
    cup_point_t completed = 0;
    unsigned open = 0;

    CHECK_EQ(cup_order_poll(g_order[context], &completed), CUDA_SUCCESS);
    CHECK(!gpu.is_relaxed);
    for (int i = 0; i < model.frees; i++) {
        if (model.free[i].context != context)
            continue;
        if (model.free[i].stamp > completed)
            open++;
        else
            CHECK_MSG(is_finished(&model.free[i].work), "free %d: its stamp is complete, its work is not", i);
    }
    return open;
}

static void work_on(cup_rng_t *rng)
{
    int i = (int)cup_rng_below(rng, (uint64_t)gpu.lines);

    if (gpu.finished[i] < gpu.submitted[i])
        gpu.finished[i] += (uint16_t)(1 + cup_rng_below(rng, (uint64_t)(gpu.submitted[i] - gpu.finished[i])));
}

typedef struct script {
    int contexts;
    bool has_captures, has_recreated, has_programmatic, has_failures;
} script_t;

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
    default:
        launch(context, index, script->has_programmatic && cup_rng_below(rng, 3) == 0);
        break;
    }
}

static void run(uint64_t seed, cup_order_mode_t mode, const script_t *script)
{
    cup_rng_t rng = {.state = seed};

    start(mode, script->contexts);
    for (int i = 0; i < 3000 && model.frees < FREES_MAX - 1; i++)
        step(&rng, script, i / 200);
    end_captures();
    gpu.fail_record = CUDA_SUCCESS;
    for (int c = 0; c < script->contexts; c++) {
        gpu.current = c;
        launch(c, 0, false);
        memcpy(gpu.finished, gpu.submitted, sizeof(gpu.finished));
        CHECK_EQ(cup_order_close(g_order[c], true), CUDA_SUCCESS);
        CHECK_EQ(check_poll(c), 0);
    }
    CHECK(gpu.own_records > 0 && gpu.context_records > 0 && gpu.waits > 0);
    stop(script->contexts);
}

#define LAW(name, ...)                               \
    TEST(order, name)                                \
    {                                                \
        const script_t script = {__VA_ARGS__};       \
        uint64_t seed = cup_rng_seed(1);             \
        for (uint64_t i = 0; i < SEEDS; i++)         \
            run(seed + i, CUP_ORDER_EXACT, &script); \
    }

LAW(streams, .contexts = 1)
LAW(destroyed_streams, .contexts = 1, .has_recreated = true)
LAW(programmatic, .contexts = 1, .has_programmatic = true, .has_recreated = true)
LAW(captures, .contexts = 1, .has_captures = true, .has_recreated = true)
LAW(failing_records, .contexts = 1, .has_failures = true)
LAW(two_contexts, .contexts = 2, .has_captures = true, .has_recreated = true, .has_programmatic = true)

/* One stream: after the first point everything is recorded on it, and nothing ever waits. */
TEST(order, one_stream_waits_for_nothing)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 500; i++) {
        launch(0, LEGACY, false);
        free_block(0);
    }
    CHECK_EQ(gpu.context_records, 1);
    CHECK_EQ(gpu.own_records, 498);
    CHECK_EQ(gpu.waits, 1);
    stop(1);
}

/* A loop that waits for each of its results costs nothing after the first point. */
TEST(order, what_is_done_needs_no_point)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 500; i++) {
        launch(0, LEGACY, false);
        synchronize(0, LEGACY);
        free_block(0);
    }
    CHECK_EQ(gpu.context_records, 1);
    CHECK_EQ(gpu.own_records, 0);
    CHECK_EQ(gpu.waits, 1);
    launch(0, 1, false); /* another stream: what is done is before it, too */
    CHECK_EQ(gpu.waits, 1);
    stop(1);
}

/* Frees alone, or launches alone, cost no driver call. */
TEST(order, nothing_without_both)
{
    start(CUP_ORDER_EXACT, 1);
    launch(0, 0, false);
    free_block(0);
    launch(0, 0, false);
    memset(&gpu.own_records, 0, sizeof(gpu.own_records));
    gpu.context_records = gpu.waits = 0;
    for (int i = 0; i < 100; i++)
        launch(0, 0, false);
    for (int i = 0; i < 100; i++)
        free_block(0);
    CHECK_EQ(gpu.own_records + gpu.context_records + gpu.waits, 0);
    launch(0, 0, false);
    CHECK_EQ(gpu.own_records, 1);
    stop(1);
}
