/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph - graphs by hand: nodes of every kind, what they tell, their order, executables that are
 * launched, changed and destroyed in flight; programmatic edges; the detector looks into them.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/claim.h"
#include "tests/softcuda/pattern.h"

typedef struct {
    bed_t bed;
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr block;
    uint64_t *pinned;
} graph_bed_t;

static graph_bed_t make_graph_bed(void)
{
    graph_bed_t g = {.bed = make_bed()};

    OK(cuGraphCreate(&g.graph, 0));
    OK(cuStreamCreate(&g.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&g.block, 4096));
    g.pinned = (uint64_t *)(void *)(g.bed.flag + 64);
    return g;
}

static void drop_graph_bed(graph_bed_t *g)
{
    if (g->exec)
        OK(cuGraphExecDestroy(g->exec));
    if (g->graph)
        OK(cuGraphDestroy(g->graph));
    drop_bed(&g->bed);
}

/* ---- nodes ---- */

/* What fill is launched with; the node copies it. */
typedef struct {
    CUdeviceptr block;
    uint64_t bytes, seed;
    void *params[3];
} fill_args_t;

static CUDA_KERNEL_NODE_PARAMS fill_node(const graph_bed_t *g, fill_args_t *args, CUdeviceptr block,
                                         uint64_t bytes, uint64_t seed)
{
    *args = (fill_args_t){block, bytes, seed, {&args->block, &args->bytes, &args->seed}};
    return (CUDA_KERNEL_NODE_PARAMS){.func = g->bed.fill,
                                     .gridDimX = 3,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args->params};
}

static CUgraphNode add_fill(graph_bed_t *g, const CUgraphNode *deps, size_t count, CUdeviceptr block,
                            uint64_t bytes, uint64_t seed)
{
    fill_args_t args;
    const CUDA_KERNEL_NODE_PARAMS params = fill_node(g, &args, block, bytes, seed);
    CUgraphNode node;

    OK(cuGraphAddKernelNode(&node, g->graph, deps, count, &params));
    memset(&args, 0, sizeof args); /* the node has its own */
    return node;
}

static CUDA_MEMCPY3D copy_out(const void *dst, CUdeviceptr src, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = (void *)(uintptr_t)dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUgraphNode add_copy_out(graph_bed_t *g, CUgraphNode dep, const void *dst, CUdeviceptr src,
                                size_t bytes)
{
    const CUDA_MEMCPY3D copy = copy_out(dst, src, bytes);
    CUgraphNode node;

    OK(cuGraphAddMemcpyNode(&node, g->graph, &dep, dep != NULL, &copy, g->bed.ctx));
    return node;
}

static void count_up(void *user)
{
    __atomic_fetch_add((uint64_t *)user, 1, __ATOMIC_ACQ_REL);
}

static void count_by_ten(void *user)
{
    __atomic_fetch_add((uint64_t *)user, 10, __ATOMIC_ACQ_REL);
}

static CUgraphNode add_host(graph_bed_t *g, CUgraphNode dep, uint64_t *counter)
{
    const CUDA_HOST_NODE_PARAMS params = {.fn = count_up, .userData = counter};
    CUgraphNode node;

    OK(cuGraphAddHostNode(&node, g->graph, &dep, dep != NULL, &params));
    return node;
}

static CUgraphNode add_set(graph_bed_t *g, CUgraphNode dep, CUdeviceptr dst, uint32_t value, size_t width)
{
    const CUDA_MEMSET_NODE_PARAMS params = {
        .dst = dst, .value = value, .elementSize = 4, .width = width, .height = 1};
    CUgraphNode node;

    OK(cuGraphAddMemsetNode(&node, g->graph, &dep, dep != NULL, &params, g->bed.ctx));
    return node;
}

static void instantiate(graph_bed_t *g)
{
    OK(cuGraphInstantiate(&g->exec, g->graph, 0));
}

static void run(graph_bed_t *g)
{
    OK(cuGraphLaunch(g->exec, g->stream));
    OK(cuStreamSynchronize(g->stream));
}

/* ---- tests ---- */

TEST(graph, by_hand)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode set = add_set(&g, NULL, g.block, 0x11223344, 4);
    CUgraphNode kernel = add_fill(&g, &set, 1, g.block, 8, 9);
    CUgraphNode copy = add_copy_out(&g, kernel, g.pinned, g.block, 16);
    CUgraphNode host = add_host(&g, copy, &g.pinned[4]), empty;

    OK(cuGraphAddEmptyNode(&empty, g.graph, &host, 1));
    OK(cuCtxSynchronize());
    CHECK_EQ(g.pinned[0], 0); /* nothing before the launch */
    instantiate(&g);
    for (uint64_t launches = 1; launches <= 3; launches++) {
        memset(g.pinned, 0, 16);
        run(&g);
        CHECK_EQ(g.pinned[0], softcuda_fill_word(9, 0));
        CHECK_EQ(g.pinned[1], 0x1122334411223344);
        CHECK_EQ(g.pinned[4], launches);
    }
    drop_graph_bed(&g);
}

