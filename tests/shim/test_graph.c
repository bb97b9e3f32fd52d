/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph - which executables are kept as harmless, over a driver that makes up its graphs: every type
 * of node, handles that come back, more executables than there is room for.
 * Not here:   the entry points, real nodes, what a free does (tests/preload/graphs.c).
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/graph.h"
#include "shim/order.h"
#include "shim/submit.h"
#include "tests/support/unit.h"

#define HOST_ADDRESS   ((CUdeviceptr)0x1000)
#define DEVICE_ADDRESS ((CUdeviceptr)0x2000)
#define TYPES          14 /* of CUDA 13.0 */

/* A graph has one node, itself. */
typedef struct graph {
    int type;
    CUdeviceptr address; /* of a copy's destination, of a set */
    struct graph *child;
} graph_t;

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (nodes)
        nodes[0] = (CUgraphNode)graph;
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = (CUgraphNodeType)((graph_t *)node)->type;
    return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    *copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = DEVICE_ADDRESS,
                            .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                            .dstDevice = ((graph_t *)node)->address};
    return CUDA_SUCCESS;
}

static CUresult get_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set)
{
    *set = (CUDA_MEMSET_NODE_PARAMS){.dst = ((graph_t *)node)->address};
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *child)
{
    *child = (CUgraph)((graph_t *)node)->child;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(CUmemorytype *)data = pointer == HOST_ADDRESS ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    else
        *(unsigned *)data = 0;
    return CUDA_SUCCESS;
}

/* A context whose submissions are followed; as long as the process lives. */
static void start(void)
{
    static cup_order_t *order;

    cup_drv.cuGraphGetNodes = get_nodes;
    cup_drv.cuGraphNodeGetType = get_type;
    cup_drv.cuGraphMemcpyNodeGetParams = get_copy;
    cup_drv.cuGraphMemsetNodeGetParams = get_set;
    cup_drv.cuGraphChildGraphNodeGetGraph = get_child;
    cup_drv.cuPointerGetAttribute = get_attribute;
    CHECK(cup_gate_enter(true));
    if (!order)
        order = cup_order_create((CUcontext)0x5000, CUP_ORDER_EXACT);
    cup_gate_leave();
    CHECK(order != NULL);
}

static CUgraphExec exec_of(uintptr_t number)
{
    return (CUgraphExec)(0x7f0000000000 + number * 0x390);
}

static bool is_plain(CUgraphExec exec)
{
    return cup_graph_rule(exec) == CUP_SUBMIT_PLAIN;
}

static bool is_learned_plain(uintptr_t number, const graph_t *graph)
{
    cup_graph_learn(exec_of(number), (CUgraph)graph, 0);
    return is_plain(exec_of(number));
}

TEST(graph, every_type_of_node)
{
    graph_t child = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    graph_t host_child = {.type = CU_GRAPH_NODE_TYPE_HOST};

    start();
    for (int type = 0; type <= TYPES; type++) {
        bool is_harmless = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                           type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_GRAPH ||
                           type == CU_GRAPH_NODE_TYPE_EMPTY;
        bool has_parts = is_harmless && type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_EMPTY;

        CHECK_EQ(is_learned_plain(1, &(graph_t){type, DEVICE_ADDRESS, &child}), is_harmless);
        CHECK_EQ(is_learned_plain(1, &(graph_t){type, HOST_ADDRESS, &host_child}), is_harmless && !has_parts);
    }
}

/* A graph within itself has no end. */
TEST(graph, bottomless)
{
    graph_t graph = {.type = CU_GRAPH_NODE_TYPE_GRAPH};

    start();
    graph.child = &graph;
    CHECK(!is_learned_plain(2, &graph));
}

/* A handle that comes back, though nobody saw the end of the old one. */
TEST(graph, handles_come_back)
{
    const graph_t plain = {.type = CU_GRAPH_NODE_TYPE_KERNEL}, host = {.type = CU_GRAPH_NODE_TYPE_HOST};

    start();
    CHECK(is_learned_plain(3, &plain));
    CHECK(!is_learned_plain(3, &host));
    CHECK(is_learned_plain(3, &plain) && is_learned_plain(3, &plain));
    cup_graph_forget(exec_of(3));
    CHECK(!is_plain(exec_of(3)));
    cup_graph_learn(NULL, (CUgraph)&plain, 0);
    CHECK(!is_plain(NULL));
}

/* Most of what programs have at once is kept; what is forgotten leaves room, what never was is not found. */
TEST(graph, room)
{
    enum { FEW = 2000, MANY = 30000 };
    const graph_t plain = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    int kept = 0;

    start();
    for (int round = 0; round < 3; round++) {
        for (uintptr_t i = 0; i < FEW; i++)
            CHECK(is_learned_plain(100 + i, &plain));
        for (uintptr_t i = 0; i < FEW; i++)
            cup_graph_forget(exec_of(100 + i));
    }
    for (uintptr_t i = 0; i < MANY; i++)
        kept += is_learned_plain(100 + i, &plain);
    CHECK(kept >= FEW && kept < MANY);
    for (uintptr_t i = 0; i < MANY; i++)
        CHECK(!is_plain(exec_of(100 + MANY + i)));
    for (uintptr_t i = 0; i < MANY; i++)
        cup_graph_forget(exec_of(100 + i));
    for (uintptr_t i = 0; i < MANY; i++)
        CHECK(!is_plain(exec_of(100 + i)));
}
