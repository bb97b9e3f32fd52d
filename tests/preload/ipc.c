/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc - handles of pooled memory between real processes under the preload, on the software driver.
 * What:       ipc NAME runs one case: right bytes both ways, codes, what a free and the end of a context
 *             mean, ends of loans. The software driver's own legacy IPC is never called for pooled memory,
 *             and the case says so by its counters.
 * Not here:   processes that die, stop or run out of something (ipc_rough.c); who may ask (ipc_guard.c).
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"
#include <pthread.h>

#ifdef __SANITIZE_THREAD__
#define LARGEST ((uint64_t)4 << 20) /* what comes after has one thread, and takes minutes */
#else
#define LARGEST ((uint64_t)64 << 20)
#endif

/* ---- right bytes ---- */

/* Exported here, read and written there, read here. */
static void round_trip(const peer_t *there, uint64_t size, uint64_t seed)
{
    servant_t here = ipc_exported(NULL, size, seed), far = {.handle = here.handle};

    REQUIRE(servant_tell(there, SERVANT_OPEN, &far) == CUDA_SUCCESS);
    far.size = size;
    far.number = seed;
    servant_tell(there, SERVANT_VERIFY, &far);
    REQUIRE(far.number == 0);
    far.number = seed + 1;
    REQUIRE(servant_tell(there, SERVANT_FILL, &far) == CUDA_SUCCESS);
    REQUIRE(servant_wrong(here.address, size, seed + 1) == 0);
    REQUIRE(servant_tell(there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
}

static void bytes(void)
{
    peer_t there = ipc_peer();
    uint64_t seed = 1;

    for (uint64_t size = 512; size <= LARGEST; size *= 2) {
        round_trip(&there, size, seed++);
        round_trip(&there, size + size / 2 - 3, seed++);
    }
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
}

/* Blocks of one handle: it is mapped once, and each block is its own. */
static void shared_handle(void)
{
    enum { COUNT = 4, SIZE = 100 << 10 };
    peer_t there = ipc_peer();
    servant_t here[COUNT], far[COUNT];

    for (int i = 0; i < COUNT; i++) {
        here[i] = ipc_exported(NULL, SIZE, 10 + i);
        far[i] = ipc_opened(&there, &here[i]);
        REQUIRE(i == 0 || far[i].address - far[0].address == here[i].address - here[0].address);
    }
    REQUIRE(servant_ask(&there, SERVANT_CALLS, "cuMemImportFromShareableHandle") == 1);
    for (int i = 0; i < COUNT; i++) {
        servant_t inside = {.address = far[i].address + SIZE - 1};

        REQUIRE(ipc_wrong(&there, &far[i], SIZE, 10 + i) == 0);
        REQUIRE(servant_tell(&there, SERVANT_RANGE, &inside) == CUDA_SUCCESS);
        REQUIRE(inside.address == far[i].address && inside.size == SIZE);
    }
    for (int i = 0; i < COUNT; i++) { /* any order: the second first */
        servant_t *one = &far[(i + 1) % COUNT];

        REQUIRE(servant_tell(&there, SERVANT_CLOSE, one) == CUDA_SUCCESS);
        REQUIRE((servant_ask(&there, SERVANT_MAPPED, "") == 0) == (i == COUNT - 1));
        if (i < COUNT - 1)
            REQUIRE(ipc_wrong(&there, &far[0], SIZE, 10) == 0);
    }
    ipc_end(&there);
}

/*
 * More handles than one message carries, each with bytes of its own; and a second block over the last of
 * them.
 */
static void many_handles(void)
{
    enum { PARTS = 30, STEP = 10 << 20, PIECE = 64 << 10 };
    peer_t there = ipc_peer();
    servant_t large = {.size = (uint64_t)PARTS * STEP}, next, far, far_large;

    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &large) == CUDA_SUCCESS);
    for (uint64_t i = 0; i < PARTS; i++) {
        servant_t piece = {.address = large.address + i * STEP, .size = PIECE, .number = i};

        REQUIRE(servant_tell(NULL, SERVANT_FILL, &piece) == CUDA_SUCCESS);
    }
    REQUIRE(servant_tell(NULL, SERVANT_GET, &large) == CUDA_SUCCESS);
    next = ipc_exported(NULL, 5 << 20, 99);
    far = ipc_opened(&there, &next);
    far_large = ipc_opened(&there, &large);
    REQUIRE(servant_ask(&there, SERVANT_CALLS, "cuMemImportFromShareableHandle") ==
            servant_ask(&there, SERVANT_MAPPED, "") / ((uint64_t)2 << 20));
    for (uint64_t i = 0; i < PARTS; i++) {
        servant_t piece = {.address = far_large.address + i * STEP};

        REQUIRE(ipc_wrong(&there, &piece, PIECE, i) == 0);
    }
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far_large) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, next.size, 99) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
}