TEST(graph, nodes_tell_what_they_are)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode set = add_set(&g, NULL, g.block, 5, 4), nodes[8], kernel, copy, host, found;
    CUgraphNodeType type;
    size_t count = 0;

    kernel = add_fill(&g, &set, 1, g.block, 8, 9);
    copy = add_copy_out(&g, kernel, g.pinned, g.block, 16);
    host = add_host(&g, copy, g.pinned);
    const CUgraphNode made[] = {set, kernel, copy, host};
    const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL,
                                     CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST};
    OK(cuGraphGetNodes(g.graph, NULL, &count));
    CHECK_EQ(count, 4);
    count = 8;
    OK(cuGraphGetNodes(g.graph, nodes, &count));
    CHECK_EQ(count, 4);
    for (int i = 0; i < 4; i++) {
        CHECK(nodes[i] == made[i]);
        OK(cuGraphNodeGetType(nodes[i], &type));
        CHECK_EQ(type, types[i]);
    }
    CHECK(nodes[4] == NULL);
    count = 1;
    OK(cuGraphGetRootNodes(g.graph, &found, &count));
    CHECK(count == 1 && found == set);
    OK(cuGraphNodeGetDependencies(copy, &found, NULL, &count));
    CHECK(count == 1 && found == kernel);
    drop_graph_bed(&g);
}

TEST(graph, params_come_back)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode set = add_set(&g, NULL, g.block, 5, 4);
    CUgraphNode kernel = add_fill(&g, NULL, 0, g.block, 8, 9);
    CUgraphNode copy = add_copy_out(&g, NULL, g.pinned, g.block + 8, 16);
    CUgraphNode host = add_host(&g, NULL, g.pinned);
    CUDA_KERNEL_NODE_PARAMS k;
    CUDA_MEMCPY3D c;
    CUDA_MEMSET_NODE_PARAMS s;
    CUDA_HOST_NODE_PARAMS h;

    OK(cuGraphKernelNodeGetParams(kernel, &k));
    CHECK(k.func == g.bed.fill && k.gridDimX == 3 && k.blockDimX == 32);
    CHECK_EQ(*(CUdeviceptr *)k.kernelParams[0], g.block);
    CHECK_EQ(*(uint64_t *)k.kernelParams[2], 9);
    OK(cuGraphMemcpyNodeGetParams(copy, &c));
    CHECK(c.srcMemoryType == CU_MEMORYTYPE_DEVICE && c.srcDevice == g.block + 8 && c.WidthInBytes == 16);
    CHECK(c.dstMemoryType == CU_MEMORYTYPE_HOST && c.dstHost == g.pinned && c.Height == 1 && c.Depth == 1);
    OK(cuGraphMemsetNodeGetParams(set, &s));
    CHECK(s.dst == g.block && s.value == 5 && s.elementSize == 4 && s.width == 4 && s.height == 1);
    OK(cuGraphHostNodeGetParams(host, &h));
    CHECK(h.fn == count_up && h.userData == g.pinned);
    CHECK_CU(cuGraphHostNodeGetParams(set, &h), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGraphKernelNodeGetParams(copy, &k), CUDA_ERROR_INVALID_VALUE);
    drop_graph_bed(&g);
}

