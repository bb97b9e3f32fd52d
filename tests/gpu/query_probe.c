/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_probe - what the driver says of memory of cuMemAlloc when it is asked by address: a line a
 * question.
 * What:       every attribute of a pointer, alone and in the plural form, of blocks, of what was freed, of
 *             the program's own mapping; setting SYNC_MEMOPS, and what it does; calls that would change a
 *             mapping; dma-buf; pitches. Values are told so that they do not depend on addresses. A line
 *             that starts with "probe" is for the record only: numbers of the machine, or what the software
 *             driver does not model.
 * Not here:   the pool: the program is run natively and under the preload, and must print the same
 *             (query_probe.sh).
 * Invariants: all memory is there before the first question; nothing is allocated behind it but by the
 *             pitches.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB  ((size_t)1 << 20)
#define SLOT (2 * MIB)
#define LEFT 0xa5 /* what an answer is before the call */

/* clang-format off */
#define ATTRIBUTES(X)                                                                                           \
    X(CONTEXT, context) X(MEMORY_TYPE, word) X(DEVICE_POINTER, address) X(HOST_POINTER, address)                \
    X(SYNC_MEMOPS, word) X(BUFFER_ID, id) X(IS_MANAGED, word) X(DEVICE_ORDINAL, word)                           \
    X(IS_LEGACY_CUDA_IPC_CAPABLE, word) X(RANGE_START_ADDR, address) X(RANGE_SIZE, size) X(MAPPED, word)        \
    X(ALLOWED_HANDLE_TYPES, size) X(IS_GPU_DIRECT_RDMA_CAPABLE, word) X(ACCESS_FLAGS, word)                     \
    X(MEMPOOL_HANDLE, size) X(MAPPING_SIZE, size) X(MAPPING_BASE_ADDR, mapping) X(MEMORY_BLOCK_ID, mapping_id)          \
    X(IS_HW_DECOMPRESS_CAPABLE, word)

#define SUBJECTS(X)                                                                                             \
    X(odd, 300, 0) X(small, 4096, 0) X(small_inside, 0, 0) X(neighbour, 4096, 0) X(middle, 100 * 1024, 0)       \
    X(large, 3 * MIB + 1, 0) X(large_inside, 0, 0) X(freed, 4096, 1) X(freed_large, 4 * MIB, 1)                 \
    X(mapping, 0, 0) X(host, 0, 0) X(wild, 0, 0)
/* clang-format on */

typedef enum {
#define X(name, bytes, is_freed) S_##name,
    SUBJECTS(X)
#undef X
        S_COUNT
} subject_t;

static const struct {
    const char *name;
    size_t bytes;
    bool is_freed;
} g_subject[] = {
#define X(name, bytes, is_freed) {#name, bytes, is_freed},
    SUBJECTS(X)
#undef X
};

static CUcontext g_ctx;
static CUdeviceptr g_base[S_COUNT]; /* of the block that a subject lies in */
static CUdeviceptr g_addr[S_COUNT];
static CUmemGenericAllocationHandle g_handle;
static const CUmemAllocationProp g_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc g_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void set_up(void)
{
    void *host;

    for (int i = 0; i < S_COUNT; i++)
        if (g_subject[i].bytes > 0)
            dev_check(cuMemAlloc(&g_base[i], g_subject[i].bytes), "cuMemAlloc");
    g_base[S_small_inside] = g_base[S_small];
    g_base[S_large_inside] = g_base[S_large];
    dev_check(cuMemAddressReserve(&g_base[S_mapping], 4 * SLOT, 0, 0, 0), "cuMemAddressReserve");
    for (int i = 0; i < 2; i++) {
        dev_check(cuMemCreate(&g_handle, SLOT, &g_prop, 0), "cuMemCreate");
        dev_check(cuMemMap(g_base[S_mapping] + (size_t)i * SLOT, SLOT, 0, g_handle, 0), "cuMemMap");
    }
    dev_check(cuMemSetAccess(g_base[S_mapping], 2 * SLOT, &g_access, 1), "cuMemSetAccess");
    dev_check(cuMemCreate(&g_handle, SLOT, &g_prop, 0), "cuMemCreate");
    dev_check(cuMemHostAlloc(&host, 4096, 0), "cuMemHostAlloc");
    g_base[S_host] = (CUdeviceptr)(uintptr_t)host;
    g_base[S_wild] = 0x1000;
    memcpy(g_addr, g_base, sizeof(g_addr));
    g_addr[S_small_inside] += 1000;
    g_addr[S_large_inside] += 2 * MIB + 512;
    for (int i = 0; i < S_COUNT; i++)
        if (g_subject[i].is_freed)
            dev_check(cuMemFree(g_base[i]), "cuMemFree");
}

