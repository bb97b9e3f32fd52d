/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_world - a small world of driver objects, and what a row's parameters mean in it: arguments for any
 * row of the LISTs.
 * What:       rows_fill() sets a parameter by its type and name as the row spells them: to a value of the
 *             world, or to zero where the software driver has nothing of the kind (arrays, pools,
 *             graphics), which it refuses whatever the arguments are.
 * Invariants: made anew for every call, in a process of its own: a call may end whatever it likes. The last
 *             thing done is a free under a running kernel: what a call must do about it is still to be
 *             done.
 * Threads:    one.
 */
#ifndef CUP_TESTS_PRELOAD_ROWS_WORLD_H
#define CUP_TESTS_PRELOAD_ROWS_WORLD_H
#include "shim/cuda_abi.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/require.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ROWS_BLOCK_BYTES ((size_t)4096)

typedef struct {
    CUcontext ctx, own_ctx;
    CUstream stream;
    CUevent event, start, end;
    CUmodule module;
    CUfunction fill;
    CUdeviceptr block, other, freed;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUmemGenericAllocationHandle handle;
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;
} rows_objects_t;

typedef struct {
    rows_objects_t made;
    uint64_t slot[64], second[8]; /* outputs that nobody reads */
    unsigned char host[4096];
    uint64_t fill_bytes, fill_seed;
    void *fill_args[3];
    size_t sizes[1], indices[1];
    CUlaunchConfig config;
    CUDA_LAUNCH_PARAMS launch;
    CUDA_MEMCPY2D copy_2d;
    CUDA_MEMCPY3D copy_3d;
    CUDA_MEMCPY3D_PEER copy_peer;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiate;
    CUgraphNodeParams node_params;
    CUmemcpyAttributes attributes;
    CUmemLocation location;
    CUmemAccessDesc access;
    CUstreamBatchMemOpParams memop;
    CUpointer_attribute asked[1];
    CUpointer_attribute one_attribute, settable;
    CUstreamCaptureMode mode;
    CUmemAllocationHandleType handle_type;
    CUmemRangeHandleType range_type;
    CUhostFn host_fn;
    CUstreamCallback callback;
    void *data[1], *address;
    void *out, *out_second, *bytes, *named, *looked_up;
    void *fill_args_at, *config_at, *launch_at, *copy_2d_at, *copy_3d_at, *copy_peer_at, *set_at,
        *instantiate_at;
    void *node_params_at, *attributes_at, *location_at, *access_at, *memop_at, *asked_at, *data_at, *sizes_at;
    void *indices_at, *block_at, *other_at;
    size_t page, some, few, one_size, pitch;
    unsigned one, element, pitch_v1;
    int version;
} rows_world_t;

static rows_world_t g_world;