static int is_zero(CUdeviceptr from, uint64_t size)
{
    char *copy = malloc(size);
    uint64_t others = 0;

    REQUIRE(copy && cuMemcpyDtoH(copy, from, size) == CUDA_SUCCESS);
    for (uint64_t i = 0; i < size; i++)
        others += copy[i] != 0;
    free(copy);
    return others == 0;
}

/*
 * CUPOLA_IPC_ISOLATE: a small block has a handle of its own, and nothing of what was there before is in it.
 */
static void isolated(void)
{
    enum { COUNT = 3, SIZE = 100 << 10, HANDLE = 2 << 20 };
    peer_t there = ipc_peer();
    servant_t old = ipc_filled(NULL, HANDLE, 1), far[COUNT];

    REQUIRE(servant_tell(NULL, SERVANT_FREE, &old) == CUDA_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        servant_t here = ipc_exported(NULL, SIZE, 10 + i), range = here;

        REQUIRE(i > 0 || here.address == old.address);
        REQUIRE(here.address % HANDLE == 0 && is_zero(here.address + SIZE, HANDLE - SIZE));
        REQUIRE(servant_tell(NULL, SERVANT_RANGE, &range) == CUDA_SUCCESS && range.size == SIZE);
        far[i] = ipc_opened(&there, &here);
        REQUIRE(ipc_wrong(&there, &far[i], SIZE, 10 + i) == 0);
        REQUIRE(servant_ask(&there, SERVANT_CALLS, "cuMemImportFromShareableHandle") == (uint64_t)i + 1);
    }
    ipc_end(&there);
}

/* Opened in a context of another device: that device reaches it. */
static void other_device(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t device = {.number = 1}, here = ipc_exported(NULL, SIZE, 1), far;

    REQUIRE(servant_tell(&there, SERVANT_DEVICE, &device) == CUDA_SUCCESS);
    far = ipc_opened(&there, &here);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    far.size = SIZE;
    far.number = 2;
    REQUIRE(servant_tell(&there, SERVANT_FILL, &far) == CUDA_SUCCESS);
    REQUIRE(servant_wrong(here.address, SIZE, 2) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    ipc_end(&there);
}

/* A copy in a capture of this device's: nothing but access makes it work. */
static void copy_captured(CUdeviceptr to, CUdeviceptr from, uint64_t size)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec;
    CUgraph graph;

    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoDAsync(to, from, size, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

/* Opened in a context of device 0, copied with one of device 1 current. */
static void copied_afar(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here = ipc_opened(NULL, &block), own = {.size = SIZE};
    uint64_t word;

    own.number = 1;
    REQUIRE(servant_tell(NULL, SERVANT_DEVICE, &own) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &own) == CUDA_SUCCESS);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(cuMemcpyDtoD(own.address, here.address, SIZE) == CUDA_SUCCESS); /* the read comes after it */
    REQUIRE(servant_wrong(own.address, SIZE, 1) == 0);
    own.number = 2;
    REQUIRE(servant_tell(NULL, SERVANT_FILL, &own) == CUDA_SUCCESS);
    REQUIRE(cuMemcpy(here.address, own.address, SIZE) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &block, SIZE, 2) == 0);
    own.number = 3;
    REQUIRE(servant_tell(NULL, SERVANT_FILL, &own) == CUDA_SUCCESS);
    copy_captured(here.address, own.address, SIZE);
    REQUIRE(ipc_wrong(&there, &block, SIZE, 3) == 0);
    REQUIRE(cuMemcpyDtoH(&word, here.address, sizeof word) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD(here.address + 8, &word, sizeof word) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &block, SIZE, 3) == 1);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
}

