/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol. Numbers 1, 2, 3 ... each an order point. What must hold: whatever was submitted before a free starts runs,
 * on the device, before whatever is submitted by a call that starts after the free has returned.
 *
 *   free        stamp the block with `open`; then dirty = 1; then give the block away
 *   submission  1  incall = the stream, by an exchange (full fence)
 *    on t       2  if dirty: close, under the lock, if it is still dirty:
 *                    a  dirty = 2, n = open, open = n + 1
 *                    b  the streams of other threads' call words: I. Then the busy set, taken out: B. Then call words again.
 *                    c  record event n so that it covers B and I
 *                    d  publish point = n; add I to the busy set; dirty from 2 to 0, if it is still 2
 *               3  if t has not passed `point`: make it wait for the event, unless that was recorded on t; then note it
 *               4  add t to the busy set; the real call; incall = none
 *
 * Why no byte is early. The next owner's submission starts after the free, so it meets dirty, or a point recorded after
 * the free; either way its stream passes a point that covers what came before the free. A free that marks while a point
 * is being recorded turns 2 into 1, and d leaves it. Work that a busy set forgets is in no later point's record, so
 * nothing is ever forgotten: a call that began before a and submits after c is in its call word at b, and goes back
 * into the set; one that begins after a sees dirty and waits for the lock.
 *
 * Why nobody hangs who would not hang natively. With one thread a point covers just what the native free had waited
 * for: nothing that was submitted after the free is in it, because the first submission after it closes it first. Points
 * that are closed for other reasons (loose) are for the clock alone: nobody is made to pass them. Waits go to the
 * submitting stream only.
 *
 * overlap. Freed blocks wait until they are complete; frees close points in batches (tight: a native free would have
 * waited for all that the last of the batch finds). Only when memory is short are blocks of closed, tight points handed
 * out early: `need` rises first, and from then on a submission must have passed it.
 *
 * How a point is recorded. Work on one stream s alone since the newest point, and s has passed that: an event on s
 * covers everything (0.2 us on the host, nothing on the GPU). Else cuCtxRecordEvent, which covers all streams of the
 * context, whatever their kind (driver 12.5 and newer). It invalidates captures in progress (measured), so while one is,
 * and on older drivers, a stream of ours waits for the newest point and for an event on each busy stream. A context
 * starts with "several busy"; where that meets a capture, frees are not marked (cup_order_can_close) and their
 * blocks wait until they are complete.
 *
 * What the program itself has waited for needs no point: a stream that it synchronised, and to which nobody has begun to
 * submit since, is left out (idle.h). A loop that waits for each result costs nothing here.
 *
 * A destroyed stream's handle comes back as another one, not ordered behind the old one's work (measured: 200 of 200):
 * its entry has passed nothing then, owns no point, and the context counts as several busy.
 *
 * Programmatic launches overlap across an event, and across a wait for one that covers their own stream (both measured):
 * a point orders a stream's later work only from the first plain operation on; `fenced` and `plain` of the stream tell
 * (submit.c).
 *
 * The clock. A ring of points, in their order; completion is monotone, because each point's events come after the point
 * before it: bisection finds the newest complete one. In a full ring the new point takes the place of the newest one: what
 * was stamped with that becomes complete with the new one, later, not sooner. Queries go under an exchange to relaxed
 * capture mode: plain, they would invalidate a capture (measured).
 *
 * Audit. An event on one stream covers everything only if we see everything. Now and then the context is recorded as
 * well: when the stream's event is complete and the context's, made right behind it, is not, over two polls, somebody has
 * work that went round us. From then on the context alone is trusted.
 *
 * A record that fails leaves the point to the host: the submission synchronises, as the native free had.
 *
 * Slots. A context that ends leaves its slot to another, whose numbers go on where its own ended: what streams
 * noted as passed stays true.
 */
#include "shim/order.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/green.h"
#include "shim/idle.h"
#include "shim/log.h"
#include "shim/stat.h"
#include "shim/stream_set.h"
#include <time.h>

#define RING          64
#define FREES_MAX     16
#define BYTES_MAX     (16 * CUP_MIB)
#define LOOSE_WAIT_MS 1000
#define AUDIT_EACH    64 /* points on one stream */
#define AUDIT_POLLS   2
#define SLOT_GAP      1000000 /* numbers that submitters which still hold the order that had the slot may close */
#define PATIENT_TRIES 200     /* likewise, where nothing is lost by giving up */
#define SPOIL_TRIES   20000                /* of 50 us */
#define NOT_NOW       CUDA_ERROR_NOT_READY /* a point that a capture keeps open; no record answers so */

/* One closed point. */
typedef struct point {
    cup_point_t number;
    CUevent event;       /* made when first needed */
    cup_stream_t *owner; /* whose stream it was recorded on, or NULL */
    bool is_settled;     /* the host saw it complete when it was closed; the event means nothing */
    bool is_loose;
} point_t;

/* An event behind operations that touch host memory, of a stream that is gone. NULL once it is known complete. */
typedef struct orphan {
    struct orphan *next;
    _Atomic(CUevent) event;
} orphan_t;

struct cup_order {
    cup_order_t *before; /* that had the slot: reachable, for leak checkers and debuggers */
    CUcontext ctx;
    int slot;
    cup_order_mode_t mode;
    bool has_record;    /* the driver can record on a context */
    bool is_distrusted; /* somebody submits work that we don't see; the lock's */
    cup_stream_t *legacy;
    _Atomic bool has_ended;
    _Atomic int dirty;            /* 0; 1: a free has marked; 2: a close is under way */
    _Atomic cup_point_t open;     /* the number that the next close will have */
    _Atomic cup_point_t point;    /* the newest that is closed */
    _Atomic cup_point_t due;      /* exact: the newest that submissions must have passed, closed for a mark */
    _Atomic cup_point_t need;     /* overlap: likewise, but only what was handed out early */
    _Atomic cup_point_t promised; /* exact: the newest stamp of a block that was handed out as ordered */
    _Atomic cup_point_t settled;  /* of these, what the host saw complete for a call that nobody knows */
    cup_stream_set_t busy;
    _Atomic(cup_stream_t *)
        hosted; /* streams that had operations that touch host memory: a list that only grows */
    _Atomic uint64_t host_made, host_paid;
    _Atomic(orphan_t *) orphans; /* a list that only grows */
    _Atomic uint64_t orphans_made,
        orphans_paid;           /* such operations that no stream and event tell of any more */
    _Atomic bool is_awaited;    /* blocks were stamped with the open point and not marked */
    _Atomic bool is_open_loose; /* overlap: and work was submitted since */

