/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - a set of operations: one for a stream's record, the newest of every queue for a context's.
 */
#include "driver.h"
#include <stdlib.h>

SC_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    SC_ENTER(cuEventCreate);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

    if (!event || (flags & ~known) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sc_event_t *made = sc.free_events;
    if (made)
        sc.free_events = made->next;
    else
        made = sc_new_handle(sizeof *made);
    *made = (sc_event_t){.is_live = true, .ctx = sc_ctx_root(sc_ctx_current()), .flags = flags};
    made->ctx_id = made->ctx->id;
    *event = made;
    return CUDA_SUCCESS;
}

/* The handle is good and its context lives. */
static CUresult check_handle(const sc_event_t *event)
{
    if (!event || !event->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    return event->ctx->is_alive && event->ctx->id == event->ctx_id ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Forgets what was recorded. */
static void clear(sc_event_t *event)
{
    sc_marks_clear(&event->marks);
    free(event->tails);
    event->tails = NULL;
    event->tail_count = 0;
    event->capture_id = 0;
    event->done_ns = 0;
}

static CUresult destroy(CUevent event)
{
    if (!event || !event->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    clear(event);
    event->is_live = false;
    event->next = sc.free_events;
    sc.free_events = event;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuEventDestroy(CUevent event)
{
    SC_ENTER(cuEventDestroy);
    return destroy(event);
}

SC_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    SC_ENTER(cuEventDestroy_v2);
    return destroy(event);
}

static CUresult record(CUevent event, CUstream handle, sc_null_t null)
{
    const sc_work_t mark = {.kind = SC_WORK_MARK};
    sc_stream_t *stream;
    sc_op_t *op;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    status = check_handle(event);
    if (status != CUDA_SUCCESS)
        return status;
    if (event->ctx != sc_ctx_root(stream->ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        clear(event);
        return sc_capture_record(stream, event);
    }
    status = sc_stream_submit(stream, &mark, &op);
    if (status != CUDA_SUCCESS)
        return status;
    clear(event);
    sc_marks_add(&event->marks, op);
    event->is_recorded = true;
    sc_time_take(SC_TIME_RECORD, 0);
    return CUDA_SUCCESS;
}

SC_TWINS(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))
{
    return record(event, stream, null);
}

SC_TWINS(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
         (event, stream, flags))
{
    return flags <= CU_EVENT_RECORD_EXTERNAL ? record(event, stream, null) : CUDA_ERROR_INVALID_VALUE;
}

/* Covers everything submitted to the context so far, on every stream, destroyed ones included. */
SC_EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    SC_ENTER(cuCtxRecordEvent);
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (status != CUDA_SUCCESS)
        return status;
    status = check_handle(event);
    if (status == CUDA_SUCCESS && event->ctx != sc_ctx_root(ctx))
        status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS)
        status = sc_capture_check_context(ctx);
    if (status == CUDA_SUCCESS)
        status = ctx->sticky;
    if (status != CUDA_SUCCESS)
        return status;
    clear(event);
    sc_ctx_mark(ctx, &event->marks);
    event->done_ns = event->marks.count ? 0 : sc_now_ns();
    event->is_recorded = true;
    sc_time_take(SC_TIME_RECORD_CONTEXT, 0);
    return CUDA_SUCCESS;
}

/* Orders all later work of the context, on streams yet to be created too, behind the event. */
SC_EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    SC_ENTER(cuCtxWaitEvent);
    sc_ctx_t *ctx;
    sc_marks_t pending = {0};
    CUresult status = sc_ctx_find(handle, &ctx);

    if (status != CUDA_SUCCESS)
        return status;
    if (!event || !event->is_live || event->capture_id != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    status = sc_capture_check_context(ctx);
    if (status != CUDA_SUCCESS)
        return status;
    for (unsigned i = 0; i < ctx->barrier.count; i++)
        sc_marks_add(&pending, ctx->barrier.ops[i]);
    for (unsigned i = 0; i < event->marks.count; i++)
        sc_marks_add(&pending, event->marks.ops[i]);
    sc_marks_clear(&ctx->barrier);
    ctx->barrier = pending;
    sc_time_take(SC_TIME_WAIT_CONTEXT, 0);
    return CUDA_SUCCESS;
}

static CUresult check(CUevent event)
{
    CUresult status = check_handle(event);

    if (status != CUDA_SUCCESS)
        return status;
    return event->capture_id != 0 ? CUDA_ERROR_CAPTURED_EVENT : event->ctx->sticky;
}

/* True when all is done; then the time is kept and the operations are let go. */
static bool is_done(sc_event_t *event)
{
    if (!sc_marks_are_done(&event->marks))
        return false;
    if (event->done_ns == 0) {
        event->done_ns = event->marks.count ? sc_marks_done_ns(&event->marks) : sc_now_ns();
        sc_marks_clear(&event->marks);
    }
    return true;
}

SC_EXPORT CUresult cuEventQuery(CUevent event)
{
    SC_ENTER(cuEventQuery);
    CUresult status = check(event);

    sc_time_take(SC_TIME_QUERY, 0);
    if (status == CUDA_SUCCESS && !is_done(event))
        status = CUDA_ERROR_NOT_READY;
    return status;
}

SC_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    SC_ENTER(cuEventSynchronize);
    CUresult status = check(event);

    if (status == CUDA_SUCCESS)
        status = sc_marks_wait(&event->marks);
    return status == CUDA_SUCCESS ? event->ctx->sticky : status;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    CUresult status = check(start);

    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        status = check(end);
    if (status != CUDA_SUCCESS)
        return status;
    if (!start->is_recorded || !end->is_recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(start) || !is_done(end))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->done_ns - start->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    SC_ENTER(cuEventElapsedTime);
    return elapsed(ms, start, end);
}

SC_EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    SC_ENTER(cuEventElapsedTime_v2);
    return elapsed(ms, start, end);
}
