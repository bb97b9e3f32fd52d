/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query - what a program is told of pooled memory, under the preload on the software driver.
 * What:       query CASE. doors: every row of query_list.h is ours by each way to the driver, and each way
 *             tells the same. law: random histories against a model of what each block must tell. The
 *             others are examples. What the driver says natively is compared by tests/gpu/query_probe.c.
 * Invariants: the driver is called a few times for hundreds of blocks: the pool had them.
 */
#define _GNU_SOURCE
#include "shim/query_list.h"
#include "tests/preload/client.h"
#include "tests/support/rng.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef CUresult (*get_fn)(void *, CUpointer_attribute, CUdeviceptr);

static int is_vmm(void)
{
    const char *backing = getenv("CUPOLA_BACKING");

    return backing && strcmp(backing, "vmm") == 0;
}

/* ---- one question ---- */

static CUresult ask(CUpointer_attribute attribute, CUdeviceptr ptr, unsigned long long *out)
{
    *out = 0;
    return cuPointerGetAttribute(out, attribute, ptr);
}

static unsigned long long told(CUpointer_attribute attribute, CUdeviceptr ptr)
{
    unsigned long long value, each = 77;
    void *data[] = {&each};

    REQUIRE(ask(attribute, ptr, &value) == CUDA_SUCCESS);
    REQUIRE(cuPointerGetAttributes(1, &attribute, data, ptr) == CUDA_SUCCESS);
    REQUIRE(memcmp(&each, &value, 4) == 0);
    return value;
}

static unsigned long long id_of(CUdeviceptr ptr)
{
    return told(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
}

static CUresult set_sync(CUdeviceptr ptr, unsigned value)
{
    return cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
}

static CUresult export_range(CUdeviceptr ptr, size_t size)
{
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, ptr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    if (result == CUDA_SUCCESS)
        close(fd);
    return result;
}

/* Nobody's: alone an error, among others zeros. */
static void require_unknown(CUdeviceptr ptr)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned long long value, id = 77, host = 77, size = 77;
    CUcontext context = (CUcontext)&value;
    void *data[] = {&id, &context, &host, &size};
    size_t range;

    REQUIRE(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr, &value) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr, &value) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuPointerGetAttributes(4, attributes, data, ptr) == CUDA_SUCCESS && id == 0 && !context);
    REQUIRE(host == ptr && size == 77); /* measured, both */
    REQUIRE(cuMemGetAddressRange(NULL, &range, ptr) == CUDA_ERROR_NOT_FOUND);
    REQUIRE(set_sync(ptr, 1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemHostUnregister((void *)(uintptr_t)ptr) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* ---- doors ---- */

static int is_ours(void *function)
{
    Dl_info info;

    return function && dladdr(function, &info) && strstr(info.dli_fname, "libcupola.so");
}

static void *by_getproc(const char *name)
{
    void *found = NULL;

    char plain[64];

    /* Look-ups know no version in a name. */
    snprintf(plain, sizeof(plain), "%.*s", (int)strlen(name) - (strstr(name, "_v2") ? 3 : 0), name);
    REQUIRE(cuGetProcAddress(plain, &found, 13000, 0, NULL) == CUDA_SUCCESS);
    return found;
}

/* link is what the linker made of the name. */
static void check_door(const char *name, void *link, CUdeviceptr block)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *way[] = {link, dlsym(driver, name), by_getproc(name)};

    for (int i = 0; i < 3; i++) {
        unsigned long long id = 0;

        REQUIRE(is_ours(way[i]));
        if (strcmp(name, "cuPointerGetAttribute") == 0) {
            REQUIRE(((get_fn)way[i])(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block) == CUDA_SUCCESS);
            REQUIRE(id == id_of(block) && id >> 62 == 1);
        }
    }
    dlclose(driver);
}

static void doors(void)
{
    CUdeviceptr block = client_alloc(4096);

#define X(symbol, ...) check_door(#symbol, (void *)symbol, block);
    CUP_QUERY_LIST(X)
#undef X
    check_door("cuMemGetAddressRange_v2", (void *)cuMemGetAddressRange, block);
    check_door("cuMemGetInfo_v2", (void *)cuMemGetInfo, block);
    check_door("cuMemAllocPitch_v2", (void *)cuMemAllocPitch, block);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/* ---- law ---- */

enum { BLOCKS = 200, STEPS = 4000, UNIT = 2 << 20 };

typedef struct {
    CUdeviceptr base; /* 0: none */
    size_t size;
    unsigned long long id;
    unsigned sync;
    int is_held, is_drivers; /* when it is freed */
} block_t;

static block_t g_block[BLOCKS];
static struct {
    CUdeviceptr base;
    size_t size;
} g_gone[STEPS]; /* freed and held: never anybody's again */
static int g_gone_count;

static void must_be_new(const block_t *block)
{
    static unsigned long long newest;

    REQUIRE(block->id > newest);
    newest = block->id;
    for (int i = 0; i < g_gone_count; i++)
        REQUIRE(block->base + block->size <= g_gone[i].base ||
                g_gone[i].base + g_gone[i].size <= block->base);
}

static void step_alloc(cup_rng_t *rng, block_t *block)
{
    block->size = cup_rng_size(rng, 23);
    block->base = client_alloc(block->size);
    block->id = id_of(block->base);
    block->sync = 0;
    block->is_held = block->is_drivers = 0;
    must_be_new(block);
}

static void step_free(block_t *block)
{
    uint64_t frees = softcuda_calls("cuMemFree_v2");

    REQUIRE(cuMemFree(block->base) == CUDA_SUCCESS);
    REQUIRE(!block->is_drivers || softcuda_calls("cuMemFree_v2") > frees);
    if (block->is_held) {
        g_gone[g_gone_count].base = block->base;
        g_gone[g_gone_count++].size = block->size;
    }
    block->base = 0;
}

/* What the mapping of a block must be, from where it lies. */
static void must_have_mapping(const block_t *block, CUdeviceptr ptr)
{
    CUdeviceptr base = block->size < UNIT ? block->base / UNIT * UNIT : block->base;
    size_t size = (block->base + block->size - base + UNIT - 1) / UNIT * UNIT;

    REQUIRE(told(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, ptr) == base);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ptr) == size);
}