/* A context of device 1 that has been let at the memory of device 0's reaches what that one opens, by kernels too. */
static void reached_afar(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here, device = {.number = 1};
    CUcontext first = servant_ctx, second;

    REQUIRE(servant_tell(NULL, SERVANT_DEVICE, &device) == CUDA_SUCCESS);
    second = servant_ctx;
    REQUIRE(cuCtxEnablePeerAccess(first, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS);
    here = ipc_opened(NULL, &block);
    REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS);
    here.size = SIZE;
    here.number = 2;
    REQUIRE(servant_tell(NULL, SERVANT_FILL, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &block, SIZE, 2) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
}

/* Let at it while it is open. */
static void reached_later(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here = ipc_opened(NULL, &block), device = {.number = 1};
    CUcontext first = servant_ctx;

    REQUIRE(servant_tell(NULL, SERVANT_DEVICE, &device) == CUDA_SUCCESS);
    REQUIRE(cuCtxEnablePeerAccess(first, 0) == CUDA_SUCCESS);
    here.size = SIZE;
    here.number = 2;
    REQUIRE(servant_tell(NULL, SERVANT_FILL, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &block, SIZE, 2) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
}

/* ---- codes, and what opens count ---- */

static void codes(void)
{
    peer_t there = ipc_peer();
    servant_t here = ipc_exported(NULL, 5000, 5), inside = here, again, far;
    CUdeviceptr none;

    inside.address += 700;
    REQUIRE(servant_tell(NULL, SERVANT_GET, &inside) == CUDA_SUCCESS);
    REQUIRE(memcmp(&inside.handle, &here.handle, sizeof here.handle) == 0);
    REQUIRE(cuIpcGetMemHandle(NULL, here.address) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuIpcOpenMemHandle(&none, here.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
            CUDA_ERROR_INVALID_CONTEXT); /* of this process */
    REQUIRE(cuIpcOpenMemHandle(&none, here.handle, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuIpcOpenMemHandle(NULL, here.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
            CUDA_ERROR_INVALID_VALUE);
    far = ipc_opened(&there, &here);
    again = ipc_opened(&there, &here);
    REQUIRE(again.address == far.address);
    again.address += 512;
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &again) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &far) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, 5000, 5) == 0); /* one open is left */
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &here) == CUDA_ERROR_INVALID_VALUE);
    ipc_end(&there);
}

/* The same address, freed and allocated again, is another block: the old token opens nothing. */
static void reused_address(void)
{
    peer_t there = ipc_peer();
    servant_t first = ipc_exported(NULL, 3 << 20, 1), second, far;

    REQUIRE(servant_tell(NULL, SERVANT_FREE, &first) == CUDA_SUCCESS);
    second = ipc_exported(NULL, 3 << 20, 2);
    REQUIRE(second.address == first.address); /* nobody had it on loan */
    REQUIRE(memcmp(&first.handle, &second.handle, sizeof first.handle) != 0);
    far.handle = first.handle;
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &far) == CUDA_ERROR_INVALID_VALUE);
    far = ipc_opened(&there, &second);
    REQUIRE(ipc_wrong(&there, &far, 3 << 20, 2) == 0);
    ipc_end(&there);
}

/* ---- frees ---- */

/* Freed while it is open over there: nobody else gets it, until it is closed there. */
static void freed_on_loan(void)
{
    enum { SIZE = 3 << 20, COUNT = 8 };
    peer_t there = ipc_peer(), late = ipc_peer();
    servant_t here = ipc_exported(NULL, SIZE, 1), far = ipc_opened(&there, &here);
    servant_t too_late = {.handle = here.handle};
    CUdeviceptr other[COUNT];

    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&late, SERVANT_OPEN, &too_late) == CUDA_ERROR_INVALID_VALUE);
    ipc_end(&late);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < COUNT; i++) {
        servant_t next = ipc_exported(NULL, SIZE, 50 + i);

        other[i] = next.address;
        REQUIRE(other[i] != here.address);
    }
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &far) == CUDA_SUCCESS); /* counted: it is mapped */
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &far) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ipc_comes_back(here.address, SIZE));
    ipc_end(&there);
}

/*
 * A kernel over there is still at it when its program closes: the mapping stays until then, and so does the
 * loan.
 */
static void closed_in_use(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t here = ipc_exported(NULL, SIZE, 1), far = ipc_opened(&there, &here);

    far.size = SIZE;
    far.number = 20000;
    REQUIRE(servant_tell(&there, SERVANT_BUSY, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_SYNC, &far) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_VIOLATIONS, "") == 0);
    REQUIRE(ipc_comes_back(here.address, SIZE));
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
}

/*
 * Nothing can be waited for in a capture: the mapping stays, the capture holds, and a later call takes it
 * away.
 */
