/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a point is recorded. Work on one stream s alone since the newest point, and s has passed that: an event on s
 * covers everything (0.2 us on the host, nothing on the GPU). Else cuCtxRecordEvent, which covers all streams of the
 * context, whatever their kind (driver 12.5 and newer). It invalidates captures in progress (measured), so while one is,
 * and on older drivers, a stream of ours waits for the newest point and for an event on each busy stream. A context
 * starts with "several busy"; where that meets a capture, a free waits on the host. A stream that is destroyed meanwhile leaves its work to ours, which is busy then.
 *
 * Audit. An event on one stream covers everything only if we see everything. Now and then the context is recorded as
 * well: when the stream's event is complete and the context's, made right behind it, is not, over two polls, somebody has
 * work that went round us. From then on the context alone is trusted.
 *
 * A record that fails leaves the point to the host: the submission synchronises, as the native free had.
 */
#include "shim/order_inner.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/idle.h"
#include "shim/stat.h"

#define AUDIT_EACH 64 /* points on one stream */

/* ---- in the order's context ---- */

CUresult cup_point_in_context(CUcontext ctx, CUresult (*call)(void *), void *arg)
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

static CUresult synchronize(void *arg)
{
    (void)arg;
    return cup_drv.cuCtxSynchronize();
}

/* One more is kept for the next time: on a full device there may be none then. */
static CUresult free_as_natively(void *arg)
{
    cup_order_t *order = arg;
    CUdeviceptr byte = atomic_exchange(&order->byte, 0), none = 0;
    CUresult result = byte ? CUDA_SUCCESS : cup_drv.cuMemAlloc_v2(&byte, 1);

    if (result == CUDA_SUCCESS)
        result = cup_drv.cuMemFree_v2(byte);
    if (cup_drv.cuMemAlloc_v2(&byte, 1) == CUDA_SUCCESS &&
        !atomic_compare_exchange_strong(&order->byte, &none, byte))
        cup_drv.cuMemFree_v2(byte);
    return result;
}