/* The same number, if and only if it is the same mapping; one that reaches from unit to unit is its block's own. */
static void must_agree(const block_t *a, const block_t *b)
{
    int is_same = a->base / UNIT == b->base / UNIT;

    for (int i = 0; i < 2; i++) {
        const block_t *block = i ? b : a;

        is_same = is_same && (a == b || (block->base + block->size - 1) / UNIT == block->base / UNIT);
        is_same = is_same && (a == b || block->size < UNIT);
    }
    REQUIRE((told(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, a->base + a->size - 1) ==
             told(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, b->base)) == is_same);
}

static void check_block(cup_rng_t *rng, const block_t *block)
{
    CUdeviceptr ptr = block->base + cup_rng_below(rng, block->size), base;
    CUcontext context;
    size_t size;

    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    REQUIRE(id_of(ptr) == block->id);
    REQUIRE(cuMemGetAddressRange(&base, &size, ptr) == CUDA_SUCCESS && base == block->base &&
            size == block->size);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, ptr) == (unsigned long long)(uintptr_t)context);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) == CU_MEMORYTYPE_DEVICE);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr) == ptr);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr) == block->base);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr) == block->size);
    must_have_mapping(block, ptr);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, ptr) == 1);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr) == 1);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr) == 0);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr) == block->sync);
}