    cup_lock_t lock; /* guards everything below, and closing */
    int captures;
    cup_point_t completed;
    unsigned freed_count; /* not marked, since the last close */
    uint64_t freed_bytes;
    unsigned head, count; /* the ring's oldest entry that is not known complete, and how many there are */
    point_t ring[RING];
    point_t spare[2]; /* where a point is recorded that must not touch what is in the ring, or in `must` */
    CUstream joiner;  /* of ours: how several streams become one point without a context record */
    CUevent join_event;
    unsigned unaudited; /* points on one stream since the last audit began */
    struct {
        cup_point_t number; /* of the point that was recorded on the context as well; 0: no audit is open */
        CUevent event;
        unsigned misses;
    } audit;
    point_t must; /* what is passed: `due`, or the newest tight one */
};

static _Atomic(cup_order_t *) g_order[CUP_ORDERS_MAX];
static _Atomic int g_slots;    /* slots ever used */
static _Atomic int g_followed; /* live orders that follow submissions */
static _Atomic uint64_t g_generation = 1;

static _Thread_local struct {
    uint64_t generation;
    CUcontext ctx;
    cup_order_t *order;
} t_last __attribute__((tls_model("initial-exec")));

/* Runs the call with the context current, whichever the program has. */
static CUresult in_context(CUcontext ctx, CUresult (*call)(void *), void *arg)
{
    CUcontext current = NULL;
    CUresult result;

    if (cup_drv.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx)
        return call(arg);
    result = cup_drv.cuCtxPushCurrent_v2(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    result = call(arg);
    cup_drv.cuCtxPopCurrent_v2(&current);
    return result;
}

/* ---- contexts ---- */

static bool follows(const cup_order_t *order)
{
    return order->mode == CUP_ORDER_EXACT || order->mode == CUP_ORDER_OVERLAP;
}

/* A slot that was never used or whose context has ended, with the number that it goes on from. */
static int find_slot_locked(cup_point_t *out_point)
{
    for (int i = 0; i < CUP_ORDERS_MAX; i++) {
        cup_order_t *order = atomic_load(&g_order[i]);

        if (order && !atomic_load(&order->has_ended))
            continue;
        *out_point = order ? atomic_load(&order->open) + SLOT_GAP : 0;
        return i;
    }
    return -1;
}

static bool install_locked(cup_order_t *order)
{
    cup_point_t point;

    order->slot = find_slot_locked(&point);
    if (order->slot < 0)
        return false;
    order->before = atomic_load(&g_order[order->slot]);
    order->completed = point;
    order->captures = cup_capture_count();
    atomic_store(&order->point, point);
    atomic_store(&order->open, point + 1);
    atomic_store(&g_order[order->slot], order);
    if (order->slot >= atomic_load(&g_slots))
        atomic_store(&g_slots, order->slot + 1);
    atomic_fetch_add(&g_generation, 1);
    if (follows(order))
        atomic_fetch_add(&g_followed, 1);
    return true;
}

cup_order_t *cup_order_create(CUcontext ctx, cup_order_mode_t mode)
{
    cup_order_t *order = cup_meta_alloc(sizeof(*order));
    bool is_installed = false;

    if (!order)
        return NULL;
    order->ctx = ctx;
    order->mode = mode;
    order->has_record = cup_drv_has(CUP_DRV_cuCtxRecordEvent);
    order->legacy = cup_stream_create(CU_STREAM_LEGACY, CUP_STREAM_LEGACY, order);
    atomic_store(&order->busy.is_several, true);
    cup_lock_init(&order->lock, CUP_LOCK_ORDER);
    if (order->legacy) {
        cup_capture_lock();
        is_installed = install_locked(order);
        cup_capture_unlock();
    }
    if (is_installed)
        return order;
    cup_meta_free(order->legacy, sizeof(*order->legacy));
    cup_meta_free(order, sizeof(*order));
    return NULL;
}

void cup_order_end(cup_order_t *order)
{
    if (atomic_exchange(&order->has_ended, true))
        return;
    atomic_fetch_add(&g_generation, 1);
    if (follows(order))
        atomic_fetch_sub(&g_followed, 1);
}

cup_order_t *cup_order_of(CUcontext ctx)
{
    int slots = atomic_load_explicit(&g_slots, memory_order_acquire);

    ctx = cup_green_primary(ctx);
    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&g_order[i], memory_order_acquire);

        if (order->ctx == ctx && !atomic_load_explicit(&order->has_ended, memory_order_acquire))
            return order;
    }
    return NULL;
}

cup_order_t *cup_order_current(void)
{
    uint64_t generation = cup_order_generation();
    CUcontext ctx = NULL;

    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return NULL;
    if (t_last.generation != generation || t_last.ctx != ctx) {
        t_last.order = cup_green_is(ctx) ? NULL : cup_order_of(ctx);
        t_last.ctx = ctx;
        t_last.generation = generation;
    }
    return t_last.order;
}

uint64_t cup_order_generation(void)
{
    return atomic_load_explicit(&g_generation, memory_order_acquire);
}

bool cup_order_is_followed(void)
{
    return atomic_load_explicit(&g_followed, memory_order_relaxed) > 0;
}

int cup_order_slot(const cup_order_t *order)
{
    return order->slot;
}

cup_stream_t *cup_order_legacy(cup_order_t *order)
{
    return order->legacy;
}

/* ---- events ---- */

static CUresult create_event(void *arg)
{
    return cup_drv.cuEventCreate(arg, CU_EVENT_DISABLE_TIMING);
}

static CUresult need_event(cup_order_t *order, CUevent *event)
{
    return *event ? CUDA_SUCCESS : in_context(order->ctx, create_event, event);
}

/* What is needed to close a point without a record on the context. Without it frees wait in limbo meanwhile. */
static CUresult create_joiner(void *arg)
{
    cup_order_t *order = arg;
    CUresult result = cup_drv.cuEventCreate(&order->join_event, CU_EVENT_DISABLE_TIMING);

    return result == CUDA_SUCCESS ? cup_drv.cuStreamCreate(&order->joiner, CU_STREAM_NON_BLOCKING) : result;
}

static void need_joiner(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (order->joiner)
        return;
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    if (in_context(order->ctx, create_joiner, order) != CUDA_SUCCESS)
        order->joiner = NULL;
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
}

static CUresult synchronize(void *arg)
{
    (void)arg;
    return cup_drv.cuCtxSynchronize();
}

typedef struct record {
    CUevent event;
    CUstream stream;
} record_t;

static CUresult record_now(void *arg)
{
    const record_t *record = arg;

    return cup_drv.cuEventRecord(record->event, record->stream);
}

/* The null streams are named by the current context. */
static CUresult record_on(cup_order_t *order, CUevent event, const cup_stream_t *stream)
{
    record_t record = {event, stream->handle};

    return stream->kind == CUP_STREAM_HANDLE ? record_now(&record)
                                             : in_context(order->ctx, record_now, &record);
}