CUresult cup_point_wait_natively(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_point_in_context(order->ctx, free_as_natively, order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static bool is_of_capture(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* A capture may be out of our sight. */
CUresult cup_point_wait_all(cup_order_t *order)
{
    CUresult result;

    if (cup_capture_is_active())
        return cup_point_wait_natively(order);
    CUP_STAT_ADD(waits, 1);
    result = cup_point_in_context(order->ctx, synchronize, NULL);
    return is_of_capture(result) ? cup_point_wait_natively(order) : result;
}

static CUresult create_event(void *arg)
{
    return cup_drv.cuEventCreate(arg, CU_EVENT_DISABLE_TIMING);
}

CUresult cup_point_need_event(cup_order_t *order, CUevent *event)
{
    return *event ? CUDA_SUCCESS : cup_point_in_context(order->ctx, create_event, event);
}

static void keep_a_byte(cup_order_t *order)
{
    CUdeviceptr byte;

    if (cup_drv.cuMemAlloc_v2(&byte, 1) == CUDA_SUCCESS)
        atomic_store(&order->byte, byte);
}

/* What is needed to close a point without a record on the context. Without it frees wait in limbo meanwhile. */
static CUresult create_joiner(void *arg)
{
    cup_order_t *order = arg;
    CUresult result = cup_point_need_event(order, &order->join_event);
    CUstream handle;

    if (result == CUDA_SUCCESS)
        result = cup_drv.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return result;
    order->joiner = cup_stream_create(handle, CUP_STREAM_HANDLE, order);
    if (!order->joiner)
        cup_drv.cuStreamDestroy_v2(handle);
    keep_a_byte(order);
    return CUDA_SUCCESS;
}

void cup_point_need_joiner_locked(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (order->joiner)
        return;
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    cup_point_in_context(order->ctx, create_joiner, order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
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
CUresult cup_point_record_on(cup_order_t *order, CUevent event, const cup_stream_t *stream)
{
    record_t record = {event, stream->handle};

    return stream->kind == CUP_STREAM_HANDLE ? record_now(&record)
                                             : cup_point_in_context(order->ctx, record_now, &record);
}

void cup_work_include(cup_work_t *work, cup_stream_t *stream)
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
static void include_calls(const cup_order_t *order, const cup_thread_t *self, cup_work_t *work)
{
    for (cup_thread_t *thread = cup_stream_threads(); thread; thread = thread->next) {
        cup_call_word_t word = thread == self ? 0 : atomic_load(&thread->incall);
        cup_stream_t *stream = cup_call_word_stream(word);

        if (stream && atomic_load(&stream->order) == order)
            cup_work_include(work, stream);
        else if (stream && cup_call_word_is_everywhere(word))
            work->is_several = true;
    }
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

bool cup_point_can_record_on(const cup_order_t *order, const cup_thread_t *self, const cup_stream_t *stream)
{
    capture_ask_t ask = {stream->handle, CU_STREAM_CAPTURE_STATUS_NONE};
    CUresult result;

    if (is_foreign(order, self, stream))
        return false;
    if (order->captures == 0)
        return true;
    result = stream->kind == CUP_STREAM_HANDLE ? ask_capture(&ask)
                                               : cup_point_in_context(order->ctx, ask_capture, &ask);
    return result == CUDA_SUCCESS && ask.status == CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult cup_point_wait_for(const cup_point_entry_t *point, CUstream stream)
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
    if (cup_point_need_event(order, &order->audit.event) != CUDA_SUCCESS ||
        cup_drv.cuCtxRecordEvent(order->ctx, order->audit.event) != CUDA_SUCCESS ||
        !is_busy_alone(order, stream))
        return;
    order->audit.number = number;
    order->audit.misses = 0;
}

static CUresult record_own(cup_order_t *order, cup_point_entry_t *point, cup_stream_t *stream,
                           cup_point_t number)
{
    CUresult result = cup_point_record_on(order, point->event, stream);

    if (result != CUDA_SUCCESS)
        return result;
    CUP_STAT_ADD(own_points, 1);
    point->owner = stream;
    atomic_fetch_add_explicit(&stream->fenced, 1, memory_order_relaxed);
    atomic_store_explicit(&stream->passed[order->slot], number, memory_order_release);
    begin_audit(order, stream, number);
    return CUDA_SUCCESS;
}

/* Beside a capture not on a stream with a tail: it may be about to capture. */
static bool can_record_own(const cup_order_t *order, const cup_thread_t *self, cup_stream_t *stream)
{
    return (order->captures == 0 || !cup_point_has_tail(stream)) &&
           cup_point_can_record_on(order, self, stream);
}

static bool can_record_each(const cup_order_t *order, const cup_thread_t *self, const cup_work_t *work)
{
    if (work->is_several || !order->joiner)
        return false;
    for (int i = 0; i < work->count; i++)
        if (!cup_point_has_tail(work->stream[i]) && !cup_point_can_record_on(order, self, work->stream[i]))
            return false;
    return true;
}

/* A stream with a tail may be about to capture: its owner asks nobody. */
static CUresult join_stream(cup_order_t *order, const cup_thread_t *self, cup_stream_t *stream)
{
    CUresult result;

    if (cup_point_has_tail(stream))
        return cup_drv.cuStreamWaitEvent(order->joiner->handle, atomic_load(&stream->tail), 0);
    result = cup_point_record_on(order, order->join_event, stream);
    return result == CUDA_SUCCESS ? cup_drv.cuStreamWaitEvent(order->joiner->handle, order->join_event, 0)
                                  : result;
}

CUresult cup_point_take_over_locked(cup_order_t *order, cup_stream_t *stream)
{
    CUresult result = CUP_POINT_NOT_NOW;

    if (cup_idle_is(stream) || !cup_order_is_busy(order, stream))
        return CUDA_SUCCESS;
    if (cup_point_has_tail(stream) || cup_point_can_record_on(order, NULL, stream))
        result = join_stream(order, NULL, stream);
    if (result == CUDA_SUCCESS)
        cup_order_note_busy(order->joiner);
    return result;
}

/* A stream of ours waits for the newest point and for each busy stream; its event covers them all. */
static CUresult record_each(cup_order_t *order, const cup_thread_t *self, const cup_point_entry_t *point,
                            const cup_work_t *work)
{
    CUresult result = cup_point_wait_for(cup_point_newest_locked(order), order->joiner->handle);

    for (int i = 0; result == CUDA_SUCCESS && i < work->count; i++)
        result = join_stream(order, self, work->stream[i]);
    return result == CUDA_SUCCESS ? cup_drv.cuEventRecord(point->event, order->joiner->handle) : result;
}

/* Everything is complete. */
static CUresult settle_now(cup_point_entry_t *point, CUresult waited)
{
    if (waited != CUDA_SUCCESS)
        return waited;
    point->owner = NULL;
    point->is_settled = true;
    return CUDA_SUCCESS;
}

CUresult cup_point_record_nothing(cup_order_t *order, cup_point_entry_t *point)
{
    return settle_now(point, cup_point_wait_all(order));
}

CUresult cup_point_record_locked(cup_order_t *order, const cup_thread_t *self, const cup_work_t *work,
                                 cup_point_entry_t *point, cup_point_t number, bool may_wait)
{
    cup_point_t newest = atomic_load_explicit(&order->point, memory_order_relaxed);
    CUresult result = cup_point_need_event(order, &point->event);

    if (result != CUDA_SUCCESS)
        return result;
    point->owner = NULL;
    point->is_settled = false;
    if (work->count == 1 && !work->is_several && cup_order_has_passed(order, work->stream[0], newest) &&
        can_record_own(order, self, work->stream[0]))
        return record_own(order, point, work->stream[0], number);
    if (order->has_record && order->captures == 0)
        return cup_drv.cuCtxRecordEvent(order->ctx, point->event);
    if (!order->has_record)
        cup_point_need_joiner_locked(order);
    if (can_record_each(order, self, work))
        return record_each(order, self, point, work);
    return may_wait || order->captures == 0 ? cup_point_record_nothing(order, point) : CUP_POINT_NOT_NOW;
}

/* Step b: what the point must cover, and of that what may be submitted after it is recorded. */
void cup_point_gather_locked(cup_order_t *order, const cup_thread_t *self, cup_work_t *out_work,
                             cup_work_t *out_calls)
{
    cup_point_t newest = atomic_load_explicit(&order->point, memory_order_relaxed);
    cup_stream_t *busy[CUP_STREAM_SET_MAX];
    int count;

    cup_work_clear(out_work);
    cup_work_clear(out_calls);
    include_calls(order, self, out_calls);
    out_work->is_several = cup_stream_set_take(&order->busy, busy, &count);
    include_calls(order, self, out_calls);
    for (int i = 0; i < count; i++)
        if (!cup_idle_is(busy[i]))
            cup_work_include(out_work, busy[i]);
        else
            out_work->is_settled |= cup_order_has_passed(order, busy[i], newest);
    for (int i = 0; i < out_calls->count; i++)
        cup_work_include(out_work, out_calls->stream[i]);
    out_work->is_several |= out_calls->is_several || order->is_distrusted || !cup_order_follows(order);
}

void cup_point_give_back(cup_order_t *order, const cup_work_t *work)
{
    for (int i = 0; i < work->count; i++)
        cup_stream_set_add(&order->busy, work->stream[i]);
    if (work->is_several)
        atomic_store(&order->busy.is_several, true);
}
