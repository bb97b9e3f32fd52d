/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - nodes and what each of them follows, made by a capture or by hand (node.c), and executables:
 * copies of a graph, in an order that respects its dependencies. A launch submits them to one stream in
 * that order; that independent nodes may run side by side is not modelled. Launches of one executable run
 * one after the other, whatever their streams.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

sc_graph_t *sc_graph_create(void)
{
    sc_graph_t *graph = sc_new_handle(sizeof *graph);

    graph->id = sc_next_id();
    return graph;
}

void sc_graph_destroy(sc_graph_t *graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->child)
            sc_graph_destroy(graph->nodes[i]->child);
        free(graph->nodes[i]->deps);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    free(graph);
}

static void add_dep(sc_node_t *node, sc_node_t *dep)
{
    node->deps = sc_grow(node->deps, node->dep_count + 1, sizeof *node->deps);
    node->deps[node->dep_count++] = dep;
}

sc_node_t *sc_graph_append(sc_graph_t *graph, const sc_work_t *work, sc_node_t *const *deps, size_t dep_count)
{
    sc_node_t *node = sc_zalloc(sizeof *node);

    *node = (sc_node_t){.graph = graph, .index = graph->count, .work = *work};
    for (size_t i = 0; i < dep_count; i++)
        add_dep(node, deps[i]);
    graph->nodes = sc_grow(graph->nodes, graph->count + 1, sizeof *graph->nodes);
    graph->nodes[graph->count++] = node;
    return node;
}

sc_graph_t *sc_graph_clone(const sc_graph_t *graph)
{
    sc_graph_t *clone = sc_graph_create();

    for (unsigned i = 0; i < graph->count; i++) {
        const sc_node_t *node = graph->nodes[i];
        sc_node_t *copy = sc_graph_append(clone, &node->work, NULL, 0);
        copy->child = node->child ? sc_graph_clone(node->child) : NULL;
    }
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned j = 0; j < graph->nodes[i]->dep_count; j++)
            add_dep(clone->nodes[i], clone->nodes[graph->nodes[i]->deps[j]->index]);
    return clone;
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

/* ---- what is in a graph ---- */

/* Hands out nodes as the API does: their number where out is NULL; else up to *count, and NULL for the
 * rest. */
static CUresult give_nodes(sc_node_t *const *nodes, size_t node_count, CUgraphNode *out, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out && i < *count; i++)
        out[i] = i < node_count ? nodes[i] : NULL;
    if (!out || *count > node_count)
        *count = node_count;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SC_ENTER(cuGraphGetNodes);
    return graph ? give_nodes(graph->nodes, graph->count, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SC_ENTER(cuGraphGetRootNodes);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    size_t root_count = 0;
    sc_node_t **roots = sc_zalloc(graph->count * sizeof(sc_node_t *));
    for (unsigned i = 0; i < graph->count; i++)
        if (graph->nodes[i]->dep_count == 0)
            roots[root_count++] = graph->nodes[i];
    CUresult status = give_nodes(roots, root_count, nodes, count);
    free(roots);
    return status;
}

SC_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *deps, size_t *count)
{
    SC_ENTER(cuGraphNodeGetDependencies);
    return node ? give_nodes(node->deps, node->dep_count, deps, count) : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges,
                                                 size_t *count)
{
    SC_ENTER(cuGraphNodeGetDependencies_v2);
    if (!node || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; edges && i < *count; i++)
        edges[i] = (CUgraphEdgeData){0};
    return give_nodes(node->deps, node->dep_count, deps, count);
}

static CUresult add_dependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    if (!graph || (count > 0 && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!from[i] || !to[i] || from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i])
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        add_dep(to[i], from[i]);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                          size_t count)
{
    SC_ENTER(cuGraphAddDependencies);
    return add_dependencies(graph, from, to, count);
}

SC_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                             const CUgraphEdgeData *edges, size_t count)
{
    SC_ENTER(cuGraphAddDependencies_v2);
    return edges ? CUDA_ERROR_NOT_SUPPORTED : add_dependencies(graph, from, to, count);
}

