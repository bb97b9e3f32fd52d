/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_list - LISTs of the driver entry points that make, change or end executable graphs.
 * What:       MAKE: X(symbol, (parameters), (arguments), executable, graph, flags): after a success the
 *             executable does what the graph says. UPDATE: likewise, for one that there was. CHANGE:
 *             X(symbol, (parameters), (arguments), executable, is harmless): asked before the call; if
 *             not, the executable may touch memory of the host from then on, whatever the call answers.
 * Not here:   cuGraphInstantiateWithParams, which may submit as well (submit_list.h); launches
 *             (submit_list.h); what changes no node's kind: a kernel stays one, whatever its parameters,
 *             also where the device sets them; a host function, an event and a semaphore were not
 *             harmless before; a node that is switched off was counted when it was on.
 */
#ifndef CUP_SHIM_GRAPH_LIST_H
#define CUP_SHIM_GRAPH_LIST_H

/* clang-format off */
#define CUP_GRAPH_MAKE_LIST(X)                                                                              \
    X(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t length),  \
      (exec, graph, node, log, length), *exec, graph, 0)                                                    \
    X(cuGraphInstantiate_v2,                                                                                \
      (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t length),                      \
      (exec, graph, node, log, length), *exec, graph, 0)                                                    \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags),            \
      (exec, graph, flags), *exec, graph, flags)

#define CUP_GRAPH_UPDATE_LIST(X)                                                                            \
    X(cuGraphExecUpdate,                                                                                    \
      (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result_out),            \
      (exec, graph, node, result_out), exec, graph, 0)                                                      \
    X(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),           \
      (exec, graph, info), exec, graph, 0)

#define CUP_GRAPH_CHANGE_LIST(X)                                                                            \
    X(cuGraphExecMemcpyNodeSetParams,                                                                       \
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx),                     \
      (exec, node, params, ctx), exec, cup_graph_may_copy(params))                                          \
    X(cuGraphExecMemsetNodeSetParams,                                                                       \
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx),           \
      (exec, node, params, ctx), exec, cup_graph_may_set(params))                                           \
    X(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),              \
      (exec, node, child), exec, cup_graph_may_run(child))                                                  \
    X(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),            \
      (exec, node, params), exec, cup_graph_may_become(params))                                             \
    X(cuGraphExecDestroy, (CUgraphExec exec), (exec), exec, false)
/* clang-format on */

#define CUP_GRAPH_LIST(X)    \
    CUP_GRAPH_MAKE_LIST(X)   \
    CUP_GRAPH_UPDATE_LIST(X) \
    CUP_GRAPH_CHANGE_LIST(X)

#endif /* CUP_SHIM_GRAPH_LIST_H */