static CUresult query(CUevent event, bool *out_is_done)
{
    CUresult result = cup_drv.cuEventQuery(event);

    *out_is_done = result == CUDA_SUCCESS;
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

/* ---- the ring ---- */

static point_t *entry_locked(cup_order_t *order, unsigned index)
{
    return &order->ring[(order->head + index) % RING];
}

static point_t *newest_locked(cup_order_t *order)
{
    /* Also when it is complete, and out of the count: its event is still the newest one. */
    return entry_locked(order, order->count + RING - 1);
}

static CUresult query_point(const point_t *point, bool *out_is_done)
{
    *out_is_done = true;
    return point->is_settled ? CUDA_SUCCESS : query(point->event, out_is_done);
}

/* Drops the complete entries: bisection for the newest of them. */
static CUresult query_ring_locked(cup_order_t *order)
{
    unsigned low = 0, high = order->count; /* entries below low are complete, from high on they are not */
    CUresult result = CUDA_SUCCESS;

    while (low < high) {
        /* The newest first: a GPU that keeps up has completed it, and one query is all. */
        unsigned middle = high == order->count ? high - 1 : low + (high - low) / 2;
        bool is_done;

        result = query_point(entry_locked(order, middle), &is_done);
        if (result != CUDA_SUCCESS)
            break;
        if (is_done)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        order->completed = entry_locked(order, low - 1)->number;
    order->head = (order->head + low) % RING;
    order->count -= low;
    return result;
}

/* The stream's event is complete: what the context has besides is not ours. */
static void judge_audit_locked(cup_order_t *order)
{
    bool is_done = false;

    if (order->audit.number == 0 || order->completed < order->audit.number || order->captures > 0)
        return; /* beside a capture the context can't be recorded: what frees have marked is closed as it is */
    if (query(order->audit.event, &is_done) == CUDA_SUCCESS && !is_done &&
        ++order->audit.misses < AUDIT_POLLS)
        return;
    order->audit.number = 0;
    if (order->audit.misses < AUDIT_POLLS)
        return;
    order->is_distrusted = true;
    CUP_STAT_ADD(distrusts, 1);
    cup_log(
        CUP_LOG_INFO,
        "work reaches the GPU by a way that is not followed: order points cover whole contexts from now on");
}

static CUresult poll_locked(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    if (order->count == 0 && order->audit.number == 0)
        return CUDA_SUCCESS;
    CUP_STAT_ADD(polls, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = query_ring_locked(order);
    if (result == CUDA_SUCCESS)
        judge_audit_locked(order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static bool has_same_event(const point_t *a, const point_t *b)
{
    return a->event && a->event == b->event;
}

/* Where the point will be: a new entry, or in a full ring the newest one's. */
static point_t *place_locked(cup_order_t *order)
{
    return entry_locked(order, order->count < RING ? order->count : RING - 1);
}

/* Where it is recorded: until it is published, no event changes that is in the ring or that streams are to pass. */
static point_t *next_locked(cup_order_t *order)
{
    point_t *point = place_locked(order);

    if (order->count == RING) {
        poll_locked(order); /* an error comes back from the record */
        point = place_locked(order);
    }
    if (order->count == RING || has_same_event(point, &order->must))
        point = &order->spare[has_same_event(&order->spare[0], &order->must)];
    return point;
}

/* What later submissions pass. A loose point is only for the clock. */
static void note_must_locked(cup_order_t *order, const point_t *point)
{
    if (point->is_loose)
        return;
    order->must = *point;
    atomic_store_explicit(&order->due, point->number, memory_order_release);
}

static void publish_locked(cup_order_t *order, point_t *point, cup_point_t number, bool is_loose)
{
    point_t *place = place_locked(order);

    point->number = number;
    point->is_loose = is_loose;
    note_must_locked(order, point);
    if (point != place) {
        point_t replaced = *place;

        *place = *point;
        *point = replaced;
    }
    if (order->count < RING)
        order->count++;
    atomic_store_explicit(&order->point, number, memory_order_release);
}

/* ---- recording ---- */

/* What must be covered. */
typedef struct work {
    cup_stream_t *stream[2 * CUP_STREAM_SET_MAX];
    int count;
    bool is_several;
    bool is_settled; /* a stream that had passed the newest point is idle: what that covers is done */
} work_t;

static void include(work_t *work, cup_stream_t *stream)
{
    for (int i = 0; i < work->count; i++)
        if (work->stream[i] == stream)
            return;
    if (work->count < 2 * CUP_STREAM_SET_MAX)
        work->stream[work->count++] = stream;
    else
        work->is_several = true;
}

/* Streams that other threads are submitting to, in this context. */
static void include_calls(const cup_order_t *order, const cup_thread_t *self, work_t *work)
{
    for (cup_thread_t *thread = cup_stream_threads(); thread; thread = thread->next) {
        cup_call_word_t word = thread == self ? 0 : atomic_load(&thread->incall);
        cup_stream_t *stream = cup_call_word_stream(word);

        if (stream && atomic_load(&stream->order) == order)
            include(work, stream);
        else if (stream && cup_call_word_is_everywhere(word))
            work->is_several = true;
    }
}

static bool has_passed(const cup_order_t *order, cup_stream_t *stream, cup_point_t point)
{
    return atomic_load_explicit(&stream->passed[order->slot], memory_order_acquire) >= point;
}

static bool is_foreign(const cup_order_t *order, const cup_thread_t *self, const cup_stream_t *stream)
{
    return stream->kind == CUP_STREAM_THREADS_OWN && (!self || self->own[order->slot] != stream);
}

typedef struct capture_ask {
    CUstream stream;
    CUstreamCaptureStatus status;
} capture_ask_t;

static CUresult ask_capture(void *arg)
{
    capture_ask_t *ask = arg;

    return cup_drv.cuStreamIsCapturing(ask->stream, &ask->status);
}

/* Another thread's per-thread stream can't be named; under captures the driver says which stream must be left alone. */
static bool can_record_on(const cup_order_t *order, const cup_thread_t *self, const cup_stream_t *stream)
{
    capture_ask_t ask = {stream->handle, CU_STREAM_CAPTURE_STATUS_NONE};
    CUresult result;

    if (is_foreign(order, self, stream))
        return false;
    if (order->captures == 0)
        return true;
    result =
        stream->kind == CUP_STREAM_HANDLE ? ask_capture(&ask) : in_context(order->ctx, ask_capture, &ask);
    return result == CUDA_SUCCESS && ask.status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Makes later work of the stream run after the point. Not recorded on it. */
static CUresult wait_for(const point_t *point, CUstream stream)
{
    return point->is_settled || !point->event ? CUDA_SUCCESS
                                              : cup_drv.cuStreamWaitEvent(stream, point->event, 0);
}

static bool is_busy_alone(cup_order_t *order, const cup_stream_t *stream)
{
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *member = atomic_load(&order->busy.member[i]);

        if (member && member != stream)
            return false;
    }
    return !atomic_load(&order->busy.is_several);
}

/*
 * Right behind the stream's own event. Where submissions don't wait for this lock (overlap), one may have come between: who
 * submits is in the busy set before. An error ends the audit, not more.
 */
static void begin_audit(cup_order_t *order, const cup_stream_t *stream, cup_point_t number)
{
    if (order->unaudited++ % AUDIT_EACH != 0 || order->audit.number != 0 || !order->has_record ||
        order->captures > 0)
        return;
    if (need_event(order, &order->audit.event) != CUDA_SUCCESS ||
        cup_drv.cuCtxRecordEvent(order->ctx, order->audit.event) != CUDA_SUCCESS ||
        !is_busy_alone(order, stream))
        return;
    order->audit.number = number;
    order->audit.misses = 0;
}

static CUresult record_own(cup_order_t *order, point_t *point, cup_stream_t *stream, cup_point_t number)
{
    CUresult result = record_on(order, point->event, stream);

    if (result != CUDA_SUCCESS)
        return result;
    CUP_STAT_ADD(own_points, 1);
    point->owner = stream;
    atomic_fetch_add_explicit(&stream->fenced, 1, memory_order_relaxed);
    atomic_store_explicit(&stream->passed[order->slot], number, memory_order_release);
    begin_audit(order, stream, number);
    return CUDA_SUCCESS;
}

/*
 * An event is behind all that is on the stream: of another thread's per-thread stream, after each of its calls while a
 * capture is in progress; of one that goes on to capture, from before that.
 */
static bool has_tail(cup_stream_t *stream)
{
    uint64_t tailed = atomic_load(&stream->tailed);

    return tailed > 0 && tailed == atomic_load(&stream->begun);
}

static bool can_record_each(const cup_order_t *order, const cup_thread_t *self, const work_t *work)
{
    if (work->is_several || !order->joiner)
        return false;
    for (int i = 0; i < work->count; i++)
        if (!can_record_on(order, self, work->stream[i]) && !has_tail(work->stream[i]))
            return false;
    return true;
}

static CUresult join_stream(cup_order_t *order, const cup_thread_t *self, cup_stream_t *stream)
{
    CUresult result;

    if (!can_record_on(order, self, stream))
        return cup_drv.cuStreamWaitEvent(order->joiner, atomic_load(&stream->tail), 0);
    result = record_on(order, order->join_event, stream);
    return result == CUDA_SUCCESS ? cup_drv.cuStreamWaitEvent(order->joiner, order->join_event, 0) : result;
}

/* A stream of ours waits for the newest point and for each busy stream; its event covers them all. */
static CUresult record_each(cup_order_t *order, const cup_thread_t *self, const point_t *point,
                            const work_t *work)
{
    CUresult result = wait_for(newest_locked(order), order->joiner);

    for (int i = 0; result == CUDA_SUCCESS && i < work->count; i++)
        result = join_stream(order, self, work->stream[i]);
    return result == CUDA_SUCCESS ? cup_drv.cuEventRecord(point->event, order->joiner) : result;
}

/* As the driver's own free: everything is complete. */
static CUresult record_nothing(cup_order_t *order, point_t *point)
{
    CUresult result = in_context(order->ctx, synchronize, NULL);

    if (result != CUDA_SUCCESS)
        return result;
    CUP_STAT_ADD(waits, 1);
    point->owner = NULL;
    point->is_settled = true;
    return CUDA_SUCCESS;
}

static CUresult record_work(cup_order_t *order, const cup_thread_t *self, const work_t *work, point_t *point,
                            cup_point_t number, bool may_spoil)
{
    cup_point_t newest = atomic_load_explicit(&order->point, memory_order_relaxed);
    CUresult result = need_event(order, &point->event);

    if (result != CUDA_SUCCESS)
        return result;
    point->owner = NULL;
    point->is_settled = false;
    if (work->count == 1 && !work->is_several && has_passed(order, work->stream[0], newest) &&
        can_record_on(order, self, work->stream[0]))
        return record_own(order, point, work->stream[0], number);
    if (order->has_record && order->captures == 0)
        return cup_drv.cuCtxRecordEvent(order->ctx, point->event);
    if (can_record_each(order, self, work))
        return record_each(order, self, point, work);
    if (order->captures > 0 && !may_spoil)
        return NOT_NOW;
    if (order->captures > 0 && order->has_record)
        return cup_drv.cuCtxRecordEvent(order->ctx, point->event);
    return record_nothing(order, point);
}

/*
 * Nothing was submitted since the newest point, or the program has waited for it: that stands for the new number, too. A
 * stream that had passed it and is idle makes it complete.
 */
static bool relabel_locked(cup_order_t *order, const work_t *work, cup_point_t number, bool is_loose)
{
    point_t *newest = newest_locked(order);

    if (work->is_several || work->count > 0 || newest->number == 0)
        return false;
    newest->number = number;
    newest->is_settled |= work->is_settled;
    if (newest->is_settled) { /* as all before it */
        order->head = (order->head + order->count) % RING;
        order->count = 0;
    }
    newest->is_loose &= is_loose;
    note_must_locked(order, newest);
    if (order->count == 0)
        order->completed = number;
    atomic_store_explicit(&order->point, number, memory_order_release);
    return true;
}

/* Step b: what the point must cover, and of that what may be submitted after it is recorded. */
static void gather_locked(cup_order_t *order, const cup_thread_t *self, work_t *out_work, work_t *out_calls)
{
    cup_point_t newest = atomic_load_explicit(&order->point, memory_order_relaxed);
    cup_stream_t *busy[CUP_STREAM_SET_MAX];
    int count;

    include_calls(order, self, out_calls);
    out_work->is_several = cup_stream_set_take(&order->busy, busy, &count);
    include_calls(order, self, out_calls);
    for (int i = 0; i < count; i++)
        if (!cup_idle_is(busy[i]))
            include(out_work, busy[i]);
        else
            out_work->is_settled |= has_passed(order, busy[i], newest);
    for (int i = 0; i < out_calls->count; i++)
        include(out_work, out_calls->stream[i]);
    out_work->is_several |= out_calls->is_several || order->is_distrusted || !follows(order);
}

static void give_back_busy(cup_order_t *order, const work_t *work)
{
    for (int i = 0; i < work->count; i++)
        cup_stream_set_add(&order->busy, work->stream[i]);
    if (work->is_several)
        atomic_store(&order->busy.is_several, true);
}

/*
 * Steps a to d. self: the thread that submits, or NULL. A point that no mark asks for is loose, if the caller says so. On
 * an error the point stays open, under the next number.
 */
static CUresult close_locked(cup_order_t *order, const cup_thread_t *self, bool is_loose, bool may_spoil)
{
    work_t work = {.count = 0}, calls = {.count = 0};
    cup_point_t number = atomic_load_explicit(&order->open, memory_order_relaxed);
    CUresult result = CUDA_SUCCESS;
    int closing = 2;

    is_loose = atomic_exchange(&order->dirty, 2) == 0 && is_loose;
    atomic_store(&order->is_awaited, false);
    atomic_store(&order->is_open_loose, false);
    atomic_store(&order->open, number + 1);
    gather_locked(order, self, &work, &calls);
    if (!relabel_locked(order, &work, number, is_loose)) {
        point_t *point = next_locked(order);

        result = record_work(order, self, &work, point, number, may_spoil);
        if (result != CUDA_SUCCESS && order->captures == 0)
            result = record_nothing(order, point);
        if (result == CUDA_SUCCESS) {
            publish_locked(order, point, number, is_loose);
            CUP_STAT_ADD(points, 1);
        }
    }
    give_back_busy(order, result == CUDA_SUCCESS ? &calls : &work);
    if (result == CUDA_SUCCESS) {
        order->freed_count = 0;
        order->freed_bytes = 0;
        atomic_compare_exchange_strong(&order->dirty, &closing, 0);
    } else {
        if (!is_loose)
            atomic_store(&order->dirty, 1);
        else
            atomic_compare_exchange_strong(&order->dirty, &closing, 0);
        atomic_store(&order->is_awaited, true);
    }
    return result;
}

/* ---- free ---- */

cup_point_t cup_order_stamp(cup_order_t *order, bool is_marked)
{
    cup_point_t stamp = atomic_load_explicit(&order->open, memory_order_acquire);

    if (!is_marked)
        atomic_store_explicit(&order->is_awaited, true, memory_order_release);
    else if (atomic_load_explicit(&order->dirty, memory_order_relaxed) != 1)
        atomic_store_explicit(&order->dirty, 1, memory_order_release);
    return stamp;
}

/* Which streams are busy is known, and each can be recorded on by whoever comes next. */
static bool is_busy_known(cup_order_t *order)
{
    if (!order->joiner)
        return false;
    return !order->is_distrusted && !atomic_load(&order->busy.is_several);
}

bool cup_order_can_close(cup_order_t *order)
{
    bool is_closable = true;

    if (!cup_capture_is_active())
        return true;
    cup_capture_sweep();
    cup_lock_acquire(&order->lock);
    if (order->captures > 0)
        is_closable = is_busy_known(order);
    cup_lock_release(&order->lock);
    return is_closable;
}

bool cup_order_promise(cup_order_t *order, cup_point_t stamp)
{
    cup_point_t promised = atomic_load(&order->promised);

    if (!cup_order_can_close(order)) {
        atomic_store(&order->is_awaited, true);
        return false;
    }
    while (promised < stamp && !atomic_compare_exchange_weak(&order->promised, &promised, stamp))
        ;
    return true;
}

static CUresult free_as_natively(void *arg)
{
    CUdeviceptr block;
    CUresult result = cup_drv.cuMemAlloc_v2(&block, 1);

    (void)arg;
    return result == CUDA_SUCCESS ? cup_drv.cuMemFree_v2(block) : result;
}

/*
 * sync, while a capture keeps the context from being recorded or waited for: the driver's own free still
 * waits for what was submitted to it, and leaves the capture alone (docs/captures.md). Where not even a
 * byte can be had, nothing is waited for.
 */
static CUresult wait_beside_capture(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = in_context(order->ctx, free_as_natively, NULL);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

CUresult cup_order_freed(cup_order_t *order, uint64_t size_bytes, bool is_due)
{
    CUresult result = CUDA_SUCCESS;
    bool is_captured;

    cup_lock_acquire(&order->lock);
    order->freed_count++;
    order->freed_bytes += size_bytes;
    is_captured = order->captures > 0;
    if (!is_captured && (is_due || order->freed_count >= FREES_MAX || order->freed_bytes >= BYTES_MAX))
        result = close_locked(order, NULL, false, false);
    cup_lock_release(&order->lock);
    return is_captured && order->mode == CUP_ORDER_SYNC ? wait_beside_capture(order) : result;
}

/* ---- passing ---- */

/* What must be passed, as it is now, for use without the lock. */
static void copy_must(cup_order_t *order, point_t *out_point)
{
    cup_lock_acquire(&order->lock);
    *out_point = order->must;
    cup_lock_release(&order->lock);
}

static CUresult settle(const point_t *point)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    if (point->is_settled || !point->event)
        return CUDA_SUCCESS;
    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuEventSynchronize(point->event);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/*
 * Captures may have begun out of our sight. What is captured is not submitted: nothing to order. A stream that does not
 * tell, or refuses the wait, is served by the host, as natively.
 */
static void pass_must(cup_order_t *order, cup_stream_t *stream)
{
    point_t point;
    CUresult result = CUDA_SUCCESS;

    copy_must(order, &point);
    if (point.owner != stream && point.event && !point.is_settled) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        result = cup_drv.cuStreamIsCapturing(stream->handle, &status);
        if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE)
            return;
        CUP_STAT_ADD(passes, 1);
        if (result == CUDA_SUCCESS)
            result = wait_for(&point, stream->handle);
        if (result != CUDA_SUCCESS)
            result = settle(&point);
    }
    if (result != CUDA_SUCCESS)
        return;
    if (!point.is_settled)
        atomic_fetch_add_explicit(&stream->fenced, 1, memory_order_relaxed);
    atomic_store_explicit(&stream->passed[order->slot], point.number, memory_order_release);
}

/* The busy streams that can be named; false: there are others. */
static bool copy_busy(cup_order_t *order, work_t *out_work)
{
    cup_lock_acquire(&order->lock);
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *stream = atomic_load(&order->busy.member[i]);

        if (stream && stream->kind == CUP_STREAM_HANDLE)
            include(out_work, stream);
        else if (stream)
            out_work->is_several = true;
    }
    cup_lock_release(&order->lock);
    return !out_work->is_several && !atomic_load(&order->busy.is_several);
}

static CUresult wait_for_busy(cup_stream_t *stream)
{
    return has_tail(stream) ? cup_drv.cuEventSynchronize(atomic_load(&stream->tail))
                            : cup_drv.cuStreamSynchronize(stream->handle);
}

/*
 * No point could be closed for what was freed: the host waits, as the native free had. While a capture is in progress the
 * context can't be waited for (measured), so each stream is, and what the newest point covers.
 */
static void wait_on_host(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    work_t work = {.count = 0};
    bool is_known = copy_busy(order, &work);

    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    for (int i = 0; i < work.count; i++)
        is_known &= wait_for_busy(work.stream[i]) == CUDA_SUCCESS;
    if (!is_known) /* it may refuse: then so does the program's own call, or nothing helps */
        in_context(order->ctx, synchronize, NULL);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    cup_order_wait(order, atomic_load(&order->point));
}

/* Until something may have changed. Out of the call meanwhile, or two threads that rest here would wait for each other. */
static void rest(cup_thread_t *self)
{
    const struct timespec pause = {0, 50000};
    cup_call_word_t word = self ? atomic_exchange(&self->incall, 0) : 0;

    nanosleep(&pause, NULL);
    if (self)
        atomic_exchange(&self->incall, word);
}

/*
 * What this thread has on its own stream nobody else can record on: two that rest here would wait for each other's. Not
 * into a capture of the program.
 */
static void leave_own_tail(cup_order_t *order, cup_thread_t *self)
{
    cup_stream_t *own = self ? self->own[order->slot] : NULL;
    bool is_recordable;

    if (!own || has_tail(own))
        return;
    cup_lock_acquire(&order->lock);
    is_recordable = can_record_on(order, self, own);
    cup_lock_release(&order->lock);
    if (is_recordable)
        cup_order_note_tail(own, self);
}

/*
 * A capture keeps context records off, and another thread is in a call on a stream of its own: it will be over soon. If
 * not, the record spoils the capture, and the program is told so by its code. One thread alone does not get here
 * (cup_order_can_close).
 */
static void close_marked(cup_order_t *order, cup_thread_t *self)
{
    CUresult result = NOT_NOW;

    for (int tries = 0; result == NOT_NOW && tries <= SPOIL_TRIES; tries++) {
        if (tries > 0) {
            leave_own_tail(order, self);
            rest(self);
        }
        result = CUDA_SUCCESS;
        cup_lock_acquire(&order->lock);
        if (atomic_load(&order->dirty) != 0)
            result = close_locked(order, self, false, tries == SPOIL_TRIES);
        cup_lock_release(&order->lock);
        if (result == NOT_NOW && atomic_load(&order->promised) <= atomic_load(&order->due))
            return; /* whoever marked has put its block aside (cup_order_promise) */
    }
    if (result != CUDA_SUCCESS)
        wait_on_host(order);
}

static void pass(cup_order_t *order, cup_stream_t *stream, cup_thread_t *self)
{
    if (order->mode == CUP_ORDER_EXACT) {
        if (atomic_load_explicit(&order->dirty, memory_order_acquire) != 0)
            close_marked(order, self);
        if (!has_passed(order, stream, atomic_load_explicit(&order->due, memory_order_acquire)))
            pass_must(order, stream);
    } else if (order->mode == CUP_ORDER_OVERLAP) {
        if (atomic_load_explicit(&order->is_awaited, memory_order_relaxed))
            atomic_store_explicit(&order->is_open_loose, true, memory_order_relaxed);
        if (!has_passed(order, stream, atomic_load(&order->need)))
            pass_must(order, stream);
    }
}

void cup_order_pass_all(cup_stream_t *stream, cup_thread_t *self)
{
    int slots = atomic_load_explicit(&g_slots, memory_order_acquire);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&g_order[i], memory_order_acquire);

        if (!atomic_load_explicit(&order->has_ended, memory_order_acquire))
            pass(order, stream, self);
    }
}

/* What submissions must pass is complete when this returns true; false: it was before, or the driver does not tell. */
static bool settle_order(cup_order_t *order)
{
    cup_point_t due;

    if (order->mode == CUP_ORDER_EXACT && atomic_load(&order->dirty) != 0)
        close_marked(order, cup_stream_thread());
    due = atomic_load(order->mode == CUP_ORDER_EXACT ? &order->due : &order->need);
    if (atomic_load(&order->settled) >= due || cup_order_wait(order, due) != CUDA_SUCCESS)
        return false;
    atomic_store(&order->settled, due);
    return true;
}

bool cup_order_settle_all(void)
{
    int slots = atomic_load_explicit(&g_slots, memory_order_acquire);
    bool has_waited = false;

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&g_order[i], memory_order_acquire);

        if (follows(order) && !atomic_load_explicit(&order->has_ended, memory_order_acquire))
            has_waited |= settle_order(order);
    }
    return has_waited;
}