/* ---- answers, told without addresses ---- */

typedef union {
    unsigned char bytes[16];
    unsigned word;
    unsigned long long size;
    CUcontext context;
    CUdeviceptr address;
} answer_t;

static void say_word(const answer_t *answer, int i)
{
    (void)i;
    printf(" %d", (int)answer->word);
}

static void say_size(const answer_t *answer, int i)
{
    (void)i;
    printf(" %llu", answer->size);
}

static void say_context(const answer_t *answer, int i)
{
    (void)i;
    printf(" %s", !answer->context ? "none" : answer->context == g_ctx ? "current" : "another");
}

static void say_address(const answer_t *answer, int i)
{
    if (answer->address == 0)
        printf(" 0");
    else if (answer->address - g_base[i] < SLOT || g_base[i] - answer->address < SLOT)
        printf(" base%+lld", (long long)(answer->address - g_base[i]));
    else
        printf(" elsewhere");
}

/* Where a small block lies in the memory that it shares is the allocator's own business. */
static void say_mapping(const answer_t *answer, int i)
{
    size_t size = 0;

    cuMemGetAddressRange(NULL, &size, g_addr[i]);
    if (answer->address == 0 || size >= SLOT)
        say_address(answer, i);
    else
        printf(" %s", g_base[i] - answer->address < SLOT ? "holds" : "elsewhere");
}

/* Whether those that have this number are those that have the same mapping. */
static void say_mapping_id(const answer_t *answer, int i)
{
    bool is_law = true;
    CUdeviceptr mine = 0;

    cuPointerGetAttribute(&mine, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, g_addr[i]);
    for (int k = 0; k < S_COUNT; k++) {
        unsigned long long id = 0;
        CUdeviceptr base = 0;

        if (cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, g_addr[k]) == CUDA_SUCCESS &&
            cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, g_addr[k]) == CUDA_SUCCESS)
            is_law = is_law && (id == answer->size) == (base == mine);
    }
    printf(" %s", answer->size == 0 ? "0" : is_law ? "by-mapping" : "not-by-mapping");
}

/* Which subject was the first with this number. */
static void say_id(const answer_t *answer, int i)
{
    static unsigned long long seen[2 * S_COUNT];
    static int who[2 * S_COUNT], count;
    int at = 0;

    while (at < count && seen[at] != answer->size)
        at++;
    if (at == count) {
        seen[count] = answer->size;
        who[count++] = i;
    }
    printf(" %s", answer->size == 0 ? "0" : g_subject[who[at]].name);
}

static void say(CUresult result, const answer_t *answer, void (*how)(const answer_t *, int), int i)
{
    answer_t left;

    memset(&left, LEFT, sizeof(left));
    printf(" %d", result);
    if (memcmp(&left, answer, sizeof(left)) == 0)
        printf(" untouched\n");
    else {
        how(answer, i);
        printf("\n");
    }
}

static void get(const char *name, CUpointer_attribute attribute, void (*how)(const answer_t *, int), int i)
{
    answer_t one, each;
    void *data[] = {&each};
    CUresult result;

    memset(&one, LEFT, sizeof(one));
    memset(&each, LEFT, sizeof(each));
    result = cuPointerGetAttribute(&one, attribute, g_addr[i]);
    printf("get-%s-%s", g_subject[i].name, name);
    say(result, &one, how, i);
    result = cuPointerGetAttributes(1, &attribute, data, g_addr[i]);
    printf("each-%s-%s", g_subject[i].name, name);
    say(result, &each, how, i);
}

