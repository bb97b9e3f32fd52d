/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream - handles: a stream is a queue and what the program knows of it. A destroyed handle is the next one
 * handed out, while the old queue may still be draining: the new stream is not ordered behind it (measured
 * on hardware: 200 of 200).
 */
#include "driver.h"
#include <stdlib.h>

sc_stream_t *sc_stream_create(sc_ctx_t *ctx, unsigned flags, int priority)
{
    sc_stream_t *stream = sc.free_streams;

    if (stream)
        sc.free_streams = stream->next;
    else
        stream = sc_zalloc(sizeof *stream);
    *stream =
        (sc_stream_t){.is_live = true, .ctx = ctx, .flags = flags, .priority = priority, .id = sc_next_id()};
    stream->queue =
        sc_queue_create(ctx, ctx->legacy == NULL, ctx->legacy != NULL && !(flags & CU_STREAM_NON_BLOCKING));
    stream->next = ctx->streams;
    ctx->streams = stream;
    return stream;
}

void sc_stream_destroy(sc_stream_t *stream)
{
    sc_stream_t **at = &stream->ctx->streams;

    sc_capture_drop(stream);
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    sc_queue_close(stream->queue);
    stream->is_live = false;
    stream->next = sc.free_streams;
    sc.free_streams = stream;
}

static sc_stream_t *per_thread(sc_ctx_t *ctx)
{
    uint64_t thread = sc_thread()->number;

    for (sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
        if (stream->thread == thread)
            return stream;
    sc_stream_t *stream = sc_stream_create(ctx, CU_STREAM_DEFAULT, 0);
    stream->thread = thread;
    return stream;
}

CUresult sc_stream_find(CUstream handle, sc_null_t null, sc_stream_t **out_stream)
{
    sc_ctx_t *ctx = sc_ctx_current();

    if (!handle)
        handle = null == SC_PER_THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (!ctx)
            return CUDA_ERROR_INVALID_CONTEXT;
        *out_stream = handle == CU_STREAM_LEGACY ? ctx->legacy : per_thread(ctx);
        return CUDA_SUCCESS;
    }
    if (!handle->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    *out_stream = handle;
    return CUDA_SUCCESS;
}

CUresult sc_stream_submit(sc_stream_t *stream, const sc_work_t *work, sc_op_t **out_op)
{
    CUresult status = CUDA_SUCCESS;

    if (out_op)
        *out_op = NULL;
    if (stream->capture)
        return sc_capture_add(stream, work);
    if (stream->queue->is_legacy)
        status = sc_capture_check_legacy(stream->ctx);
    if (status == CUDA_SUCCESS && stream->ctx->sticky != CUDA_SUCCESS)
        status = stream->ctx->sticky;
    if (status != CUDA_SUCCESS)
        return status;
    sc_op_t *op = sc_queue_push(stream->queue, work, NULL);
    if (out_op)
        *out_op = op;
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *out_stream, unsigned flags, int priority)
{
    if (!out_stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out_stream = sc_stream_create(sc_ctx_current(), flags, priority);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SC_ENTER(cuStreamCreate);
    return create(stream, flags, 0);
}

SC_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SC_ENTER(cuStreamCreateWithPriority);
    return create(stream, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
}

static CUresult destroy(CUstream stream)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !stream->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    sc_stream_destroy(stream);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    SC_ENTER(cuStreamDestroy);
    return destroy(stream);
}

SC_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    SC_ENTER(cuStreamDestroy_v2);
    return destroy(stream);
}

/* The stream, fit to be asked or waited for: not capturing. */
static CUresult find_idle(CUstream handle, sc_null_t null, sc_stream_t **out_stream)
{
    CUresult status = sc_stream_find(handle, null, out_stream);

    return status == CUDA_SUCCESS ? sc_capture_check_stream(*out_stream) : status;
}

SC_TWINS(cuStreamSynchronize, _ptsz, (CUstream handle), (handle))
{
    sc_stream_t *stream;
    sc_marks_t marks = {0};
    CUresult status = find_idle(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    /* The legacy stream is done when the blocking streams are: its next operation would wait for them. */
    for (sc_queue_t *queue = stream->ctx->queues; queue && stream->queue->is_legacy; queue = queue->next)
        if (queue->is_blocking)
            sc_marks_add(&marks, queue->last);
    sc_marks_add(&marks, stream->queue->last);
    sc_ctx_t *ctx = stream->ctx;
    status = sc_marks_wait(&marks);
    sc_marks_clear(&marks);
    return status == CUDA_SUCCESS ? ctx->sticky : status;
}

SC_TWINS(cuStreamQuery, _ptsz, (CUstream handle), (handle))
{
    sc_stream_t *stream;
    CUresult status = find_idle(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    if (stream->ctx->sticky != CUDA_SUCCESS)
        return stream->ctx->sticky;
    return sc_queue_is_idle(stream->queue) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static bool is_captured(const sc_event_t *event)
{
    return event->capture_id != 0;
}

SC_TWINS(cuStreamWaitEvent, _ptsz, (CUstream handle, CUevent event, unsigned int flags),
         (handle, event, flags))
{
    const sc_work_t mark = {.kind = SC_WORK_MARK};
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    if (!event || !event->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture || is_captured(event))
        return sc_capture_wait(stream, event);
    if (stream->queue->is_legacy)
        status = sc_capture_check_legacy(stream->ctx);
    if (status != CUDA_SUCCESS)
        return status;
    if (event->shared) {
        const sc_work_t wait = sc_event_wait_work(event);
        sc_queue_push(stream->queue, &wait, &event->marks);
    } else if (!sc_marks_are_done(&event->marks)) {
        sc_queue_push(stream->queue, &mark, &event->marks);
    }
    return CUDA_SUCCESS;
}

SC_TWINS(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext *ctx), (handle, ctx))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *ctx = stream->ctx;
    return status;
}

SC_TWINS(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned int *flags), (handle, flags))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *flags = stream->flags;
    return status;
}

SC_TWINS(cuStreamGetPriority, _ptsz, (CUstream handle, int *priority), (handle, priority))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *priority = stream->priority;
    return status;
}

SC_TWINS(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long *id), (handle, id))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *id = stream->id;
    return status;
}

static CUresult submit_host(CUstream handle, sc_null_t null, sc_work_t *work)
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    return status == CUDA_SUCCESS ? sc_stream_submit(stream, work, NULL) : status;
}

SC_TWINS(cuLaunchHostFunc, _ptsz, (CUstream handle, CUhostFn fn, void *user), (handle, fn, user))
{
    sc_work_t work = {.kind = SC_WORK_HOST, .host = {.fn = fn, .user = user}};

    return fn ? submit_host(handle, null, &work) : CUDA_ERROR_INVALID_VALUE;
}

SC_TWINS(cuStreamAddCallback, _ptsz,
         (CUstream handle, CUstreamCallback callback, void *user, unsigned int flags),
         (handle, callback, user, flags))
{
    sc_work_t work = {.kind = SC_WORK_HOST, .host = {.callback = callback, .stream = handle, .user = user}};
    sc_stream_t *stream;

    if (!callback || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_stream_find(handle, null, &stream);
    if (status == CUDA_SUCCESS)
        status = sc_capture_check_stream(stream); /* callbacks can't be captured, host functions can */
    return status == CUDA_SUCCESS ? submit_host(handle, null, &work) : status;
}
