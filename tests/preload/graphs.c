/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs - which graph launches a free waits for (CUPOLA_FREE=exact): those that touch memory of the
 * host, or that may.
 * What:       graphs NAME runs one case on the software driver. Each launch is followed by the free of
 *             another block, which must return while the graph is held back, or else after it. The last
 *             line is what CUPOLA_STATS must say.
 * Not here:   that what the graph brings is there after the free (gpu/debts_host.c).
 * Invariants: exit 0 only when every REQUIRE held and the overlap detector saw nothing.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/support/rng.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define BYTES   65536
#define LATE_US 30000

static CUcontext g_context;
static CUdeviceptr g_block, g_target;
static uint64_t *g_pinned;
static unsigned g_waits; /* frees that had to wait */

/* ---- graphs, a node each ---- */

static CUgraph new_graph(void)
{
    CUgraph graph;

    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    return graph;
}

static CUgraphNode add_kernel(CUgraph graph)
{
    uint64_t bytes = BYTES, seed = 3;
    void *params[] = {&g_block, &bytes, &seed};
    const CUDA_KERNEL_NODE_PARAMS node = {client_fill_kernel, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
    CUgraphNode made;

    REQUIRE(cuGraphAddKernelNode(&made, graph, NULL, 0, &node) == CUDA_SUCCESS);
    return made;
}

/* The side's kind is what its address is. */
static CUDA_MEMCPY3D copy_of(CUdeviceptr dst, CUdeviceptr src)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = dst,
                           .WidthInBytes = 4096,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr dst)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = dst, .value = 1, .elementSize = 4, .width = 16, .height = 1};
}

static CUgraphNode add_copy(CUgraph graph, CUdeviceptr dst, CUdeviceptr src)
{
    const CUDA_MEMCPY3D copy = copy_of(dst, src);
    CUgraphNode made;

    REQUIRE(cuGraphAddMemcpyNode(&made, graph, NULL, 0, &copy, g_context) == CUDA_SUCCESS);
    return made;
}

static CUgraphNode add_set(CUgraph graph, CUdeviceptr dst)
{
    const CUDA_MEMSET_NODE_PARAMS set = set_of(dst);
    CUgraphNode made;

    REQUIRE(cuGraphAddMemsetNode(&made, graph, NULL, 0, &set, g_context) == CUDA_SUCCESS);
    return made;
}

static CUgraphNode add_child(CUgraph graph, CUgraph child)
{
    CUgraphNode made;

    REQUIRE(cuGraphAddChildGraphNode(&made, graph, NULL, 0, child) == CUDA_SUCCESS);
    return made;
}

static void nothing(void *unused)
{
    (void)unused;
}

/* Each kind that a graph may have, whether a launch of it is waited for. */
static void kernel(CUgraph graph)
{
    add_kernel(graph);
}

static void device_copy(CUgraph graph)
{
    add_copy(graph, g_target, g_block);
}

static void device_set(CUgraph graph)
{
    add_set(graph, g_block);
}

static void empty(CUgraph graph)
{
    CUgraphNode made;

    REQUIRE(cuGraphAddEmptyNode(&made, graph, NULL, 0) == CUDA_SUCCESS);
}

/* One of each that is harmless. */
static void harmless(CUgraph graph)
{
    kernel(graph);
    device_copy(graph);
    device_set(graph);
    empty(graph);
}

static void harmless_child(CUgraph graph)
{
    CUgraph child = new_graph(), grandchild = new_graph();

    harmless(grandchild);
    harmless(child);
    add_child(child, grandchild);
    add_child(graph, child);
}

static void to_host(CUgraph graph)
{
    harmless(graph);
    add_copy(graph, (CUdeviceptr)g_pinned, g_block);
}

static void from_host(CUgraph graph)
{
    harmless(graph);
    add_copy(graph, g_block, (CUdeviceptr)g_pinned);
}

static void host_set(CUgraph graph)
{
    harmless(graph);
    add_set(graph, (CUdeviceptr)g_pinned);
}

static void host_function(CUgraph graph)
{
    const CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    CUgraphNode made;

    harmless(graph);
    REQUIRE(cuGraphAddHostNode(&made, graph, NULL, 0, &host) == CUDA_SUCCESS);
}

