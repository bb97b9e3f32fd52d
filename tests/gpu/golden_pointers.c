/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_pointers - the calls of the driver's golden program that take a pointer: each is asked for each
 * kind.
 */
#define _GNU_SOURCE
#include "golden_driver.h"
#include <unistd.h>

#define COPY_BYTES 16

static int free_it(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemFree(bed->addr);
}

static int free_twice(golden_bed_t *bed, golden_answer_t *answer)
{
    int first = cuMemFree(bed->addr);

    golden_say(answer, " again %d", cuMemFree(bed->addr));
    return first;
}

static int free_async(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemFreeAsync(bed->addr, golden_stream);
}

static int free_host(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemFreeHost((void *)(uintptr_t)bed->addr);
}

static int get_range(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr base = SENTINEL;
    size_t size = SENTINEL;
    int code = cuMemGetAddressRange(&base, &size, bed->addr);

    if (code)
        golden_say(answer, " untouched %d", base == SENTINEL && size == SENTINEL);
    else
        golden_say(answer, " base %d size %zu", base == bed->base, size);
    return code;
}

static int get_range_size(golden_bed_t *bed, golden_answer_t *answer)
{
    size_t size = SENTINEL;
    int code = cuMemGetAddressRange(NULL, &size, bed->addr);

    if (!code)
        golden_say(answer, " size %zu", size);
    return code;
}

static int get_range_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemGetAddressRange(NULL, NULL, bed->addr);
}

static void show_context(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " %s", golden_context_name((CUcontext)(uintptr_t)value));
}

static void show_number(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " %d", (int)value);
}

static void show_size(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " %llu", (unsigned long long)value);
}

static void show_same(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, value ? " same %d" : " null", value == bed->addr);
}

static void show_base(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " base %d", value == bed->base);
}

/* A mapping that holds more than the memory asked about: how much is the driver's business. */
static void show_before(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " begins-before-it %d", value <= bed->base);
}

static void show_holds(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, " holds-it %d", value >= bed->bytes);
}

static void show_is_set(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    golden_say(answer, value ? " some" : " null");
}

static void show_id(golden_answer_t *answer, const golden_bed_t *bed, uint64_t value)
{
    uint64_t of_base = 0;

    cuPointerGetAttribute(&of_base, CU_POINTER_ATTRIBUTE_BUFFER_ID, bed->base);
    golden_say(answer, value ? " some, as its base has: %d" : " none", value == of_base);
}

/* attribute, how it is shown */
#define ATTRIBUTE_LIST(X)                      \
    X(CONTEXT, show_context)                   \
    X(MEMORY_TYPE, show_number)                \
    X(DEVICE_POINTER, show_same)               \
    X(HOST_POINTER, show_same)                 \
    X(SYNC_MEMOPS, show_number)                \
    X(BUFFER_ID, show_id)                      \
    X(IS_MANAGED, show_number)                 \
    X(DEVICE_ORDINAL, show_number)             \
    X(IS_LEGACY_CUDA_IPC_CAPABLE, show_number) \
    X(RANGE_START_ADDR, show_base)             \
    X(RANGE_SIZE, show_size)                   \
    X(MAPPED, show_number)                     \
    X(ALLOWED_HANDLE_TYPES, show_number)       \
    X(IS_GPU_DIRECT_RDMA_CAPABLE, show_number) \
    X(ACCESS_FLAGS, show_number)               \
    X(MEMPOOL_HANDLE, show_is_set)             \
    X(MAPPING_SIZE, show_holds)                \
    X(MAPPING_BASE_ADDR, show_before)          \
    X(MEMORY_BLOCK_ID, show_is_set)

#define X(attribute, show)                                                                     \
    static int get_##attribute(golden_bed_t *bed, golden_answer_t *answer)                     \
    {                                                                                          \
        uint64_t value = 0;                                                                    \
        int code = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_##attribute, bed->addr); \
                                                                                               \
        if (!code)                                                                             \
            show(answer, bed, value);                                                          \
        return code;                                                                           \
    }
ATTRIBUTE_LIST(X)
#undef X

static int get_attributes(golden_bed_t *bed, golden_answer_t *answer)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUcontext context = NULL;
    unsigned long long id = 0;
    CUdeviceptr pointer = 0, start = 0;
    unsigned type = 0;
    int device = 0;
    size_t size = 0;
    void *data[] = {&context, &type, &pointer, &id, &device, &start, &size};
    int code = cuPointerGetAttributes(GOLDEN_COUNT(names), names, data, bed->addr);

    if (!code)
        golden_say(answer, " context %s type %u pointer %s id %s device %d start %s size %zu",
                   golden_context_name(context), type,
                   pointer == bed->addr ? "same"
                   : pointer            ? "other"
                                        : "null",
                   id ? "some" : "none", device,
                   !start               ? "null"
                   : start == bed->base ? "base"
                                        : "other",
                   size);
    return code;
}