static void closed_in_capture(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), next = ipc_exported(&there, SIZE, 2);
    servant_t here = ipc_opened(NULL, &block), other;
    uint64_t mapped = softcuda_mapped_bytes();
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;

    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    client_fill(stream, here.address, SIZE, 5);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_ERROR_INVALID_VALUE); /* it is closed */
    other = ipc_opened(NULL, &next);
    REQUIRE(softcuda_mapped_bytes() > mapped);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &other) == CUDA_SUCCESS);
    REQUIRE(softcuda_mapped_bytes() < mapped);
    REQUIRE(softcuda_calls("cuIpcOpenMemHandle_v2") == 0);
    REQUIRE(peer_end(&there) == 0);
}

/*
 * A capture keeps the mapping for one context; meanwhile another one opens the same block: each waits for its own.
 */
static void closed_elsewhere(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here = ipc_opened(NULL, &block), other;
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUcontext second;
    CUgraph graph;

    REQUIRE(cuCtxCreate(&second, NULL, 0, 0) == CUDA_SUCCESS);
    servant_load();
    REQUIRE(cuCtxSetCurrent(servant_ctx) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS);
    other = ipc_opened(NULL, &block);
    REQUIRE(other.address == here.address);
    other.size = SIZE;
    other.number = 50000;
    REQUIRE(servant_tell(NULL, SERVANT_BUSY, &other) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &other) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(servant_ctx) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph);
    (void)servant_tell(NULL, SERVANT_CLOSE, &here); /* unmaps what is not in use */
    REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(softcuda_violations() == 0);
    (void)servant_tell(NULL, SERVANT_CLOSE, &here);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back_to(&there, block.address, SIZE)); /* both loans have ended */
    REQUIRE(peer_end(&there) == 0);
}

/* ---- green contexts ---- */

static CUcontext make_green(CUstream *out_stream)
{
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext ctx;

    REQUIRE(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    REQUIRE(cuDevResourceGenerateDesc(&desc, &resource, 1) == CUDA_SUCCESS);
    REQUIRE(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    REQUIRE(cuGreenCtxStreamCreate(out_stream, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS);
    return ctx;
}

/* Opened in a green context: its work is waited for, whatever is current at the close, and it ends with the primary. */
static void green(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here;
    uint64_t size = SIZE, seed = 5, us = 50000, mapped;
    void *params[] = {&here.address, &size, &seed, &us};
    CUcontext primary, ctx;
    CUstream stream;

    REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    ctx = make_green(&stream);
    REQUIRE(cuCtxSetCurrent(ctx) == CUDA_SUCCESS);
    servant_load();
    mapped = softcuda_mapped_bytes();
    here = ipc_opened(NULL, &block);
    REQUIRE(cuLaunchKernel(servant_late_fill, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(servant_ctx) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(ctx) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS);
    REQUIRE(softcuda_violations() == 0);
    here = ipc_opened(NULL, &block);
    REQUIRE(servant_wrong(here.address, SIZE, seed) == 0);
    REQUIRE(softcuda_mapped_bytes() > mapped);
    REQUIRE(cuCtxSetCurrent(servant_ctx) == CUDA_SUCCESS && cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    REQUIRE(softcuda_mapped_bytes() == mapped);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(peer_end(&there) == 0);
}

/* Work of before the handle was made is done when others can reach the block. */
static void complete_before(void)
{
    enum { SIZE = 3 << 20 };
    servant_t old = {.size = SIZE}, here;

    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &old) == CUDA_SUCCESS);
    softcuda_claim(old.address, SIZE);
    old.number = 20000;
    REQUIRE(servant_tell(NULL, SERVANT_BUSY, &old) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &old) == CUDA_SUCCESS);
    here = (servant_t){.size = SIZE};
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &here) == CUDA_SUCCESS && here.address == old.address);
    REQUIRE(softcuda_unfinished() > 0);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &here) == CUDA_SUCCESS);
    REQUIRE(softcuda_unfinished() == 0);
}

/* ---- contexts ---- */

static void context_ends(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t here = ipc_exported(NULL, SIZE, 1), far = ipc_opened(&there, &here), late;

    REQUIRE(servant_tell(NULL, SERVANT_NEW_CONTEXT, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0); /* whoever has it keeps it */
    late.handle = here.handle;
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &late) == CUDA_ERROR_INVALID_VALUE);
    here = ipc_exported(NULL, SIZE, 2);
    far = ipc_opened(&there, &here);
    REQUIRE(servant_tell(&there, SERVANT_NEW_CONTEXT, &late) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(here.address, SIZE));
    far = ipc_opened(&there, &(servant_t){.handle = ipc_exported(NULL, SIZE, 3).handle});
    REQUIRE(ipc_wrong(&there, &far, SIZE, 3) == 0);
    ipc_end(&there);
}