static void host_grandchild(CUgraph graph)
{
    CUgraph child = new_graph(), grandchild = new_graph();

    to_host(grandchild);
    add_child(child, grandchild);
    harmless(graph);
    add_child(graph, child);
}

/* Harmless, but deeper than anybody looks. */
static void deep(CUgraph graph)
{
    CUgraph inner = new_graph();

    for (int i = 0; i < 10; i++) {
        CUgraph outer = new_graph();

        add_child(outer, inner);
        inner = outer;
    }
    add_child(graph, inner);
}

static CUgraph graph_of(void (*add)(CUgraph))
{
    CUgraph graph = new_graph();

    add(graph);
    return graph;
}

static CUgraphExec exec_of(CUgraph graph)
{
    CUgraphExec exec;

    REQUIRE(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    return exec;
}

/* ---- a launch, and a free after it ---- */

static void finish(CUstream stream)
{
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS && cuStreamDestroy(stream) == CUDA_SUCCESS);
}

/* The stream begins nothing until the free has returned. */
static void is_not_waited_for(CUgraphExec exec)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr other = client_alloc(512);

    REQUIRE(softcuda_hold(stream) == 0);
    client_spin(stream, 1); /* a graph may be empty */
    REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(other) == CUDA_SUCCESS);
    REQUIRE(softcuda_unfinished() > 0);
    softcuda_release(stream);
    finish(stream);
}

static void is_waited_for(CUgraphExec exec)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr other = client_alloc(512);

    client_spin(stream, LATE_US);
    REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(other) == CUDA_SUCCESS);
    REQUIRE(softcuda_unfinished() == 0);
    finish(stream);
    g_waits++;
}

/* ---- cases ---- */

static void kinds(void)
{
    static void (*const plain[])(CUgraph) = {kernel, device_copy, device_set,
                                             empty,  harmless,    harmless_child};
    static void (*const host[])(CUgraph) = {to_host,       from_host,       host_set,
                                            host_function, host_grandchild, deep};

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        is_not_waited_for(exec_of(graph_of(plain[i])));
    for (size_t i = 0; i < sizeof(host) / sizeof(host[0]); i++)
        is_waited_for(exec_of(graph_of(host[i])));
    is_not_waited_for(exec_of(new_graph()));
}

static void captured(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;

    for (int has_copy = 0; has_copy < 2; has_copy++) {
        REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
        client_fill(stream, g_block, BYTES, 1);
        REQUIRE(cuMemcpyDtoDAsync(g_target, g_block, BYTES, stream) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD32Async(g_target, 1, 16, stream) == CUDA_SUCCESS);
        if (has_copy)
            REQUIRE(cuMemcpyDtoHAsync(g_pinned, g_block, 4096, stream) == CUDA_SUCCESS);
        REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
        (has_copy ? is_waited_for : is_not_waited_for)(exec_of(graph));
    }
}

/* Whoever makes it. */
static void doors(void)
{
    static const char *const old[] = {"cuGraphInstantiate", "cuGraphInstantiate_v2"};
    static const char *const new[] = {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"};
    CUgraph plain = graph_of(harmless), host = graph_of(to_host);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CUgraphExec exec;

    REQUIRE(driver);
    for (int i = 0; i < 2; i++) {
        CUresult (*make)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) =
            (__typeof__(make))dlsym(driver, old[i]);

        REQUIRE(make && make(&exec, plain, NULL, NULL, 0) == CUDA_SUCCESS);
        is_not_waited_for(exec);
        REQUIRE(make(&exec, host, NULL, NULL, 0) == CUDA_SUCCESS);
        is_waited_for(exec);
    }
    for (int i = 0; i < 2; i++) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
        CUresult (*make)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *) =
            (__typeof__(make))dlsym(driver, new[i]);

        REQUIRE(make && make(&exec, plain, &params) == CUDA_SUCCESS);
        is_not_waited_for(exec);
        REQUIRE(make(&exec, host, &params) == CUDA_SUCCESS);
        is_waited_for(exec);
    }
}

