/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a ring of events in the order of their numbers. cuCtxRecordEvent covers all streams of the context,
 * whatever their kind (probed case by case, driver 580), and costs 0.2-0.9 us; completion is monotone, so the
 * newest complete point is found by bisection and everything before it is complete too.
 *
 * A full ring records into its newest event again: that event then stands for the newer number, which
 * completes no earlier than the older one did. Later, not sooner: safe.
 *
 * Batches. A record costs the host 0.2-1.4 us, the more the more streams there are and threads that launch, so a free
 * only counts what it leaves; every FREES_MAX frees or BYTES_MAX bytes one record closes the point for all of them.
 * The stamp is the number of the open point, read before the block is given away: whoever closes that point later
 * records after all that was submitted before the free. Later, not sooner.
 *
 * While a capture is in progress nothing can be recorded (capture.h): the point stays open and is closed by whoever comes
 * first afterwards.
 *
 * Queries go under an exchange to relaxed capture mode: plain, they would invalidate a capture (measured).
 */
#include "shim/order.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/stat.h"
#include <time.h>

#define RING          256
#define FREES_MAX     16
#define BYTES_MAX     (16 * CUP_MIB)
#define LOOSE_WAIT_MS 1000

struct cup_order {
    CUcontext ctx;
    cup_lock_t lock;       /* guards everything below */
    cup_point_t recorded;  /* the newest point with an event; the open one is the next */
    cup_point_t completed; /* the newest point known complete */
    unsigned freed_count;  /* blocks stamped with the open point */
    uint64_t freed_bytes;  /* and their bytes */
    unsigned head, count;  /* the ring's oldest entry, and how many wait */
    struct {
        CUevent event;
        cup_point_t point;
        bool is_loose;
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

static void closed_locked(cup_order_t *order)
{
    order->recorded++;
    order->freed_count = 0;
    order->freed_bytes = 0;
    CUP_STAT_ADD(points, 1);
}

/* Closes the open point. The caller holds the captures off. */
static CUresult record_locked(cup_order_t *order, bool is_loose)
{
    unsigned index;
    CUresult result;

    if (!order->has_record) {
        result = synchronize(order->ctx);
        if (result == CUDA_SUCCESS) {
            closed_locked(order);
            order->completed = order->recorded;
        }
        return result;
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
    closed_locked(order);
    order->ring[index].point = order->recorded;
    order->ring[index].is_loose = is_loose;
    if (order->count < RING)
        order->count++;
    return CUDA_SUCCESS;
}

static CUresult close_locked(cup_order_t *order, bool is_loose)
{
    CUresult result;

    if (order->freed_count == 0 || !cup_capture_hold())
        return CUDA_SUCCESS;
    result = record_locked(order, is_loose);
    cup_capture_put();
    return result;
}

cup_point_t cup_order_open(cup_order_t *order)
{
    cup_point_t open;

    cup_lock_acquire(&order->lock);
    open = order->recorded + 1;
    cup_lock_release(&order->lock);
    return open;
}

CUresult cup_order_freed(cup_order_t *order, uint64_t size_bytes, bool is_due)
{
    CUresult result = CUDA_SUCCESS;

    cup_lock_acquire(&order->lock);
    order->freed_count++;
    order->freed_bytes += size_bytes;
    if (is_due || order->freed_count >= FREES_MAX || order->freed_bytes >= BYTES_MAX)
        result = close_locked(order, false);
    cup_lock_release(&order->lock);
    return result;
}

CUresult cup_order_poll(cup_order_t *order, cup_point_t *out_completed)
{
    CUresult result;

    cup_lock_acquire(&order->lock);
    result = close_locked(order, true);
    if (result == CUDA_SUCCESS)
        result = poll_locked(order);
    *out_completed = order->completed;
    cup_lock_release(&order->lock);
    return result;
}

/* The event of the first closed point that covers `point`, or NULL when it is complete or still open. */
static CUevent event_of(cup_order_t *order, cup_point_t point, bool *out_is_loose)
{
    CUevent event = NULL;

    cup_lock_acquire(&order->lock);
    for (unsigned i = 0; point > order->completed && i < order->count && !event; i++) {
        if (order->ring[slot(order, i)].point < point)
            continue;
        event = order->ring[slot(order, i)].event;
        *out_is_loose = order->ring[slot(order, i)].is_loose;
    }
    cup_lock_release(&order->lock);
    return event;
}

/* Queries until the event is complete, or for LOOSE_WAIT_MS. */
static CUresult wait_a_while(CUevent event)
{
    const struct timespec pause = {0, 100000};
    CUresult result = cup_drv.cuEventQuery(event);

    for (int i = 0; result == CUDA_ERROR_NOT_READY && i < LOOSE_WAIT_MS * 10; i++) {
        nanosleep(&pause, NULL);
        result = cup_drv.cuEventQuery(event);
    }
    return result;
}

CUresult cup_order_wait(cup_order_t *order, cup_point_t point)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool is_loose = false;
    CUevent event = event_of(order, point, &is_loose);
    CUresult result;

    if (!event)
        return CUDA_SUCCESS;
    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = is_loose ? wait_a_while(event) : cup_drv.cuEventSynchronize(event);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}
