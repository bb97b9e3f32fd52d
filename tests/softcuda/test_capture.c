/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_capture - captures in their odd lives: what disturbs them in each mode and from each thread
 * (measured rows say so), streams that join, streams and threads that end, graphs that a capture
 * continues.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/pattern.h"

#define MODES 3

static CUstream make_stream(unsigned flags)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent make_event(void)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;

    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

/* ---- other threads ---- */

typedef struct {
    CUcontext ctx;
    CUresult (*body)(void *argument);
    void *argument;
    CUresult result;
} errand_t;

static void *do_errand(void *argument)
{
    errand_t *errand = argument;

    cuCtxSetCurrent(errand->ctx);
    errand->result = errand->body(errand->argument);
    return NULL;
}

/* The result of the call, made by a thread that has ended when this returns. */
static CUresult elsewhere(const bed_t *bed, CUresult (*body)(void *), void *argument)
{
    errand_t errand = {bed->ctx, body, argument, CUDA_ERROR_UNKNOWN};
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, do_errand, &errand), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return errand.result;
}

static CUresult record_on_legacy(void *event)
{
    return cuEventRecord(event, NULL);
}

static CUresult allocate(void *unused)
{
    CUdeviceptr block;

    (void)unused;
    return cuMemAlloc(&block, 4096);
}

typedef struct {
    CUstream stream;
    CUstreamCaptureMode mode;
} capture_t;

static CUresult begin(void *argument)
{
    const capture_t *capture = argument;

    return cuStreamBeginCapture(capture->stream, capture->mode);
}

static CUresult end(void *stream)
{
    CUgraph graph;
    CUresult status = cuStreamEndCapture(stream, &graph);

    return status == CUDA_SUCCESS ? cuGraphDestroy(graph) : status;
}

/* ---- tests ---- */

/* Measured: every mode, and it does not matter whose thread. A non-blocking stream's capture stays
 * whole. */
TEST(capture, record_on_legacy)
{
    bed_t bed = make_bed();
    CUevent event = make_event();

    for (int mode = 0; mode < MODES; mode++)
        for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++)
            for (int is_blocking = 0; is_blocking < 2; is_blocking++) {
                CUstream stream = make_stream(is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
                OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
                CUresult got =
                    is_elsewhere ? elsewhere(&bed, record_on_legacy, event) : record_on_legacy(event);
                CHECK_EQ(got, is_blocking ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS);
                CHECK_EQ(status_of(stream), is_blocking ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE);
                CHECK_EQ(end(stream), is_blocking ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
                OK(cuStreamDestroy(stream));
            }
    drop_bed(&bed);
}

/* A stream that waits for a captured event captures, too, until the origin ends; its handle tells. */
TEST(capture, joined_streams_capture)
{
    bed_t bed = make_bed();
    CUstream origin = make_stream(CU_STREAM_NON_BLOCKING), branch = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent forked = make_event(), joined = make_event();
    cuuint64_t id = 0, branch_id = 1;
    CUstreamCaptureStatus status;

    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(forked, origin));
    CHECK_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamWaitEvent(branch, forked, 0));
    CHECK_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamGetCaptureInfo(origin, &status, &id, NULL, NULL, NULL, NULL));
    OK(cuStreamGetCaptureInfo(branch, &status, &branch_id, NULL, NULL, NULL, NULL));
    CHECK_EQ(id, branch_id);
    CHECK_CU(cuStreamSynchronize(branch), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(status_of(origin), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(end(origin), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(forked, origin));
    OK(cuStreamWaitEvent(branch, forked, 0));
    CHECK_CU(cuCtxRecordEvent(bed.ctx, joined), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(end(origin), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    drop_bed(&bed);
}

/* The nodes that the next one will follow. */
TEST(capture, info_tells_the_tails)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    CUgraph graph, ended;
    CUdeviceptr block;
    const CUgraphNode *deps;
    CUgraphNodeType type;
    size_t count = 5;

    OK(cuMemAlloc(&block, 4096));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &deps, NULL, &count));
    CHECK_EQ(count, 0);
    OK(fill(&bed, stream, block, 64, 1));
    OK(cuMemsetD8Async(block, 1, 64, stream));
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &deps, NULL, &count));
    CHECK_EQ(count, 1);
    OK(cuGraphNodeGetType(deps[0], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuStreamEndCapture(stream, &ended));
    CHECK(ended == graph);
    OK(cuGraphDestroy(graph));
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &deps, NULL, &count));
    CHECK(count == 0 && deps == NULL);
    drop_bed(&bed);
}

/* The origin takes the capture with it: nothing captures any more, and nothing is refused on its
 * account. */
