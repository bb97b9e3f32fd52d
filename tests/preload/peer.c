/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - access to the memory of other devices, and copies between them, case by case: an unmodified
 * driver-level program under the preload on the software driver with three devices.
 * What:       peer NAME runs one. Natively (raw) the software driver decides who reaches what; under vmm
 *             our own setting of access does, and the program must see the same.
 * Not here:   random sequences (peer_law.c), failing calls (peer_faults.c), order (softcuda/detector.c,
 *             gpu/fence.c).
 * Invariants: exit 0 only when every REQUIRE held, the overlap detector saw nothing, and every allocation
 *             was the pool's.
 */
#define _GNU_SOURCE
#include "tests/preload/peer.h"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static place_t g_here, g_there;   /* primary contexts of devices 0 and 1 */
static uint64_t g_own_peer_calls; /* that the case made by itself, and that went as they were */
static int g_changes = -1;        /* of access, under vmm: what the counter must say; -1: not told */

static uint64_t peer_calls(void)
{
    return softcuda_calls("cuMemcpyPeer") + softcuda_calls("cuMemcpyPeer_ptds") +
           softcuda_calls("cuMemcpyPeerAsync") + softcuda_calls("cuMemcpyPeerAsync_ptsz") +
           softcuda_calls("cuMemcpy3DPeer") + softcuda_calls("cuMemcpy3DPeer_ptds") +
           softcuda_calls("cuMemcpy3DPeerAsync") + softcuda_calls("cuMemcpy3DPeerAsync_ptsz");
}

static void enable(const place_t *from, const place_t *to)
{
    peer_join(from);
    REQUIRE(cuCtxEnablePeerAccess(to->ctx, 0) == CUDA_SUCCESS);
}

static void disable(const place_t *from, const place_t *to)
{
    peer_join(from);
    REQUIRE(cuCtxDisablePeerAccess(to->ctx) == CUDA_SUCCESS);
}

/* ---- access ---- */

/* Memory that was there before, memory that comes later, small and large. */
static void reach(void)
{
    CUdeviceptr before = peer_alloc(&g_here, 4096), large;

    REQUIRE(!peer_can_write(&g_there, before, 1));
    enable(&g_there, &g_here);
    REQUIRE(peer_can_write(&g_there, before, 1));
    large = peer_alloc(&g_here, 48 * MIB);
    REQUIRE(peer_can_write(&g_there, large + 48 * MIB - 64, 1));
    REQUIRE(!peer_can_write(&g_here, peer_alloc(&g_there, 4096), 1)); /* one way only */
    disable(&g_there, &g_here);
    REQUIRE(!peer_can_write(&g_there, before, 1));
    REQUIRE(!peer_can_write(&g_there, large, 1));
    REQUIRE(!peer_can_write(&g_there, peer_alloc(&g_here, 64 * MIB), 1));
    REQUIRE(peer_can_write(&g_here, before, 1));
    g_changes = 2;
}

/* Before the first allocation of the process, in a context that has no heap yet. */
static void early(void)
{
    CUdeviceptr block;

    enable(&g_there, &g_here);
    block = peer_alloc(&g_here, 4096);
    REQUIRE(peer_can_write(&g_there, block, 1));
    disable(&g_there, &g_here);
    REQUIRE(!peer_can_write(&g_there, block, 1));
}

/* vmm: memory moves to where it is needed; its peers come along. */
static void moves(void)
{
    enum { COUNT = 96 };
    CUdeviceptr block[COUNT], large;
    uint64_t created;

    enable(&g_there, &g_here);
    for (int i = 0; i < COUNT; i++)
        block[i] = peer_alloc(&g_here, 2 * MIB);
    for (int i = 0; i < COUNT; i += 2)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    created = driver_calls();
    large = peer_alloc(&g_here, COUNT / 2 * 2 * MIB);
    REQUIRE(!peer_is_vmm() || driver_calls() - created < COUNT / 4); /* most of it moved */
    REQUIRE(!peer_is_vmm() || softcuda_calls("cuMemUnmap") > COUNT / 4);
    for (int i = 0; i < COUNT / 2; i++)
        REQUIRE(peer_can_write(&g_there, large + (size_t)i * 2 * MIB, 1));
    disable(&g_there, &g_here);
    for (int i = 0; i < COUNT / 2; i++)
        REQUIRE(!peer_can_write(&g_there, large + (size_t)i * 2 * MIB, 1));
}