static _Atomic bool g_has_managed;

void cup_order_note_managed(void)
{
    atomic_store(&g_has_managed, true);
}

void cup_order_pay_managed(cup_order_t *order)
{
    if (atomic_load_explicit(&g_has_managed, memory_order_relaxed))
        settle_order(order);
}

void cup_order_note_busy(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    atomic_fetch_add(&stream->begun, 1);
    if (order)
        cup_stream_set_add(&order->busy, stream);
}

int cup_order_look_at_busy(cup_order_t *order, const cup_thread_t *self, cup_idle_t *out_idle)
{
    int count = 0;

    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *stream = atomic_load(&order->busy.member[i]);

        if (stream)
            out_idle[count++] = cup_idle_look(stream, self);
    }
    return count;
}

/* Not while another thread is in a call on it: the event might come before that one's work. */
void cup_order_note_tail(cup_stream_t *stream, const cup_thread_t *self)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);
    CUevent event = atomic_load(&stream->tail);
    cup_idle_t idle = cup_idle_look(stream, self);

    if (!order || !idle.stream || need_event(order, &event) != CUDA_SUCCESS)
        return;
    atomic_store(&stream->tail, event);
    if (record_on(order, event, stream) == CUDA_SUCCESS)
        atomic_store(&stream->tailed, idle.begun);
}

