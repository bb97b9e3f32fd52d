/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a ring of events in the order of their numbers. cuCtxRecordEvent covers all streams of the context,
 * whatever their kind (probed case by case, driver 580), and costs 0.2-0.9 us; completion is monotone, so the
 * newest complete point is found by bisection and everything before it is complete too.
 *
 * A full ring records into its newest event again: that event then stands for the newer number, which
 * completes no earlier than the older one did. Later, not sooner: safe.
 *
 * While a capture is in progress a free can't record (capture.h). Its stamp is recorded + 1, a number without
 * an event, and `owed` remembers that; whoever comes first after the capture records it. Work submitted in
 * between is covered as well: later, not sooner.
 *
 * Queries go under an exchange to relaxed capture mode: plain, they would invalidate a capture (measured).
 */
#include "shim/order.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/stat.h"

#define RING 256

struct cup_order {
    CUcontext ctx;
    cup_lock_t lock;       /* guards everything below */
    cup_point_t recorded;  /* the newest point with an event */
    cup_point_t completed; /* the newest point known complete */
    bool is_owed;          /* a free was stamped recorded + 1 */
    unsigned head, count;  /* the ring's oldest entry, and how many wait */
    struct {
        CUevent event;
        cup_point_t point;
    } ring[RING];
    bool has_record; /* the driver can record on a context */
};

cup_order_t *cup_order_create(CUcontext ctx)
{
    cup_order_t *order = cup_meta_alloc(sizeof(*order));

    if (!order)
        return NULL;
    order->ctx = ctx;
    order->has_record = cup_drv_has(CUP_DRV_cuCtxRecordEvent);
    cup_lock_init(&order->lock, CUP_LOCK_ORDER);
    return order;
}

/* Events are made in their context, whichever the program has current. */
static CUresult make_event(CUcontext ctx, CUevent *out_event)
{
    CUcontext popped;
    CUresult result = cup_drv.cuCtxPushCurrent_v2(ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = cup_drv.cuEventCreate(out_event, CU_EVENT_DISABLE_TIMING);
    cup_drv.cuCtxPopCurrent_v2(&popped);
    return result;
}

static CUresult synchronize(CUcontext ctx)
{
    CUcontext popped;
    CUresult result = cup_drv.cuCtxPushCurrent_v2(ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = cup_drv.cuCtxSynchronize();
    cup_drv.cuCtxPopCurrent_v2(&popped);
    return result;
}

/* Queries one event; true in *out_is_done when it is complete. */
static CUresult query(CUevent event, bool *out_is_done)
{
    CUresult result = cup_drv.cuEventQuery(event);

    *out_is_done = result == CUDA_SUCCESS;
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static unsigned slot(const cup_order_t *order, unsigned index)
{
    return (order->head + index) % RING;
}

/* Drops the complete entries from the ring: bisection for the newest of them. */
static CUresult query_ring_locked(cup_order_t *order)
{
    unsigned low = 0, high = order->count; /* entries below low are complete, from high on they are not */
    CUresult result = CUDA_SUCCESS;

    while (low < high) {
        /* The newest first: a GPU that keeps up has completed it, and one query is all. */
        unsigned middle = high == order->count ? high - 1 : low + (high - low) / 2;
        bool is_done;

        result = query(order->ring[slot(order, middle)].event, &is_done);
        if (result != CUDA_SUCCESS)
            break;
        if (is_done)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        order->completed = order->ring[slot(order, low - 1)].point;
    order->head = slot(order, low);
    order->count -= low;
    return result;
}

static CUresult poll_locked(cup_order_t *order)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    if (order->count == 0)
        return CUDA_SUCCESS;
    CUP_STAT_ADD(polls, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = query_ring_locked(order);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* Records point recorded + 1. The caller holds the captures off. */
static CUresult record_locked(cup_order_t *order)
{
    unsigned index;
    CUresult result;

    if (!order->has_record) {
        result = synchronize(order->ctx);
        if (result != CUDA_SUCCESS)
            return result;
        order->completed = ++order->recorded;
        order->is_owed = false;
        return CUDA_SUCCESS;
    }
    if (order->count == RING)
        poll_locked(order); /* an error comes back from the record below */
    index = slot(order, order->count < RING ? order->count : RING - 1);
    if (!order->ring[index].event) {
        result = make_event(order->ctx, &order->ring[index].event);
        if (result != CUDA_SUCCESS)
            return result;
    }
    result = cup_drv.cuCtxRecordEvent(order->ctx, order->ring[index].event);
    if (result != CUDA_SUCCESS)
        return result;
    order->ring[index].point = ++order->recorded;
    if (order->count < RING)
        order->count++;
    order->is_owed = false;
    CUP_STAT_ADD(points, 1);
    return CUDA_SUCCESS;
}

/* Records if no capture is in progress; else the next point is owed. */
static CUresult close_locked(cup_order_t *order)
{
    CUresult result;

    if (!cup_capture_hold()) {
        order->is_owed = true;
        return CUDA_SUCCESS;
    }
    result = record_locked(order);
    cup_capture_put();
    return result;
}

CUresult cup_order_close(cup_order_t *order, cup_point_t *out_stamp)
{
    CUresult result;

    cup_lock_acquire(&order->lock);
    result = close_locked(order);
    if (result == CUDA_SUCCESS)
        *out_stamp = order->recorded + order->is_owed;
    cup_lock_release(&order->lock);
    return result;
}

CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed)
{
    CUresult result = CUDA_SUCCESS;

    cup_lock_acquire(&order->lock);
    if (order->is_owed)
        result = close_locked(order);
    if (result == CUDA_SUCCESS)
        result = poll_locked(order);
    *out_completed = order->completed;
    cup_lock_release(&order->lock);
    return result;
}

/* The event of the first point that covers `point`, or NULL when it is complete or has none. */
static CUevent event_of(cup_order_t *order, cup_point_t point)
{
    CUevent event = NULL;

    cup_lock_acquire(&order->lock);
    if (point > order->completed)
        for (unsigned i = 0; i < order->count && !event; i++)
            if (order->ring[slot(order, i)].point >= point)
                event = order->ring[slot(order, i)].event;
    cup_lock_release(&order->lock);
    return event;
}

CUresult cup_order_wait(cup_order_t *order, cup_point_t point)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent event = event_of(order, point);
    CUresult result;

    if (!event)
        return CUDA_SUCCESS;
    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuEventSynchronize(event);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}