/* Under raw a block that is a driver allocation ends as one: its free is the driver's. */
static void step_hold(cup_rng_t *rng, block_t *block)
{
    int is_own = !is_vmm() && block->size >= 2 << 20;

    if (cup_rng_below(rng, 3)) {
        REQUIRE(set_sync(block->base + block->size - 1, 1) == CUDA_SUCCESS);
        block->sync = 1;
    } else if (block->base % 4096 != 0) {
        REQUIRE(export_range(block->base, 4096) == CUDA_ERROR_INVALID_VALUE);
        return;
    } else {
        REQUIRE(export_range(block->base, 4096 + (block->size & ~(size_t)4095)) ==
                (block->size % 4096 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
        if (block->size >= 4096)
            REQUIRE(export_range(block->base, block->size & ~(size_t)4095) == CUDA_SUCCESS);
    }
    block->is_held = !is_own;
    block->is_drivers = is_own;
}

static void step(cup_rng_t *rng, block_t *block)
{
    uint64_t dice = cup_rng_below(rng, 100);

    if (!block->base)
        step_alloc(rng, block);
    else if (dice < 40)
        check_block(rng, block);
    else if (dice < 45)
        step_hold(rng, block);
    else if (dice < 48) {
        REQUIRE(set_sync(block->base, 0) == CUDA_SUCCESS);
        block->sync = 0;
    } else if (dice < 80) {
        CUdeviceptr base = block->base;

        step_free(block);
        require_unknown(base);
    }
}

static void law(void)
{
    cup_rng_t rng = {cup_rng_seed(20261130)};
    uint64_t reads;

    fprintf(stderr, "query: CUP_SEED=%llu\n", (unsigned long long)rng.state);
    for (int i = 0; i < STEPS; i++)
        step(&rng, &g_block[cup_rng_below(&rng, BLOCKS)]);
    for (int i = 0; i < BLOCKS; i++)
        if (g_block[i].base)
            check_block(&rng, &g_block[i]);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k <= i; k++)
            if (g_block[i].base && g_block[k].base)
                must_agree(&g_block[i], &g_block[k]);
    reads = driver_calls();
    fprintf(stderr, "%d held, %llu driver allocations\n", g_gone_count, (unsigned long long)reads);
    REQUIRE(g_gone_count > 10);
    for (int i = 0; i < g_gone_count; i++)
        require_unknown(g_gone[i].base);
    REQUIRE(is_vmm() ? softcuda_calls("cuMemAlloc_v2") == 1 : reads < 400); /* the one that is asked about */
    REQUIRE(softcuda_violations() == 0);
}

/* ---- examples ---- */

/* Whose the context is that a block tells of, and that nobody's current one changes. */
static void contexts(void)
{
    CUcontext first, second, now;
    unsigned long long value;
    CUdeviceptr a, b;

    REQUIRE(cuCtxGetCurrent(&first) == CUDA_SUCCESS);
    a = client_alloc(5000);
    REQUIRE(cuCtxCreate(&second, NULL, 0, 0) == CUDA_SUCCESS);
    b = client_alloc(5000);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, a) == (unsigned long long)(uintptr_t)first);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, a) == 0);
    REQUIRE(cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == second);
    REQUIRE(cuCtxPopCurrent(&now) == CUDA_SUCCESS && cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, b) == (unsigned long long)(uintptr_t)second);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, b) == 1);
    REQUIRE(id_of(a) != id_of(b));
    REQUIRE(cuCtxGetCurrent(&now) == CUDA_SUCCESS && !now);
    REQUIRE(set_sync(a, 1) == CUDA_SUCCESS); /* needs no context (measured) */
    REQUIRE(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a) == 1 && told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b) == 0);
    REQUIRE(cuCtxGetCurrent(&now) == CUDA_SUCCESS && !now);
    REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS && cuCtxDestroy(second) == CUDA_SUCCESS);
    REQUIRE(ask(CU_POINTER_ATTRIBUTE_CONTEXT, b, &value) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, a) == (unsigned long long)(uintptr_t)first);
}