/*
 * Which streams are busy is not known from now on. Beside a capture no point could be closed then, so what frees have
 * marked is closed first. A free marks, then looks whether that is known: it or this one sees the other.
 */
static void make_unknown(cup_order_t *order)
{
    CUresult result = CUDA_SUCCESS;

    if (atomic_exchange(&order->busy.is_several, true) || !cup_capture_is_active())
        return;
    cup_lock_acquire(&order->lock);
    while (result == CUDA_SUCCESS && order->captures > 0 && atomic_load(&order->dirty) != 0) {
        atomic_store(&order->busy.is_several, false);
        result = close_locked(order, NULL, false, false);
        atomic_store(&order->busy.is_several, true);
    }
    cup_lock_release(&order->lock);
}

static void note_all_busy_but(const cup_order_t *own)
{
    int slots = atomic_load_explicit(&g_slots, memory_order_acquire);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&g_order[i], memory_order_acquire);

        if (order != own)
            make_unknown(order);
    }
}

void cup_order_note_others_busy(cup_stream_t *stream)
{
    note_all_busy_but(atomic_load_explicit(&stream->order, memory_order_acquire));
}

void cup_order_note_all_busy(void)
{
    note_all_busy_but(NULL);
}

void cup_order_distrust_all(void)
{
    int slots = atomic_load_explicit(&g_slots, memory_order_acquire);

    note_all_busy_but(NULL);
    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&g_order[i], memory_order_acquire);

        cup_lock_acquire(&order->lock);
        order->is_distrusted = true;
        cup_lock_release(&order->lock);
    }
}

