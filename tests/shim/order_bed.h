/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_bed - a driver of numbers for the order points, and what a program does on it.
 * What:       the real driver's slots are replaced by functions over vector clocks: for each stream, how much
 *             of each other stream's work its next operation is known to run after. Checked at every step:
 *             order        an operation submitted after a free runs after all that its context had before
 *             tightness    no stream is made to wait for anything that was submitted after the last free
 *             completeness a stamp that a poll calls complete covers finished work only
 *             captures     nothing that would invalidate a capture is called while one is in progress
 *             host         a free returns when what was to touch host memory before it is done
 * Threads:    one at a time.
 */
#ifndef CUP_TESTS_SHIM_ORDER_BED_H
#define CUP_TESTS_SHIM_ORDER_BED_H
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/idle.h"
#include "shim/order_inner.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"
#include <string.h>

#define CONTEXTS   2
#define HANDLES    6   /* streams that live at one time, of each context; the last is the legacy one */
#define LINES_MAX  400 /* streams that ever lived */
#define EVENTS_MAX 4000
#define FREES_MAX  4000
#define LEGACY     (HANDLES - 1)
#define OWN        HANDLES                         /* the first thread's per-thread stream */
#define THEIRS     (HANDLES + 1)                   /* the second's */
#define HIDDEN     (HANDLES + 2)                   /* what the shim does not hear of */
#define GONE       (-1)                            /* a handle that is destroyed and has not come back */
#define JOINER     ((CUstream)(uintptr_t)0x900000) /* the order's own stream; + 1 in the second context */

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
    bool is_capturing, is_blocking;
} line_t;

static struct {
    line_t line[LINES_MAX];
    int lines;
    uint16_t submitted[LINES_MAX], finished[LINES_MAX];
    int now[CONTEXTS][HIDDEN + 1]; /* the line behind a handle */
    int joiner[CONTEXTS];
    clocks_t host; /* what the host has waited for */
    clocks_t event[EVENTS_MAX];
    int event_context[EVENTS_MAX];
    int events;
    int current; /* context */
    bool is_relaxed;
    bool is_old;            /* no record on contexts */
    bool is_dead[CONTEXTS]; /* no call may name it */
    CUresult fail_record;
    bool is_full; /* no memory is left */
    bool must_refuse_free;
    uint64_t waits, own_records, context_records, synchronizes, native_frees;
    void (*meanwhile)(void); /* done once, inside the next record, wait or synchronisation */
    void (*asked)(void);     /* done once, when this stream has been asked whether it captures */
    CUstream asked_of;
} gpu;

static struct {
    clocks_t required[CONTEXTS]; /* by the frees so far */
    clocks_t last;               /* what the last free natively waited for, and those before */
    clocks_t hosted[CONTEXTS];   /* what is to touch host memory */
    cup_order_mode_t mode;
    struct {
        cup_point_t stamp;
        clocks_t work;
        int context;
    } free[FREES_MAX];
    int frees;
    bool is_tight; /* the script so far allows the law of tightness */
} model;

static _Thread_local int t_own = OWN;

static inline CUcontext ctx_of(int context)
{
    return (CUcontext)(uintptr_t)(context + 1);
}

static inline CUstream handle_of(int context, int index)
{
    if (index == OWN || index == THEIRS)
        return CU_STREAM_PER_THREAD;
    return index == LEGACY ? CU_STREAM_LEGACY
                           : (CUstream)(uintptr_t)(0x1000 + 16 * (context * HANDLES + index));
}

static inline line_t *line_of(CUstream stream)
{
    uintptr_t number = ((uintptr_t)stream - 0x1000) / 16;
    int line;

    if (stream == CU_STREAM_LEGACY)
        return &gpu.line[gpu.now[gpu.current][LEGACY]];
    if (stream == CU_STREAM_PER_THREAD)
        return &gpu.line[gpu.now[gpu.current][t_own]];
    if (stream >= JOINER)
        return &gpu.line[gpu.joiner[stream > JOINER]];
    line = gpu.now[number / HANDLES][number % HANDLES];
    CHECK(line != GONE && !gpu.is_dead[number / HANDLES]);
    return &gpu.line[line];
}

static inline bool is_any_capturing(int context)
{
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context && gpu.line[i].is_capturing)
            return true;
    return false;
}

/* The legacy stream while a blocking one captures. */
static inline bool is_implicit(const line_t *line)
{
    for (int i = 0; line->is_legacy && i < gpu.lines; i++)
        if (gpu.line[i].context == line->context && gpu.line[i].is_blocking && gpu.line[i].is_capturing)
            return true;
    return false;
}