/*
 * The exporter's context ends while its block is open: what the next one has, at the same addresses, is other memory.
 */
static void context_ends_open(void)
{
    enum { SIZE = 3 << 20 };
    peer_t there = ipc_peer();
    servant_t old = ipc_exported(NULL, SIZE, 1), far_old, new, far;

    REQUIRE(servant_tell(NULL, SERVANT_NEW_CONTEXT, &new) == CUDA_SUCCESS); /* the thread's stack is there */
    old = ipc_exported(NULL, SIZE, 1);
    far_old = ipc_opened(&there, &old);
    for (int tries = 0; tries == 0 || new.address != old.address; tries++) {
        if (tries == 20)
            _Exit(77); /* a sanitizer's own mappings are where it was */
        REQUIRE(servant_tell(NULL, SERVANT_NEW_CONTEXT, &new) == CUDA_SUCCESS);
        new = ipc_exported(NULL, SIZE, 2);
    }
    far = ipc_opened(&there, &new);
    REQUIRE(far.address != far_old.address);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 2) == 0 && ipc_wrong(&there, &far_old, SIZE, 1) == 0);
    far.size = SIZE;
    far.number = 3;
    REQUIRE(servant_tell(&there, SERVANT_FILL, &far) == CUDA_SUCCESS);
    REQUIRE(servant_wrong(new.address, SIZE, 3) == 0 && ipc_wrong(&there, &far_old, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far_old) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 3) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
}

/* ---- handles of the driver ---- */

/* raw: a block of its own is the driver's, natively; the importer's preload passes its handle on. */
static void foreign(void)
{
    enum { SIZE = 4 << 20 };
    servant_t here = {.size = SIZE}, far;
    peer_t there = ipc_peer();

    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &here) == CUDA_SUCCESS);
    here.number = 9;
    REQUIRE(servant_tell(NULL, SERVANT_FILL, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &here) == CUDA_SUCCESS);
    REQUIRE(softcuda_calls("cuIpcGetMemHandle") == 1);
    far.handle = here.handle;
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 9) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_CALLS, "cuIpcOpenMemHandle_v2") == 1);
    REQUIRE(servant_ask(&there, SERVANT_CALLS, "cuIpcCloseMemHandle") == 1);
    REQUIRE(peer_end(&there) == 0);
}

/* ---- failing calls ---- */

/* The nth call of name fails. False: there was none, and the order succeeded. Nothing is left behind. */
static int fails_at(const peer_t *where, servant_order_t order, servant_t *message, const char *name,
                    uint64_t nth)
{
    servant_t fault = {.number = nth};
    uint64_t mapped = servant_ask(where, SERVANT_MAPPED, "");

    snprintf(fault.name, sizeof fault.name, "%s", name);
    REQUIRE(servant_tell(where, SERVANT_FAIL, &fault) == CUDA_SUCCESS);
    if (servant_tell(where, order, message) == CUDA_SUCCESS) {
        fault.number = 0;
        REQUIRE(servant_tell(where, SERVANT_FAIL, &fault) == CUDA_SUCCESS);
        return 0;
    }
    REQUIRE(message->result == CUDA_ERROR_UNKNOWN);
    REQUIRE(servant_ask(where, SERVANT_MAPPED, "") == mapped);
    return 1;
}