static int set_sync_memops(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned yes = 1, now = 0;
    int code = cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, bed->addr);

    if (!code && !cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, bed->addr))
        golden_say(answer, " then %u", now);
    return code;
}

static int set_memory_type(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned type = CU_MEMORYTYPE_HOST;

    return cuPointerSetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, bed->addr);
}

static int ipc_get(golden_bed_t *bed, golden_answer_t *answer)
{
    CUipcMemHandle handle;

    return cuIpcGetMemHandle(&handle, bed->addr);
}

static int ipc_close(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuIpcCloseMemHandle(bed->addr);
}

static int retain(golden_bed_t *bed, golden_answer_t *answer)
{
    CUmemGenericAllocationHandle handle = 0;
    int code = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)bed->addr);

    if (!code)
        golden_say(answer, " release %d", cuMemRelease(handle));
    return code;
}

static int unmap(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemUnmap(bed->addr, HANDLE_BYTES);
}

static int map_there(golden_bed_t *bed, golden_answer_t *answer)
{
    int code = cuMemMap(bed->addr, HANDLE_BYTES, 0, golden_handle, 0);

    if (!code)
        golden_say(answer, " unmap %d", cuMemUnmap(bed->addr, HANDLE_BYTES));
    return code;
}

static int set_access(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemSetAccess(bed->addr, HANDLE_BYTES, &golden_access, 1);
}

static int get_access(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned long long flags = 0;
    int code = cuMemGetAccess(&flags, &golden_access.location, bed->addr);

    if (!code)
        golden_say(answer, " flags %llu", flags);
    return code;
}

static int address_free(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemAddressFree(bed->addr, HANDLE_BYTES);
}

static int host_pointer(golden_bed_t *bed, golden_answer_t *answer)
{
    CUdeviceptr device = 0;
    int code = cuMemHostGetDevicePointer(&device, (void *)(uintptr_t)bed->addr, 0);

    if (!code)
        golden_say(answer, " same %d", device == bed->addr);
    return code;
}

static int host_flags(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned flags = 0;
    int code = cuMemHostGetFlags(&flags, (void *)(uintptr_t)bed->addr);

    if (!code)
        golden_say(answer, " flags %u", flags);
    return code;
}

static int host_unregister(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemHostUnregister((void *)(uintptr_t)bed->addr);
}

static int set_some(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemsetD8(bed->addr, 0, COPY_BYTES);
}

static int set_some_async(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemsetD8Async(bed->addr, 0, COPY_BYTES, golden_stream);
}

static int set_nothing(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemsetD8(bed->addr, 0, 0);
}

static int copy_out(golden_bed_t *bed, golden_answer_t *answer)
{
    char bytes[COPY_BYTES];

    return cuMemcpyDtoH(bytes, bed->addr, sizeof bytes);
}

static int copy_in(golden_bed_t *bed, golden_answer_t *answer)
{
    char bytes[COPY_BYTES] = {0};

    return cuMemcpyHtoD(bed->addr, bytes, sizeof bytes);
}

static int copy_across(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemcpyDtoD(golden_other, bed->addr, COPY_BYTES);
}

static int set_hint(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemAdvise(bed->addr, COPY_BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, golden_access.location);
}

static int get_hint(golden_bed_t *bed, golden_answer_t *answer)
{
    unsigned value = 0;

    return cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, bed->addr,
                                  COPY_BYTES);
}

static int prefetch(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemPrefetchAsync(bed->addr, COPY_BYTES, golden_access.location, 0, golden_stream);
}

static int attach(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuStreamAttachMemAsync(golden_stream, bed->addr, 0, CU_MEM_ATTACH_SINGLE);
}

static int export_pointer(golden_bed_t *bed, golden_answer_t *answer)
{
    CUmemPoolPtrExportData data;

    return cuMemPoolExportPointer(&data, bed->addr);
}

static int host_register(golden_bed_t *bed, golden_answer_t *answer)
{
    void *block = (void *)(uintptr_t)bed->addr;
    int code = cuMemHostRegister(block, SMALL_BYTES, 0);

    if (!code)
        cuMemHostUnregister(block);
    return code;
}