/* A node set to something of the host: from then on, also when it is set back; a whole update tells all. */
static void changes(void)
{
    CUgraph plain = new_graph(), child = graph_of(device_copy), host_child = graph_of(device_copy);
    CUgraphNode copy = add_copy(plain, g_target, g_block), set = add_set(plain, g_block);
    CUgraphNode nested = add_child(plain, child), first;
    const CUDA_MEMCPY3D down = copy_of((CUdeviceptr)g_pinned, g_block), across = copy_of(g_target, g_block);
    const CUDA_MEMSET_NODE_PARAMS host = set_of((CUdeviceptr)g_pinned), device = set_of(g_block);
    CUgraphExec exec = exec_of(plain);
    CUgraphExecUpdateResultInfo info;
    size_t one = 1;

    REQUIRE(cuGraphGetNodes(host_child, &first, &one) == CUDA_SUCCESS);
    REQUIRE(cuGraphMemcpyNodeSetParams(first, &down) == CUDA_SUCCESS);
    REQUIRE(cuGraphExecMemcpyNodeSetParams(exec, copy, &across, g_context) == CUDA_SUCCESS);
    REQUIRE(cuGraphExecMemsetNodeSetParams(exec, set, &device, g_context) == CUDA_SUCCESS);
    REQUIRE(cuGraphExecChildGraphNodeSetParams(exec, nested, child) == CUDA_SUCCESS);
    is_not_waited_for(exec);
    REQUIRE(cuGraphExecMemcpyNodeSetParams(exec, copy, &down, g_context) == CUDA_SUCCESS);
    is_waited_for(exec);
    REQUIRE(cuGraphExecMemcpyNodeSetParams(exec, copy, &across, g_context) == CUDA_SUCCESS);
    is_waited_for(exec);
    REQUIRE(cuGraphExecUpdate(exec, plain, &info) == CUDA_SUCCESS);
    is_not_waited_for(exec);
    REQUIRE(cuGraphExecMemsetNodeSetParams(exec, set, &host, g_context) == CUDA_SUCCESS);
    is_waited_for(exec);
    REQUIRE(cuGraphExecUpdate(exec, plain, &info) == CUDA_SUCCESS);
    REQUIRE(cuGraphExecChildGraphNodeSetParams(exec, nested, host_child) == CUDA_SUCCESS);
    is_waited_for(exec);
}

/* By parameters of any kind. The software driver refuses; it might have done half of it. */
static void any_node(void)
{
    CUgraph graph = new_graph();
    CUgraphNode node = add_copy(graph, g_target, g_block);
    CUgraphNodeParams params[] = {
        {.type = CU_GRAPH_NODE_TYPE_KERNEL},
        {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy.copyParams = copy_of(g_target, g_block)},
        {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset.dst = g_block},
        {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = graph_of(harmless)},
        {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy.copyParams = copy_of((CUdeviceptr)g_pinned, g_block)},
        {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset.dst = (CUdeviceptr)g_pinned},
        {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = graph_of(to_host)},
        {.type = CU_GRAPH_NODE_TYPE_HOST},
    };

    for (int i = 0; i < 8; i++) {
        CUgraphExec exec = exec_of(graph);

        cuGraphExecNodeSetParams(exec, node, &params[i]);
        (i < 4 ? is_not_waited_for : is_waited_for)(exec);
    }
}

