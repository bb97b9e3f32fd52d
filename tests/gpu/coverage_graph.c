/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: graphs are captured, a late kernel in front of what the row is about. Then what captured nodes say
 * of themselves: the shim's judgement of a graph (shim/graph.h) stands on these answers.
 */
#include "tests/gpu/coverage.h"
#include <stdio.h>

static void begin(CUstream stream)
{
    dev_check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
}

static CUgraph end(CUstream stream)
{
    CUgraph graph = NULL;

    dev_check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    return graph;
}

/* Where the capture ended without one, the work can't be captured here. */
static CUresult launch(CUgraph graph, CUstream stream)
{
    CUgraphExec exec;
    CUresult result = cuGraphInstantiate(&exec, graph, 0);

    if (result == CUDA_SUCCESS)
        result = cuGraphLaunch(exec, stream);
    dev_check(cuGraphDestroy(graph), "cuGraphDestroy");
    return result; /* the executable stays: its end is another row */
}

CUresult coverage_graph_kernel(coverage_bed_t *bed)
{
    begin(bed->stream);
    coverage_late(bed->stream);
    return launch(end(bed->stream), bed->stream);
}

CUresult coverage_graph_copy(coverage_bed_t *bed)
{
    begin(bed->stream);
    coverage_late(bed->stream);
    dev_read_async(bed->pinned, bed->from, COVERAGE_BYTES, bed->stream);
    return launch(end(bed->stream), bed->stream);
}

static void nothing(void *unused)
{
    (void)unused;
}

CUresult coverage_graph_host(coverage_bed_t *bed)
{
    begin(bed->stream);
    coverage_late(bed->stream);
    dev_check(cuLaunchHostFunc(bed->stream, nothing, NULL), "cuLaunchHostFunc");
    return launch(end(bed->stream), bed->stream);
}

CUresult coverage_graph_child(coverage_bed_t *bed)
{
    CUgraphNode node;
    CUgraph outer, inner;

    begin(bed->stream);
    coverage_late(bed->stream);
    inner = end(bed->stream);
    dev_check(cuGraphCreate(&outer, 0), "cuGraphCreate");
    dev_check(cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner), "cuGraphAddChildGraphNode");
    dev_check(cuGraphDestroy(inner), "cuGraphDestroy");
    return launch(outer, bed->stream);
}

/* The executable goes while its launch is in flight. */
CUresult coverage_graph_destroyed(coverage_bed_t *bed)
{
    CUgraphExec exec;
    CUgraph graph;
    CUresult result;

    begin(bed->stream);
    coverage_late(bed->stream);
    graph = end(bed->stream);
    dev_check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    dev_check(cuGraphDestroy(graph), "cuGraphDestroy");
    result = cuGraphLaunch(exec, bed->stream);
    dev_check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    return result;
}

CUresult coverage_graph_conditional(coverage_bed_t *bed)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode node;
    CUgraph graph;
    CUresult result;

    dev_check(cuGraphCreate(&graph, 0), "cuGraphCreate");
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = bed->ctx;
    result = cuGraphConditionalHandleCreate(&params.conditional.handle, graph, bed->ctx, 1,
                                            CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = cuGraphAddNode(&node, graph, NULL, NULL, 0, &params);
    if (result == CUDA_SUCCESS)
        result = cuStreamBeginCaptureToGraph(bed->stream, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS) {
        dev_check(cuGraphDestroy(graph), "cuGraphDestroy");
        return result;
    }
    coverage_late(bed->stream);
    end(bed->stream);
    return launch(graph, bed->stream);
}

/* Memory that lives inside the graph. */
CUresult coverage_graph_memory(coverage_bed_t *bed)
{
    CUdeviceptr block;

    if (dev_is_simulated())
        return COVERAGE_ABSENT;
    begin(bed->stream);
    dev_check(cuMemAllocAsync(&block, COVERAGE_BYTES, bed->stream), "cuMemAllocAsync");
    coverage_late(bed->stream);
    dev_fill(block, COVERAGE_BYTES, 1, bed->stream);
    dev_check(cuMemFreeAsync(block, bed->stream), "cuMemFreeAsync");
    return launch(end(bed->stream), bed->stream);
}