static void gets_all(void)
{
    for (int i = 0; i < S_COUNT; i++) {
        CUdeviceptr base = 0;
        size_t size = 0;
        int result = cuMemGetAddressRange(&base, &size, g_addr[i]);

        printf("range-%s %d %zu base%+lld\n", g_subject[i].name, result, size,
               result ? 0 : (long long)(base - g_base[i]));
#define X(name, kind) get(#name, CU_POINTER_ATTRIBUTE_##name, say_##kind, i);
        ATTRIBUTES(X)
#undef X
    }
}

/* ---- odd forms ---- */

static void line(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}

static void odd_forms(void)
{
    CUpointer_attribute several[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                     CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    CUpointer_attribute unknown = (CUpointer_attribute)9999;
    unsigned long long size = 0;
    unsigned access = 99;
    CUdeviceptr addr = 0;
    CUcontext context = NULL;
    answer_t answer;
    void *data[] = {&context, &size, &access, &addr}, *one[] = {&answer};

    line("several", cuPointerGetAttributes(4, several, data, g_addr[S_small_inside]));
    printf("several-are %d %llu %u %d\n", context == g_ctx, size, access, addr == g_addr[S_small_inside]);
    line("none", cuPointerGetAttributes(0, several, data, g_addr[S_small]));
    line("null-attributes", cuPointerGetAttributes(1, NULL, data, g_addr[S_small]));
    line("null-data", cuPointerGetAttributes(1, several, NULL, g_addr[S_small]));
    line("null-one", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_BUFFER_ID, g_addr[S_small]));
    line("null-one-of-freed", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_BUFFER_ID, g_addr[S_freed]));
    line("unknown", cuPointerGetAttribute(&answer, unknown, g_addr[S_small]));
    line("unknown-each", cuPointerGetAttributes(1, &unknown, one, g_addr[S_small]));
}

/* ---- ids ---- */

static unsigned long long id_of(CUdeviceptr block)
{
    unsigned long long id = 0;

    cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
    return id;
}

static void ids(void)
{
    CUdeviceptr first, second;

    dev_check(cuMemAlloc(&first, 4096), "cuMemAlloc");
    unsigned long long before = id_of(first);
    printf("probe-id-small %llu\nprobe-id-large %llu\nprobe-id-new %llu\n", id_of(g_base[S_small]),
           id_of(g_base[S_large]), before);
    line("id-is-stable", id_of(first) == before);
    dev_check(cuMemFree(first), "cuMemFree");
    line("id-of-freed", (long)id_of(first));
    dev_check(cuMemAlloc(&second, 4096), "cuMemAlloc");
    line("probe-id-same-address", first == second);
    line("id-is-new", id_of(second) != before);
    dev_check(cuMemFree(second), "cuMemFree");
}

/* ---- SYNC_MEMOPS ---- */

/* Whether a set of this memory returns only when it is done, behind a kernel that takes 50 ms. */
static int waits(CUdeviceptr block)
{
    dev_sync();
    dev_spin(50000, CU_STREAM_LEGACY);
    cuMemsetD8(block, 1, 64);
    int is_done = cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS;
    dev_sync();
    return is_done;
}

static int sync_of(CUdeviceptr block)
{
    unsigned word = 9;

    return cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block) == CUDA_SUCCESS ? (int)word
                                                                                                 : -1;
}

