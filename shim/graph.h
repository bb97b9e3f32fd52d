/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - whether a launch of an executable graph may read or write memory of the host.
 * What:       a set of executables of which we know that it may not: their nodes are looked at when they
 *             are made and when they are updated. What is not in the set may.
 * Not here:   what a free does about it (order.h); which entry points make and change executables
 *             (graph_list.h).
 * Invariants: a handle that comes back is another executable: it leaves the set before the real destroy.
 * Manners:    only queries of the driver, of graphs that it has accepted. Whatever fails, or is not
 *             understood, counts as memory of the host: such a launch is waited for, which is never
 *             wrong.
 * Threads:    any thread; no lock, no waiting. The program itself must not use one executable from two
 *             threads at once.
 */
#ifndef CUP_SHIM_GRAPH_H
#define CUP_SHIM_GRAPH_H
#include "shim/cuda_abi.h"
#include <stdbool.h>

/* The rule of a launch (submit.h), as far as memory of the host is concerned. */
unsigned cup_graph_rule(CUgraphExec exec);

/* The executable now does what the graph's nodes say. The flags are those of its making. */
void cup_graph_learn(CUgraphExec exec, CUgraph graph, unsigned long long flags);

/* It ends, or nobody knows any more what it does. */
void cup_graph_forget(CUgraphExec exec);

/* What a node of an executable is about to be set to: whether that leaves alone what we know of it. */
bool cup_graph_may_copy(const CUDA_MEMCPY3D *copy);
bool cup_graph_may_set(const CUDA_MEMSET_NODE_PARAMS *set);
bool cup_graph_may_run(CUgraph child);
bool cup_graph_may_become(const CUgraphNodeParams *params);

#endif /* CUP_SHIM_GRAPH_H */