/* The driver takes a mapping for memory that the host may have; memory of cuMemAlloc it does not. */
static void host(void)
{
    size_t sizes[] = {300, 4096, 100 << 10, 3 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CUdeviceptr block = client_alloc(sizes[i]), device = 7;
        void *at = (void *)(uintptr_t)(block + sizes[i] / 2);
        unsigned flags = 7;

        for (int k = 0; k < 2; k++) {
            REQUIRE(cuMemHostGetDevicePointer(&device, at, 0) == CUDA_ERROR_INVALID_VALUE && device == 7);
            REQUIRE(cuMemHostGetFlags(&flags, at) == CUDA_ERROR_INVALID_VALUE && flags == 7);
            REQUIRE(cuMemHostUnregister(at) ==
                    (k ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE));
            REQUIRE(k || cuMemFree(block) == CUDA_SUCCESS);
        }
    }
    REQUIRE(driver_calls() < 10);
}

/* Of a live block nobody has access by cuMemSetAccess: that is no error. */
static void access_of(void)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr block = client_alloc(4096);
    unsigned long long access = 9;

    REQUIRE(cuMemGetAccess(&access, &here, block + 9) == CUDA_SUCCESS && access == 0);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(cuMemGetAccess(&access, &here, block) == CUDA_ERROR_INVALID_VALUE);
}

/* Handles are made for the decompression engine, unless the driver does not make such: that is told, then. */
static void decompress(void)
{
    CUdeviceptr block;

    REQUIRE(softcuda_fail_nth("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED) == 0);
    block = client_alloc(4096);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, block) == !is_vmm());
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block) == 1);
    REQUIRE(softcuda_calls("cuMemCreate") == (is_vmm() ? 3 : 0)); /* two trials, a chunk */
}

/* Questions are no reason for a capture to fail, natively: nor is what we have to do for an answer. */
static void capture(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = client_alloc(4096);
    CUgraph graph;

    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, block) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS && cuMemFree(block) == CUDA_SUCCESS);
}

static pthread_barrier_t g_start;

static void *ask_at_once(void *block)
{
    pthread_barrier_wait(&g_start);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, (CUdeviceptr)(uintptr_t)block) == 0);
    return NULL;
}

/* Threads without a context, all of them first. */
static void threads(void)
{
    CUdeviceptr block = client_alloc(4096);
    pthread_t thread[8];

    softcuda_reset_counters();
    pthread_barrier_init(&g_start, NULL, 8);
    for (int i = 0; i < 8; i++)
        REQUIRE(pthread_create(&thread[i], NULL, ask_at_once, (void *)(uintptr_t)block) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    REQUIRE(driver_calls() == (uint64_t)is_vmm());
    REQUIRE(softcuda_calls("cuMemFree_v2") == 0);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/* Nothing to ask the driver about: what is known of plain memory is told, and the arena does not show. */
static void no_witness(void)
{
    static const struct {
        CUpointer_attribute attribute;
        unsigned long long value;
    } known[] = {{CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1},
                 {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 0},
                 {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE},
                 {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 0}};
    static const int codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY};
    CUdeviceptr block = client_alloc(4096);
    CUmemGenericAllocationHandle handle;
    unsigned long long value = 9;

    for (size_t i = 0; i < 2 * sizeof(known) / sizeof(known[0]); i++) {
        REQUIRE(softcuda_fail_nth("cuMemAlloc_v2", 1, codes[i % 2]) == 0);
        REQUIRE(ask(known[i / 2].attribute, block, &value) == CUDA_SUCCESS && value == known[i / 2].value);
    }
    REQUIRE(softcuda_fail_nth("cuMemAlloc_v2", 1, CUDA_ERROR_UNKNOWN) == 0);
    REQUIRE(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)block) == CUDA_ERROR_INVALID_VALUE);
    softcuda_reset_counters();
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, block) == 0);
    REQUIRE(driver_calls() == (uint64_t)is_vmm()); /* now there is one */
}