/* Last: the flag of the context, and the blocks that had it, stay as they are. */
static void sync_memops(void)
{
    const CUpointer_attribute set = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    unsigned on = 1, off = 0, flags = 0;
    CUcontext popped;

    line("probe-set-waits-before", waits(g_base[S_small]));
    line("set-null", cuPointerSetAttribute(NULL, set, g_addr[S_small]));
    line("set-freed", cuPointerSetAttribute(&on, set, g_addr[S_freed]));
    line("set-wild", cuPointerSetAttribute(&on, set, g_addr[S_wild]));
    line("set-mapping", cuPointerSetAttribute(&on, set, g_addr[S_mapping]));
    line("set-other", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, g_addr[S_small]));
    dev_check(cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
    line("set-without-context", cuPointerSetAttribute(&on, set, g_addr[S_small]));
    dev_check(cuCtxPushCurrent(popped), "cuCtxPushCurrent");
    line("set-off-before", cuPointerSetAttribute(&off, set, g_addr[S_neighbour]));
    line("probe-flags", cuCtxGetFlags(&flags));
    printf("probe-flags-are %#x\n", flags);
    line("probe-flags-set", cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS));
    line("probe-flags-get", cuCtxGetFlags(&flags));
    printf("probe-flags-are-now %#x\n", flags);
    line("probe-flags-wait", waits(g_base[S_small]));
    line("probe-flags-wait-mapping", waits(g_base[S_mapping]));
    line("probe-flags-reset", cuCtxSetFlags(flags & ~(unsigned)CU_CTX_SYNC_MEMOPS));
    line("probe-flags-wait-reset", waits(g_base[S_small]));
    line("set", cuPointerSetAttribute(&on, set, g_addr[S_small_inside]));
    line("set-is", sync_of(g_base[S_small]));
    line("set-is-of-the-neighbour", sync_of(g_base[S_neighbour]));
    line("probe-set-waits", waits(g_base[S_small]));
    line("probe-set-waits-neighbour", waits(g_base[S_neighbour]));
    line("set-off", cuPointerSetAttribute(&off, set, g_addr[S_small]));
    line("set-off-is", sync_of(g_base[S_small]));
    line("set-large", cuPointerSetAttribute(&on, set, g_addr[S_large]));
    line("set-large-is", sync_of(g_base[S_large_inside]));
}

/* ---- calls about mappings ---- */

static void mappings(int i)
{
    static const struct {
        const char *name;
        size_t offset, size;
    } at[] = {{"", 0, SLOT}, {"-page", 4096, 4096}, {"-odd", 1000, 4096}, {"-none", 0, 0}};
    const char *who = g_subject[i].name;

    for (size_t k = 0; k < sizeof(at) / sizeof(at[0]); k++) {
        CUdeviceptr ptr = g_addr[i] + at[k].offset;

        printf("unmap-%s%s %d\n", who, at[k].name, cuMemUnmap(ptr, at[k].size));
        printf("map-%s%s %d\n", who, at[k].name, cuMemMap(ptr, at[k].size, 0, g_handle, 0));
        printf("set-access-%s%s %d\n", who, at[k].name, cuMemSetAccess(ptr, at[k].size, &g_access, 1));
        printf("address-free-%s%s %d\n", who, at[k].name, cuMemAddressFree(ptr, at[k].size));
    }
    line("still-there", cuMemsetD8(g_base[S_large], 1, g_subject[S_large].bytes));
}

static void asks(int i)
{
    const char *who = g_subject[i].name;
    unsigned long long access = 99;
    CUmemGenericAllocationHandle handle = 0;
    CUmemPoolPtrExportData data;
    int result = cuMemGetAccess(&access, &g_access.location, g_addr[i]);

    /* Of a large block that is freed the H200 told 0 in one order of calls and 1 in another (golden.c): no rule. */
    printf("%sget-access-%s %d %llu\n", i == S_freed_large ? "probe-" : "", who, result, result ? 0 : access);
    result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)g_addr[i]);
    printf("retain-%s %d\n", who, result);
    if (result == CUDA_SUCCESS)
        cuMemRelease(handle);
    printf("probe-retain-null-%s %d\n", who, cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)g_addr[i]));
    printf("probe-multicast-%s %d\n", who, cuMulticastBindAddr(0, 0, g_addr[i], SLOT, 0));
    printf("probe-pool-export-%s %d\n", who, cuMemPoolExportPointer(&data, g_addr[i]));
}

