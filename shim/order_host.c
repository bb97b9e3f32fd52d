/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: operations that touch host memory are counted for each stream; an event is put behind them when something else
 * follows on the stream, or when a free asks. A free asks the streams that have some, mostly with one query. What can't be
 * told by a stream any more, because it ended, is an orphan: an event of its own, or else everything is waited for.
 */
#include "shim/order_inner.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/idle.h"
#include "shim/stat.h"

static CUresult record_host(cup_order_t *order, cup_stream_t *stream)
{
    CUevent event = atomic_load(&stream->host_event);
    CUresult result = CUDA_SUCCESS;

    if (!event) {
        result = cup_point_need_event(order, &event);
        if (result == CUDA_SUCCESS)
            atomic_store(&stream->host_event, event);
    }
    return result == CUDA_SUCCESS ? cup_point_record_on(order, event, stream) : result;
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

/*
 * The flag first: an operation that is submitted meanwhile opens the stream again, and that must stay. Who asks holds the
 * lock, and never meets the stream between the two. self: this thread, if the stream may be its own.
 */
static void seal_host_locked(cup_order_t *order, const cup_thread_t *self, cup_stream_t *stream)
{
    if (!atomic_exchange(&stream->is_host_open, false))
        return;
    if (!cup_point_can_record_on(order, self, stream) || record_host(order, stream) != CUDA_SUCCESS)
        atomic_fetch_add(&order->orphans_made, 1);
}

void cup_order_seal_host(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    if (!order)
        return;
    cup_lock_acquire(&order->lock);
    seal_host_locked(order, cup_stream_self, stream);
    cup_lock_release(&order->lock);
}

void cup_order_note_host(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    if (!order)
        return;
    atomic_store(&stream->is_host_open, true);
    if (!can_stay_open(stream)) /* looked at behind the flag: a capture that begins seals it, or this does */
        cup_order_seal_host(stream);
    atomic_fetch_add(&stream->host_made, 1);
    if (!is_hosted(order, stream))
        atomic_fetch_add(&order->orphans_made, 1);
    atomic_fetch_add(&order->host_made, 1);
}

/* The stream's event goes to the order: the stream gets another one when it needs it. */
static bool adopt(cup_order_t *order, CUevent event)
{
    cup_orphan_t *orphan = event ? cup_meta_alloc(sizeof(*orphan)) : NULL;

    if (!orphan)
        return false;
    atomic_store(&orphan->event, event);
    orphan->next = atomic_load(&order->orphans);
    while (!atomic_compare_exchange_weak(&order->orphans, &orphan->next, orphan))
        ;
    return true;
}

void cup_order_orphan_locked(cup_order_t *order, cup_stream_t *stream)
{
    if (atomic_load(&stream->host_made) != atomic_load(&stream->host_paid) && !cup_idle_is(stream)) {
        seal_host_locked(order, NULL, stream);
        if (!adopt(order, atomic_load(&stream->host_event)))
            atomic_fetch_add(&order->orphans_made, 1);
        atomic_store(&stream->host_event, NULL);
    }
    atomic_store(&stream->host_paid, atomic_load(&stream->host_made));
    atomic_store(&stream->is_host_open, false);
}

/* ---- waiting for them ---- */

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

    return stream->kind == CUP_STREAM_HANDLE ? ask_now(&ask)
                                             : cup_point_in_context(order->ctx, ask_now, &ask);
}

/*
 * Asks first: mostly the copies are over. NOT_READY: they are not, and the event behind them is in *out_event. Not a stream
 * that captures, or that a capture implies: the question would end that.
 */
static CUresult ask_host(cup_order_t *order, cup_stream_t *stream, CUevent *out_event)
{
    CUresult result = CUDA_ERROR_NOT_READY;

    cup_lock_acquire(&order->lock);
    if (cup_idle_is(stream))
        result = CUDA_SUCCESS;
    else if (atomic_load(&stream->is_host_open) && cup_point_can_record_on(order, NULL, stream))
        result = ask_stream(order, stream);
    if (result == CUDA_ERROR_NOT_READY)
        seal_host_locked(order, NULL, stream);
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

    for (cup_orphan_t *orphan = atomic_load(&order->orphans); result == CUDA_SUCCESS && orphan;
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
    result = cup_point_close_locked(order, NULL, false, true);
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
