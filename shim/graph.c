/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the set is an array of handles. One lies in a window of places that its hash names, so a look-up
 * reads two or three cache lines, and adding and removing are one compare-and-swap each. Where a window
 * is full, the executable is not kept: its launches count as touching memory of the host. Nothing is
 * allocated for it, and nothing is left behind.
 *
 * What a copy or a set names is asked when the node is made: memory that is freed later takes the graph
 * with it, natively.
 *
 * Graphs that the device launches run inside a launch of others, which we can't tell apart: once there is
 * one, every launch may do anything.
 */
#include "shim/graph.h"
#include "allocator/meta.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/order.h"
#include "shim/submit_rule.h"
#include <stdatomic.h>

#define PLACES_LOG2 13
#define WINDOW      16
#define DEPTH_MAX   8 /* graphs in graphs in graphs */

static _Atomic(CUgraphExec) g_plain[(1 << PLACES_LOG2) + WINDOW];
static _Atomic bool g_is_launched_by_device;

static _Atomic(CUgraphExec) *window_of(CUgraphExec exec)
{
    /* Fibonacci hashing; handles are addresses, at least 16 apart. */
    uint64_t hash = ((uint64_t)(uintptr_t)exec >> 4) * 0x9e3779b97f4a7c15u;

    return &g_plain[hash >> (64 - PLACES_LOG2)];
}

static bool is_plain(CUgraphExec exec)
{
    _Atomic(CUgraphExec) *place = window_of(exec);

    if (!exec || atomic_load_explicit(&g_is_launched_by_device, memory_order_relaxed))
        return false;
    for (int i = 0; i < WINDOW; i++)
        if (atomic_load_explicit(&place[i], memory_order_relaxed) == exec)
            return true;
    return false;
}

unsigned cup_graph_rule(CUgraphExec exec)
{
    return is_plain(exec) ? CUP_SUBMIT_PLAIN : CUP_SUBMIT_HOST;
}

static void keep(CUgraphExec exec)
{
    _Atomic(CUgraphExec) *place = window_of(exec);

    for (int i = 0; i < WINDOW; i++) {
        CUgraphExec none = NULL;

        if (atomic_compare_exchange_strong(&place[i], &none, exec))
            return;
    }
}

void cup_graph_forget(CUgraphExec exec)
{
    _Atomic(CUgraphExec) *place = window_of(exec);

    for (int i = 0; exec && i < WINDOW; i++) {
        CUgraphExec same = exec;

        atomic_compare_exchange_strong(&place[i], &same, NULL);
    }
}

/* ---- looking at nodes ---- */

static bool is_harmless(CUgraph graph, int depth);

bool cup_graph_may_copy(const CUDA_MEMCPY3D *copy)
{
    return cup_order_is_followed() && cup_rule_copy_3d(copy, true) == CUP_SUBMIT_PLAIN;
}

bool cup_graph_may_set(const CUDA_MEMSET_NODE_PARAMS *set)
{
    return cup_order_is_followed() && set && cup_rule_touch(set->dst) == CUP_SUBMIT_PLAIN;
}

static bool is_harmless_copy(CUgraphNode node)
{
    CUDA_MEMCPY3D copy;

    return cup_drv.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS && cup_graph_may_copy(&copy);
}

static bool is_harmless_set(CUgraphNode node)
{
    CUDA_MEMSET_NODE_PARAMS set;

    return cup_drv.cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS && cup_graph_may_set(&set);
}

static bool is_harmless_child(CUgraphNode node, int depth)
{
    CUgraph child;

    return cup_drv.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS && is_harmless(child, depth);
}

/* Events are the program's to ask, semaphores others'; memory nodes, stream values and conditional
 * bodies are not looked at. */
static bool is_harmless_node(CUgraphNode node, int depth)
{
    CUgraphNodeType type;

    if (cup_drv.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return false;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return is_harmless_copy(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return is_harmless_set(node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return is_harmless_child(node, depth);
    default:
        return false;
    }
}

static bool are_harmless(CUgraph graph, CUgraphNode *nodes, size_t count, int depth)
{
    size_t given = count;

    if (cup_drv.cuGraphGetNodes(graph, nodes, &given) != CUDA_SUCCESS || given != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_harmless_node(nodes[i], depth))
            return false;
    return true;
}

static bool is_harmless(CUgraph graph, int depth)
{
    CUgraphNode *nodes;
    size_t count = 0;
    bool is_so;

    if (depth >= DEPTH_MAX || cup_drv.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS)
        return false;
    if (count == 0)
        return true;
    nodes = cup_meta_alloc(count * sizeof(CUgraphNode));
    is_so = nodes && are_harmless(graph, nodes, count, depth + 1);
    cup_meta_free(nodes, count * sizeof(CUgraphNode));
    return is_so;
}

/* Also at the end: while nothing is followed, an address is not looked at, and says nothing. */
bool cup_graph_may_run(CUgraph child)
{
    bool is_so;

    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return false;
    is_so = is_harmless(child, 0) && cup_order_is_followed();
    cup_gate_leave();
    return is_so;
}

bool cup_graph_may_become(const CUgraphNodeParams *params)
{
    if (!params)
        return false;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cup_graph_may_copy(&params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: /* one structure, but for the context at its end */
        return cup_order_is_followed() && cup_rule_touch(params->memset.dst) == CUP_SUBMIT_PLAIN;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cup_graph_may_run(params->graph.graph);
    default:
        return false;
    }
}

void cup_graph_learn(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
    cup_graph_forget(exec);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        atomic_store(&g_is_launched_by_device, true);
    else if (exec && cup_graph_may_run(graph))
        keep(exec);
}