/* ---- what nodes say ---- */

static int is_host(CUmemorytype type, CUdeviceptr address)
{
    CUmemorytype found = CU_MEMORYTYPE_HOST;

    if (type == CU_MEMORYTYPE_HOST)
        return 1;
    return cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
           found != CU_MEMORYTYPE_DEVICE;
}

static void print_copy(const char *name, CUgraphNode node)
{
    CUDA_MEMCPY3D copy;
    CUresult result = cuGraphMemcpyNodeGetParams(node, &copy);

    printf("node %s copy params %d, from host %d, to host %d\n", name, result,
           is_host(copy.srcMemoryType, copy.srcDevice), is_host(copy.dstMemoryType, copy.dstDevice));
    printf("probe node %s memory types %d %d\n", name, copy.srcMemoryType, copy.dstMemoryType);
}

static void print_node(const char *name, CUgraphNode node)
{
    CUDA_MEMSET_NODE_PARAMS set;
    CUgraphNodeType type;
    CUresult result = cuGraphNodeGetType(node, &type);

    printf("node %s type %d %d\n", name, result, type);
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
        print_copy(name, node);
    if (type != CU_GRAPH_NODE_TYPE_MEMSET)
        return;
    result = cuGraphMemsetNodeGetParams(node, &set);
    printf("node %s set params %d, host %d\n", name, result, is_host(CU_MEMORYTYPE_DEVICE, set.dst));
}

/* Captures the row's work without running it; its last node. */
static void print_last(coverage_bed_t *bed, const char *name, coverage_submit_t submit)
{
    CUgraphNode nodes[8];
    size_t count = 8;
    CUresult result;
    CUgraph graph;

    begin(bed->stream);
    result = submit(bed);
    graph = end(bed->stream);
    if (result != CUDA_SUCCESS || cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS || count == 0)
        printf("node %s submit %d\n", name, result);
    else
        print_node(name, nodes[count - 1]);
    dev_check(cuGraphDestroy(graph), "cuGraphDestroy");
}

/* Instantiation beside a capture, which it spoils, and the queries of it, which do not. */
static void print_beside_capture(coverage_bed_t *bed)
{
    CUstream capturing = dev_stream();
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUgraphNode node;
    CUgraph graph, other = NULL;
    CUgraphExec exec;
    size_t count = 1;
    CUresult made, asked, ended;

    begin(bed->stream);
    coverage_late(bed->stream);
    graph = end(bed->stream);
    dev_check(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    coverage_late(capturing);
    made = cuGraphInstantiate(&exec, graph, 0);
    asked = cuGraphGetNodes(graph, &node, &count);
    if (asked == CUDA_SUCCESS)
        asked = cuGraphNodeGetType(node, &type);
    ended = cuStreamEndCapture(capturing, &other);
    printf("beside-capture instantiate %d, queries %d, end %d\n", made, asked, ended);
    dev_check(cuStreamDestroy(capturing), "cuStreamDestroy");
}

void coverage_print_nodes(coverage_bed_t *bed)
{
    bed->stream = dev_stream();
    print_last(bed, "kernel", coverage_kernel);
    print_last(bed, "host-function", coverage_host_function);
    print_last(bed, "h2d-pinned", coverage_h2d_pinned);
    print_last(bed, "d2h-pinned", coverage_d2h_pinned);
    print_last(bed, "d2h-pageable", coverage_d2h_pageable);
    print_last(bed, "d2d", coverage_d2d);
    print_last(bed, "unified", coverage_unified);
    print_last(bed, "copy-2d", coverage_copy_2d);
    print_last(bed, "copy-3d", coverage_copy_3d);
    print_last(bed, "set", coverage_set);
    print_last(bed, "set-2d", coverage_set_2d);
    print_last(bed, "set-pinned", coverage_set_pinned);
    print_last(bed, "write-value", coverage_write_value);
    print_beside_capture(bed);
}