/* Every call of that name in an open, one after the other. */
static void fails_everywhere(const peer_t *there, const servant_t *block, const char *name)
{
    servant_t far = {.handle = block->handle};
    uint64_t nth = 1;

    while (fails_at(there, SERVANT_OPEN, &far, name, nth))
        nth++;
    REQUIRE(nth > 1);
    REQUIRE(servant_tell(there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
}

static void failures(void)
{
    enum { SIZE = 5 << 20 };
    peer_t there = ipc_peer();
    servant_t here = ipc_filled(NULL, SIZE, 1), kept = ipc_exported(NULL, SIZE, 2), far = {.size = 4096};

    REQUIRE(servant_tell(&there, SERVANT_ALLOC, &far) == CUDA_SUCCESS); /* its pool is there */
    fails_everywhere(&there, &kept, "cuMemAddressReserve");
    kept = ipc_opened(&there, &kept); /* the connection stays: it is the open that must give back */
    for (uint64_t nth = 1; fails_at(NULL, SERVANT_GET, &here, "cuMemExportToShareableHandle", nth); nth++)
        ;
    fails_everywhere(&there, &here, "cuMemImportFromShareableHandle");
    fails_everywhere(&there, &here, "cuMemMap");
    fails_everywhere(&there, &here, "cuMemSetAccess");
    far = ipc_opened(&there, &here);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(here.address, SIZE)); /* no open that failed has kept it */
    ipc_end(&there);
}

/* ---- threads ---- */

enum { THREADS = 4, BLOCKS = 6, BLOCK_BYTES = 300 << 10 };

static servant_t g_block[BLOCKS]; /* of the other process */

/* Opens and closes what others open and close, and exports blocks of its own meanwhile. */
static void *use_blocks(void *number)
{
    uint64_t at = (uint64_t)(uintptr_t)number;

    REQUIRE(cuCtxSetCurrent(servant_ctx) == CUDA_SUCCESS);
    for (int round = 0; round < g_rounds / 10; round++, at += 1 + (uint64_t)round % 3) {
        servant_t here = {.handle = g_block[at % BLOCKS].handle}, own = {.size = 4096 << (at % 10)};

        REQUIRE(servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_SUCCESS);
        REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &own) == CUDA_SUCCESS);
        REQUIRE(servant_tell(NULL, SERVANT_GET, &own) == CUDA_SUCCESS);
        REQUIRE(servant_wrong(here.address, 4096, 100 + at % BLOCKS) == 0);
        REQUIRE(servant_tell(NULL, SERVANT_FREE, &own) == CUDA_SUCCESS);
        REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    }
    return NULL;
}

static void threads(void)
{
    peer_t there = ipc_peer();
    pthread_t thread[THREADS];

    for (int i = 0; i < BLOCKS; i++)
        g_block[i] = ipc_exported(&there, BLOCK_BYTES, 100 + (uint64_t)i);
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, use_blocks, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    REQUIRE(softcuda_calls("cuIpcOpenMemHandle_v2") == 0 && softcuda_calls("cuIpcGetMemHandle") == 0);
    for (int i = 0; i < BLOCKS; i++) {
        REQUIRE(servant_tell(&there, SERVANT_FREE, &g_block[i]) == CUDA_SUCCESS);
        REQUIRE(ipc_comes_back_to(&there, g_block[i].address, BLOCK_BYTES)); /* all is closed */
    }
    REQUIRE(peer_end(&there) == 0);
}

/* ---- nothing grows ---- */

static void one_round(const peer_t *there, uint64_t size)
{
    servant_t here = {.size = size}, far;

    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &here) == CUDA_SUCCESS);
    far.handle = here.handle;
    REQUIRE(servant_tell(there, SERVANT_OPEN, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
}

/* As many rounds again leave as many descriptors, and as much memory, as there were. */
static void growth(void)
{
    const uint64_t sizes[] = {4096, 100 << 10, 5 << 20};
    peer_t there = ipc_peer();
    uint64_t held = 0, open_here = 0, open_there = 0;

    for (int round = 0; round < g_rounds; round++) {
        one_round(&there, sizes[round % 3]);
        if (round == g_rounds / 10) {
            held = softcuda_held_bytes();
            open_here = servant_descriptors();
            open_there = servant_ask(&there, SERVANT_DESCRIPTORS, "");
        }
    }
    REQUIRE(softcuda_held_bytes() <=
            held + ((uint64_t)16 << 20)); /* a loan may end after the next allocation */
    REQUIRE(servant_descriptors() <= open_here + 8);
    REQUIRE(servant_ask(&there, SERVANT_DESCRIPTORS, "") <= open_there);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
}

#define CASE_LIST(X)     \
    X(bytes)             \
    X(shared_handle)     \
    X(many_handles)      \
    X(isolated)          \
    X(other_device)      \
    X(copied_afar)       \
    X(reached_afar)      \
    X(reached_later)     \
    X(codes)             \
    X(reused_address)    \
    X(freed_on_loan)     \
    X(closed_in_use)     \
    X(complete_before)   \
    X(closed_in_capture) \
    X(closed_elsewhere)  \
    X(green)             \
    X(context_ends)      \
    X(context_ends_open) \
    X(foreign)           \
    X(failures)          \
    X(threads)           \
    X(growth)

IPC_MAIN(CASE_LIST)