/* V(symbol or NULL, type, name or NULL, member): the first that fits is taken. */
/* clang-format off */
#define ROWS_VALUE_LIST(V)                                                                                   \
    V("cuCtxDestroy", "CUcontext", NULL, made.own_ctx)                                                       \
    V("cuCtxDestroy_v2", "CUcontext", NULL, made.own_ctx)                                                    \
    V("cuCtxEnablePeerAccess", "CUcontext", NULL, made.own_ctx)                                              \
    V("cuCtxDisablePeerAccess", "CUcontext", NULL, made.own_ctx)                                             \
    V("cuPointerSetAttribute", "CUpointer_attribute", NULL, settable)                                        \
    V("cuGetProcAddress", "const char *", NULL, looked_up)                                                   \
    V("cuGetProcAddress_v2", "const char *", NULL, looked_up)                                                \
    V("cuMemAllocManaged", "unsigned int", "flags", one)                                                     \
    V(NULL, "CUcontext", NULL, made.ctx)                                                                     \
    V(NULL, "CUstream", NULL, made.stream)                                                                   \
    V(NULL, "CUevent", "start", made.start)                                                                  \
    V(NULL, "CUevent", "end", made.end)                                                                      \
    V(NULL, "CUevent", NULL, made.event)                                                                     \
    V(NULL, "CUmodule", NULL, made.module)                                                                   \
    V(NULL, "CUfunction", NULL, made.fill)                                                                   \
    V(NULL, "CUgraph", NULL, made.graph)                                                                     \
    V(NULL, "CUgraphNode", NULL, made.node)                                                                  \
    V(NULL, "CUgraphExec", NULL, made.exec)                                                                  \
    V(NULL, "CUgreenCtx", NULL, made.green)                                                                  \
    V(NULL, "CUdevResourceDesc", NULL, made.desc)                                                            \
    V(NULL, "CUmemGenericAllocationHandle", NULL, made.handle)                                               \
    V(NULL, "CUdeviceptr", "src", made.other)                                                                \
    V(NULL, "CUdeviceptr", "srcDevice", made.other)                                                          \
    V(NULL, "CUdeviceptr", NULL, made.block)                                                                 \
    V(NULL, "CUdeviceptr *", "dptrs", block_at)                                                              \
    V(NULL, "CUdeviceptr *", "dsts", block_at)                                                               \
    V(NULL, "CUdeviceptr *", "srcs", other_at)                                                               \
    V(NULL, "CUdeviceptr *", NULL, out)                                                                      \
    V(NULL, "CUcontext *", NULL, out)                                                                        \
    V(NULL, "CUgraph *", NULL, out)                                                                          \
    V(NULL, "CUgraphExec *", NULL, out)                                                                      \
    V(NULL, "CUgraphNode *", NULL, out_second)                                                               \
    V(NULL, "CUgreenCtx *", NULL, out)                                                                       \
    V(NULL, "CUgraphExecUpdateResult *", NULL, out)                                                          \
    V(NULL, "CUgraphExecUpdateResultInfo *", NULL, out)                                                      \
    V(NULL, "CUmemGenericAllocationHandle *", NULL, out)                                                     \
    V(NULL, "CUdriverProcAddressQueryResult *", NULL, out_second)                                            \
    V(NULL, "CUipcMemHandle *", NULL, out)                                                                   \
    V(NULL, "float *", NULL, out)                                                                            \
    V(NULL, "unsigned int *", NULL, out)                                                                     \
    V(NULL, "unsigned long long *", NULL, out)                                                               \
    V(NULL, "char *", NULL, bytes)                                                                           \
    V(NULL, "size_t *", "sizes", sizes_at)                                                                   \
    V(NULL, "size_t *", "attrsIdxs", indices_at)                                                             \
    V(NULL, "size_t *", "total", out)                                                                        \
    V(NULL, "size_t *", NULL, out_second)                                                                    \
    V(NULL, "const char *", NULL, named)                                                                     \
    V(NULL, "const void *", "srcHost", bytes)                                                                \
    V(NULL, "const void *", "value", sizes_at)                                                               \
    V(NULL, "void *", "dstHost", bytes)                                                                      \
    V(NULL, "void *", "ptr", address)                                                                        \
    V(NULL, "void *", NULL, out)                                                                             \
    V(NULL, "void **", "kernelParams", fill_args_at)                                                         \
    V(NULL, "void **", "data", data_at)                                                                      \
    V(NULL, "void **", "pfn", out)                                                                           \
    V(NULL, "size_t", "ByteCount", some)                                                                     \
    V(NULL, "size_t", "N", few)                                                                              \
    V(NULL, "size_t", "Width", few)                                                                          \
    V(NULL, "size_t", "Height", one_size)                                                                    \
    V(NULL, "size_t", "width", some)                                                                         \
    V(NULL, "size_t", "height", few)                                                                         \
    V(NULL, "size_t", "dstPitch", pitch)                                                                     \
    V(NULL, "size_t", "bytesize", page)                                                                      \
    V(NULL, "size_t", "size", page)                                                                          \
    V(NULL, "size_t", "length", some)                                                                        \
    V(NULL, "size_t", "count", one_size)                                                                     \
    V(NULL, "size_t", "numAttrs", one_size)                                                                  \
    V(NULL, "unsigned int", "element", element)                                                              \
    V(NULL, "unsigned int", "count", one)                                                                    \
    V(NULL, "unsigned int", "numDevices", one)                                                               \
    V(NULL, "unsigned int", "gridDimX", one)                                                                 \
    V(NULL, "unsigned int", "gridDimY", one)                                                                 \
    V(NULL, "unsigned int", "gridDimZ", one)                                                                 \
    V(NULL, "unsigned int", "blockDimX", one)                                                                \
    V(NULL, "unsigned int", "blockDimY", one)                                                                \
    V(NULL, "unsigned int", "blockDimZ", one)                                                                \
    V(NULL, "int", "version", version)                                                                       \
    V(NULL, "const CUlaunchConfig *", NULL, config_at)                                                       \
    V(NULL, "CUDA_LAUNCH_PARAMS *", NULL, launch_at)                                                         \
    V(NULL, "const CUDA_MEMCPY2D *", NULL, copy_2d_at)                                                       \
    V(NULL, "const CUDA_MEMCPY3D *", NULL, copy_3d_at)                                                       \
    V(NULL, "const CUDA_MEMCPY3D_PEER *", NULL, copy_peer_at)                                                \
    V(NULL, "const CUDA_MEMSET_NODE_PARAMS *", NULL, set_at)                                                 \
    V(NULL, "CUDA_GRAPH_INSTANTIATE_PARAMS *", NULL, instantiate_at)                                         \
    V(NULL, "CUgraphNodeParams *", NULL, node_params_at)                                                     \
    V(NULL, "CUmemcpyAttributes *", NULL, attributes_at)                                                     \
    V(NULL, "const CUmemLocation *", NULL, location_at)                                                      \
    V(NULL, "CUmemLocation *", NULL, location_at)                                                            \
    V(NULL, "CUmemLocation", NULL, location)                                                                 \
    V(NULL, "const CUmemAccessDesc *", NULL, access_at)                                                      \
    V(NULL, "CUstreamBatchMemOpParams *", NULL, memop_at)                                                    \
    V(NULL, "CUpointer_attribute", NULL, one_attribute)                                                      \
    V(NULL, "CUpointer_attribute *", NULL, asked_at)                                                         \
    V(NULL, "CUstreamCaptureMode", NULL, mode)                                                               \
    V(NULL, "CUmemAllocationHandleType", NULL, handle_type)                                                  \
    V(NULL, "CUmemRangeHandleType", NULL, range_type)                                                        \
    V(NULL, "CUhostFn", NULL, host_fn)                                                                       \
    V(NULL, "CUstreamCallback", NULL, callback)