/* ---- executables ---- */

#define UNPLACED UINT32_MAX

static bool are_placed(sc_node_t *const *deps, unsigned count, const unsigned *places)
{
    for (unsigned i = 0; i < count; i++)
        if (places[deps[i]->index] == UNPLACED)
            return false;
    return true;
}

static bool copy_in_order(const sc_graph_t *graph, sc_graph_t *to, unsigned *places);

/* Copies the node behind the copies of what it follows; false for a cycle in a graph within. */
static bool place(const sc_node_t *node, sc_graph_t *to, unsigned *places)
{
    sc_node_t *copy = sc_graph_append(to, &node->work, NULL, 0);

    for (unsigned i = 0; i < node->dep_count; i++)
        add_dep(copy, to->nodes[places[node->deps[i]->index]]);
    places[node->index] = copy->index;
    if (!node->child)
        return true;
    unsigned *within = sc_grow(NULL, node->child->count, sizeof *within);
    copy->child = sc_graph_create();
    bool is_whole = copy_in_order(node->child, copy->child, within);
    free(within);
    return is_whole;
}

/* Nodes in the order of their addition, each as soon as all that it follows is there; false for a cycle. */
static bool copy_in_order(const sc_graph_t *graph, sc_graph_t *to, unsigned *places)
{
    bool is_whole = true;
    unsigned before;

    for (unsigned i = 0; i < graph->count; i++)
        places[i] = UNPLACED;
    do {
        before = to->count;
        for (unsigned i = 0; i < graph->count; i++) {
            const sc_node_t *node = graph->nodes[i];
            if (places[i] == UNPLACED && are_placed(node->deps, node->dep_count, places))
                is_whole &= place(node, to, places);
        }
    } while (to->count > before && to->count < graph->count);
    return is_whole && to->count == graph->count;
}

static void destroy_exec(CUgraphExec exec)
{
    sc_graph_destroy(exec->graph); /* operations in flight have copies of their own */
    sc_marks_clear(&exec->last);
    free(exec->places);
    free(exec);
}

/* Beside a capture it is one of the calls that may disturb it (measured). */
static CUresult instantiate(CUgraphExec *out_exec, const sc_graph_t *graph)
{
    if (!out_exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_capture_check_unsafe();
    if (status != CUDA_SUCCESS)
        return status;
    CUgraphExec exec = sc_new_handle(sizeof *exec);
    exec->graph = sc_graph_create();
    exec->source_id = graph->id;
    exec->places = sc_grow(NULL, graph->count, sizeof *exec->places);
    if (!copy_in_order(graph, exec->graph, exec->places)) {
        destroy_exec(exec);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out_exec = exec;
    return CUDA_SUCCESS;
}

sc_node_t *sc_exec_find(CUgraphExec exec, const sc_node_t *node)
{
    bool is_known = node->graph->id == exec->source_id && node->index < exec->graph->count;

    return is_known ? exec->graph->nodes[exec->places[node->index]] : NULL;
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

/* What may be launched by the device may be launched by the host, too; here nothing else is done. */
#define HOST_FLAGS                                                          \
    ((unsigned long long)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | \
                          CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
#define KNOWN_FLAGS (HOST_FLAGS | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)

SC_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SC_ENTER(cuGraphInstantiateWithFlags);
    return flags & ~HOST_FLAGS ? CUDA_ERROR_NOT_SUPPORTED : instantiate(exec, graph);
}

/* An upload is work of its stream. */
static CUresult upload(CUstream handle, sc_null_t null)
{
    const sc_work_t mark = {.kind = SC_WORK_MARK};
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status == CUDA_SUCCESS)
        status = sc_capture_check_stream(stream);
    return status == CUDA_SUCCESS ? sc_stream_submit(stream, &mark, NULL) : status;
}

SC_TWINS(cuGraphInstantiateWithParams, _ptsz,
         (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params))
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = NULL;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (params->flags & ~KNOWN_FLAGS)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult status = instantiate(exec, graph);
    if (status == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        status = upload(params->hUploadStream, null);
    if (status == CUDA_SUCCESS)
        params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return status;
}

SC_TWINS(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), (exec, stream))
{
    return exec ? upload(stream, null) : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SC_ENTER(cuGraphExecDestroy);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    destroy_exec(exec);
    return CUDA_SUCCESS;
}

/* The stream goes on behind the executable's newest launch. */
static CUresult wait_for_last(CUgraphExec exec, sc_stream_t *stream)
{
    const sc_work_t mark = {.kind = SC_WORK_MARK};
    CUresult status = stream->queue->is_legacy ? sc_capture_check_legacy(stream->ctx) : CUDA_SUCCESS;

    if (status == CUDA_SUCCESS && !sc_marks_are_done(&exec->last))
        sc_queue_push(stream->queue, &mark, &exec->last);
    return status;
}

/* In the order that copy_in_order has made. A root follows nothing in its graph, so that it may not begin
 * early either. */
static CUresult submit_nodes(const sc_graph_t *graph, sc_stream_t *stream)
{
    CUresult status = CUDA_SUCCESS;

    for (unsigned i = 0; status == CUDA_SUCCESS && i < graph->count; i++) {
        sc_work_t work = graph->nodes[i]->work;

        if (work.kind == SC_WORK_KERNEL && graph->nodes[i]->dep_count == 0)
            work.kernel.is_programmatic = false;
        status = sc_stream_submit(stream, &work, NULL);
        if (status == CUDA_SUCCESS && graph->nodes[i]->child)
            status = submit_nodes(graph->nodes[i]->child, stream);
    }
    return status;
}

SC_TWINS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle))
{
    sc_stream_t *stream;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !stream->capture)
        status = wait_for_last(exec, stream);
    if (status == CUDA_SUCCESS)
        status = submit_nodes(exec->graph, stream);
    if (status == CUDA_SUCCESS && !stream->capture) {
        sc_marks_clear(&exec->last);
        sc_marks_add(&exec->last, stream->queue->last);
    }
    return status;
}