static inline void join(clocks_t *into, const clocks_t *from)
{
    for (int i = 0; i < gpu.lines; i++)
        if (into->seen[i] < from->seen[i])
            into->seen[i] = from->seen[i];
}

/* ---- the driver ---- */

static inline void meanwhile(void)
{
    void (*act)(void) = gpu.meanwhile;

    if (!act)
        return; /* another thread's call writes nothing */
    gpu.meanwhile = NULL;
    act();
}

static inline CUresult fake_current(CUcontext *ctx)
{
    *ctx = ctx_of(gpu.current);
    return CUDA_SUCCESS;
}

static int g_pushed[8], g_depth;

static inline CUresult fake_push(CUcontext ctx)
{
    g_pushed[g_depth++] = gpu.current;
    gpu.current = (int)(uintptr_t)ctx - 1;
    CHECK(!gpu.is_dead[gpu.current]);
    return CUDA_SUCCESS;
}

static inline CUresult fake_pop(CUcontext *ctx)
{
    *ctx = ctx_of(gpu.current);
    gpu.current = g_pushed[--g_depth];
    return CUDA_SUCCESS;
}

static int g_events_before; /* of tests before this one: their contexts have ended */

static inline int index_of(CUevent event)
{
    return (int)(uintptr_t)event - g_events_before;
}

static inline CUresult fake_create(CUevent *event, unsigned flags)
{
    CHECK(++gpu.events < EVENTS_MAX);
    gpu.event_context[gpu.events] = gpu.current;
    *event = (CUevent)(uintptr_t)(g_events_before + gpu.events);
    return CUDA_SUCCESS;
}

static inline CUresult fail_once(void)
{
    CUresult result = gpu.fail_record;

    gpu.fail_record = CUDA_SUCCESS;
    return result;
}

static inline CUresult fake_record(CUevent event, CUstream stream)
{
    line_t *line = line_of(stream);
    CUresult result = fail_once();

    if (result != CUDA_SUCCESS)
        return result;
    CHECK(index_of(event) > 0); /* the handle may be somebody else's by now */
    CHECK(!line->is_capturing && !is_implicit(line));
    CHECK_EQ(gpu.event_context[index_of(event)], line->context);
    gpu.event[index_of(event)] = line->at;
    gpu.own_records++;
    meanwhile();
    return CUDA_SUCCESS;
}

static inline CUresult fake_record_context(CUcontext ctx, CUevent event)
{
    int context = (int)(uintptr_t)ctx - 1;
    CUresult result = fail_once();

    if (result != CUDA_SUCCESS)
        return result;
    CHECK(!is_any_capturing(context) && !gpu.is_old && !gpu.is_dead[context]);
    memset(&gpu.event[index_of(event)], 0, sizeof(clocks_t));
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context)
            join(&gpu.event[index_of(event)], &gpu.line[i].at);
    gpu.context_records++;
    meanwhile();
    return CUDA_SUCCESS;
}

static inline CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    line_t *line = line_of(stream);

    meanwhile();
    CHECK(!line->is_capturing && !is_implicit(line));
    CHECK(!gpu.is_dead[gpu.event_context[index_of(event)]]);
    if (model.is_tight && stream < JOINER)
        for (int i = 0; i < gpu.lines; i++)
            CHECK_MSG(gpu.event[index_of(event)].seen[i] <= model.last.seen[i] ||
                          gpu.event[index_of(event)].seen[i] <= line->at.seen[i],
                      "a wait for operation %d of stream %d, submitted after the last free",
                      gpu.event[index_of(event)].seen[i], i);
    join(&line->at, &gpu.event[index_of(event)]);
    gpu.waits++;
    return CUDA_SUCCESS;
}

static inline CUresult fake_query(CUevent event)
{
    CHECK(gpu.is_relaxed); /* plain, it would invalidate a capture */
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.event[index_of(event)].seen[i] > gpu.finished[i])
            return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

static inline void finish(const clocks_t *clocks)
{
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.finished[i] < clocks->seen[i])
            gpu.finished[i] = clocks->seen[i];
}

/* The host has waited for this: it is before everything that comes. */
static inline void wait_on_host(const clocks_t *clocks)
{
    clocks_t done = *clocks;

    finish(&done);
    join(&gpu.host, &done);
    for (int t = 0; t < gpu.lines; t++) {
        join(&gpu.line[t].at, &done);
        gpu.line[t].has_waited |= gpu.finished[t] == gpu.submitted[t];
    }
}

static inline CUresult fake_event_synchronize(CUevent event)
{
    CHECK(gpu.is_relaxed);
    wait_on_host(&gpu.event[index_of(event)]);
    return CUDA_SUCCESS;
}