static void updates(void)
{
    CUgraph plain = graph_of(device_copy), host = new_graph(), other = graph_of(kernel);
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec = exec_of(plain);

    add_copy(host, (CUdeviceptr)g_pinned, g_block);
    REQUIRE(cuGraphExecUpdate(exec, host, &info) == CUDA_SUCCESS);
    is_waited_for(exec);
    REQUIRE(cuGraphExecUpdate(exec, plain, &info) == CUDA_SUCCESS);
    is_not_waited_for(exec);
    REQUIRE(cuGraphExecUpdate(exec, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    is_waited_for(exec); /* nobody knows what it is now */
}

/* The handle of a destroyed executable comes back as another one. */
static void reused(void)
{
    CUgraph plain = graph_of(harmless), host = graph_of(to_host);
    CUgraphExec first = exec_of(plain), second = NULL;

    is_not_waited_for(first);
    for (int i = 0; i < 1000 && second != first; i++) {
        if (second)
            first = exec_of(plain);
        REQUIRE(cuGraphExecDestroy(first) == CUDA_SUCCESS);
        second = exec_of(host);
    }
    if (second != first)
        exit(77); /* this allocator gives no handle back: a sanitizer's */
    is_waited_for(second);
}

/* More than there is room for: whichever are not known are waited for, and none is mistaken. */
static void many(void)
{
    enum { COUNT = 20000 };
    static CUgraphExec exec[COUNT];
    CUgraph plain = graph_of(empty), host = graph_of(to_host);

    for (int i = 0; i < COUNT; i++)
        exec[i] = exec_of(plain);
    is_waited_for(exec_of(host));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(cuGraphExecDestroy(exec[i]) == CUDA_SUCCESS);
    is_not_waited_for(exec_of(plain));
}

/* What the block was used for by the graph comes before what its next owner does. */
static void is_ordered(void)
{
    CUgraphExec exec = exec_of(graph_of(harmless));
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING), next = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr again;

    REQUIRE(softcuda_hold(stream) == 0);
    REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(g_block) == CUDA_SUCCESS);
    again = client_alloc(BYTES);
    REQUIRE(again == g_block && softcuda_claims_in_flight() > 0);
    client_fill(next, again, BYTES, 8);
    softcuda_release(stream);
    finish(next);
    finish(stream);
}

/* Every query fails once: the program sees nothing of it, and the launch is waited for. */
static void failures(void)
{
    static const char *const queries[] = {
        "cuGraphGetNodes",
        "cuGraphNodeGetType",
        "cuGraphMemcpyNodeGetParams",
        "cuGraphMemsetNodeGetParams",
        "cuGraphChildGraphNodeGetGraph",
        "cuPointerGetAttribute",
    };
    CUgraph graph = graph_of(harmless_child);
    CUdeviceptr foreign;

    REQUIRE(cuMemAllocAsync(&foreign, 4096, 0) ==
            CUDA_SUCCESS); /* an address that the driver must be asked about */
    add_set(graph, foreign);
    is_not_waited_for(exec_of(graph));
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        uint64_t before = softcuda_calls(queries[i]), made;

        exec_of(graph);
        made = softcuda_calls(queries[i]) - before;
        REQUIRE(made > 0);
        for (uint64_t nth = 1; nth <= made; nth++) {
            CUgraphExec exec;

            REQUIRE(softcuda_fail_nth(queries[i], nth, CUDA_ERROR_UNKNOWN) == 0);
            exec = exec_of(graph);
            is_waited_for(exec);
        }
    }
    is_not_waited_for(exec_of(graph));
}

/* Once the device may launch graphs, a launch may do anything. */
static void by_device(void)
{
    CUgraphExec exec = exec_of(graph_of(kernel)), device;

    is_not_waited_for(exec);
    REQUIRE(cuGraphInstantiateWithFlags(&device, graph_of(kernel),
                                        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == CUDA_SUCCESS);
    is_waited_for(device);
    is_waited_for(exec);
}

/* Each makes, launches and ends executables of its own: nobody waits for anybody's. */
static void *live(void *unused)
{
    CUgraph plain = new_graph();
    CUstream stream;

    REQUIRE(cuCtxSetCurrent(g_context) == CUDA_SUCCESS);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    add_set(plain, client_alloc(4096));
    for (int i = 0; i < 50; i++) {
        CUgraphExec exec = exec_of(plain);

        REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
        REQUIRE(cuMemFree(client_alloc(512)) == CUDA_SUCCESS);
        REQUIRE(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    }
    finish(stream);
    return unused;
}

static void threads(void)
{
    pthread_t thread[4];

    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread[i], NULL, live, NULL) == 0);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
}

/* ---- the law: random graphs and changes, against what they must be ---- */

typedef struct subject {
    CUgraph graph;
    CUgraphNode copy; /* in it, between blocks of the device */
    bool has_host;    /* the graph, as it was made */
    CUgraphExec exec;
    bool is_host; /* the executable, now */
} subject_t;