/* clang-format on */

/* ---- the world ---- */

static void rows_host_fn(void *data)
{
    (void)data;
}

static void rows_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream, (void)status, (void)data;
}

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

static void rows_make_contexts(rows_objects_t *made)
{
    CUcontext before;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&made->ctx, 0));
    OK(cuCtxCreate_v2(&made->own_ctx, 0, 0));
    OK(cuCtxPopCurrent_v2(&before));
    OK(cuCtxSetCurrent(made->ctx));
    OK(cuDeviceGetDevResource(0, &made->resource, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&made->desc, &made->resource, 1));
    OK(cuGreenCtxCreate(&made->green, made->desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
}

static void rows_make_graph(rows_world_t *w)
{
    w->set = (CUDA_MEMSET_NODE_PARAMS){.dst = w->made.block, .elementSize = 1, .width = 16, .height = 1};
    OK(cuGraphCreate(&w->made.graph, 0));
    OK(cuGraphAddMemsetNode(&w->made.node, w->made.graph, NULL, 0, &w->set, w->made.ctx));
    OK(cuGraphInstantiateWithFlags(&w->made.exec, w->made.graph, 0));
}

static void rows_make_memory(rows_objects_t *made)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    size_t pitch;
    CUdeviceptr padded;

    OK(cuMemAlloc_v2(&made->block, ROWS_BLOCK_BYTES));
    OK(cuMemAlloc_v2(&made->other, ROWS_BLOCK_BYTES));
    OK(cuMemAlloc_v2(&made->freed, ROWS_BLOCK_BYTES));
    OK(cuMemsetD8_v2(made->block, 0, ROWS_BLOCK_BYTES));
    OK(cuMemAllocPitch_v2(&padded, &pitch, 64, 16, 4)); /* where the next one learns the pitch */
    OK(cuMemCreate(&made->handle, (size_t)2 << 20, &prop, 0));
}

static void rows_make_work(rows_objects_t *made)
{
    OK(cuModuleLoadData(&made->module, "softcuda\nfill\ndevice_words\n"));
    OK(cuModuleGetFunction(&made->fill, made->module, "fill"));
    OK(cuStreamCreate(&made->stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&made->event, 0));
    OK(cuEventCreate(&made->start, 0));
    OK(cuEventCreate(&made->end, 0));
    OK(cuEventRecord(made->start, made->stream));
    OK(cuEventRecord(made->end, made->stream));
    OK(cuStreamSynchronize(made->stream));
}

static void rows_describe_work(rows_world_t *w)
{
    w->fill_bytes = ROWS_BLOCK_BYTES;
    w->fill_args[0] = &w->made.block;
    w->fill_args[1] = &w->fill_bytes;
    w->fill_args[2] = &w->fill_seed;
    w->config = (CUlaunchConfig){1, 1, 1, 1, 1, 1, 0, w->made.stream, NULL, 0};
    w->launch = (CUDA_LAUNCH_PARAMS){w->made.fill, 1, 1, 1, 1, 1, 1, 0, w->made.stream, w->fill_args};
    w->memop.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    w->memop.writeValue.address = w->made.block;
}

static void rows_describe_copies(rows_world_t *w)
{
    w->copy_2d = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = w->made.other,
                                 .srcPitch = 64,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = w->made.block,
                                 .dstPitch = 64,
                                 .WidthInBytes = 16,
                                 .Height = 2};
    w->copy_3d = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = w->made.other,
                                 .srcPitch = 64,
                                 .srcHeight = 2,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = w->made.block,
                                 .dstPitch = 64,
                                 .dstHeight = 2,
                                 .WidthInBytes = 16,
                                 .Height = 2,
                                 .Depth = 2};
    w->copy_peer = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                        .srcDevice = w->made.other,
                                        .srcContext = w->made.ctx,
                                        .srcPitch = 64,
                                        .srcHeight = 2,
                                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                        .dstDevice = w->made.block,
                                        .dstContext = w->made.ctx,
                                        .dstPitch = 64,
                                        .dstHeight = 2,
                                        .WidthInBytes = 16,
                                        .Height = 2,
                                        .Depth = 2};
    w->attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    w->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    w->access = (CUmemAccessDesc){w->location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    w->sizes[0] = 64;
}