static void seal_host_locked(cup_order_t *order, cup_stream_t *stream);

/* The stream's event goes to the order: the stream gets another one when it needs it. */
static bool adopt(cup_order_t *order, CUevent event)
{
    orphan_t *orphan = event ? cup_meta_alloc(sizeof(*orphan)) : NULL;

    if (!orphan)
        return false;
    atomic_store(&orphan->event, event);
    orphan->next = atomic_load(&order->orphans);
    while (!atomic_compare_exchange_weak(&order->orphans, &orphan->next, orphan))
        ;
    return true;
}

static void orphan_locked(cup_order_t *order, cup_stream_t *stream)
{
    if (atomic_load(&stream->host_made) != atomic_load(&stream->host_paid) && !cup_idle_is(stream)) {
        seal_host_locked(order, stream);
        if (!adopt(order, atomic_load(&stream->host_event)))
            atomic_fetch_add(&order->orphans_made, 1);
        atomic_store(&stream->host_event, NULL);
    }
    atomic_store(&stream->host_paid, atomic_load(&stream->host_made));
    atomic_store(&stream->is_host_open, false);
}

static void leave_locked(cup_order_t *order, cup_stream_t *stream)
{
    for (unsigned i = 0; i < RING; i++)
        if (order->ring[i].owner == stream)
            order->ring[i].owner = NULL;
    if (order->must.owner == stream)
        order->must.owner = NULL;
    orphan_locked(order, stream);
}

