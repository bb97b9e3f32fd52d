/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - what a capture leaves: nodes in the order in which they were captured. That order respects their
 * dependencies. A launch submits them to one stream in that order; that independent nodes may run side by
 * side is not modelled. An executable is a copy of its graph. Graphs are made by capture; the calls that add
 * nodes are stubs.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    sc_graph_t *graph; /* owned */
};

sc_graph_t *sc_graph_create(void)
{
    return sc_new_handle(sizeof(sc_graph_t));
}

void sc_graph_destroy(sc_graph_t *graph)
{
    for (unsigned i = 0; i < graph->count; i++)
        free(graph->nodes[i].deps);
    free(graph->nodes);
    free(graph);
}

unsigned sc_graph_append(sc_graph_t *graph, const sc_work_t *work, const unsigned *deps, unsigned dep_count)
{
    graph->nodes = sc_grow(graph->nodes, graph->count + 1, sizeof *graph->nodes);
    sc_node_t *node = &graph->nodes[graph->count];
    *node =
        (sc_node_t){.work = *work, .deps = sc_grow(NULL, dep_count, sizeof *deps), .dep_count = dep_count};
    if (dep_count > 0)
        memcpy(node->deps, deps, dep_count * sizeof *deps);
    return graph->count++;
}

SC_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    SC_ENTER(cuGraphCreate);
    if (!graph || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = sc_graph_create();
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    SC_ENTER(cuGraphDestroy);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    sc_graph_destroy(graph);
    return CUDA_SUCCESS;
}

/* Counts only: nodes have no handles. */
SC_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SC_ENTER(cuGraphGetNodes);
    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    *count = graph->count;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, const sc_graph_t *graph)
{
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *exec = sc_new_handle(sizeof **exec);
    (*exec)->graph = sc_graph_create();
    for (unsigned i = 0; i < graph->count; i++)
        sc_graph_append((*exec)->graph, &graph->nodes[i].work, graph->nodes[i].deps,
                        graph->nodes[i].dep_count);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                      size_t length)
{
    SC_ENTER(cuGraphInstantiate);
    return instantiate(exec, graph);
}

SC_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                         size_t length)
{
    SC_ENTER(cuGraphInstantiate_v2);
    return instantiate(exec, graph);
}

SC_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SC_ENTER(cuGraphInstantiateWithFlags);
    return flags == 0 || flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH ? instantiate(exec, graph)
                                                                                  : CUDA_ERROR_NOT_SUPPORTED;
}

SC_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SC_ENTER(cuGraphExecDestroy);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    sc_graph_destroy(exec->graph); /* operations in flight have copies of their own */
    free(exec);
    return CUDA_SUCCESS;
}

SC_TWINS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; status == CUDA_SUCCESS && i < exec->graph->count; i++)
        status = sc_stream_submit(stream, &exec->graph->nodes[i].work, NULL);
    return status;
}

SC_TWINS(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle))
{
    sc_stream_t *stream;

    return exec ? sc_stream_find(handle, null, &stream) : CUDA_ERROR_INVALID_VALUE;
}