static inline CUresult fake_stream_synchronize(CUstream stream)
{
    line_t *line = line_of(stream);

    CHECK(!line->is_capturing && !is_implicit(line));
    meanwhile();
    wait_on_host(&line->at);
    return CUDA_SUCCESS;
}

static inline CUresult fake_stream_query(CUstream stream)
{
    line_t *line = line_of(stream);

    CHECK(gpu.is_relaxed && !line->is_capturing && !is_implicit(line));
    for (int i = 0; i < gpu.lines; i++)
        if (line->at.seen[i] > gpu.finished[i])
            return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

static inline CUresult fake_synchronize(void)
{
    CHECK(!is_any_capturing(gpu.current));
    gpu.synchronizes++;
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == gpu.current)
            wait_on_host(&gpu.line[i].at);
    return CUDA_SUCCESS;
}

/* The last resort beside a capture: the driver's own free waits for everything, and disturbs nothing. */
static inline CUresult fake_native_alloc(CUdeviceptr *block, size_t bytes)
{
    *block = 0x7000000;
    return gpu.is_full ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static inline CUresult fake_native_free(CUdeviceptr block)
{
    CHECK(gpu.is_relaxed && block == 0x7000000);
    if (gpu.must_refuse_free)
        return CUDA_ERROR_UNKNOWN;
    gpu.native_frees++;
    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == gpu.current)
            wait_on_host(&gpu.line[i].at);
    return CUDA_SUCCESS;
}

static inline CUresult fake_stream_ctx(CUstream stream, CUcontext *ctx)
{
    *ctx = ctx_of(line_of(stream)->context);
    return CUDA_SUCCESS;
}

static inline CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    const line_t *line = line_of(stream);

    bool is_implied = is_implicit(line);
    void (*asked)(void) = stream == gpu.asked_of ? gpu.asked : NULL;

    *status = line->is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (asked) {
        gpu.asked = NULL;
        asked();
    }
    return is_implied ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static inline CUresult fake_exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before =
        gpu.is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;

    gpu.is_relaxed = *mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    *mode = before;
    return CUDA_SUCCESS;
}

static inline void new_line(int context, int index)
{
    CHECK(gpu.lines < LINES_MAX);
    gpu.line[gpu.lines] =
        (line_t){.context = context, .is_legacy = index == LEGACY, .is_blocking = index < 2, .at = gpu.host};
    gpu.now[context][index] = gpu.lines++;
}

static inline CUresult fake_stream_create(CUstream *stream, unsigned flags)
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

static inline void start(cup_order_mode_t mode, int contexts)
{
    g_events_before += gpu.events;
    memset(&gpu, 0, sizeof(gpu));
    memset(&model, 0, sizeof(model));
    model.is_tight = true;
    model.mode = mode;
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
    cup_drv.cuStreamSynchronize = fake_stream_synchronize;
    cup_drv.cuStreamQuery = fake_stream_query;
    cup_drv.cuThreadExchangeStreamCaptureMode = fake_exchange;
    cup_drv.cuMemAlloc_v2 = fake_native_alloc;
    cup_drv.cuMemFree_v2 = fake_native_free;
    CHECK(cup_gate_enter(true));
    cup_gate_leave();
    for (int c = 0; c < contexts; c++) {
        for (int i = 0; i <= HIDDEN; i++)
            new_line(c, i);
        gpu.current = c;
        g_order[c] = cup_order_create(ctx_of(c), mode);
        CHECK(g_order[c] != NULL);
    }
    gpu.current = 0;
}

static inline void become_old(int contexts)
{
    gpu.is_old = true;
    for (int c = 0; c < contexts; c++)
        g_order[c]->has_record = false;
}

static inline void stop(int contexts)
{
    for (int c = 0; c < contexts; c++)
        cup_order_end(g_order[c]);
}

/* ---- what a program does ---- */

/* is_beside: a programmatic launch, which overlaps its own stream's last operations. */
static inline void check_order(const line_t *line, bool is_beside)
{
    int self = (int)(line - gpu.line);
    uint16_t own = is_beside ? line->sure : gpu.submitted[self];

    for (int c = 0; c < CONTEXTS; c++) {
        for (int i = 0; i < gpu.lines; i++) {
            uint16_t seen = i == self ? own : line->at.seen[i];

            CHECK_MSG(seen >= model.required[c].seen[i],
                      "stream %d runs beside operation %d of stream %d, which a free had waited for", self,
                      model.required[c].seen[i], i);
        }
    }
}

/* A plain operation, if nobody has checked it. */
static inline void operate(line_t *line)
{
    int self = (int)(line - gpu.line);

    line->sure = gpu.submitted[self];
    line->has_waited = false;
    line->at.seen[self] = ++gpu.submitted[self];
}

