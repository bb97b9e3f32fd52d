/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: step 3 of the protocol (order.c), and what follows where no point could be closed for what was freed.
 *
 * Programmatic launches overlap across an event, and across a wait for one that covers their own stream (both measured):
 * a point orders a stream's later work only from the first plain operation on; `fenced` and `plain` of the stream tell
 * (submit.c).
 *
 * A destroyed stream's handle comes back as another one, not ordered behind the old one's work (measured: 200 of 200):
 * its entry has passed nothing then, owns no point, and the context counts as several busy.
 */
#include "shim/order_inner.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/idle.h"
#include "shim/stat.h"
#include <time.h>

#define CLOSE_TRIES 2000 /* of cup_order_rest() */

/* ---- passing ---- */

/* What must be passed, as it is now, for use without the lock. */
static void copy_must(cup_order_t *order, cup_point_entry_t *out_point)
{
    cup_lock_acquire(&order->lock);
    *out_point = order->must;
    cup_lock_release(&order->lock);
}

/*
 * Captures may have begun out of our sight. What is captured is not submitted: nothing to order. A stream that does not
 * tell, or refuses the wait, is served by the host, as natively.
 */
static void pass_must(cup_order_t *order, cup_stream_t *stream)
{
    cup_point_entry_t point;
    CUresult result = CUDA_SUCCESS;

    copy_must(order, &point);
    if (point.owner != stream && point.event && !point.is_settled) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        result = cup_drv.cuStreamIsCapturing(stream->handle, &status);
        if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE)
            return;
        CUP_STAT_ADD(passes, 1);
        if (result == CUDA_SUCCESS)
            result = cup_point_wait_for(&point, stream->handle);
        if (result != CUDA_SUCCESS)
            result = cup_point_settle(&point);
    }
    if (result != CUDA_SUCCESS)
        return;
    if (!point.is_settled)
        atomic_fetch_add_explicit(&stream->fenced, 1, memory_order_relaxed);
    atomic_store_explicit(&stream->passed[order->slot], point.number, memory_order_release);
}

/* The busy streams that can be named; false: there are others. */
static bool copy_busy(cup_order_t *order, cup_work_t *out_work)
{
    cup_work_clear(out_work);
    cup_lock_acquire(&order->lock);
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *stream = atomic_load(&order->busy.member[i]);

        if (stream && stream->kind == CUP_STREAM_HANDLE)
            cup_work_include(out_work, stream);
        else if (stream)
            out_work->is_several = true;
    }
    cup_lock_release(&order->lock);
    return !out_work->is_several && !atomic_load(&order->busy.is_several);
}

static CUresult wait_for_busy(cup_order_t *order, cup_stream_t *stream)
{
    if (cup_point_has_tail(stream))
        return cup_drv.cuEventSynchronize(atomic_load(&stream->tail));
    return cup_point_can_record_on(order, NULL, stream) ? cup_drv.cuStreamSynchronize(stream->handle)
                                                        : CUP_POINT_NOT_NOW;
}

/*
 * No point could be closed for what was freed: the host waits, as the native free had. While a capture is in progress the
 * context can't be waited for (measured), so each stream is, and what the newest point covers.
 */
static void wait_on_host(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cup_work_t work;
    bool is_known = copy_busy(order, &work);

    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    for (int i = 0; i < work.count; i++)
        is_known &= wait_for_busy(order, work.stream[i]) == CUDA_SUCCESS;
    if (!is_known) /* it may refuse: then so does the program's own call, or nothing helps */
        cup_point_wait_all(order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    cup_order_wait(order, atomic_load(&order->point));
}

void cup_order_rest(cup_thread_t *self)
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

    if (!own || cup_point_has_tail(own))
        return;
    cup_lock_acquire(&order->lock);
    is_recordable = cup_point_can_record_on(order, self, own);
    cup_lock_release(&order->lock);
    if (is_recordable)
        cup_order_note_tail(own, self);
}

/*
 * A capture keeps context records off, and another thread is in a call on a stream of its own: it will be over soon. If
 * not, the host waits, as the native free had. One thread alone does not get here
 * (cup_order_stamp_ordered).
 */
static void close_marked(cup_order_t *order, cup_thread_t *self)
{
    CUresult result = CUP_POINT_NOT_NOW;

    for (int tries = 0; result == CUP_POINT_NOT_NOW; tries++) {
        if (tries > 0) {
            leave_own_tail(order, self);
            cup_order_rest(self);
        }
        result = CUDA_SUCCESS;
        cup_lock_acquire(&order->lock);
        if (atomic_load(&order->dirty) != 0)
            result = cup_point_close_locked(order, self, false,
                                            tries == CLOSE_TRIES || !cup_order_is_busy_known(order));
        cup_lock_release(&order->lock);
    }
    if (result != CUDA_SUCCESS)
        wait_on_host(order);
}