/* A neighbour of a synchronising block is none, whatever they share. */
static void sync_memops(void)
{
    CUdeviceptr block = client_alloc(4096), neighbour = client_alloc(4096);
    unsigned flags;

    REQUIRE(set_sync(block, 1) == CUDA_SUCCESS);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 9) == 1);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, neighbour) == 0);
    REQUIRE(cuCtxGetFlags(&flags) == CUDA_SUCCESS);
    REQUIRE(!!(flags & CU_CTX_SYNC_MEMOPS) == is_vmm()); /* not claimed, but done */
    REQUIRE(cuMemFree(neighbour) == CUDA_SUCCESS && client_alloc(4096) == neighbour);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS && client_alloc(4096) != block);
    require_unknown(block);
}

/*
 * A driver that can't set the flag: what it says of such memory is what the program gets, and nothing is
 * held.
 */
static void sync_refused(void)
{
    CUdeviceptr block = client_alloc(4096);

    REQUIRE(softcuda_fail_nth("cuCtxSetFlags", 1, CUDA_ERROR_INVALID_VALUE) == 0);
    REQUIRE(set_sync(block, 1) == (is_vmm() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS));
    REQUIRE(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block) == !is_vmm());
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE((client_alloc(4096) == block) == is_vmm());
}

/* ---- pitches ---- */

static size_t pitched(size_t width, size_t height, unsigned element)
{
    CUdeviceptr block = 0, base;
    size_t pitch = 0, size;

    REQUIRE(cuMemAllocPitch(&block, &pitch, width, height, element) == CUDA_SUCCESS);
    REQUIRE(block % 512 == 0 && pitch >= width);
    REQUIRE(cuMemGetAddressRange(&base, &size, block + width - 1) == CUDA_SUCCESS);
    REQUIRE(base == block && size == pitch * height);
    client_fill(NULL, block, size & ~(size_t)7, width);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    return pitch;
}

/*
 * The driver is asked once for each width and element size, and as often as there is no room to remember.
 */
