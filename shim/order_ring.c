/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock. A ring of points, in their order; completion is monotone, because each point's events come after the point
 * before it: bisection finds the newest complete one. In a full ring the new point takes the place of the newest one: what
 * was stamped with that becomes complete with the new one, later, not sooner. Queries go under an exchange to relaxed
 * capture mode: plain, they would invalidate a capture (measured).
 */
#include "shim/order_inner.h"
#include "shim/drv.h"
#include "shim/idle.h"
#include "shim/log.h"
#include "shim/stat.h"
#include <time.h>

#define LOOSE_WAIT_MS 1000
#define AUDIT_POLLS   2

static CUresult query(CUevent event, bool *out_is_done)
{
    CUresult result = cup_drv.cuEventQuery(event);

    *out_is_done = result == CUDA_SUCCESS;
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static cup_point_entry_t *entry_locked(cup_order_t *order, unsigned index)
{
    return &order->ring[(order->head + index) % CUP_ORDER_RING];
}

cup_point_entry_t *cup_point_newest_locked(cup_order_t *order)
{
    /* Also when it is complete, and out of the count: its event is still the newest one. */
    return entry_locked(order, order->count + CUP_ORDER_RING - 1);
}

static CUresult query_point(const cup_point_entry_t *point, bool *out_is_done)
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
    order->head = (order->head + low) % CUP_ORDER_RING;
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

CUresult cup_point_poll_locked(cup_order_t *order)
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

static bool has_same_event(const cup_point_entry_t *a, const cup_point_entry_t *b)
{
    return a->event && a->event == b->event;
}

/* Where the point will be: a new entry, or in a full ring the newest one's. */
static cup_point_entry_t *place_locked(cup_order_t *order)
{
    return entry_locked(order, order->count < CUP_ORDER_RING ? order->count : CUP_ORDER_RING - 1);
}

/* Where it is recorded: until it is published, no event changes that is in the ring or that streams are to pass. */
static cup_point_entry_t *next_locked(cup_order_t *order)
{
    cup_point_entry_t *point = place_locked(order);

    if (order->count == CUP_ORDER_RING) {
        cup_point_poll_locked(order); /* an error comes back from the record */
        point = place_locked(order);
    }
    if (order->count == CUP_ORDER_RING || has_same_event(point, &order->must))
        point = &order->spare[has_same_event(&order->spare[0], &order->must)];
    return point;
}

/* What later submissions pass. A loose point is only for the clock. */
static void note_must_locked(cup_order_t *order, const cup_point_entry_t *point)
{
    if (point->is_loose)
        return;
    order->must = *point;
    atomic_store_explicit(&order->due, point->number, memory_order_release);
}

static void publish_locked(cup_order_t *order, cup_point_entry_t *point, cup_point_t number, bool is_loose)
{
    cup_point_entry_t *place = place_locked(order);

    point->number = number;
    point->is_loose = is_loose;
    note_must_locked(order, point);
    if (point != place) {
        cup_point_entry_t replaced = *place;

        *place = *point;
        *point = replaced;
    }
    if (order->count < CUP_ORDER_RING)
        order->count++;
    atomic_store_explicit(&order->point, number, memory_order_release);
}

/*
 * Nothing was submitted since the newest point, or the program has waited for it: that stands for the new number, too. A
 * stream that had passed it and is idle makes it complete.
 */
static bool relabel_locked(cup_order_t *order, const cup_work_t *work, cup_point_t number, bool is_loose)
{
    cup_point_entry_t *newest = cup_point_newest_locked(order);

    if (work->is_several || work->count > 0 || newest->number == 0)
        return false;
    newest->number = number;
    newest->is_settled |= work->is_settled;
    if (newest->is_settled) { /* as all before it */
        order->head = (order->head + order->count) % CUP_ORDER_RING;
        order->count = 0;
    }
    newest->is_loose &= is_loose;
    note_must_locked(order, newest);
    if (order->count == 0)
        order->completed = number;
    atomic_store_explicit(&order->point, number, memory_order_release);
    return true;
}

/* A store is a fence, and mostly the flag is down. */
static void lower(_Atomic bool *flag)
{
    if (atomic_load(flag))
        atomic_store(flag, false);
}

CUresult cup_point_close_locked(cup_order_t *order, const cup_thread_t *self, bool is_loose, bool may_wait)
{
    cup_work_t work, calls;
    cup_point_t number = atomic_load_explicit(&order->open, memory_order_relaxed);
    CUresult result = CUDA_SUCCESS;
    int closing = 2;

    is_loose = atomic_exchange(&order->dirty, 2) == 0 && is_loose;
    lower(&order->is_awaited);
    lower(&order->is_open_loose);
    atomic_store(&order->open, number + 1);
    cup_point_gather_locked(order, self, &work, &calls);
    if (!relabel_locked(order, &work, number, is_loose)) {
        cup_point_entry_t *point = next_locked(order);

        result = cup_point_record_locked(order, self, &work, point, number, may_wait);
        if (result != CUDA_SUCCESS && order->captures == 0)
            result = cup_point_record_nothing(order, point);
        if (result == CUDA_SUCCESS) {
            publish_locked(order, point, number, is_loose);
            CUP_STAT_ADD(points, 1);
        }
    }
    cup_point_give_back(order, result == CUDA_SUCCESS ? &calls : &work);
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

/* ---- the clock ---- */

CUresult cup_order_close(cup_order_t *order, bool is_due)
{
    bool is_asked = atomic_load(&order->is_awaited) || atomic_load(&order->dirty) != 0;
    CUresult result = CUDA_SUCCESS;

    cup_lock_acquire(&order->lock);
    if (order->mode == CUP_ORDER_OVERLAP && atomic_load(&order->is_open_loose))
        is_asked = false;
    if (order->captures == 0 && (is_due || is_asked))
        result = cup_point_close_locked(order, NULL, is_due || order->mode != CUP_ORDER_OVERLAP, false);
    cup_lock_release(&order->lock);
    return result;
}

CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed)
{
    CUresult result;

    cup_lock_acquire(&order->lock);
    result = cup_point_poll_locked(order);
    *out_completed = order->completed;
    cup_lock_release(&order->lock);
    return result;
}

bool cup_order_is_quiet(cup_order_t *order)
{
    bool is_quiet;

    cup_lock_acquire(&order->lock);
    is_quiet = order->count == 0 && atomic_load(&order->dirty) == 0 && !atomic_load(&order->busy.is_several);
    for (int i = 0; is_quiet && i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *stream = atomic_load(&order->busy.member[i]);

        is_quiet = !stream || cup_idle_is(stream);
    }
    cup_lock_release(&order->lock);
    return is_quiet;
}

cup_point_t cup_order_newest(cup_order_t *order)
{
    return atomic_load_explicit(&order->point, memory_order_acquire);
}

/* The first closed point that covers the number; false when that is complete or still open. */
static bool copy_covering(cup_order_t *order, cup_point_t number, cup_point_entry_t *out_point)
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

CUresult cup_point_settle(const cup_point_entry_t *point)
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

/* Asks until the point is complete, or for LOOSE_WAIT_MS. */
static CUresult wait_a_while(const cup_point_entry_t *point)
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
    cup_point_entry_t point;

    if (!copy_covering(order, number, &point))
        return CUDA_SUCCESS;
    if (!point.is_loose)
        return cup_point_settle(&point);
    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = wait_a_while(&point);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}