static void pass(cup_order_t *order, cup_stream_t *stream, cup_thread_t *self)
{
    if (order->mode == CUP_ORDER_EXACT) {
        if (atomic_load_explicit(&order->dirty, memory_order_acquire) != 0)
            close_marked(order, self);
        if (!cup_order_has_passed(order, stream, atomic_load_explicit(&order->due, memory_order_acquire)))
            pass_must(order, stream);
    } else if (order->mode == CUP_ORDER_OVERLAP) {
        if (atomic_load_explicit(&order->is_awaited, memory_order_relaxed))
            atomic_store_explicit(&order->is_open_loose, true, memory_order_relaxed);
        if (!cup_order_has_passed(order, stream, atomic_load(&order->need)))
            pass_must(order, stream);
    }
}

void cup_order_pass_all(cup_stream_t *stream, cup_thread_t *self)
{
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        if (cup_order_is_live(order))
            pass(order, stream, self);
    }
}

/* What submissions must pass is complete when this returns true; false: it was before, or the driver does not tell. */
bool cup_order_settle(cup_order_t *order)
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
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);
    bool has_waited = false;

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        if (cup_order_follows(order) && cup_order_is_live(order))
            has_waited |= cup_order_settle(order);
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
        cup_order_settle(order);
}

/* ---- who is busy ---- */

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

bool cup_order_needs_tail(const cup_stream_t *stream)
{
    const cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);

    return cup_capture_is_active() || (order && !order->has_record);
}

/* Not while another thread is in a call on it: the event might come before that one's work. */
void cup_order_note_tail(cup_stream_t *stream, const cup_thread_t *self)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);
    CUevent event = atomic_load(&stream->tail);
    cup_idle_t idle = cup_idle_look(stream, self);

    if (!order || !idle.stream || cup_point_need_event(order, &event) != CUDA_SUCCESS)
        return;
    atomic_store(&stream->tail, event);
    if (cup_point_record_on(order, event, stream) == CUDA_SUCCESS)
        atomic_store(&stream->tailed, idle.begun);
}

/*
 * Which streams are busy is not known from now on. Beside a capture no point could be closed then, so what frees have
 * marked is closed first. A free that has looked already may mark after this: the next submission waits on the host then.
 */
static void make_unknown(cup_order_t *order)
{
    CUresult result = CUDA_SUCCESS;

    if (atomic_exchange(&order->busy.is_several, true) || !cup_capture_is_active())
        return;
    cup_lock_acquire(&order->lock);
    while (result == CUDA_SUCCESS && order->captures > 0 && atomic_load(&order->dirty) != 0) {
        atomic_store(&order->busy.is_several, false);
        result = cup_point_close_locked(order, NULL, false, true);
        atomic_store(&order->busy.is_several, true);
    }
    cup_lock_release(&order->lock);
}

static void note_all_busy_but(const cup_order_t *own)
{
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        if (order != own && cup_order_is_live(order))
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
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);

    note_all_busy_but(NULL);
    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        cup_lock_acquire(&order->lock);
        order->is_distrusted = true;
        cup_lock_release(&order->lock);
    }
}

/* ---- the end of a stream ---- */

static void leave_locked(cup_order_t *order, cup_stream_t *stream)
{
    for (unsigned i = 0; i < CUP_ORDER_RING; i++)
        if (order->ring[i].owner == stream)
            order->ring[i].owner = NULL;
    if (order->must.owner == stream)
        order->must.owner = NULL;
    cup_stream_set_remove(&order->busy, stream);
    cup_order_orphan_locked(order, stream);
}

/*
 * Nothing can be recorded on it from now on, and its handle may not be named any more. While a capture keeps context
 * records off, a stream of ours takes its work over.
 */
static void leave(cup_order_t *order, cup_stream_t *stream)
{
    bool is_covered;

    cup_lock_acquire(&order->lock);
    is_covered = order->captures > 0 && cup_order_is_busy_known(order) &&
                 cup_point_take_over_locked(order, stream) == CUDA_SUCCESS;
    cup_lock_release(&order->lock);
    if (!is_covered)
        make_unknown(order);
    cup_lock_acquire(&order->lock);
    leave_locked(order, stream);
    cup_lock_release(&order->lock);
}

void cup_order_stream_ends(cup_stream_t *stream)
{
    cup_order_t *order = atomic_load(&stream->order);

    if (order && cup_order_is_live(order))
        leave(order, stream);
    for (int i = 0; i < CUP_ORDERS_MAX; i++)
        atomic_store(&stream->passed[i], 0);
    atomic_store(&stream->generation, 0);
}