/* ---- update: the same nodes, doing something else ---- */

static CUgraphExecUpdateResult compare(const sc_graph_t *old, const sc_graph_t *new)
{
    if (old->count != new->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < old->count; i++) {
        const sc_node_t *a = old->nodes[i], *b = new->nodes[i];
        if (a->work.kind != b->work.kind || !a->child != !b->child)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->dep_count != b->dep_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (unsigned j = 0; j < a->dep_count; j++)
            if (a->deps[j]->index != b->deps[j]->index)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        CUgraphExecUpdateResult within =
            a->child ? compare(a->child, b->child) : CU_GRAPH_EXEC_UPDATE_SUCCESS;
        if (within != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return within;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The nodes of one do what those of the other do. */
static void take_over(sc_graph_t *old, const sc_graph_t *new)
{
    for (unsigned i = 0; i < old->count; i++) {
        old->nodes[i]->work = new->nodes[i]->work;
        if (old->nodes[i]->child)
            take_over(old->nodes[i]->child, new->nodes[i]->child);
    }
}

static CUresult change(sc_graph_t *old, const sc_graph_t *graph, CUgraphExecUpdateResult *out_result)
{
    CUgraphExec fresh;
    CUresult status = instantiate(&fresh, graph);

    if (status != CUDA_SUCCESS)
        return status;
    *out_result = compare(old, fresh->graph);
    if (*out_result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        take_over(old, fresh->graph);
    destroy_exec(fresh);
    return *out_result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult sc_exec_set_child(sc_node_t *node, const sc_graph_t *child)
{
    CUgraphExecUpdateResult result;

    return node && node->child && child ? change(node->child, child, &result) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *out_result)
{
    *out_result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return exec ? change(exec->graph, graph, out_result) : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                     CUgraphExecUpdateResult *result)
{
    SC_ENTER(cuGraphExecUpdate);
    if (error_node)
        *error_node = NULL;
    return result ? update(exec, graph, result) : CUDA_ERROR_INVALID_VALUE;
}

SC_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SC_ENTER(cuGraphExecUpdate_v2);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    return update(exec, graph, &info->result);
}
