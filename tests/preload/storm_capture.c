/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a capture goes on beside its worker's other operations, a step at a time, on blocks that are pinned until the graph
 * is gone. A relaxed one may be left to whoever comes.
 */
#include "tests/preload/storm.h"

/* ---- captures ---- */

static void fork_and_join(worker_t *w, const capture_t *capture, int index)
{
    CU(cuEventRecord(w->fork, capture->stream));
    CU(cuStreamWaitEvent(w->branch, w->fork, 0));
    storm_verify(w->branch, capture->block[index]->base, capture->block[index]->bytes, capture->seed[index],
                 w->wrong);
    CU(cuEventRecord(w->join, w->branch));
    CU(cuStreamWaitEvent(capture->stream, w->join, 0));
}

static void step_capture(worker_t *w, capture_t *capture)
{
    int index = (int)below(w, (uint64_t)capture->count);
    const block_t *block = capture->block[index];

    capture->steps--;
    if (capture->seed[index] == 0 || one_in(w, 2)) {
        capture->seed[index] = cup_rng_next(&w->rng) | 1;
        storm_fill(capture->stream, block->base, block->bytes, capture->seed[index], false);
    } else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && one_in(w, 3)) {
        /* Its branch belongs to the capture until that ends: not where others may end it. */
        fork_and_join(w, capture, index);
    } else {
        storm_verify(capture->stream, block->base, block->bytes, capture->seed[index], w->wrong);
    }
}

static graph_t *find_graph(worker_t *w, bool is_there)
{
    for (int i = 0; i < GRAPHS; i++)
        if ((w->graph[i].exec != NULL) == is_there)
            return &w->graph[i];
    return NULL;
}

void storm_drop_graph(graph_t *graph)
{
    CU(cuGraphExecDestroy(graph->exec));
    for (int i = 0; i < graph->count; i++)
        graph->block[i]->pins--;
    *graph = (graph_t){NULL};
}

static void end_capture(worker_t *w, capture_t *capture)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    graph_t *made = find_graph(w, false);
    CUgraph graph = NULL;

    step_capture(w, capture);
    CU(cuStreamEndCapture(capture->stream, &graph));
    REQUIRE(graph);
    if (!made)
        storm_drop_graph(made = &w->graph[below(w, GRAPHS)]);
    CU(cuThreadExchangeStreamCaptureMode(
        &mode)); /* or it spoils another worker's global capture (measured) */
    CU(cuGraphInstantiateWithFlags(&made->exec, graph, 0));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    CU(cuGraphDestroy(graph));
    made->count = capture->count;
    memcpy(made->block, capture->block, sizeof(made->block));
    memcpy(made->seed, capture->seed, sizeof(made->seed));
    if (capture->place < 0)
        CU(cuStreamDestroy(capture->stream));
    *capture = (capture_t){NULL};
}

/* The stream goes, and the capture with it: nothing of it ever runs. */
static void abandon_capture(capture_t *capture)
{
    for (int i = 0; i < capture->count; i++)
        capture->block[i]->pins--;
    CU(cuStreamDestroy(capture->stream));
    *capture = (capture_t){NULL};
}

static CUstreamCaptureMode pick_mode(worker_t *w)
{
    return w->phase->has_globals ? (CUstreamCaptureMode)below(w, 3)
                                 : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL + (CUstreamCaptureMode)below(w, 2);
}

/* On a stream that only captures, or on one with work in flight. */
static void pick_capture_stream(worker_t *w, capture_t *capture, bool is_busy)
{
    bool is_blocking = !w->phase->has_legacy && one_in(w, 2);

    capture->place = is_busy ? OWN + 2 + is_blocking : -1;
    if (is_busy) {
        storm_leave_place(w, capture->place, false);
        capture->stream = w->place[capture->place];
    } else {
        CU(cuStreamCreate(&capture->stream, is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
}

static bool begin_capture(worker_t *w, bool is_busy)
{
    capture_t capture = {.mode = pick_mode(w), .steps = 1 + (int)below(w, 8)};

    if (!w->phase->has_captures || w->capture.stream)
        return false;
    for (int tries = 0; tries < GRAPH_BLOCKS; tries++) {
        block_t *block = storm_pick_block(w);

        if (block && block->pins == 0) {
            block->pins++;
            capture.block[capture.count++] = block;
        }
    }
    if (capture.count == 0)
        return false;
    pick_capture_stream(w, &capture, is_busy);
    CU(cuStreamBeginCapture(capture.stream, capture.mode));
    w->capture = capture;
    return true;
}

bool storm_op_capture(worker_t *w)
{
    return begin_capture(w, false);
}

bool storm_op_capture_busy(worker_t *w)
{
    return w->phase->streams == ALL && begin_capture(w, true);
}

/* Left for whoever comes: its blocks go with it. */
static bool offer_capture(worker_t *w)
{
    capture_t *capture = &w->capture;
    bool is_offered = false;

    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED || capture->place >= 0)
        return false;
    for (int i = 0; i < capture->count; i++)
        storm_fence(w, capture->block[i]);
    pthread_mutex_lock(&g_storm.lock);
    is_offered = !g_storm.offer.stream;
    if (is_offered)
        g_storm.offer = *capture;
    pthread_mutex_unlock(&g_storm.lock);
    if (!is_offered)
        return false;
    for (int i = w->count - 1; i >= 0; i--)
        for (int k = 0; k < capture->count; k++)
            if (w->live[i] == capture->block[k]) {
                w->live[i] = w->live[--w->count];
                break;
            }
    *capture = (capture_t){NULL};
    return true;
}

bool storm_op_go_on_capturing(worker_t *w)
{
    if (!w->capture.stream)
        return false;
    if (w->capture.steps > 0)
        step_capture(w, &w->capture);
    else if (w->capture.place < 0 && one_in(w, 8))
        abandon_capture(&w->capture);
    else if (!one_in(w, 3) || !offer_capture(w))
        end_capture(w, &w->capture);
    return true;
}

bool storm_op_end_offered(worker_t *w)
{
    capture_t capture;

    if (w->count + GRAPH_BLOCKS > LIVE_MAX)
        return false;
    pthread_mutex_lock(&g_storm.lock);
    capture = g_storm.offer;
    g_storm.offer = (capture_t){NULL};
    pthread_mutex_unlock(&g_storm.lock);
    if (!capture.stream)
        return false;
    for (int i = 0; i < capture.count; i++) {
        w->live[w->count++] = capture.block[i];
        capture.block[i]->freed = w->freed;
    }
    end_capture(w, &capture);
    return true;
}

bool storm_op_launch_graph(worker_t *w)
{
    graph_t *graph = find_graph(w, true);
    int place = storm_pick_place(w);

    if (!graph)
        return false;
    for (int i = 0; i < graph->count; i++) {
        storm_order(w, graph->block[i], place);
        if (graph->seed[i] == 0)
            continue;
        graph->block[i]->seed = graph->seed[i];
        graph->block[i]->valid = graph->block[i]->bytes;
    }
    CU(cuGraphLaunch(graph->exec, w->place[place]));
    if (graph->launches++ == 3 || one_in(w, 3))
        storm_drop_graph(graph); /* in flight */
    return true;
}