/* Work that uses the memory is in flight when it is put out of reach. */
static void in_flight(void)
{
    CUdeviceptr block = peer_alloc(&g_here, MIB);
    uint64_t us = 30000, word = 0;
    void *params[] = {&us};

    if (!peer_is_vmm()) /* whether the driver's own waits is not known, and not ours to see to */
        return;
    enable(&g_there, &g_here);
    REQUIRE(cuLaunchKernel(g_there.spin, 1, 1, 1, 1, 1, 1, 0, g_there.stream, params, NULL) == CUDA_SUCCESS);
    REQUIRE(peer_fill(&g_there, block, MIB, 7) == CUDA_SUCCESS);
    disable(&g_there, &g_here);
    REQUIRE(cuStreamSynchronize(g_there.stream) == CUDA_SUCCESS);
    peer_join(&g_here);
    REQUIRE(cuMemcpyDtoH(&word, block + MIB - 8, 8) == CUDA_SUCCESS);
    REQUIRE(word == softcuda_fill_word(7, MIB / 8 - 1));
}

/* A capture is in progress where access is taken away: it must not notice, and the next change catches up. */
static void in_capture(void)
{
    CUdeviceptr block = peer_alloc(&g_here, 4096);
    CUgraph graph;

    enable(&g_there, &g_here);
    REQUIRE(cuStreamBeginCapture(g_there.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    disable(&g_there, &g_here);
    REQUIRE(cuStreamEndCapture(g_there.stream, &graph) == CUDA_SUCCESS);
    enable(&g_there, &g_here);
    REQUIRE(peer_can_write(&g_there, block, 1));
    disable(&g_there, &g_here);
    REQUIRE(!peer_can_write(&g_there, block, 1));
}

/* Two contexts of one device: the device's access ends with the second one's. */
static void counted(void)
{
    CUdeviceptr block = peer_alloc(&g_here, 4096);
    place_t second = peer_create(1);

    enable(&g_there, &g_here);
    enable(&second, &g_here);
    REQUIRE(peer_can_write(&g_there, block, 1) && peer_can_write(&second, block, 2));
    disable(&g_there, &g_here);
    REQUIRE(peer_can_write(&second, block, 3));
    disable(&second, &g_here);
    REQUIRE(!peer_can_write(&g_there, block, 1) && !peer_can_write(&second, block, 1));
    g_changes = 2;
    REQUIRE(cuCtxDestroy(second.ctx) == CUDA_SUCCESS);
}

/* A context that had access ends: one that comes after it, on the same device, has none. */
static void user_ends(void)
{
    CUdeviceptr block = peer_alloc(&g_here, 4096);
    place_t second = peer_create(1);

    enable(&second, &g_here);
    REQUIRE(peer_can_write(&second, block, 1));
    REQUIRE(cuCtxDestroy(second.ctx) == CUDA_SUCCESS);
    REQUIRE(!peer_can_write(&g_there, block, 1));
    enable(&g_there, &g_here);
    REQUIRE(peer_can_write(&g_there, block, 1));
    REQUIRE(cuDevicePrimaryCtxReset(1) == CUDA_SUCCESS);
    g_there = peer_primary(1);
    REQUIRE(!peer_can_write(&g_there, block, 1));
}

/* A context whose memory was in reach ends: its successor, at the same address, has not been asked. */
static void owner_ends(void)
{
    REQUIRE(peer_alloc(&g_here, 4096));
    enable(&g_there, &g_here);
    REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    g_here = peer_primary(0);
    CUdeviceptr block = peer_alloc(&g_here, 4096);
    REQUIRE(!peer_can_write(&g_there, block, 1));
    enable(&g_there, &g_here);
    REQUIRE(peer_can_write(&g_there, block, 1));
}

enum { GROWN = 32, ROUNDS = 12 };

typedef struct grower {
    const place_t *place;
    CUdeviceptr block[GROWN];
} grower_t;

static void *grow(void *argument)
{
    grower_t *grower = argument;

    for (int i = 0; i < GROWN; i++)
        grower->block[i] = peer_alloc(grower->place, 2 * MIB);
    return NULL;
}

static bool can_write_all(const place_t *place, const grower_t *grower)
{
    int reached = 0;

    for (int i = 0; i < GROWN; i++)
        reached += peer_can_write(place, grower->block[i], 1);
    REQUIRE(reached == 0 || reached == GROWN);
    return reached != 0;
}

/* Another thread's allocations add memory while access is given, and while it is taken. */
static void racing(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        place_t place = peer_create(0);
        grower_t grower[2] = {{.place = &place}, {.place = &place}};
        pthread_t thread;

        for (int i = 0; i < 2; i++) {
            REQUIRE(pthread_create(&thread, NULL, grow, &grower[i]) == 0);
            usleep((unsigned)(50 * round));
            (i == 0 ? enable : disable)(&g_there, &place);
            REQUIRE(pthread_join(thread, NULL) == 0);
            REQUIRE(can_write_all(&g_there, &grower[i]) == (i == 0));
        }
        REQUIRE(!can_write_all(&g_there, &grower[0]));
        REQUIRE(cuCtxDestroy(place.ctx) == CUDA_SUCCESS);
    }
}

/* The driver's own answers, and no change of what is in reach. */
static void codes(void)
{
    CUdeviceptr block = peer_alloc(&g_here, 4096);

    peer_join(&g_there);
    REQUIRE(cuCtxEnablePeerAccess(g_here.ctx, 1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuCtxEnablePeerAccess(NULL, 0) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuCtxEnablePeerAccess(g_there.ctx, 0) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    REQUIRE(cuCtxDisablePeerAccess(g_here.ctx) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    REQUIRE(cuCtxDisablePeerAccess(NULL) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(!peer_can_write(&g_there, block, 1));
    enable(&g_there, &g_here);
    REQUIRE(cuCtxEnablePeerAccess(g_here.ctx, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    disable(&g_there, &g_here);
    REQUIRE(!peer_can_write(&g_there, block, 1));
}

/* ---- copies, without access ---- */

extern __typeof__(cuMemcpy) cuMemcpy_ptds;
extern __typeof__(cuMemcpyAsync) cuMemcpyAsync_ptsz;
extern __typeof__(cuMemcpyDtoD_v2) cuMemcpyDtoD_v2_ptds;
extern __typeof__(cuMemcpyDtoDAsync_v2) cuMemcpyDtoDAsync_v2_ptsz;
extern __typeof__(cuMemcpy2D_v2) cuMemcpy2D_v2_ptds;
extern __typeof__(cuMemcpy2DUnaligned_v2) cuMemcpy2DUnaligned_v2_ptds;
extern __typeof__(cuMemcpy2DAsync_v2) cuMemcpy2DAsync_v2_ptsz;
extern __typeof__(cuMemcpy3D_v2) cuMemcpy3D_v2_ptds;
extern __typeof__(cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2_ptsz;
extern __typeof__(cuMemcpyBatchAsync_v2) cuMemcpyBatchAsync_v2_ptsz;

#define BYTES 256

typedef struct copy {
    CUdeviceptr dst, src;
    CUstream stream;
} copy_t;

static CUresult flat(CUresult (*sync)(const CUDA_MEMCPY2D *),
                     CUresult (*async)(const CUDA_MEMCPY2D *, CUstream), const copy_t *c)
{
    const CUDA_MEMCPY2D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = c->dst,
                                .dstPitch = 16,
                                .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = c->src - 32, /* two rows before */
                                .srcY = 2,
                                .srcPitch = 16,
                                .WidthInBytes = 16,
                                .Height = BYTES / 16};

    return sync ? sync(&copy) : async(&copy, c->stream);
}

static CUresult cube(CUresult (*sync)(const CUDA_MEMCPY3D *),
                     CUresult (*async)(const CUDA_MEMCPY3D *, CUstream), const copy_t *c)
{
    const CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = c->dst - 64, /* a slice before */
                                .dstZ = 1,
                                .dstPitch = 16,
                                .dstHeight = 4,
                                .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = c->src,
                                .srcPitch = 16,
                                .srcHeight = 4,
                                .WidthInBytes = 16,
                                .Height = 4,
                                .Depth = BYTES / 64};

    return sync ? sync(&copy) : async(&copy, c->stream);
}

/* The second half in a batch of its own attribute. */
static CUresult batch(__typeof__(cuMemcpyBatchAsync_v2) *call, const copy_t *c)
{
    CUdeviceptr dsts[] = {c->dst, c->dst + BYTES / 2}, srcs[] = {c->src, c->src + BYTES / 2};
    size_t sizes[] = {BYTES / 2, BYTES / 2}, firsts[] = {0, 1};
    CUmemcpyAttributes attrs[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                  {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};

    return call(dsts, srcs, sizes, 2, attrs, firsts, 2, c->stream);
}

/* X(name, call, calls in the Peer form) */
#define COPY_LIST(X)                                                                     \
    X(plain, cuMemcpy(c->dst, c->src, BYTES), 1)                                         \
    X(plain_ptds, cuMemcpy_ptds(c->dst, c->src, BYTES), 1)                               \
    X(async, cuMemcpyAsync(c->dst, c->src, BYTES, c->stream), 1)                         \
    X(async_ptsz, cuMemcpyAsync_ptsz(c->dst, c->src, BYTES, c->stream), 1)               \
    X(device, cuMemcpyDtoD_v2(c->dst, c->src, BYTES), 1)                                 \
    X(device_ptds, cuMemcpyDtoD_v2_ptds(c->dst, c->src, BYTES), 1)                       \
    X(device_async, cuMemcpyDtoDAsync_v2(c->dst, c->src, BYTES, c->stream), 1)           \
    X(device_async_ptsz, cuMemcpyDtoDAsync_v2_ptsz(c->dst, c->src, BYTES, c->stream), 1) \
    X(flat, flat(cuMemcpy2D_v2, NULL, c), 1)                                             \
    X(flat_ptds, flat(cuMemcpy2D_v2_ptds, NULL, c), 1)                                   \
    X(flat_odd, flat(cuMemcpy2DUnaligned_v2, NULL, c), 1)                                \
    X(flat_odd_ptds, flat(cuMemcpy2DUnaligned_v2_ptds, NULL, c), 1)                      \
    X(flat_async, flat(NULL, cuMemcpy2DAsync_v2, c), 1)                                  \
    X(flat_async_ptsz, flat(NULL, cuMemcpy2DAsync_v2_ptsz, c), 1)                        \
    X(cube, cube(cuMemcpy3D_v2, NULL, c), 1)                                             \
    X(cube_ptds, cube(cuMemcpy3D_v2_ptds, NULL, c), 1)                                   \
    X(cube_async, cube(NULL, cuMemcpy3DAsync_v2, c), 1)                                  \
    X(cube_async_ptsz, cube(NULL, cuMemcpy3DAsync_v2_ptsz, c), 1)                        \
    X(batch, batch(cuMemcpyBatchAsync_v2, c), 2)                                         \
    X(batch_ptsz, batch(cuMemcpyBatchAsync_v2_ptsz, c), 2)

#define DEFINE(name, call, count)                \
    static CUresult copy_##name(const copy_t *c) \
    {                                            \
        return call;                             \
    }
COPY_LIST(DEFINE)
#undef DEFINE

static const struct {
    const char *name;
    CUresult (*call)(const copy_t *);
    uint64_t peer_calls;
} g_copies[] = {
#define ROW(name, call, count) {#name, copy_##name, count},
    COPY_LIST(ROW)
#undef ROW
};
#define COPIES (sizeof(g_copies) / sizeof(g_copies[0]))

/* A block amid others, so that what lies before it is ours, too. */
static CUdeviceptr make_block(const place_t *place)
{
    return peer_alloc(place, 4096) + 1024;
}

static void write_block(const place_t *place, CUdeviceptr block, uint64_t seed)
{
    REQUIRE(peer_fill(place, block, BYTES, seed) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(place->stream) == CUDA_SUCCESS);
}

static bool is_written(const place_t *place, CUdeviceptr block, uint64_t seed)
{
    uint64_t words[BYTES / 8];

    peer_join(place);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH(words, block, BYTES) == CUDA_SUCCESS);
    for (unsigned i = 0; i < BYTES / 8; i++)
        if (words[i] != softcuda_fill_word(seed, i))
            return false;
    return true;
}

/* From one place to another, by a third: it goes in the Peer form exactly if the memory is not within reach
 * of the third. */
static void copy_by(const place_t *by, const place_t *to, CUdeviceptr dst, const place_t *from,
                    CUdeviceptr src, bool is_within_reach)
{
    static uint64_t seed = 10;

    for (size_t i = 0; i < COPIES; i++) {
        uint64_t before = peer_calls(),
                 expected = is_within_reach || !peer_is_vmm() ? 0 : g_copies[i].peer_calls;
        const copy_t c = {dst, src, by->stream};
        CUresult result;

        write_block(from, src, ++seed);
        write_block(to, dst, 1);
        peer_join(by);
        result = g_copies[i].call(&c);
        if (result != CUDA_SUCCESS || peer_calls() - before != expected)
            fprintf(stderr, "%s: %d, %llu calls in the Peer form\n", g_copies[i].name, result,
                    (unsigned long long)(peer_calls() - before));
        REQUIRE(result == CUDA_SUCCESS && peer_calls() - before == expected);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        REQUIRE(is_written(to, dst, seed));
    }
}

static void copies(void)
{
    place_t third = peer_primary(2);
    CUdeviceptr here[2] = {make_block(&g_here), make_block(&g_here)};
    CUdeviceptr there = make_block(&g_there);

    copy_by(&g_here, &g_here, here[0], &g_here, here[1], true);
    copy_by(&g_here, &g_there, there, &g_here, here[0], false);
    copy_by(&g_here, &g_here, here[0], &g_there, there, false);
    copy_by(&g_there, &g_there, there, &g_here, here[0], false);
    copy_by(&third, &g_there, there, &g_here, here[0], false);
    copy_by(&third, &g_here, here[0], &g_here, here[1], false);
    enable(&g_there, &g_here); /* now the plain forms reach it */
    copy_by(&g_there, &g_there, there, &g_here, here[0], true);
    copy_by(&g_here, &g_there, there, &g_here, here[0], false);
    disable(&g_there, &g_here);
    copy_by(&g_there, &g_there, there, &g_here, here[0], false);
}

/* Host memory, pinned and not, and memory that is not ours, on the other side. */
static void copies_host(void)
{
    CUdeviceptr there = make_block(&g_there), managed, async;
    uint64_t words[BYTES / 8], *pinned;

    peer_join(&g_here);
    REQUIRE(cuMemAllocHost((void **)&pinned, BYTES) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocAsync(&async, BYTES, g_here.stream) == CUDA_SUCCESS);
    write_block(&g_there, there, 5);
    peer_join(&g_here);
    memset(words, 0, BYTES);
    REQUIRE(cuMemcpyDtoH(words, there, BYTES) == CUDA_SUCCESS);
    REQUIRE(words[1] == softcuda_fill_word(5, 1));
    words[1] = 77;
    REQUIRE(cuMemcpyHtoD(there, words, BYTES) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoHAsync(pinned, there, BYTES, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(g_here.stream) == CUDA_SUCCESS);
    REQUIRE(pinned[0] == words[0] && pinned[1] == 77);
    pinned[2] = 78;
    REQUIRE(cuMemcpyHtoDAsync(there, pinned, BYTES, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyAsync(managed, there, BYTES, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyAsync(async, there, BYTES, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyAsync((CUdeviceptr)words, async, BYTES, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(g_here.stream) == CUDA_SUCCESS);
    REQUIRE(words[2] == 78 && ((uint64_t *)managed)[2] == 78);
    words[3] = 79;
    REQUIRE(cuMemcpy(there, (CUdeviceptr)words, BYTES) == CUDA_SUCCESS);
    memset(pinned, 0, BYTES);
    REQUIRE(cuMemcpy((CUdeviceptr)pinned, there, BYTES) == CUDA_SUCCESS);
    REQUIRE(pinned[3] == 79);
    REQUIRE(peer_calls() == (peer_is_vmm() ? 8 : 0));
}

/* Each copy of a batch by its own attribute: what the program may overwrite after the call has been read by then. */
static void copies_batch(void)
{
    CUdeviceptr here = make_block(&g_here), there = make_block(&g_there);
    uint64_t us = 20000, word = 0, *pinned;
    size_t sizes[] = {8, 8}, firsts[] = {0, 1};
    CUmemcpyAttributes attrs[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                  {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
    void *params[] = {&us};

    peer_join(&g_here);
    REQUIRE(cuMemAllocHost((void **)&pinned, 16) == CUDA_SUCCESS);
    *pinned = 7;
    CUdeviceptr dsts[] = {here, there}, srcs[] = {here + 64, (CUdeviceptr)pinned};
    REQUIRE(cuLaunchKernel(g_here.spin, 1, 1, 1, 1, 1, 1, 0, g_here.stream, params, NULL) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attrs, firsts, 2, g_here.stream) == CUDA_SUCCESS);
    *pinned = 8;
    REQUIRE(cuStreamSynchronize(g_here.stream) == CUDA_SUCCESS);
    peer_join(&g_there);
    REQUIRE(cuMemcpyDtoH(&word, there, 8) == CUDA_SUCCESS && word == 7);
}

typedef CUresult (*old_batch_t)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *,
                                size_t *, size_t, size_t *, CUstream);

/* The first version of the call tells which copy was refused; those before it were made. */
static void copies_batch_old(void)
{
    CUdeviceptr here = make_block(&g_here), there = make_block(&g_there);
    CUdeviceptr dsts[] = {here + 64, there, there}, srcs[] = {here, here, 0};
    size_t sizes[] = {8, 8, 8}, first = 0, failed = 99;
    CUmemcpyAttributes attr = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    old_batch_t batch_v1 = (old_batch_t)dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync");
    uint64_t word = 0;

    write_block(&g_here, here, 5);
    peer_join(&g_here);
    REQUIRE(batch_v1(dsts, srcs, sizes, 3, &attr, &first, 1, &failed, g_here.stream) ==
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(failed == 2);
    REQUIRE(cuStreamSynchronize(g_here.stream) == CUDA_SUCCESS);
    peer_join(&g_there);
    REQUIRE(cuMemcpyDtoH(&word, there, 8) == CUDA_SUCCESS && word == softcuda_fill_word(5, 0));
}

static CUresult named(const copy_t *c)
{
    return cuMemcpyPeerAsync(c->dst, g_there.ctx, c->src, g_here.ctx, BYTES, c->stream);
}

static CUresult named_cube(const copy_t *c)
{
    const CUDA_MEMCPY3D_PEER copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .dstDevice = c->dst,
                                     .dstContext = g_there.ctx,
                                     .dstPitch = BYTES,
                                     .dstHeight = 1,
                                     .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                     .srcDevice = c->src,
                                     .srcContext = g_here.ctx,
                                     .srcPitch = BYTES,
                                     .srcHeight = 1,
                                     .WidthInBytes = BYTES,
                                     .Height = 1,
                                     .Depth = 1};

    return cuMemcpy3DPeerAsync(&copy, c->stream);
}

/* Not one whose source must have been read when the call returns: that waits. */
static CUresult batch_in_order(const copy_t *c)
{
    CUdeviceptr dst = c->dst, src = c->src;
    size_t bytes = BYTES, first = 0;
    CUmemcpyAttributes attr = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    return cuMemcpyBatchAsync(&dst, &src, &bytes, 1, &attr, &first, 1, c->stream);
}

/*
 * The copy is in flight on the other context's stream while its source is freed, and given to the next owner: whose
 * fill must not come before the copy has read. Once more with work of the source's own
 * context in flight beside it.
 */
static void hand_on(const char *name, CUresult (*call)(const copy_t *), bool is_first_owner_busy)
{
    CUdeviceptr there = make_block(&g_there), here = peer_alloc(&g_here, 4096), next;
    const copy_t c = {there, here + 1024, g_there.stream};

    write_block(&g_here, here + 1024, 5);
    peer_join(&g_there);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(softcuda_hold(g_there.stream) == 0);
    REQUIRE(call(&c) == CUDA_SUCCESS);
    if (is_first_owner_busy)
        REQUIRE(peer_fill(&g_here, here + 2048, BYTES, 6) == CUDA_SUCCESS);
    peer_join(&g_here);
    REQUIRE(cuMemFree(here) == CUDA_SUCCESS);
    next = peer_alloc(&g_here, 4096);
    if (next != here)
        fprintf(stderr, "%s: another block\n", name);
    REQUIRE(next == here);
    REQUIRE(peer_fill(&g_here, next, 4096, 7) == CUDA_SUCCESS);
    usleep(2000); /* it would have run by now */
    softcuda_release(g_there.stream);
    REQUIRE(cuStreamSynchronize(g_here.stream) == CUDA_SUCCESS);
    if (softcuda_violations() != 0)
        fprintf(stderr, "%s: too early\n", name);
    REQUIRE(softcuda_violations() == 0);
    REQUIRE(is_written(&g_there, there, 5));
    REQUIRE(cuMemFree(next) == CUDA_SUCCESS);
}

static void handed_on(void)
{
    for (int is_busy = 0; is_busy < 2; is_busy++) {
        for (size_t i = 0; i < COPIES; i++)
            if (strstr(g_copies[i].name, "async"))
                hand_on(g_copies[i].name, g_copies[i].call, is_busy != 0);
        hand_on("batch_in_order", batch_in_order, is_busy != 0);
        hand_on("named", named, is_busy != 0);
        hand_on("named_cube", named_cube, is_busy != 0);
    }
    g_own_peer_calls = peer_is_vmm() ? 2 : 4; /* a unified side is filled in */
    printf("peer_trails 22 1000\n");
}

/* In a capture the Peer form is refused: the plain one goes, and the memory stays within reach for the graph, whatever
 * the program gives and takes. */
static void captured(void)
{
    CUdeviceptr here = make_block(&g_here), there = make_block(&g_there);
    CUgraphExec exec;
    CUgraph graph;

    write_block(&g_here, here, 5);
    peer_join(&g_there);
    REQUIRE(cuStreamBeginCapture(g_there.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoDAsync(there, here, BYTES, g_there.stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(g_there.stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    enable(&g_there, &g_here);
    disable(&g_there, &g_here);
    REQUIRE(cuGraphLaunch(exec, g_there.stream) == CUDA_SUCCESS);
    REQUIRE(is_written(&g_there, there, 5));
    REQUIRE(peer_can_write(&g_there, here, 1) == peer_is_vmm()); /* more than natively */
    g_changes = 1;
}

/* The linear Peer form with a context that is not the memory's. */
static void misnamed(void)
{
    CUdeviceptr here = make_block(&g_here), there = make_block(&g_there);

    write_block(&g_here, here, 5);
    peer_join(&g_there);
    REQUIRE(cuMemcpyPeer(there, g_there.ctx, here, g_there.ctx, BYTES) == CUDA_SUCCESS);
    REQUIRE(is_written(&g_there, there, 5));
    write_block(&g_here, here, 6);
    peer_join(&g_there);
    REQUIRE(cuMemcpyPeerAsync(there, g_here.ctx, here, g_there.ctx, BYTES, g_there.stream) == CUDA_SUCCESS);
    REQUIRE(is_written(&g_there, there, 6));
    peer_join(&g_there);
    REQUIRE(cuMemcpyPeer(there, g_there.ctx, here, NULL, BYTES) == CUDA_ERROR_INVALID_CONTEXT);
    g_own_peer_calls = peer_calls();
}

/* What the driver would refuse, it refuses, whoever the memory is of. */
static void copies_codes(void)
{
    CUdeviceptr here = make_block(&g_here), there = make_block(&g_there);
    const copy_t to_legacy = {there, here, NULL};

    peer_join(&g_here);
    REQUIRE(cuMemcpyDtoD(there, 0, 16) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyDtoD(0, there, 16) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyDtoD(there, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemcpy2D(NULL) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpy3D(NULL) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(copy_batch(&to_legacy) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyBatchAsync(&there, &here, NULL, 1, NULL, NULL, 1, g_here.stream) ==
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyBatchAsync(NULL, NULL, NULL, 0, NULL, NULL, 0, g_here.stream) ==
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoD(there, here, 16) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuCtxSetCurrent(g_here.ctx) == CUDA_SUCCESS);
}

/* One device: a copy does not ask where it runs. */
static void quiet(void)
{
    CUdeviceptr block[2] = {peer_alloc(&g_here, 4096), peer_alloc(&g_here, 4096)};
    uint64_t before;

    REQUIRE(cuMemcpyDtoDAsync(block[0], block[1], 64, g_here.stream) == CUDA_SUCCESS);
    before = softcuda_calls("cuCtxGetDevice");
    for (int i = 0; i < 100; i++)
        REQUIRE(cuMemcpyDtoDAsync(block[0], block[1], 64, g_here.stream) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuCtxGetDevice") == before);
    REQUIRE(softcuda_calls("cuMemcpyDtoDAsync_v2") == 101);
}

static const struct {
    const char *name;
    void (*run)(void);
} g_cases[] = {{"reach", reach},
               {"early", early},
               {"moves", moves},
               {"in_flight", in_flight},
               {"in_capture", in_capture},
               {"counted", counted},
               {"user_ends", user_ends},
               {"owner_ends", owner_ends},
               {"racing", racing},
               {"codes", codes},
               {"copies", copies},
               {"copies_host", copies_host},
               {"copies_batch", copies_batch},
               {"copies_batch_old", copies_batch_old},
               {"copies_codes", copies_codes},
               {"handed_on", handed_on},
               {"captured", captured},
               {"misnamed", misnamed},
               {"quiet", quiet}};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(g_cases) / sizeof(g_cases[0]); i++) {
        if (argc != 2 || strcmp(argv[1], g_cases[i].name) != 0)
            continue;
        g_here = peer_primary(0);
        if (strcmp(argv[1], "quiet") != 0)
            g_there = peer_primary(1);
        softcuda_reset_counters();
        g_cases[i].run();
        REQUIRE(softcuda_violations() == 0);
        printf("peer_copies %llu\n", (unsigned long long)(peer_calls() - g_own_peer_calls)); /* counted.sh */
        if (g_changes >= 0)
            printf("peer_changes %d\n", peer_is_vmm() ? g_changes : 0);
        return 0;
    }
    return 2;
}
