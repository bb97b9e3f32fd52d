/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture - captures in progress, and what disturbs them. Which call disturbs which capture is measured
 * (H200, driver 580): a context record or synchronisation disturbs every mode; a potentially unsafe call the
 * global and thread-local ones, by the rules of cuThreadExchangeStreamCaptureMode.
 *
 * Not modelled: edges with data, the editing of a capture's dependencies.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

static bool is_member(const sc_stream_t *stream, const sc_capture_t *capture)
{
    return stream->is_live && stream->capture == capture;
}

CUresult sc_capture_check_unsafe(void)
{
    const sc_thread_t *thread = sc_thread();
    CUresult status = CUDA_SUCCESS;

    if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (sc_capture_t *capture = sc.captures; capture; capture = capture->next) {
        bool is_own = capture->thread == thread->number && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool is_global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                         thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_own || is_global) {
            capture->is_invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return status;
}

CUresult sc_capture_check_context(const sc_ctx_t *ctx)
{
    CUresult status = CUDA_SUCCESS;

    for (const sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
        if (stream->capture) {
            stream->capture->is_invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return status;
}

CUresult sc_capture_check_legacy(const sc_ctx_t *ctx)
{
    CUresult status = CUDA_SUCCESS;

    for (const sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
        if (stream->capture && stream->queue->is_blocking) {
            stream->capture->is_invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return status;
}

CUresult sc_capture_check_stream(const sc_stream_t *stream)
{
    if (stream->queue->is_legacy)
        return sc_capture_check_legacy(stream->ctx);
    if (!stream->capture)
        return CUDA_SUCCESS;
    stream->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void set_tails(sc_stream_t *stream, sc_node_t *const *tails, unsigned count)
{
    stream->tails = sc_grow(stream->tails, count, sizeof *tails);
    if (count > 0)
        memcpy(stream->tails, tails, count * sizeof *tails);
    stream->tail_count = count;
}

CUresult sc_capture_add(sc_stream_t *stream, const sc_work_t *work)
{
    sc_capture_t *capture = stream->capture;

    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sc_node_t *node = sc_graph_append(capture->graph, work, stream->tails, stream->tail_count);
    set_tails(stream, &node, 1);
    return CUDA_SUCCESS;
}

CUresult sc_capture_record(const sc_stream_t *stream, sc_event_t *event)
{
    if (stream->capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture_id = stream->capture->id;
    event->tails = sc_grow(NULL, stream->tail_count, sizeof *event->tails);
    if (stream->tail_count > 0)
        memcpy(event->tails, stream->tails, stream->tail_count * sizeof *event->tails);
    event->tail_count = stream->tail_count;
    return CUDA_SUCCESS;
}

static sc_capture_t *find_capture(uint64_t id)
{
    sc_capture_t *capture = sc.captures;

    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

/* The stream's next node follows the event's too; a stream outside joins the capture. */
static CUresult join(sc_stream_t *stream, sc_capture_t *capture, const sc_event_t *event)
{
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!stream->capture) {
        stream->capture = capture;
        set_tails(stream, event->tails, event->tail_count);
        return CUDA_SUCCESS;
    }
    unsigned count = stream->tail_count + event->tail_count;
    stream->tails = sc_grow(stream->tails, count, sizeof *stream->tails);
    for (unsigned i = 0; i < event->tail_count; i++)
        stream->tails[stream->tail_count + i] = event->tails[i];
    stream->tail_count = count;
    return CUDA_SUCCESS;
}

CUresult sc_capture_wait(sc_stream_t *stream, const sc_event_t *event)
{
    sc_capture_t *capture = event->capture_id ? find_capture(event->capture_id) : NULL;

    if (event->capture_id && !capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!capture) { /* an event from outside */
        bool was_invalid = stream->capture->is_invalid;
        stream->capture->is_invalid = true;
        return was_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (stream->queue->is_legacy) {
        capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture && stream->capture != capture) {
        stream->capture->is_invalid = capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return join(stream, capture, event);
}

/* Takes the capture off the list and off its streams. The graph goes to the caller. */
static sc_graph_t *close_capture(sc_capture_t *capture)
{
    sc_capture_t **at = &sc.captures;
    sc_graph_t *graph = capture->graph;

    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    for (sc_ctx_t *ctx = sc.contexts; ctx; ctx = ctx->next)
        for (sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
            if (is_member(stream, capture)) {
                stream->capture = NULL;
                free(stream->tails);
                stream->tails = NULL;
                stream->tail_count = 0;
            }
    free(capture);
    return graph;
}

static void abandon_capture(sc_capture_t *capture)
{
    bool is_borrowed = capture->is_graph_borrowed;
    sc_graph_t *graph = close_capture(capture);

    if (!is_borrowed)
        sc_graph_destroy(graph);
}

/* The origin takes the capture with it; another member only leaves, and the capture is spoilt. */
void sc_capture_drop(sc_stream_t *stream)
{
    if (!stream->capture)
        return;
    if (stream->capture->origin == stream) {
        abandon_capture(stream->capture);
        return;
    }
    stream->capture->is_invalid = true;
    stream->capture = NULL;
    free(stream->tails);
    stream->tails = NULL;
    stream->tail_count = 0;
}

/* The nodes that one of tails is or follows. */
static void mark_reached(sc_node_t *const *tails, unsigned count, bool *is_reached)
{
    for (unsigned i = 0; i < count; i++)
        if (!is_reached[tails[i]->index]) {
            is_reached[tails[i]->index] = true;
            mark_reached(tails[i]->deps, tails[i]->dep_count, is_reached);
        }
}

/* True when the newest node of every member stream is behind the origin. */
static bool is_joined(const sc_capture_t *capture)
{
    bool is_all = true;
    bool *is_reached = sc_zalloc(capture->graph->count * sizeof *is_reached);

    mark_reached(capture->origin->tails, capture->origin->tail_count, is_reached);
    for (const sc_ctx_t *ctx = sc.contexts; ctx; ctx = ctx->next)
        for (const sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
            for (unsigned i = 0; is_member(stream, capture) && i < stream->tail_count; i++)
                is_all = is_all && is_reached[stream->tails[i]->index];
    free(is_reached);
    return is_all;
}

/* ---- entry points ---- */

static CUresult begin(CUstream handle, sc_null_t null, CUstreamCaptureMode mode, sc_graph_t *graph)
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->queue->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    sc_capture_t *capture = sc_zalloc(sizeof *capture);
    capture->graph = graph ? graph : sc_graph_create();
    capture->is_graph_borrowed = graph != NULL;
    capture->mode = mode;
    capture->thread = sc_thread()->number;
    capture->id = sc_next_id();
    capture->origin = stream;
    capture->next = sc.captures;
    sc.captures = capture;
    stream->capture = capture;
    return CUDA_SUCCESS;
}

/* Before modes existed: global. */
SC_TWINS(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream))
{
    return begin(stream, null, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL);
}

SC_TWINS(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
    return begin(stream, null, mode, NULL);
}

SC_TWINS(cuStreamBeginCaptureToGraph, _ptsz,
         (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,
          CUstreamCaptureMode mode),
         (stream, graph, deps, edges, count, mode))
{
    sc_stream_t *origin;

    if (!graph || (count > 0 && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!deps[i] || deps[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    CUresult status = begin(stream, null, mode, graph);
    if (status == CUDA_SUCCESS && sc_stream_find(stream, null, &origin) == CUDA_SUCCESS)
        set_tails(origin, deps, (unsigned)count);
    return status;
}

SC_TWINS(cuStreamEndCapture, _ptsz, (CUstream handle, CUgraph *graph), (handle, graph))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    sc_capture_t *capture = stream->capture;
    if (graph)
        *graph = NULL;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sc_thread()->number)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->origin != stream) {
        capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (!graph || capture->is_invalid || !is_joined(capture)) {
        status = capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : graph             ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                     : CUDA_ERROR_INVALID_VALUE;
        abandon_capture(capture);
        return status;
    }
    *graph = close_capture(capture);
    return CUDA_SUCCESS;
}

static bool is_blocking_captured(const sc_ctx_t *ctx)
{
    for (const sc_stream_t *stream = ctx->streams; stream; stream = stream->next)
        if (stream->capture && stream->queue->is_blocking)
            return true;
    return false;
}

static CUresult get_status(CUstream handle, sc_null_t null, CUstreamCaptureStatus *out_status,
                           sc_capture_t **out_capture)
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    *out_capture = NULL;
    if (!out_status)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && stream->queue->is_legacy && is_blocking_captured(stream->ctx))
        status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; /* and the capture goes on (measured) */
    if (status != CUDA_SUCCESS)
        return status;
    *out_capture = stream->capture;
    *out_status = !stream->capture              ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

SC_TWINS(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *out_status),
         (stream, out_status))
{
    sc_capture_t *capture;

    return get_status(stream, null, out_status, &capture);
}

/* What a caller may ask for; every pointer may be NULL. */
typedef struct {
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **deps;
    size_t *count;
} info_t;

static CUresult get_info(CUstream handle, sc_null_t null, CUstreamCaptureStatus *out_status,
                         const info_t *out)
{
    sc_capture_t *capture;
    sc_stream_t *stream;
    CUresult status = get_status(handle, null, out_status, &capture);
    bool is_capturing = capture && sc_stream_find(handle, null, &stream) == CUDA_SUCCESS;

    if (out->id && is_capturing)
        *out->id = capture->id;
    if (out->graph && is_capturing)
        *out->graph = capture->graph;
    if (out->deps)
        *out->deps = is_capturing ? (const CUgraphNode *)stream->tails : NULL;
    if (out->count)
        *out->count = is_capturing ? stream->tail_count : 0;
    return status;
}

SC_TWINS(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, CUstreamCaptureStatus *out_status, cuuint64_t *id),
         (stream, out_status, id))
{
    return get_info(stream, null, out_status, &(const info_t){.id = id});
}

SC_TWINS(cuStreamGetCaptureInfo_v2, _ptsz,
         (CUstream stream, CUstreamCaptureStatus *out_status, cuuint64_t *id, CUgraph *graph,
          const CUgraphNode **deps, size_t *count),
         (stream, out_status, id, graph, deps, count))
{
    return get_info(stream, null, out_status, &(const info_t){id, graph, deps, count});
}

SC_TWINS(cuStreamGetCaptureInfo_v3, _ptsz,
         (CUstream stream, CUstreamCaptureStatus *out_status, cuuint64_t *id, CUgraph *graph,
          const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *count),
         (stream, out_status, id, graph, deps, edges, count))
{
    if (edges)
        *edges = NULL;
    return get_info(stream, null, out_status, &(const info_t){id, graph, deps, count});
}

SC_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SC_ENTER(cuThreadExchangeStreamCaptureMode);
    sc_thread_t *thread = sc_thread();

    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
