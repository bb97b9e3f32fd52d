/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_graph - the bodies of the entry points that make, change or end executable graphs: the driver's
 * own call, and a note of what the executable does from then on.
 */
#include "shim/drv.h"
#include "shim/graph.h"
#include "shim/route.h"
#include "shim/submit.h"
#include "shim/submit_rule.h"

#define X(symbol, params, args, exec_made, graph, flags)              \
    CUresult cup_route_##symbol params                                \
    {                                                                 \
        CUresult result = cup_drv.symbol args;                        \
                                                                      \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && cup_route_rescue()) \
            result = cup_drv.symbol args;                             \
        if (result == CUDA_SUCCESS)                                   \
            cup_graph_learn((exec_made), (graph), (flags));           \
        return result;                                                \
    }
CUP_GRAPH_MAKE_LIST(X)
#undef X

/* One that fails may have changed some nodes. */
#define X(symbol, params, args, exec_updated, graph, flags)    \
    CUresult cup_route_##symbol params                         \
    {                                                          \
        CUresult result;                                       \
                                                               \
        cup_graph_forget(exec_updated);                        \
        result = cup_drv.symbol args;                          \
        if (result == CUDA_SUCCESS)                            \
            cup_graph_learn((exec_updated), (graph), (flags)); \
        return result;                                         \
    }
CUP_GRAPH_UPDATE_LIST(X)
#undef X

#define X(symbol, params, args, exec_changed, is_harmless) \
    CUresult cup_route_##symbol params                     \
    {                                                      \
        if (!(is_harmless))                                \
            cup_graph_forget(exec_changed);                \
        return cup_drv.symbol args;                        \
    }
CUP_GRAPH_CHANGE_LIST(X)
#undef X

/* An upload is work of its stream. */
static CUresult instantiate(CUresult (*real)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *),
                            cup_place_t place, CUgraphExec *exec, CUgraph graph,
                            CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    cup_call_t call;
    CUresult result;

    cup_submit_begin(&call, place, CUP_SUBMIT_PLAIN);
    result = real(exec, graph, params);
    cup_submit_end(&call, result);
    if (result == CUDA_SUCCESS)
        cup_graph_learn(*exec, graph, params->flags);
    return result;
}

CUresult cup_route_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    return instantiate(cup_drv.cuGraphInstantiateWithParams, cup_place_upload(instantiateParams, false),
                       phGraphExec, hGraph, instantiateParams);
}

CUresult cup_route_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    return instantiate(cup_drv.cuGraphInstantiateWithParams_ptsz, cup_place_upload(instantiateParams, true),
                       phGraphExec, hGraph, instantiateParams);
}

#define X(symbol, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(cup_route_##symbol)), #symbol);
CUP_GRAPH_LIST(X)
#undef X