/* Of managed memory only: that a mapping of ours and a native block get the same code is what counts. */
static void hints(int i)
{
    const char *who = g_subject[i].name;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr ptr = g_addr[i];
    size_t size = 4096;
    int word = 0;

    printf("probe-advise-%s %d\n", who, cuMemAdvise(ptr, size, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    printf("probe-prefetch-%s %d\n", who, cuMemPrefetchAsync(ptr, size, here, 0, NULL));
    printf("probe-range-attribute-%s %d\n", who,
           cuMemRangeGetAttribute(&word, sizeof(word), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, size));
    printf("probe-range-location-%s %d\n", who,
           cuMemRangeGetAttribute(&word, sizeof(word), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr,
                                  size));
    printf("probe-discard-%s %d\n", who, cuMemDiscardBatchAsync(&ptr, &size, 1, 0, CU_STREAM_PER_THREAD));
    printf("probe-attach-%s %d\n", who,
           cuStreamAttachMemAsync(CU_STREAM_LEGACY, ptr, 0, CU_MEM_ATTACH_GLOBAL));
    dev_sync();
}

static void export_range(int i, const char *name, size_t offset, size_t size, bool is_probe)
{
    int fd = -1;
    int result =
        cuMemGetHandleForAddressRange(&fd, g_addr[i] + offset, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    /* On how a block is aligned, and how far it reaches, the driver has its own mind. */
    printf("%s-%s%s %d\n", is_probe ? "probe-dma-buf" : "dma-buf", g_subject[i].name, name, result);
    if (result == CUDA_SUCCESS)
        close(fd);
}

static void exports(void)
{
    export_range(S_small, "", 0, 4096, true);
    export_range(S_small, "-over", 0, 8192, true);
    export_range(S_small, "-far-over", 0, 64 * MIB, false);
    export_range(S_small, "-unaligned", 512, 4096, true);
    export_range(S_small, "-part", 0, 512, false);
    export_range(S_odd, "", 0, 4096, true);
    export_range(S_odd, "-exact", 0, 300, false);
    export_range(S_large, "", 0, 3 * MIB, false);
    export_range(S_large, "-rounded", 0, 3 * MIB + 4096, true);
    export_range(S_large, "-over", 0, 4 * MIB + 4096, false);
    export_range(S_large, "-part", 65536, 65536, false);
    export_range(S_freed, "", 0, 4096, false);
    export_range(S_freed_large, "", 0, 4 * MIB, false);
    export_range(S_wild, "", 0, 4096, false);
    export_range(S_mapping, "", 0, SLOT, false);
    export_range(S_mapping, "-two-handles", 0, 2 * SLOT, false);
    export_range(S_mapping, "-across", SLOT - 65536, 2 * 65536, false);
}

/* ---- pitches ---- */

static void pitch_of(size_t width, size_t height, unsigned element)
{
    size_t pitch = 0, size = 0;
    CUdeviceptr block = 0;
    int result = cuMemAllocPitch(&block, &pitch, width, height, element);

    if (result == CUDA_SUCCESS)
        cuMemGetAddressRange(NULL, &size, block);
    printf("pitch-%zu-%zu-%u %d pitch %zu\n", width, height, element, result, pitch);
    printf("probe-pitch-%zu-%zu-%u size %zu, of rows %zu, aligned to 512 %d\n", width, height, element, size,
           pitch ? size / pitch : 0, block % 512 == 0);
    if (result == CUDA_SUCCESS)
        cuMemFree(block);
}

static void pitches(void)
{
    static const size_t widths[] = {0,   1,    31,   32,   33,   256,   511,   512,
                                    513, 1000, 1024, 2047, 4097, 65535, 65537, 1000001};
    int pitch_alignment = 0, alignment = 0;

    cuDeviceGetAttribute(&pitch_alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 0);
    cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 0);
    printf("probe-texture pitch alignment %d, alignment %d\n", pitch_alignment, alignment);
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        for (unsigned element = 4; element <= 16; element *= 2) {
            pitch_of(widths[i], 1, element);
            pitch_of(widths[i], 100, element);
        }
    pitch_of(100, 0, 4);
    pitch_of(100, 10, 3);
    pitch_of(100, 10, 0);
    pitch_of(SIZE_MAX, 1, 4);
    pitch_of(SIZE_MAX / 2, 4, 4);
}

int main(void)
{
    dev_open();
    cuCtxGetCurrent(&g_ctx);
    set_up();
    gets_all();
    odd_forms();
    for (int i = 0; i < S_COUNT; i++)
        if (i != S_mapping) /* where the program may do all that */
            mappings(i);
    for (int i = 0; i < S_COUNT; i++) {
        asks(i);
        hints(i);
    }
    exports();
    ids();
    pitches();
    sync_memops();
    line("free-synced", cuMemFree(g_base[S_small]));
    line("free-synced-large", cuMemFree(g_base[S_large]));
    get("BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID, say_id, S_small);
    return 0;
}