/* Nothing can be recorded on it from now on. While a capture keeps context records off, a last point covers its work. */
static void leave(cup_order_t *order, cup_stream_t *stream)
{
    bool is_covered = false, is_needed = true;

    for (int tries = 0; is_needed && !is_covered && tries < PATIENT_TRIES; tries++) {
        if (tries > 0)
            rest(NULL);
        cup_lock_acquire(&order->lock);
        is_needed = order->captures > 0 && is_busy_known(order);
        is_covered = is_needed && close_locked(order, NULL, true, false) == CUDA_SUCCESS;
        cup_lock_release(&order->lock);
    }
    if (!is_covered)
        make_unknown(order);
    cup_lock_acquire(&order->lock);
    leave_locked(order, stream);
    cup_lock_release(&order->lock);
}

void cup_order_stream_ends(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load(&stream->order);

    if (order)
        leave(order, stream);
    for (int i = 0; i < CUP_ORDERS_MAX; i++)
        atomic_store(&stream->passed[i], 0);
    atomic_store(&stream->generation, 0);
}

/* ---- host memory ---- */

static CUresult record_host(cup_order_t *order, cup_stream_t *stream)
{
    CUevent event = atomic_load(&stream->host_event);
    CUresult result = CUDA_SUCCESS;

    if (!event) {
        result = need_event(order, &event);
        if (result == CUDA_SUCCESS)
            atomic_store(&stream->host_event, event);
    }
    return result == CUDA_SUCCESS ? record_on(order, event, stream) : result;
}

/* Whether the stream can be asked later, by any thread: then nothing is recorded until something is put behind. */
static bool can_stay_open(const cup_stream_t *stream)
{
    return stream->kind != CUP_STREAM_THREADS_OWN && !cup_capture_is_active();
}

/* A handle that came back in another context stays in the first one's list: it is an orphan here. */
static bool is_hosted(cup_order_t *order, cup_stream_t *stream)
{
    cup_order_t *host = NULL;

    if (!atomic_compare_exchange_strong(&stream->hosted_by, &host, order))
        return host == order;
    stream->next_hosted = atomic_load(&order->hosted);
    while (!atomic_compare_exchange_weak(&order->hosted, &stream->next_hosted, stream))
        ;
    return true;
}

void cup_order_note_host(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    if (!order)
        return;
    if (can_stay_open(stream))
        atomic_store(&stream->is_host_open, true);
    else if (record_host(order, stream) != CUDA_SUCCESS)
        atomic_fetch_add(&order->orphans_made, 1);
    atomic_fetch_add(&stream->host_made, 1);
    if (!is_hosted(order, stream))
        atomic_fetch_add(&order->orphans_made, 1);
    atomic_fetch_add(&order->host_made, 1);
}

/*
 * The flag first: an operation that is submitted meanwhile opens the stream again, and that must stay. Who asks holds the
 * lock, and never meets the stream between the two.
 */
static void seal_host_locked(cup_order_t *order, cup_stream_t *stream)
{
    if (atomic_exchange(&stream->is_host_open, false) && record_host(order, stream) != CUDA_SUCCESS)
        atomic_fetch_add(&order->orphans_made, 1);
}

void cup_order_seal_host(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    if (!order)
        return;
    cup_lock_acquire(&order->lock);
    seal_host_locked(order, stream);
    cup_lock_release(&order->lock);
}

typedef struct ask {
    CUstream stream;
} ask_t;

static CUresult ask_now(void *arg)
{
    return cup_drv.cuStreamQuery(((const ask_t *)arg)->stream);
}

static CUresult ask_stream(cup_order_t *order, const cup_stream_t *stream)
{
    ask_t ask = {stream->handle};

    return stream->kind == CUP_STREAM_HANDLE ? ask_now(&ask) : in_context(order->ctx, ask_now, &ask);
}

/* Asks first: mostly the copies are over. NOT_READY: they are not, and the event behind them is in *out_event. */
static CUresult ask_host(cup_order_t *order, cup_stream_t *stream, CUevent *out_event)
{
    CUresult result = CUDA_ERROR_NOT_READY;

    cup_lock_acquire(&order->lock);
    if (cup_idle_is(stream))
        result = CUDA_SUCCESS;
    else if (atomic_load(&stream->is_host_open))
        result = ask_stream(order, stream);
    if (result == CUDA_ERROR_NOT_READY)
        seal_host_locked(order, stream);
    *out_event = atomic_load(&stream->host_event);
    cup_lock_release(&order->lock);
    return result;
}

static CUresult pay_stream(cup_order_t *order, cup_stream_t *stream)
{
    uint64_t made = atomic_load(&stream->host_made);
    CUevent event;
    CUresult result;

    if (made == atomic_load(&stream->host_paid))
        return CUDA_SUCCESS;
    result = ask_host(order, stream, &event);
    if (result == CUDA_ERROR_NOT_READY && event)
        result = cup_drv.cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY && event) {
        CUP_STAT_ADD(host_waits, 1);
        result = cup_drv.cuEventSynchronize(event);
    }
    if (result == CUDA_SUCCESS)
        atomic_store(&stream->host_paid, made);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result; /* no event could be made: an orphan */
}