/* What a parameter that is a pointer points to. */
static void rows_aim(rows_world_t *w)
{
    static char variable[] = "device_words", sought[] = "cuMemAlloc";

    w->data[0] = w->out = w->slot, w->out_second = w->second, w->bytes = w->host, w->named = variable,
    w->looked_up = sought;
    w->fill_args_at = w->fill_args, w->config_at = &w->config, w->launch_at = &w->launch,
    w->copy_2d_at = &w->copy_2d;
    w->copy_3d_at = &w->copy_3d, w->copy_peer_at = &w->copy_peer, w->set_at = &w->set,
    w->instantiate_at = &w->instantiate;
    w->node_params_at = &w->node_params, w->attributes_at = &w->attributes, w->location_at = &w->location;
    w->access_at = &w->access, w->memop_at = &w->memop, w->asked_at = w->asked, w->data_at = w->data;
    w->sizes_at = w->sizes, w->indices_at = w->indices, w->block_at = &w->made.block,
    w->other_at = &w->made.other;
    w->address = (void *)w->made.block;
}

static void rows_number(rows_world_t *w)
{
    w->page = ROWS_BLOCK_BYTES, w->some = 64, w->few = 16, w->one_size = 1, w->pitch = 64;
    w->one = 1, w->element = 4, w->version = 13000;
    w->asked[0] = w->one_attribute = CU_POINTER_ATTRIBUTE_CONTEXT;
    w->settable = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    w->mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    w->handle_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    w->range_type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    w->host_fn = rows_host_fn, w->callback = rows_callback;
}

/*
 * Under the preload a block is freed while a kernel that uses it is certainly unfinished: its stream is
 * held until somebody waits (rows_release). Natively the free would wait itself.
 */
static void rows_free_one(rows_world_t *w, bool is_held)
{
    void *args[] = {&w->made.freed, &w->fill_bytes, &w->fill_seed};

    if (is_held)
        REQUIRE(softcuda_hold(w->made.stream) == 0);
    OK(cuLaunchKernel(w->made.fill, 1, 1, 1, 1, 1, 1, 0, w->made.stream, args, NULL));
    OK(cuEventRecord(w->made.event, w->made.stream));
    OK(cuMemFree_v2(w->made.freed));
}

static void rows_make_world(bool is_held)
{
    rows_make_contexts(&g_world.made);
    rows_make_work(&g_world.made);
    rows_make_memory(&g_world.made);
    rows_make_graph(&g_world);
    rows_describe_work(&g_world);
    rows_describe_copies(&g_world);
    rows_aim(&g_world);
    rows_number(&g_world);
    rows_free_one(&g_world, is_held);
}

/* ---- parameters ---- */

/* The parameter number `at` of a row's "(type name, type name)": where it begins and ends. */
static const char *rows_parameter(const char *params, unsigned at, const char **out_end)
{
    const char *from = params + 1;

    for (; at > 0; at--)
        from = strchr(from, ',') + 1;
    while (*from == ' ')
        from++;
    *out_end = from + strcspn(from, ",)");
    return from;
}

static bool rows_fits(const char *wanted, const char *from, const char *end)
{
    return !wanted ||
           (strlen(wanted) == (size_t)(end - from) && memcmp(wanted, from, (size_t)(end - from)) == 0);
}

static void rows_fill(const char *symbol, const char *params, unsigned at, void *out, size_t size)
{
    static const struct {
        const char *symbol, *type, *name;
        const void *value;
        size_t size;
    } values[] = {
#define V(row, type, name, member) {row, type, name, &g_world.member, sizeof(g_world.member)},
        ROWS_VALUE_LIST(V)
#undef V
    };
    const char *end, *from = rows_parameter(params, at, &end), *name = end;

    while (name > from && name[-1] != ' ' && name[-1] != '*')
        name--;
    memset(out, 0, size);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const char *type_end = name[-1] == ' ' ? name - 1 : name;

        if ((values[i].symbol && strcmp(values[i].symbol, symbol) != 0) ||
            !rows_fits(values[i].type, from, type_end) || !rows_fits(values[i].name, name, end))
            continue;
        REQUIRE(values[i].size == size);
        memcpy(out, values[i].value, size);
        return;
    }
}

#endif /* CUP_TESTS_PRELOAD_ROWS_WORLD_H */