TEST(graph, bad_nodes)
{
    graph_bed_t g = make_graph_bed();
    CUgraph other;
    CUgraphNode node, stranger;
    CUDA_MEMCPY3D copy = copy_out(g.pinned, g.block + 4096, 16); /* behind its end */
    CUDA_MEMSET_NODE_PARAMS set = {.dst = g.block, .elementSize = 3, .width = 1, .height = 1};
    CUDA_HOST_NODE_PARAMS host = {.fn = NULL};

    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddEmptyNode(&stranger, other, NULL, 0));
    CHECK_CU(cuGraphAddEmptyNode(&node, g.graph, &stranger, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGraphAddMemcpyNode(&node, g.graph, NULL, 0, &copy, g.bed.ctx), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK_CU(cuGraphAddMemcpyNode(&node, g.graph, NULL, 0, &copy, g.bed.ctx), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CU(cuGraphAddMemsetNode(&node, g.graph, NULL, 0, &set, g.bed.ctx), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGraphAddHostNode(&node, g.graph, NULL, 0, &host), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(other));
    drop_graph_bed(&g);
}

/* A graph in a graph, two deep: a copy, in its own order, told apart, updated as a whole. */
TEST(graph, graphs_within)
{
    graph_bed_t g = make_graph_bed(), inner = g;
    CUgraph middle, found, changed;
    CUgraphNode nested, copy, kernel, child;
    CUgraphNodeType type;

    OK(cuGraphCreate(&inner.graph, 0));
    OK(cuGraphCreate(&middle, 0));
    OK(cuGraphCreate(&changed, 0));
    copy = add_copy_out(&inner, NULL, g.pinned, g.block, 8); /* added first, comes second */
    kernel = add_fill(&inner, NULL, 0, g.block, 8, 9);
    OK(cuGraphAddDependencies(inner.graph, &kernel, &copy, NULL, 1));
    OK(cuGraphAddChildGraphNode(&nested, middle, NULL, 0, inner.graph));
    OK(cuGraphAddChildGraphNode(&child, g.graph, NULL, 0, middle));
    add_host(&g, child, &g.pinned[4]);
    OK(cuGraphDestroy(inner.graph));
    OK(cuGraphNodeGetType(child, &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
    OK(cuGraphChildGraphNodeGetGraph(child, &found));
    CHECK(found && found != middle);
    CHECK_CU(cuGraphChildGraphNodeGetGraph(copy = add_set(&g, NULL, g.block, 1, 1), &found),
             CUDA_ERROR_INVALID_VALUE);
    instantiate(&g);
    run(&g);
    CHECK(g.pinned[0] == softcuda_fill_word(9, 0) && g.pinned[4] == 1);
    inner.graph = changed;
    add_fill(&inner, NULL, 0, g.block, 8, 10);
    CHECK_CU(cuGraphExecChildGraphNodeSetParams(g.exec, child, changed),
             CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(cuGraphExecChildGraphNodeSetParams(g.exec, child, middle));
    CHECK_CU(cuGraphExecChildGraphNodeSetParams(g.exec, copy, middle), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(middle));
    OK(cuGraphDestroy(changed));
    run(&g);
    CHECK_EQ(g.pinned[4], 2);
    drop_graph_bed(&g);
}

/* Added last, needed first; and a circle. */
TEST(graph, order_is_of_dependencies)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode copy = add_copy_out(&g, NULL, g.pinned, g.block, 8);
    CUgraphNode kernel = add_fill(&g, NULL, 0, g.block, 8, 9);
    CUgraphExec exec;

    OK(cuGraphAddDependencies(g.graph, &kernel, &copy, NULL, 1));
    instantiate(&g);
    run(&g);
    CHECK_EQ(g.pinned[0], softcuda_fill_word(9, 0));
    OK(cuGraphAddDependencies(g.graph, &copy, &kernel, NULL, 1));
    CHECK_CU(cuGraphInstantiate(&exec, g.graph, 0), CUDA_ERROR_INVALID_VALUE);
    drop_graph_bed(&g);
}

TEST(graph, instantiate_with_params)
{
    graph_bed_t g = make_graph_bed();
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                            .hUploadStream = g.stream};

    add_fill(&g, NULL, 0, (CUdeviceptr)(uintptr_t)g.pinned, 8, 9);
    CHECK_EQ(softcuda_hold(g.stream), 0);
    OK(cuGraphInstantiateWithParams(&g.exec, g.graph, &params));
    CHECK_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    CHECK_CU(cuStreamQuery(g.stream), CUDA_ERROR_NOT_READY); /* the upload */
    softcuda_release(g.stream);
    run(&g);
    CHECK_EQ(g.pinned[0], softcuda_fill_word(9, 0));
    drop_graph_bed(&g);
}

/* The graph goes first, then the executable, while the launch is held. */
TEST(graph, destroyed_in_flight)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode kernel = add_fill(&g, NULL, 0, g.block, 8, 9);

    add_copy_out(&g, kernel, g.pinned, g.block, 8);
    instantiate(&g);
    OK(cuGraphDestroy(g.graph));
    g.graph = NULL;
    CHECK_EQ(softcuda_hold(g.stream), 0);
    OK(cuGraphLaunch(g.exec, g.stream));
    OK(cuGraphExecDestroy(g.exec));
    g.exec = NULL;
    softcuda_release(g.stream);
    OK(cuStreamSynchronize(g.stream));
    CHECK_EQ(g.pinned[0], softcuda_fill_word(9, 0));
    drop_graph_bed(&g);
}

/* Launches of one executable follow each other, on whatever streams. */
TEST(graph, launches_follow_each_other)
{
    graph_bed_t g = make_graph_bed();
    CUstream other;

    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    add_host(&g, NULL, g.pinned);
    instantiate(&g);
    CHECK_EQ(softcuda_hold(g.stream), 0);
    OK(cuGraphLaunch(g.exec, g.stream));
    OK(cuGraphLaunch(g.exec, other));
    usleep(5000);
    CHECK_CU(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    CHECK_EQ(__atomic_load_n(g.pinned, __ATOMIC_ACQUIRE), 0);
    softcuda_release(g.stream);
    OK(cuStreamSynchronize(other));
    CHECK_EQ(g.pinned[0], 2);
    drop_graph_bed(&g);
}

/* An update is for the launches after it: what is in flight does what it was launched to do. */
TEST(graph, executables_are_updated)
{
    graph_bed_t g = make_graph_bed();
    CUgraphNode kernel = add_fill(&g, NULL, 0, g.block, 8, 9);
    CUgraphNode copy = add_copy_out(&g, kernel, &g.pinned[0], g.block, 8);
    CUgraphNode set = add_set(&g, copy, (CUdeviceptr)(uintptr_t)&g.pinned[2], 1, 1);
    CUgraphNode host = add_host(&g, set, &g.pinned[3]);
    fill_args_t args;

    instantiate(&g);
    CHECK_EQ(softcuda_hold(g.stream), 0);
    OK(cuGraphLaunch(g.exec, g.stream));
    const CUDA_KERNEL_NODE_PARAMS k = fill_node(&g, &args, g.block, 8, 10);
    const CUDA_MEMCPY3D c = copy_out(&g.pinned[1], g.block, 8);
    const CUDA_MEMSET_NODE_PARAMS s = {
        .dst = (CUdeviceptr)(uintptr_t)&g.pinned[2], .value = 2, .elementSize = 4, .width = 1, .height = 1};
    const CUDA_HOST_NODE_PARAMS h = {.fn = count_by_ten, .userData = &g.pinned[3]};
    OK(cuGraphExecKernelNodeSetParams(g.exec, kernel, &k));
    OK(cuGraphExecMemcpyNodeSetParams(g.exec, copy, &c, g.bed.ctx));
    OK(cuGraphExecMemsetNodeSetParams(g.exec, set, &s, g.bed.ctx));
    OK(cuGraphExecHostNodeSetParams(g.exec, host, &h));
    CHECK_CU(cuGraphExecHostNodeSetParams(g.exec, set, &h), CUDA_ERROR_INVALID_VALUE);
    softcuda_release(g.stream);
    OK(cuStreamSynchronize(g.stream));
    CHECK(g.pinned[0] == softcuda_fill_word(9, 0) && g.pinned[1] == 0 && g.pinned[2] == 1);
    CHECK_EQ(g.pinned[3], 1);
    run(&g);
    CHECK(g.pinned[1] == softcuda_fill_word(10, 0) && g.pinned[2] == 2);
    CHECK_EQ(g.pinned[3], 11);
    drop_graph_bed(&g);
}

TEST(graph, whole_updates)
{
    graph_bed_t g = make_graph_bed();
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;

    add_fill(&g, NULL, 0, (CUdeviceptr)(uintptr_t)g.pinned, 8, 9);
    instantiate(&g);
    exec = g.exec;
    OK(cuGraphDestroy(g.graph));
    OK(cuGraphCreate(&g.graph, 0));
    add_fill(&g, NULL, 0, (CUdeviceptr)(uintptr_t)g.pinned, 8, 10);
    OK(cuGraphExecUpdate(exec, g.graph, &info));
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(&g);
    CHECK_EQ(g.pinned[0], softcuda_fill_word(10, 0));
    add_host(&g, NULL, g.pinned);
    CHECK_CU(cuGraphExecUpdate(exec, g.graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    drop_graph_bed(&g);
}

/* The nodes carry their ranges: a replay over memory that has a new owner, while the old one's work is
 * held. */
TEST(graph, detector_sees_nodes)
{
    graph_bed_t g = make_graph_bed();
    CUstream old_stream;

    OK(cuStreamCreate(&old_stream, CU_STREAM_NON_BLOCKING));
    add_set(&g, NULL, g.block + 512, 1, 4);
    instantiate(&g);
    softcuda_claim_block(g.block, 4096);
    CHECK_EQ(softcuda_hold(old_stream), 0);
    OK(fill(&g.bed, old_stream, g.block, 4096, 1));
    run(&g);
    CHECK_EQ(softcuda_violations(), 0); /* of the same owner */
    softcuda_claim_block(g.block, 4096);
    run(&g);
    CHECK_EQ(softcuda_violations(), 1);
    softcuda_release(old_stream);
    drop_graph_bed(&g);
}

/* Adds to the word, atomically: what the host may look at meanwhile. */
static CUresult add_to(const graph_bed_t *g, uint64_t *target)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, g->stream, &attribute, 1};
    CUdeviceptr block = g->block, out = (CUdeviceptr)(uintptr_t)target;
    uint64_t bytes = 4096;
    void *params[] = {&block, &bytes, &out};

    return cuLaunchKernelEx(&config, g->bed.hash, params, NULL);
}

static bool has_come(const uint64_t *target, int ms)
{
    for (int i = 0; i < ms && __atomic_load_n(target, __ATOMIC_ACQUIRE) == 0; i++)
        usleep(1000);
    return __atomic_load_n(target, __ATOMIC_ACQUIRE) != 0;
}

/* A captured programmatic launch is early inside its graph, but not against what is in front of the
 * graph. */
TEST(graph, programmatic_edges)
{
    graph_bed_t g = make_graph_bed();
    bool is_early = false;

    OK(cuMemsetD8(g.block, 0, 4096));
    OK(cuCtxSynchronize());
    OK(cuGraphDestroy(g.graph));
    OK(cuStreamBeginCapture(g.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(add_to(&g, &g.pinned[0]));
    OK(hold(&g.bed, g.stream));
    OK(add_to(&g, &g.pinned[1]));
    OK(cuStreamEndCapture(g.stream, &g.graph));
    instantiate(&g);
    for (int round = 0; round < 24 && !is_early; round++) {
        memset(g.pinned, 0, 16);
        OK(hold(&g.bed, g.stream)); /* in front of the graph */
        OK(cuGraphLaunch(g.exec, g.stream));
        CHECK(!has_come(&g.pinned[0], 5));
        set_flag(&g.bed, 1);
        OK(cuStreamSynchronize(g.stream));
        set_flag(&g.bed, 0);
        memset(g.pinned, 0, 16);
        OK(cuGraphLaunch(g.exec, g.stream));
        is_early = has_come(&g.pinned[1], 20);
        set_flag(&g.bed, 1);
        OK(cuStreamSynchronize(g.stream));
        set_flag(&g.bed, 0);
    }
    CHECK(is_early);
    drop_graph_bed(&g);
}
