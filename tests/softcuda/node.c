/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node - graph nodes by hand: added, asked and set, in a graph or in an executable made of it. What a
 * node does is planned and checked as the call of the same name would be. What it tells is what it does,
 * not what the program wrote: a copy comes back with its offsets in its addresses.
 */
#include "driver.h"
#include <string.h>

static CUresult add(CUgraphNode *out_node, CUgraph graph, const CUgraphNode *deps, size_t count,
                    const sc_work_t *work)
{
    if (!out_node || !graph || (count > 0 && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!deps[i] || deps[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    *out_node = sc_graph_append(graph, work, deps, count);
    return CUDA_SUCCESS;
}

/* The node keeps its kind. */
static CUresult set(sc_node_t *node, const sc_work_t *work)
{
    if (!node || node->work.kind != work->kind)
        return CUDA_ERROR_INVALID_VALUE;
    node->work = *work;
    return CUDA_SUCCESS;
}

static CUresult set_exec(CUgraphExec exec, CUgraphNode node, const sc_work_t *work)
{
    return exec && node ? set(sc_exec_find(exec, node), work) : CUDA_ERROR_INVALID_VALUE;
}

static bool is_of(CUgraphNode node, sc_work_kind_t kind, const void *params)
{
    return node && params && node->work.kind == kind;
}

SC_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    static const CUgraphNodeType types[] = {
        [SC_WORK_MARK] = CU_GRAPH_NODE_TYPE_EMPTY,
        [SC_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [SC_WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [SC_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [SC_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [SC_WORK_WRITE_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [SC_WORK_WAIT_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    };

    SC_ENTER(cuGraphNodeGetType);
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->child ? CU_GRAPH_NODE_TYPE_GRAPH : types[node->work.kind];
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                       size_t count)
{
    const sc_work_t mark = {.kind = SC_WORK_MARK};

    SC_ENTER(cuGraphAddEmptyNode);
    return add(node, graph, deps, count, &mark);
}

/* ---- graphs within a graph: a copy, which the node owns ---- */

SC_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                            size_t count, CUgraph child)
{
    SC_ENTER(cuGraphAddChildGraphNode);
    const sc_work_t mark = {.kind = SC_WORK_MARK};
    sc_graph_t *clone = child ? sc_graph_clone(child) : NULL; /* first: it may be the graph itself */
    CUresult status = child ? add(node, graph, deps, count, &mark) : CUDA_ERROR_INVALID_VALUE;

    if (status == CUDA_SUCCESS)
        (*node)->child = clone;
    else if (clone)
        sc_graph_destroy(clone);
    return status;
}

SC_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    SC_ENTER(cuGraphChildGraphNodeGetGraph);
    if (!node || !node->child || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->child;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    SC_ENTER(cuGraphExecChildGraphNodeSetParams);
    return exec && node ? sc_exec_set_child(sc_exec_find(exec, node), child) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- kernels: the second version of the parameters begins as the first ---- */

static CUresult plan_kernel(const void *params, sc_work_t *out_work)
{
    CUDA_KERNEL_NODE_PARAMS_v1 p;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&p, params, sizeof p);
    if (p.extra || !p.func) /* packed buffers, kernels of libraries */
        return CUDA_ERROR_NOT_SUPPORTED;
    const unsigned shape[6] = {p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ};
    return sc_launch_plan(p.func, shape, p.sharedMemBytes, p.kernelParams, out_work);
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
    if (!is_of(node, SC_WORK_KERNEL, out))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < SC_ARGS_MAX; i++)
        node->params[i] = &node->work.kernel.args[i];
    const unsigned *shape = node->work.kernel.shape;
    *out = (CUDA_KERNEL_NODE_PARAMS_v1){.func = node->work.kernel.function,
                                        .gridDimX = shape[0],
                                        .gridDimY = shape[1],
                                        .gridDimZ = shape[2],
                                        .blockDimX = shape[3],
                                        .blockDimY = shape[4],
                                        .blockDimZ = shape[5],
                                        .sharedMemBytes = node->work.kernel.shared_bytes,
                                        .kernelParams = node->params};
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                        size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SC_ENTER(cuGraphAddKernelNode);
    sc_work_t work;
    CUresult status = plan_kernel(params, &work);

    return status == CUDA_SUCCESS ? add(node, graph, deps, count, &work) : status;
}

SC_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                           size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    SC_ENTER(cuGraphAddKernelNode_v2);
    sc_work_t work;
    CUresult status = plan_kernel(params, &work);

    return status == CUDA_SUCCESS ? add(node, graph, deps, count, &work) : status;
}

SC_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SC_ENTER(cuGraphKernelNodeGetParams);
    return get_kernel(node, params);
}

SC_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    SC_ENTER(cuGraphKernelNodeGetParams_v2);
    CUDA_KERNEL_NODE_PARAMS_v1 first;
    CUresult status = params ? get_kernel(node, &first) : CUDA_ERROR_INVALID_VALUE;

    if (status != CUDA_SUCCESS)
        return status;
    *params = (CUDA_KERNEL_NODE_PARAMS_v2){0};
    memcpy(params, &first, sizeof first);
    return CUDA_SUCCESS;
}

#define KERNEL_SET(symbol, params_t)                                                    \
    SC_EXPORT CUresult symbol(CUgraphNode node, const params_t *params)                 \
    {                                                                                   \
        SC_ENTER(symbol);                                                               \
        sc_work_t work;                                                                 \
        CUresult status = node ? plan_kernel(params, &work) : CUDA_ERROR_INVALID_VALUE; \
        return status == CUDA_SUCCESS ? set(node, &work) : status;                      \
    }

#define KERNEL_SET_EXEC(symbol, params_t)                                                 \
    SC_EXPORT CUresult symbol(CUgraphExec exec, CUgraphNode node, const params_t *params) \
    {                                                                                     \
        SC_ENTER(symbol);                                                                 \
        sc_work_t work;                                                                   \
        CUresult status = plan_kernel(params, &work);                                     \
        return status == CUDA_SUCCESS ? set_exec(exec, node, &work) : status;             \
    }

KERNEL_SET(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1)
KERNEL_SET(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2)
KERNEL_SET_EXEC(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1)
KERNEL_SET_EXEC(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2)

/* ---- copies, sets, host functions: a LIST of what differs ---- */

static CUresult plan_host(const CUDA_HOST_NODE_PARAMS *params, sc_work_t *out_work)
{
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    *out_work = (sc_work_t){.kind = SC_WORK_HOST, .host = {.fn = params->fn, .user = params->userData}};
    return CUDA_SUCCESS;
}

static CUmemorytype memory_type(uint64_t addr)
{
    return sc_is_device_address(addr) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static size_t row_count(const sc_side_t *side)
{
    return side->pitch ? side->slice / side->pitch : 0;
}

static void get_memcpy(const sc_work_t *work, CUDA_MEMCPY3D *out)
{
    const sc_side_t *dst = &work->copy.dst, *src = &work->copy.src;

    *out = (CUDA_MEMCPY3D){.srcMemoryType = memory_type(src->base),
                           .srcHost = (const void *)(uintptr_t)src->base,
                           .srcDevice = src->base,
                           .srcPitch = src->pitch,
                           .srcHeight = row_count(src),
                           .dstMemoryType = memory_type(dst->base),
                           .dstHost = (void *)(uintptr_t)dst->base,
                           .dstDevice = dst->base,
                           .dstPitch = dst->pitch,
                           .dstHeight = row_count(dst),
                           .WidthInBytes = work->copy.width,
                           .Height = work->copy.height,
                           .Depth = work->copy.depth};
}

static void get_memset(const sc_work_t *work, CUDA_MEMSET_NODE_PARAMS *out)
{
    *out = (CUDA_MEMSET_NODE_PARAMS){.dst = work->set.dst,
                                     .pitch = work->set.pitch,
                                     .value = work->set.value,
                                     .elementSize = work->set.element,
                                     .width = work->set.width,
                                     .height = work->set.height};
}

static void get_host(const sc_work_t *work, CUDA_HOST_NODE_PARAMS *out)
{
    *out = (CUDA_HOST_NODE_PARAMS){.fn = work->host.fn, .userData = work->host.user};
}

/* X(name in the API, kind, parameters, plan, get, what follows the parameters in calls that plan) */
#define WITH_CONTEXT , CUcontext ctx
#define NODE_LIST(X)                                                                       \
    X(Memcpy, SC_WORK_COPY, CUDA_MEMCPY3D, sc_copy_plan, get_memcpy, WITH_CONTEXT)         \
    X(Memset, SC_WORK_SET, CUDA_MEMSET_NODE_PARAMS, sc_set_plan, get_memset, WITH_CONTEXT) \
    X(Host, SC_WORK_HOST, CUDA_HOST_NODE_PARAMS, plan_host, get_host, )

#define X(name, kind_of, params_t, plan, get, context)                                                   \
    SC_EXPORT CUresult cuGraphAdd##name##Node(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, \
                                              size_t count, const params_t *params context)              \
    {                                                                                                    \
        SC_ENTER(cuGraphAdd##name##Node);                                                                \
        sc_work_t work;                                                                                  \
        CUresult status = plan(params, &work);                                                           \
        return status == CUDA_SUCCESS ? add(node, graph, deps, count, &work) : status;                   \
    }                                                                                                    \
    SC_EXPORT CUresult cuGraph##name##NodeGetParams(CUgraphNode node, params_t *params)                  \
    {                                                                                                    \
        SC_ENTER(cuGraph##name##NodeGetParams);                                                          \
        if (!is_of(node, kind_of, params))                                                               \
            return CUDA_ERROR_INVALID_VALUE;                                                             \
        get(&node->work, params);                                                                        \
        return CUDA_SUCCESS;                                                                             \
    }                                                                                                    \
    SC_EXPORT CUresult cuGraph##name##NodeSetParams(CUgraphNode node, const params_t *params)            \
    {                                                                                                    \
        SC_ENTER(cuGraph##name##NodeSetParams);                                                          \
        sc_work_t work;                                                                                  \
        CUresult status = plan(params, &work);                                                           \
        return status == CUDA_SUCCESS ? set(node, &work) : status;                                       \
    }                                                                                                    \
    SC_EXPORT CUresult cuGraphExec##name##NodeSetParams(CUgraphExec exec, CUgraphNode node,              \
                                                        const params_t *params context)                  \
    {                                                                                                    \
        SC_ENTER(cuGraphExec##name##NodeSetParams);                                                      \
        sc_work_t work;                                                                                  \
        CUresult status = plan(params, &work);                                                           \
        return status == CUDA_SUCCESS ? set_exec(exec, node, &work) : status;                            \
    }
NODE_LIST(X)
#undef X