/* Some nodes of any kind, and graphs of such. Whether any touches the host. */
static bool add_random(CUgraph graph, cup_rng_t *rng, int depth)
{
    static void (*const kinds[])(CUgraph) = {kernel, device_copy, device_set, empty, harmless_child};
    static void (*const hosts[])(CUgraph) = {to_host, from_host, host_set, host_function, host_grandchild};
    bool has_host = false;

    for (uint64_t i = cup_rng_below(rng, 5); i > 0; i--)
        kinds[cup_rng_below(rng, 5)](graph);
    if (cup_rng_below(rng, 8) == 0) {
        hosts[cup_rng_below(rng, 5)](graph);
        has_host = true;
    }
    if (depth < 4 && cup_rng_below(rng, 2) == 0) {
        CUgraph child = new_graph();

        has_host |= add_random(child, rng, depth + 1);
        add_child(graph, child);
    }
    return has_host;
}

static void make_subject(subject_t *subject, cup_rng_t *rng)
{
    if (subject->exec)
        REQUIRE(cuGraphExecDestroy(subject->exec) == CUDA_SUCCESS);
    if (subject->graph)
        REQUIRE(cuGraphDestroy(subject->graph) == CUDA_SUCCESS);
    subject->graph = new_graph();
    subject->copy = add_copy(subject->graph, g_target, g_block);
    subject->has_host = subject->is_host = add_random(subject->graph, rng, 0);
    subject->exec = exec_of(subject->graph);
}

static void change_subject(subject_t *subject, cup_rng_t *rng)
{
    bool is_down = cup_rng_below(rng, 2) == 0;
    const CUDA_MEMCPY3D copy = copy_of(is_down ? (CUdeviceptr)g_pinned : g_target, g_block);
    CUgraphExecUpdateResultInfo info;

    if (cup_rng_below(rng, 2) == 0) {
        REQUIRE(cuGraphExecUpdate(subject->exec, subject->graph, &info) == CUDA_SUCCESS);
        subject->is_host = subject->has_host;
        return;
    }
    REQUIRE(cuGraphExecMemcpyNodeSetParams(subject->exec, subject->copy, &copy, g_context) == CUDA_SUCCESS);
    subject->is_host |= is_down;
}

static void law(void)
{
    cup_rng_t rng = {cup_rng_seed(1)};
    subject_t subject[6] = {0};

    fprintf(stderr, "CUP_SEED=%llu\n", (unsigned long long)rng.state);
    for (int i = 0; i < 6; i++)
        make_subject(&subject[i], &rng);
    for (int step = 0; step < 200; step++) {
        subject_t *chosen = &subject[cup_rng_below(&rng, 6)];

        switch (cup_rng_below(&rng, 4)) {
        case 0:
            make_subject(chosen, &rng);
            break;
        case 1:
            change_subject(chosen, &rng);
            break;
        default:
            (chosen->is_host ? is_waited_for : is_not_waited_for)(chosen->exec);
        }
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} g_case[] = {
    {"kinds", kinds},           {"captured", captured}, {"doors", doors},         {"changes", changes},
    {"any_node", any_node},     {"updates", updates},   {"reused", reused},       {"many", many},
    {"is_ordered", is_ordered}, {"failures", failures}, {"by_device", by_device}, {"law", law},
    {"threads", threads},
};

static void run(void (*body)(void))
{
    CUgraphExec early = exec_of(new_graph()); /* before the pool's life: nobody knows it */

    g_block = client_alloc(BYTES);
    g_target = client_alloc(BYTES);
    REQUIRE(cuMemHostAlloc((void **)&g_pinned, 4096, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxGetCurrent(&g_context) == CUDA_SUCCESS);
    is_waited_for(early);
    body();
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(g_case) / sizeof(g_case[0]); i++) {
        if (strcmp(argv[1], g_case[i].name) != 0)
            continue;
        client_open();
        run(g_case[i].run);
        REQUIRE(softcuda_violations() == 0);
        printf("host_waits 1 %u\n", g_waits); /* a spin may end before the free begins */
        return 0;
    }
    return 2;
}