TEST(capture, destroyed_streams)
{
    bed_t bed = make_bed();

    for (int mode = 0; mode < MODES; mode++) {
        CUstream origin = make_stream(CU_STREAM_NON_BLOCKING), branch = make_stream(CU_STREAM_NON_BLOCKING);
        CUevent forked = make_event();
        OK(cuStreamBeginCapture(origin, (CUstreamCaptureMode)mode));
        OK(cuEventRecord(forked, origin));
        OK(cuStreamWaitEvent(branch, forked, 0));
        OK(cuStreamDestroy(origin));
        CHECK_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_NONE);
        OK(allocate(NULL));
        OK(cuCtxRecordEvent(bed.ctx, forked));
        CHECK_CU(cuStreamIsCapturing(origin, &(CUstreamCaptureStatus){0}), CUDA_ERROR_INVALID_HANDLE);
        OK(cuStreamDestroy(branch));
    }
    drop_bed(&bed);
}

/* A member that goes spoils the capture. */
TEST(capture, destroyed_branch)
{
    bed_t bed = make_bed();
    CUstream origin = make_stream(CU_STREAM_NON_BLOCKING), branch = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent forked = make_event();

    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(forked, origin));
    OK(cuStreamWaitEvent(branch, forked, 0));
    OK(cuStreamDestroy(branch));
    CHECK_EQ(status_of(origin), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(end(origin), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    drop_bed(&bed);
}

/* The capture of a thread that has ended goes on: by its mode it is ended by others or by nobody, and
 * a global one still forbids. */
TEST(capture, threads_that_end)
{
    bed_t bed = make_bed();

    for (int mode = 0; mode < MODES; mode++) {
        capture_t capture = {make_stream(CU_STREAM_NON_BLOCKING), (CUstreamCaptureMode)mode};
        bool is_relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
        OK(elsewhere(&bed, begin, &capture));
        CHECK_EQ(status_of(capture.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK_EQ(end(capture.stream), is_relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        CHECK_EQ(allocate(NULL), mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                                       : CUDA_SUCCESS);
        OK(cuStreamDestroy(capture.stream));
        OK(allocate(NULL));
    }
    drop_bed(&bed);
}

/* By mode and thread, who may allocate (measured for the capturing thread; by the documentation for
 * others). */
TEST(capture, allocations_by_mode_and_thread)
{
    static const bool is_refused[MODES][2] = {
        [CU_STREAM_CAPTURE_MODE_GLOBAL] = {true, true},
        [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] = {true, false},
        [CU_STREAM_CAPTURE_MODE_RELAXED] = {false, false},
    };
    bed_t bed = make_bed();
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);

    for (int mode = 0; mode < MODES; mode++)
        for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
            bool is_bad = is_refused[mode][is_elsewhere];
            OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
            CHECK_EQ(is_elsewhere ? elsewhere(&bed, allocate, NULL) : allocate(NULL),
                     is_bad ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
            CHECK_EQ(end(stream), is_bad ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        }
    drop_bed(&bed);
}

/* Two captures at once do not mix. */
TEST(capture, several_at_once)
{
    bed_t bed = make_bed();
    CUstream first = make_stream(CU_STREAM_NON_BLOCKING), second = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = make_event();

    OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuEventRecord(event, first));
    CHECK_CU(cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    CHECK_EQ(end(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(end(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    drop_bed(&bed);
}

/* Into a graph that has nodes, behind one of them. */
TEST(capture, to_graph)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    uint64_t *words = (uint64_t *)(void *)(bed.flag + 64);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)words;
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = at, .value = 1, .elementSize = 4, .width = 4, .height = 1};
    CUgraph graph, ended;
    CUgraphNode root, nodes[2], dep;
    CUgraphExec exec;
    size_t count = 2;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&root, graph, NULL, 0, &set, bed.ctx));
    OK(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(fill(&bed, stream, at, 8, 3));
    OK(cuStreamEndCapture(stream, &ended));
    CHECK(ended == graph);
    OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 2);
    count = 1;
    OK(cuGraphNodeGetDependencies(nodes[1], &dep, NULL, &count));
    CHECK(count == 1 && dep == root);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(words[0] == softcuda_fill_word(3, 0) && words[1] == 0x100000001);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    drop_bed(&bed);
}

/* Recorded, the work does nothing; what cannot be recorded is refused and spoils the capture. */
TEST(capture, what_becomes_a_node)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr word = (CUdeviceptr)(uintptr_t)(bed.flag + 64), managed;
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUgraph graph;
    size_t count = 0;

    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamWriteValue32(stream, word, 5, 0));
    OK(cuStreamWaitValue32(stream, word, 5, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK_EQ(count, 2);
    CHECK_EQ(bed.flag[64], 0);
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuMemPrefetchAsync(managed, 4096, host, 0, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    drop_bed(&bed);
}