static void pitch(void)
{
    enum { WIDTHS = 30, MOST = 64 };
    size_t first[WIDTHS], pitch = 5;
    CUdeviceptr block = 9;

    for (size_t i = 0; i < WIDTHS; i++) {
        first[i] = pitched(i * 333 + 1, 3, 4);
        REQUIRE(pitched(i * 333 + 1, 3, 8) == first[i]);
    }
    REQUIRE(softcuda_calls("cuMemAllocPitch_v2") == 2 * WIDTHS);
    for (size_t i = 0; i < WIDTHS; i++)
        for (size_t height = 1; height < 200; height += 50)
            REQUIRE(pitched(i * 333 + 1, height, 4) == first[i]);
    REQUIRE(softcuda_calls("cuMemAllocPitch_v2") == 2 * WIDTHS);
    REQUIRE(cuMemAllocPitch(&block, &pitch, 1, 0, 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAllocPitch(&block, &pitch, 1, 1, 3) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAllocPitch(&block, NULL, 1, 1, 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAllocPitch(NULL, &pitch, 1, 1, 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemAllocPitch(&block, &pitch, 1, (size_t)1 << 40, 4) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemAllocPitch(&block, &pitch, 1, SIZE_MAX, 4) == CUDA_ERROR_INVALID_VALUE); /* measured */
    softcuda_reset_counters();
    for (size_t i = 0; i < 2 * MOST; i++)
        pitched(20000 + i, 1, 16);
    for (size_t i = 0; i < 2 * MOST; i++)
        pitched(20000 + i, 1, 16);
    REQUIRE(softcuda_calls("cuMemAllocPitch_v2") == 4 * MOST - (MOST - 2 * WIDTHS));
    REQUIRE(softcuda_violations() == 0);
}

/* ---- failures ---- */

#ifdef __SANITIZE_THREAD__ /* a second for each child */
#define NTH_MAX 2
#else
#define NTH_MAX 6
#endif

static CUresult g_code;

static int fine(CUresult result)
{
    REQUIRE(result == CUDA_SUCCESS || result == g_code);
    return result == CUDA_SUCCESS;
}

static void all_questions(CUdeviceptr block, size_t size)
{
    static const CUpointer_attribute attributes[] = {
#define NAME(name, ...) CU_POINTER_ATTRIBUTE_##name,
        CUP_ATTRIBUTE_LIST(NAME, NAME, NAME, NAME)
#undef NAME
    };
    enum { COUNT = sizeof(attributes) / sizeof(attributes[0]) };
    unsigned long long each[COUNT][2], access = 0;
    CUpointer_attribute copy[COUNT];
    void *data[COUNT];
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemGenericAllocationHandle handle;
    CUresult result;

    memcpy(copy, attributes, sizeof(copy));
    for (int i = 0; i < COUNT; i++) {
        result = cuPointerGetAttribute(each[i], attributes[i], block);
        data[i] = each[i];
        REQUIRE(result == CUDA_SUCCESS || result == g_code || result == CUDA_ERROR_INVALID_VALUE ||
                result == CUDA_ERROR_NOT_SUPPORTED);
    }
    fine(cuPointerGetAttributes(COUNT, copy, data, block));
    fine(export_range(block, 4096));
    result = set_sync(block, 1);
    if (result != CUDA_ERROR_NOT_SUPPORTED ||
        !is_vmm()) /* what such memory gets, where the contexts can't help */
        fine(result);
    REQUIRE(cuMemGetAccess(&access, &here, block) != CUDA_SUCCESS || access == 0);
    REQUIRE(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)block) != CUDA_SUCCESS);
    REQUIRE(cuMemUnmap(block, size) != CUDA_SUCCESS);
    REQUIRE(cuMemAddressFree(block, size) != CUDA_SUCCESS);
}

static void fail_one(const char *symbol, uint64_t nth)
{
    CUdeviceptr block = client_alloc(64 << 10);

    g_code = CUDA_ERROR_UNKNOWN;
    softcuda_reset_counters();
    REQUIRE(softcuda_fail_nth(symbol, nth, g_code) == 0);
    all_questions(block, 64 << 10);
    softcuda_reset_counters(); /* what has not failed by now does not */
    g_code = CUDA_SUCCESS;
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, block) != 0 && id_of(block) >> 62 == 1);
    REQUIRE(cuMemsetD8(block, 1, 64 << 10) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    require_unknown(block);
}

/*
 * Each call of each symbol fails in a process of its own: the first question in a context is the one that
 *                                                         does most.
 */
static void failures(void)
{
    static const char *const symbols[] = {"cuPointerGetAttribute", "cuPointerGetAttributes",
                                          "cuPointerSetAttribute", "cuMemGetHandleForAddressRange",
                                          "cuCtxGetFlags",         "cuCtxSetFlags",
                                          "cuCtxGetCurrent",       "cuCtxPushCurrent_v2",
                                          "cuMemAlloc_v2"};

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        for (uint64_t nth = 1; nth <= NTH_MAX; nth++) {
            pid_t pid = fork();
            int status;

            if (pid == 0) {
                alarm(60);
                client_open();
                fail_one(symbols[i], nth);
                _exit(0);
            }
            REQUIRE(waitpid(pid, &status, 0) == pid);
            if (status != 0)
                fprintf(stderr, "call %d of %s: status %d\n", (int)nth, symbols[i], status);
            REQUIRE(status == 0);
        }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        int is_closed; /* opens the driver by itself, in children */
    } cases[] = {{"doors", doors, 0},
                 {"law", law, 0},
                 {"contexts", contexts, 0},
                 {"host", host, 0},
                 {"access_of", access_of, 0},
                 {"decompress", decompress, 0},
                 {"no_witness", no_witness, 0},
                 {"capture", capture, 0},
                 {"threads", threads, 0},
                 {"sync_memops", sync_memops, 0},
                 {"sync_refused", sync_refused, 0},
                 {"pitch", pitch, 0},
                 {"failures", failures, 1}};

    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            if (!cases[i].is_closed)
                client_open();
            cases[i].run();
            return 0;
        }
    return 2;
}