static CUresult pay_orphans(cup_order_t *order)
{
    CUresult result = CUDA_SUCCESS;

    for (orphan_t *orphan = atomic_load(&order->orphans); result == CUDA_SUCCESS && orphan;
         orphan = orphan->next) {
        CUevent event = atomic_load(&orphan->event);

        if (!event)
            continue;
        result = cup_drv.cuEventSynchronize(event);
        if (result == CUDA_SUCCESS)
            atomic_store(&orphan->event, NULL);
    }
    return result;
}

/* Operations that no event of theirs tells of: everything that was submitted. */
static CUresult pay_everything(cup_order_t *order)
{
    cup_point_t newest;
    CUresult result;

    cup_lock_acquire(&order->lock);
    result =
        order->captures > 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : close_locked(order, NULL, false, false);
    newest = atomic_load(&order->point);
    cup_lock_release(&order->lock);
    return result == CUDA_SUCCESS ? cup_order_wait(order, newest) : result;
}

CUresult cup_order_pay_host(cup_order_t *order)
{
    uint64_t made = atomic_load_explicit(&order->host_made, memory_order_acquire);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = CUDA_SUCCESS;
    uint64_t orphans;

    if (made == atomic_load_explicit(&order->host_paid, memory_order_acquire))
        return CUDA_SUCCESS;
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    for (cup_stream_t *stream = atomic_load(&order->hosted); result == CUDA_SUCCESS && stream;
         stream = stream->next_hosted)
        if (atomic_load(&stream->order) == order)
            result = pay_stream(order, stream);
    if (result == CUDA_SUCCESS)
        result = pay_orphans(order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    orphans = atomic_load(&order->orphans_made); /* after the streams: one may have ended meanwhile */
    if (result == CUDA_SUCCESS && atomic_load(&order->orphans_paid) != orphans) {
        result = pay_everything(order);
        if (result == CUDA_SUCCESS)
            atomic_store(&order->orphans_paid, orphans);
    }
    if (result == CUDA_SUCCESS)
        atomic_store(&order->host_paid, made);
    return result;
}

/* ---- the clock ---- */

CUresult cup_order_close(cup_order_t *order, bool is_due)
{
    bool is_asked = atomic_load(&order->is_awaited) || atomic_load(&order->dirty) != 0;
    CUresult result = CUDA_SUCCESS;

    cup_lock_acquire(&order->lock);
    if (order->mode == CUP_ORDER_OVERLAP && atomic_load(&order->is_open_loose))
        is_asked = false;
    if (order->captures == 0 && (is_due || is_asked))
        result = close_locked(order, NULL, is_due || order->mode != CUP_ORDER_OVERLAP, false);
    cup_lock_release(&order->lock);
    return result;
}

CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed)
{
    CUresult result;

    cup_lock_acquire(&order->lock);
    result = poll_locked(order);
    *out_completed = order->completed;
    cup_lock_release(&order->lock);
    return result;
}

cup_point_t cup_order_newest(cup_order_t *order)
{
    return atomic_load_explicit(&order->point, memory_order_acquire);
}

/* The first closed point that covers the number; false when that is complete or still open. */
static bool copy_covering(cup_order_t *order, cup_point_t number, point_t *out_point)
{
    bool is_found = false;

    cup_lock_acquire(&order->lock);
    for (unsigned i = 0; number > order->completed && i < order->count && !is_found; i++) {
        is_found = entry_locked(order, i)->number >= number;
        if (is_found)
            *out_point = *entry_locked(order, i);
    }
    cup_lock_release(&order->lock);
    return is_found;
}

/* Asks until the point is complete, or for LOOSE_WAIT_MS. */
static CUresult wait_a_while(const point_t *point)
{
    const struct timespec pause = {0, 100000};
    bool is_done = false;
    CUresult result = query_point(point, &is_done);

    for (int i = 0; result == CUDA_SUCCESS && !is_done && i < LOOSE_WAIT_MS * 10; i++) {
        nanosleep(&pause, NULL);
        result = query_point(point, &is_done);
    }
    return result == CUDA_SUCCESS && !is_done ? CUDA_ERROR_NOT_READY : result;
}

CUresult cup_order_wait(cup_order_t *order, cup_point_t number)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;
    point_t point;

    if (!copy_covering(order, number, &point))
        return CUDA_SUCCESS;
    if (!point.is_loose)
        return settle(&point);
    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = wait_a_while(&point);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* ---- overlap ---- */

cup_point_t cup_order_hand_out(cup_order_t *order)
{
    cup_point_t tight = atomic_load_explicit(&order->due, memory_order_acquire);
    cup_point_t need = atomic_load(&order->need);

    while (need < tight && !atomic_compare_exchange_weak(&order->need, &need, tight))
        ;
    return tight;
}

/* ---- captures ---- */

/* Another capture may be in progress, and another thread in a call on a stream of its own. */
static void close_patiently(cup_order_t *order)
{
    CUresult result = NOT_NOW;

    for (int tries = 0; result == NOT_NOW && tries < PATIENT_TRIES; tries++) {
        if (tries > 0)
            rest(NULL);
        cup_lock_acquire(&order->lock);
        need_joiner(order);
        result = close_locked(order, cup_stream_thread(), true, false);
        if (!is_busy_known(order)) /* that does not pass */
            result = CUDA_SUCCESS;
        cup_lock_release(&order->lock);
    }
}

/*
 * From now on only streams that don't capture can be recorded on: what is busy now is closed off, or a stream that goes on
 * to capture would keep the next point from being closed.
 */
void cup_order_capture_begins(void)
{
    int slots = atomic_load(&g_slots);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load(&g_order[i]);

        if (follows(order) && !atomic_load(&order->has_ended))
            close_patiently(order);
        cup_lock_acquire(&order->lock);
        order->captures++;
        cup_lock_release(&order->lock);
    }
}

static bool is_busy(cup_order_t *order, cup_stream_t *stream)
{
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++)
        if (atomic_load(&order->busy.member[i]) == stream)
            return !cup_idle_is(stream);
    return false;
}

void cup_order_before_join(cup_stream_t *stream, cup_thread_t *self)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;

    if (!order || !follows(order))
        return;
    cup_lock_acquire(&order->lock);
    if (order->captures > 0 && is_busy(order, stream))
        result = close_locked(order, self, true, false);
    cup_lock_release(&order->lock);
    if (result != CUDA_SUCCESS)
        cup_order_note_tail(stream, self);
}

void cup_order_capture_ended(void)
{
    int slots = atomic_load(&g_slots);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load(&g_order[i]);

        cup_lock_acquire(&order->lock);
        order->captures--;
        cup_lock_release(&order->lock);
    }
}