static int write_value(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuStreamWriteValue32(golden_stream, bed->addr, 0, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static int make_texture(golden_bed_t *bed, golden_answer_t *answer)
{
    const CUDA_RESOURCE_DESC memory = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                       .res.linear = {.devPtr = bed->addr,
                                                      .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                      .numChannels = 1,
                                                      .sizeInBytes = COPY_BYTES}};
    const CUDA_TEXTURE_DESC reading = {.flags = CU_TRSF_READ_AS_INTEGER};
    CUtexObject texture = 0;
    int code = cuTexObjectCreate(&texture, &memory, &reading, NULL);

    if (!code)
        cuTexObjectDestroy(texture);
    return code;
}

/* What a graph made by hand looks at before it ever runs. */
static int add_set_node(golden_bed_t *bed, golden_answer_t *answer)
{
    const CUDA_MEMSET_NODE_PARAMS set = {
        .dst = bed->addr, .elementSize = 1, .width = COPY_BYTES, .height = 1};
    CUgraph graph = NULL;
    CUgraphNode node;
    int code = cuGraphCreate(&graph, 0);

    if (code)
        return code;
    code = cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, golden_first);
    cuGraphDestroy(graph);
    return code;
}

static int copy_peer(golden_bed_t *bed, golden_answer_t *answer)
{
    return cuMemcpyPeer(golden_other, golden_first, bed->addr, golden_first, COPY_BYTES);
}

const golden_call_t golden_pointer_calls[] = {
    {"cuMemFree", GOLDEN_ALWAYS, free_it},
    {"cuMemFree/twice", GOLDEN_FULL, free_twice},
    {"cuMemFreeAsync", GOLDEN_ALWAYS, free_async},
    {"cuMemFreeHost", GOLDEN_FULL, free_host},
    {"cuMemGetAddressRange", GOLDEN_ALWAYS, get_range},
    {"cuMemGetAddressRange/size", GOLDEN_FULL, get_range_size},
    {"cuMemGetAddressRange/nothing", GOLDEN_FULL, get_range_nothing},
#define X(attribute, show) {"cuPointerGetAttribute/" #attribute, GOLDEN_FULL, get_##attribute},
    ATTRIBUTE_LIST(X)
#undef X
        {"cuPointerGetAttributes", GOLDEN_ALWAYS, get_attributes},
    {"cuPointerSetAttribute/SYNC_MEMOPS", GOLDEN_FULL, set_sync_memops},
    {"cuPointerSetAttribute/MEMORY_TYPE", GOLDEN_FULL, set_memory_type},
    {"cuIpcGetMemHandle", GOLDEN_ALWAYS, ipc_get},
    {"cuIpcCloseMemHandle", GOLDEN_FULL, ipc_close},
    {"cuMemRetainAllocationHandle", GOLDEN_ALWAYS, retain},
    {"cuMemUnmap", GOLDEN_FULL, unmap},
    {"cuMemMap", GOLDEN_FULL, map_there},
    {"cuMemSetAccess", GOLDEN_FULL, set_access},
    {"cuMemGetAccess", GOLDEN_FULL, get_access},
    {"cuMemAddressFree", GOLDEN_FULL, address_free},
    {"cuMemHostGetDevicePointer", GOLDEN_FULL, host_pointer},
    {"cuMemHostGetFlags", GOLDEN_FULL, host_flags},
    {"cuMemHostUnregister", GOLDEN_FULL, host_unregister},
    {"cuMemsetD8", GOLDEN_ALWAYS, set_some},
    {"cuMemsetD8/nothing", GOLDEN_FULL, set_nothing},
    {"cuMemsetD8Async", GOLDEN_FULL, set_some_async},
    {"cuMemcpyDtoH", GOLDEN_ALWAYS, copy_out},
    {"cuMemcpyHtoD", GOLDEN_FULL, copy_in},
    {"cuMemcpyDtoD", GOLDEN_ALWAYS, copy_across},
    {"cuMemcpyPeer", GOLDEN_FULL, copy_peer},
    {"cuMemAdvise", GOLDEN_FULL, set_hint},
    {"cuMemRangeGetAttribute", GOLDEN_FULL, get_hint},
    {"cuMemPrefetchAsync", GOLDEN_FULL, prefetch},
    {"cuStreamAttachMemAsync", GOLDEN_FULL, attach},
    {"cuMemPoolExportPointer", GOLDEN_FULL, export_pointer},
    {"cuMemHostRegister", GOLDEN_FULL, host_register},
    {"cuStreamWriteValue32", GOLDEN_FULL, write_value},
    {"cuTexObjectCreate", GOLDEN_FULL, make_texture},
    {"cuGraphAddMemsetNode", GOLDEN_FULL, add_set_node},
};
const size_t golden_pointer_call_count = GOLDEN_COUNT(golden_pointer_calls);