static inline void submit(int context, int index, unsigned rule)
{
    CUstream handle = handle_of(context, index);
    cup_call_t call;
    line_t *line;
    uint16_t sure;
    bool is_beside;

    gpu.current = context;
    line = line_of(handle);
    cup_submit_begin(&call, CUP_ON(handle), rule);
    if (!line->is_capturing && !is_implicit(line) && !(rule & CUP_SUBMIT_MARK)) {
        is_beside = rule & CUP_SUBMIT_PROGRAMMATIC && !call.must_be_plain && !line->has_waited;
        check_order(line, is_beside);
        sure = line->sure;
        operate(line);
        if (is_beside)
            line->sure = sure;
        if (rule & CUP_SUBMIT_HOST)
            model.hosted[context].seen[line - gpu.line] = line->at.seen[line - gpu.line];
    }
    cup_submit_end(&call, CUDA_SUCCESS);
}

static inline void launch(int context, int index)
{
    submit(context, index, CUP_SUBMIT_PLAIN);
}

/* A call that the shim does not know submits something that it does not see. */
static inline void call_unknown(int context)
{
    line_t *line = &gpu.line[gpu.now[context][HIDDEN]];

    gpu.current = context;
    cup_submit_doubt();
    for (int i = 0; i < gpu.lines; i++) /* what is over, and known to be, is before it, too */
        if (line->at.seen[i] < gpu.finished[i])
            line->at.seen[i] = gpu.finished[i];
    check_order(line, false);
    operate(line);
}

/* The program waits for a stream by itself. */
static inline void synchronize(int context, int index)
{
    CUstream handle = handle_of(context, index);
    cup_idle_t idle;

    gpu.current = context;
    if (line_of(handle)->is_capturing || is_implicit(line_of(handle)))
        return;
    idle = cup_submit_look(CUP_ON(handle));
    wait_on_host(&line_of(handle)->at);
    cup_idle_note(&idle);
}

static inline bool is_finished(const clocks_t *work)
{
    for (int i = 0; i < gpu.lines; i++)
        if (work->seen[i] > gpu.finished[i])
            return false;
    return true;
}

/* Natively it waits for all that the context's streams have, and what that comes after. */
static inline void note_free(int context, bool is_marked, cup_point_t stamp)
{
    clocks_t work = {{0}};

    for (int i = 0; i < gpu.lines; i++)
        if (gpu.line[i].context == context)
            join(&work, &gpu.line[i].at);
    if (is_marked || model.mode == CUP_ORDER_OVERLAP)
        join(&model.last, &work);
    if (is_marked)
        join(&model.required[context], &work);
    CHECK(model.frees < FREES_MAX);
    model.free[model.frees].stamp = stamp;
    model.free[model.frees].context = context;
    model.free[model.frees++].work = work;
}

static inline void free_block(int context)
{
    bool is_overlap = model.mode == CUP_ORDER_OVERLAP;
    cup_point_t stamp;
    bool is_marked = !is_overlap && cup_order_stamp_ordered(g_order[context], &stamp);

    if (is_overlap)
        stamp = cup_order_stamp(g_order[context]);

    note_free(context, is_marked, stamp);
    if (is_overlap) {
        CHECK_EQ(cup_order_freed(g_order[context], 1, model.frees % 3 == 0), CUDA_SUCCESS);
        return;
    }
    CHECK_EQ(cup_order_pay_host(g_order[context]), CUDA_SUCCESS);
    CHECK(!gpu.is_relaxed);
    CHECK_MSG(is_finished(&model.hosted[context]), "a free returns before what touches host memory");
}

/* Blocks of points that are closed change hands early. */
static inline void hand_out(int context)
{
    cup_point_t number = cup_order_hand_out(g_order[context]);

    for (int i = 0; i < model.frees; i++)
        if (model.free[i].context == context && model.free[i].stamp <= number)
            join(&model.required[context], &model.free[i].work);
}

static inline void destroy(int context, int index)
{
    bool is_capturing = cup_capture_destroying(handle_of(context, index));

    cup_submit_destroyed(handle_of(context, index));
    meanwhile();
    gpu.line[gpu.now[context][index]].is_capturing = false;
    gpu.now[context][index] = GONE;
    if (is_capturing)
        cup_capture_destroyed(handle_of(context, index), true);
}

/* The handle comes back as another stream, which is ordered behind nothing. */
static inline void recreate(int context, int index)
{
    destroy(context, index);
    new_line(context, index);
}

static inline void capture(int context, int index)
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
        cup_submit_before_join(CUP_ON(handle)); /* as the Begin hooks do */
        line->is_capturing = true;
        cup_capture_began(handle, true);
    }
}

static inline unsigned check_poll(int context)
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

#endif /* CUP_TESTS_SHIM_ORDER_BED_H */
