/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_probe - what two devices do to each other's memory, asked of the driver: one line each, codes and
 * yes or no, no times.
 * What:       memory of cuMemAlloc and of cuMemCreate on device 0 (mapped, with access for device 0 alone),
 *             used from a context of device 1: kernels, copies in every form, sets; before access is given,
 *             while it is, afterwards. The output of two H200s is kept (peer_probe.expected); lines that
 *             begin with "probe" are for the record. Runs on the software driver, too (SOFTCUDA_DEVICES=2).
 * Not here:   the pool: this program runs without the preload. One device (quirks.c, vmm_quirks.c).
 * Invariants: each group in a process of its own: an error may end a context. A spinning kernel is what
 *             makes "in flight" certain. A word that comes back as it should is told as 1.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIP    77
#define SPIN_US 200000
#define SLOT    ((size_t)2 << 20)
#define BYTES   256

/* fill(ptr, bytes, seed) writes at least the first word, spin(us) takes so long: the software driver has
 * both built in. */
static const char g_ptx[] = ".version 6.4\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry fill(.param .u64 ptr, .param .u64 bytes, .param .u64 seed)\n"
                            "{\n"
                            "    .reg .u64 %ptr, %seed;\n"
                            "    ld.param.u64 %ptr, [ptr];\n"
                            "    ld.param.u64 %seed, [seed];\n"
                            "    st.global.u64 [%ptr], %seed;\n"
                            "    ret;\n"
                            "}\n"
                            ".visible .entry spin(.param .u64 us)\n"
                            "{\n"
                            "    .reg .u64 %length, %start, %now;\n"
                            "    .reg .pred %is_early;\n"
                            "    ld.param.u64 %length, [us];\n"
                            "    mul.lo.u64 %length, %length, 1000;\n"
                            "    mov.u64 %start, %globaltimer;\n"
                            "again:\n"
                            "    mov.u64 %now, %globaltimer;\n"
                            "    sub.u64 %now, %now, %start;\n"
                            "    setp.lt.u64 %is_early, %now, %length;\n"
                            "    @%is_early bra again;\n"
                            "    ret;\n"
                            "}\n";

typedef struct place {
    CUcontext ctx;
    CUstream stream;
    CUfunction fill, spin;
} place_t;

static place_t g_zero, g_one; /* primary contexts of devices 0 and 1 */
static CUdeviceptr g_far;     /* device 0's, of the kind that the group is about */
static CUdeviceptr g_near;    /* device 1's, of cuMemAlloc */
static uint64_t *g_pinned, g_pageable[BYTES / 8];
static const char *g_kind; /* "raw" or "vmm" */

static void line(const char *name, long value)
{
    printf("%s-%s %ld\n", g_kind, name, value);
}

/* ---- the two sides ---- */

static place_t furnish(CUcontext ctx)
{
    place_t place = {.ctx = ctx};
    CUmodule module;

    cuCtxSetCurrent(ctx);
    if (cuModuleLoadData(&module, g_ptx) != CUDA_SUCCESS &&
        cuModuleLoadData(&module, "softcuda\n") != CUDA_SUCCESS)
        exit(1);
    cuModuleGetFunction(&place.fill, module, "fill");
    cuModuleGetFunction(&place.spin, module, "spin");
    cuStreamCreate(&place.stream, CU_STREAM_NON_BLOCKING);
    return place;
}

static place_t open_primary(int device)
{
    CUcontext ctx;

    if (cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS)
        exit(1);
    return furnish(ctx);
}

static CUresult set_access(CUdeviceptr base, size_t bytes, int device, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = flags};

    return cuMemSetAccess(base, bytes, &access, 1);
}

/* Two handles, one behind the other. */
static CUdeviceptr make_vmm(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;

    cuMemAddressReserve(&base, 4 * SLOT, 0, 0, 0);
    for (size_t at = 0; at < 2 * SLOT; at += SLOT) {
        cuMemCreate(&handle, SLOT, &prop, 0);
        cuMemMap(base + at, SLOT, 0, handle, 0);
    }
    set_access(base, 2 * SLOT, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return base;
}

static CUdeviceptr make_raw(void)
{
    CUdeviceptr base = 0;

    cuMemAlloc(&base, 2 * SLOT);
    return base;
}

static void open_both(const char *kind)
{
    g_kind = kind;
    g_zero = open_primary(0);
    g_far = strcmp(kind, "vmm") == 0 ? make_vmm() : make_raw();
    g_one = open_primary(1);
    cuMemAlloc(&g_near, 2 * SLOT);
    cuMemAllocHost((void **)&g_pinned, BYTES);
}

static CUresult fill(const place_t *place, CUdeviceptr block, uint64_t seed)
{
    uint64_t bytes = 8;
    void *params[] = {&block, &bytes, &seed};

    cuCtxSetCurrent(place->ctx);
    return cuLaunchKernel(place->fill, 1, 1, 1, 1, 1, 1, 0, place->stream, params, NULL);
}

static void spin(const place_t *place)
{
    uint64_t us = SPIN_US;
    void *params[] = {&us};

    cuCtxSetCurrent(place->ctx);
    cuLaunchKernel(place->spin, 1, 1, 1, 1, 1, 1, 0, place->stream, params, NULL);
}

static uint64_t read_word(const place_t *place, CUdeviceptr from)
{
    uint64_t word = 0;

    cuCtxSetCurrent(place->ctx);
    cuCtxSynchronize();
    cuMemcpyDtoH(&word, from, 8);
    return word;
}

static void play_kernel(const char *mark, const char *name, const place_t *from)
{
    uint64_t before = read_word(&g_zero, g_far);
    CUresult launched = fill(from, g_far, before + 1), ended = cuStreamSynchronize(from->stream);

    printf("%s%s-kernel-%s launch %d, sync %d, written %d\n", mark, g_kind, name, launched, ended,
           read_word(&g_zero, g_far) != before);
}

/* What a launch that writes device 0's memory gives in the end, and whether the word changed. */
static void try_kernel(const char *name, const place_t *from)
{
    play_kernel("", name, from);
}

/* The software driver has it otherwise: there access is a context's, and what is refused writes nothing. */
static void probe_kernel(const char *name, const place_t *from)
{
    play_kernel("probe ", name, from);
}

/* ---- copies ---- */

/* Before each copy its destination and source differ; told: the code, that of the end, whether the bytes
 * are there. */
static void tell(const char *form, const char *name, CUresult result, CUdeviceptr to, const uint64_t *host_to,
                 uint64_t expected, const place_t *owner)
{
    CUresult ended;
    uint64_t found;

    cuCtxSetCurrent(g_one.ctx);
    ended = cuCtxSynchronize();
    cuCtxSetCurrent(g_zero.ctx);
    cuCtxSynchronize();
    found = host_to ? *host_to : read_word(owner, to);
    printf("%s-%s-%s code %d, sync %d, copied %d\n", g_kind, form, name, result, ended, found == expected);
}

static uint64_t prepare(CUdeviceptr to, const place_t *owner_to, CUdeviceptr from, const place_t *owner_from)
{
    static uint64_t seed = 100;
    uint64_t word = ++seed;

    cuCtxSetCurrent(owner_from->ctx);
    cuMemcpyHtoD(from, &word, 8);
    cuCtxSynchronize();
    word = 0;
    cuCtxSetCurrent(owner_to->ctx);
    cuMemcpyHtoD(to, &word, 8);
    cuCtxSynchronize();
    cuCtxSetCurrent(g_one.ctx);
    return seed;
}

#define FROM_FAR(form, name, call)                                        \
    do {                                                                  \
        uint64_t expected = prepare(g_near, &g_one, g_far, &g_zero);      \
        tell(form, name "-from", (call), g_near, NULL, expected, &g_one); \
    } while (0)
#define TO_FAR(form, name, call)                                        \
    do {                                                                \
        uint64_t expected = prepare(g_far, &g_zero, g_near, &g_one);    \
        tell(form, name "-to", (call), g_far, NULL, expected, &g_zero); \
    } while (0)
#define INTO_HOST(form, name, host, call)                            \
    do {                                                             \
        uint64_t expected = prepare(g_near, &g_one, g_far, &g_zero); \
        tell(form, name, (call), 0, (host), expected, &g_one);       \
    } while (0)
#define OUT_OF_HOST(form, name, host, call)                          \
    do {                                                             \
        uint64_t expected = prepare(g_far, &g_zero, g_near, &g_one); \
        *(host) = expected;                                          \
        tell(form, name, (call), g_far, NULL, expected, &g_zero);    \
    } while (0)

static CUDA_MEMCPY3D_PEER solid(CUmemorytype to_type, CUdeviceptr to, CUcontext to_ctx,
                                CUmemorytype from_type, CUdeviceptr from, CUcontext from_ctx)
{
    return (CUDA_MEMCPY3D_PEER){.dstMemoryType = to_type,
                                .dstDevice = to,
                                .dstHost = (void *)(uintptr_t)to,
                                .dstContext = to_ctx,
                                .dstPitch = BYTES,
                                .dstHeight = 1,
                                .srcMemoryType = from_type,
                                .srcDevice = from,
                                .srcHost = (const void *)(uintptr_t)from,
                                .srcContext = from_ctx,
                                .srcPitch = BYTES,
                                .srcHeight = 1,
                                .WidthInBytes = BYTES,
                                .Height = 1,
                                .Depth = 1};
}

static void plain_copies(const char *form)
{
    CUDA_MEMCPY2D flat = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = g_near,
                          .dstPitch = 16,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = g_far,
                          .srcPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 4};
    CUDA_MEMCPY3D cube = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = g_near,
                          .dstPitch = 16,
                          .dstHeight = 2,
                          .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = g_far,
                          .srcPitch = 16,
                          .srcHeight = 2,
                          .WidthInBytes = 16,
                          .Height = 2,
                          .Depth = 2};

    FROM_FAR(form, "dtod", cuMemcpyDtoD(g_near, g_far, BYTES));
    TO_FAR(form, "dtod", cuMemcpyDtoD(g_far, g_near, BYTES));
    FROM_FAR(form, "unified", cuMemcpy(g_near, g_far, BYTES));
    FROM_FAR(form, "dtod-async", cuMemcpyDtoDAsync(g_near, g_far, BYTES, g_one.stream));
    TO_FAR(form, "unified-async", cuMemcpyAsync(g_far, g_near, BYTES, g_one.stream));
    FROM_FAR(form, "other-stream", cuMemcpyAsync(g_near, g_far, BYTES, g_zero.stream));
    FROM_FAR(form, "2d", cuMemcpy2D(&flat));
    FROM_FAR(form, "3d", cuMemcpy3D(&cube));
    INTO_HOST(form, "dtoh", g_pageable, cuMemcpyDtoH(g_pageable, g_far, BYTES));
    INTO_HOST(form, "dtoh-async-pinned", g_pinned, cuMemcpyDtoHAsync(g_pinned, g_far, BYTES, g_one.stream));
    INTO_HOST(form, "dtoh-async-pageable", g_pageable,
              cuMemcpyDtoHAsync(g_pageable, g_far, BYTES, g_one.stream));
    OUT_OF_HOST(form, "htod", g_pageable, cuMemcpyHtoD(g_far, g_pageable, BYTES));
    OUT_OF_HOST(form, "htod-async-pinned", g_pinned, cuMemcpyHtoDAsync(g_far, g_pinned, BYTES, g_one.stream));
    OUT_OF_HOST(form, "htod-async-pageable", g_pageable,
                cuMemcpyHtoDAsync(g_far, g_pageable, BYTES, g_one.stream));
}

/* The forms that name contexts, and what the shim makes of each plain one (peer_copy.c). */
static void peer_copies(const char *form)
{
    CUDA_MEMCPY3D_PEER from =
        solid(CU_MEMORYTYPE_DEVICE, g_near, g_one.ctx, CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx);
    CUDA_MEMCPY3D_PEER nobody =
        solid(CU_MEMORYTYPE_UNIFIED, g_near, g_one.ctx, CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx);
    CUDA_MEMCPY3D_PEER unified =
        solid(CU_MEMORYTYPE_UNIFIED, g_near, g_one.ctx, CU_MEMORYTYPE_UNIFIED, g_far, g_one.ctx);
    CUDA_MEMCPY3D_PEER into_pinned =
        solid(CU_MEMORYTYPE_HOST, (CUdeviceptr)g_pinned, g_one.ctx, CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx);
    CUDA_MEMCPY3D_PEER into_pageable = solid(CU_MEMORYTYPE_HOST, (CUdeviceptr)g_pageable, g_one.ctx,
                                             CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx);
    CUDA_MEMCPY3D_PEER out_of_pinned =
        solid(CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx, CU_MEMORYTYPE_HOST, (CUdeviceptr)g_pinned, g_one.ctx);
    CUDA_MEMCPY3D_PEER out_of_pageable = solid(CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx, CU_MEMORYTYPE_HOST,
                                               (CUdeviceptr)g_pageable, g_one.ctx);

    FROM_FAR(form, "linear", cuMemcpyPeer(g_near, g_one.ctx, g_far, g_zero.ctx, BYTES));
    TO_FAR(form, "linear", cuMemcpyPeer(g_far, g_zero.ctx, g_near, g_one.ctx, BYTES));
    FROM_FAR(form, "linear-async",
             cuMemcpyPeerAsync(g_near, g_one.ctx, g_far, g_zero.ctx, BYTES, g_one.stream));
    FROM_FAR(form, "other-stream",
             cuMemcpyPeerAsync(g_near, g_one.ctx, g_far, g_zero.ctx, BYTES, g_zero.stream));
    FROM_FAR(form, "wrong-context", cuMemcpyPeer(g_near, g_one.ctx, g_far, g_one.ctx, BYTES));
    FROM_FAR(form, "3d", cuMemcpy3DPeer(&from));
    FROM_FAR(form, "3d-async", cuMemcpy3DPeerAsync(&from, g_one.stream));
    FROM_FAR(form, "3d-half-unified", cuMemcpy3DPeer(&nobody));
    FROM_FAR(form, "3d-unified", cuMemcpy3DPeer(&unified));
    INTO_HOST(form, "3d-into-pinned", g_pinned, cuMemcpy3DPeer(&into_pinned));
    INTO_HOST(form, "3d-into-pinned-async", g_pinned, cuMemcpy3DPeerAsync(&into_pinned, g_one.stream));
    INTO_HOST(form, "3d-into-pageable", g_pageable, cuMemcpy3DPeer(&into_pageable));
    INTO_HOST(form, "3d-into-pageable-async", g_pageable, cuMemcpy3DPeerAsync(&into_pageable, g_one.stream));
    OUT_OF_HOST(form, "3d-out-of-pinned-async", g_pinned, cuMemcpy3DPeerAsync(&out_of_pinned, g_one.stream));
    OUT_OF_HOST(form, "3d-out-of-pageable", g_pageable, cuMemcpy3DPeer(&out_of_pageable));
    OUT_OF_HOST(form, "3d-out-of-pageable-async", g_pageable,
                cuMemcpy3DPeerAsync(&out_of_pageable, g_one.stream));
}

/* Both sides are device 0's, the current context is device 1's. */
static void same_side_copies(void)
{
    CUdeviceptr other = g_far + 1024;
    uint64_t expected = prepare(other, &g_zero, g_far, &g_zero);

    tell("same-side", "dtod", cuMemcpyDtoD(other, g_far, BYTES), other, NULL, expected, &g_zero);
    expected = prepare(other, &g_zero, g_far, &g_zero);
    tell("same-side", "peer", cuMemcpyPeer(other, g_zero.ctx, g_far, g_zero.ctx, BYTES), other, NULL,
         expected, &g_zero);
    expected = prepare(other, &g_zero, g_far, &g_zero);
    tell("same-side", "peer-async",
         cuMemcpyPeerAsync(other, g_zero.ctx, g_far, g_zero.ctx, BYTES, g_one.stream), other, NULL, expected,
         &g_zero);
}

typedef CUresult (*captured_t)(void);

static CUresult capture_plain(void)
{
    return cuMemcpyDtoDAsync(g_near, g_far, BYTES, g_one.stream);
}

static CUresult capture_linear(void)
{
    return cuMemcpyPeerAsync(g_near, g_one.ctx, g_far, g_zero.ctx, BYTES, g_one.stream);
}

static CUresult capture_solid(void)
{
    CUDA_MEMCPY3D_PEER from =
        solid(CU_MEMORYTYPE_DEVICE, g_near, g_one.ctx, CU_MEMORYTYPE_DEVICE, g_far, g_zero.ctx);

    return cuMemcpy3DPeerAsync(&from, g_one.stream);
}

static void capture(const char *name, captured_t call)
{
    uint64_t expected = prepare(g_near, &g_one, g_far, &g_zero);
    CUresult called, ended, launched = CUDA_ERROR_UNKNOWN;
    CUgraphExec exec;
    CUgraph graph = NULL;

    cuStreamBeginCapture(g_one.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    called = call();
    ended = cuStreamEndCapture(g_one.stream, &graph);
    if (ended == CUDA_SUCCESS && cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS)
        launched = cuGraphLaunch(exec, g_one.stream);
    printf("%s-captured-%s call %d, end %d, launch %d, copied %d\n", g_kind, name, called, ended, launched,
           read_word(&g_one, g_near) == expected);
}

/* ---- sets ---- */

static void try_set(const char *name, CUresult result, unsigned char value)
{
    CUresult ended;

    cuCtxSetCurrent(g_one.ctx);
    ended = cuCtxSynchronize();
    printf("%s-set-%s code %d, sync %d, set %d\n", g_kind, name, result, ended,
           (unsigned char)read_word(&g_zero, g_far) == value);
    cuCtxSetCurrent(g_one.ctx);
}

static void sets(const char *when)
{
    printf("%s-sets %s\n", g_kind, when);
    cuCtxSetCurrent(g_one.ctx);
    try_set("d8", cuMemsetD8(g_far, 0x11, BYTES), 0x11);
    try_set("d8-async", cuMemsetD8Async(g_far, 0x22, BYTES, g_one.stream), 0x22);
    try_set("d32-async", cuMemsetD32Async(g_far, 0x33333333, BYTES / 4, g_one.stream), 0x33);
    try_set("2d-async", cuMemsetD2D8Async(g_far, 32, 0x44, 16, 4, g_one.stream), 0x44);
    try_set("other-stream", cuMemsetD8Async(g_far, 0x55, BYTES, g_zero.stream), 0x55);
}

/* ---- groups, a process each ---- */

static void group_kernel(void)
{
    try_kernel("no-access", &g_one);
}

static void group_copies(void)
{
    plain_copies("plain");
    same_side_copies();
}

static void group_peer_copies(void)
{
    peer_copies("peer");
}

static void group_captures(void)
{
    capture("plain", capture_plain);
    capture("peer", capture_linear);
    capture("peer-3d", capture_solid);
}

static void group_sets(void)
{
    sets("without access");
}

/* Given by the call for memory of cuMemAlloc, by hand for the other. */
static CUresult give(void)
{
    CUresult result;

    cuCtxSetCurrent(g_one.ctx);
    result = cuCtxEnablePeerAccess(g_zero.ctx, 0);
    return strcmp(g_kind, "vmm") == 0 && result == CUDA_SUCCESS
               ? set_access(g_far, 2 * SLOT, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
               : result;
}

static void group_access(void)
{
    line("give", give());
    try_kernel("access", &g_one);
    line("give-again", (cuCtxSetCurrent(g_one.ctx), cuCtxEnablePeerAccess(g_zero.ctx, 0)));
    plain_copies("access");
    sets("with access");
}

/* Whether access is a context's or its device's. */
static void group_second_context(void)
{
    place_t second;
    CUcontext ctx;

    line("give", give());
    cuCtxCreate(&ctx, NULL, 0, 1);
    second = furnish(ctx);
    line("second-may-give", cuCtxEnablePeerAccess(g_zero.ctx, 0));
    line("second-may-take", cuCtxDisablePeerAccess(g_zero.ctx));
    probe_kernel("second-context", &second);
}

/* What becomes of a kernel in flight that uses the memory. */
static void group_taken_in_flight(void)
{
    CUresult taken, busy, ended;

    line("give", give());
    fill(&g_one, g_far, 1); /* loaded */
    cuCtxSynchronize();
    spin(&g_one);
    fill(&g_one, g_far, 77);
    taken = cuCtxDisablePeerAccess(g_zero.ctx);
    busy = cuStreamQuery(g_one.stream);
    ended = cuStreamSynchronize(g_one.stream);
    printf("%s-taken-in-flight code %d, afterwards %d, sync %d, written %d\n", g_kind, taken, busy, ended,
           read_word(&g_zero, g_far) != 1);
    try_kernel("taken", &g_one);
}

/* vmm: the same by hand, which natively nobody does: how a revocation treats a kernel that is about to
 * write. */
static void group_revoked_in_flight(void)
{
    CUresult taken, busy, ended;

    if (strcmp(g_kind, "vmm") != 0)
        return;
    line("give", give());
    fill(&g_one, g_far, 1);
    cuCtxSynchronize();
    spin(&g_one);
    fill(&g_one, g_far, 77);
    taken = set_access(g_far, 2 * SLOT, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    busy = cuStreamQuery(g_one.stream);
    ended = cuStreamSynchronize(g_one.stream);
    printf("vmm-revoked-in-flight code %d, afterwards %d, sync %d\n", taken, busy, ended);
}

static void group_given_while_busy(void)
{
    CUresult given;

    spin(&g_zero);
    spin(&g_one);
    given = give();
    cuCtxSetCurrent(g_one.ctx);
    printf("%s-given-while-busy code %d, own stream %d, other stream %d\n", g_kind, given,
           cuStreamQuery(g_one.stream), cuStreamQuery(g_zero.stream));
}

/* The owner's context is reset: whether what was given is still there, and for the same handle. */
static void group_owner_reset(void)
{
    CUcontext before = g_zero.ctx;

    line("give", give());
    line("reset", cuDevicePrimaryCtxReset(0));
    g_zero = open_primary(0);
    line("reset-same-handle", g_zero.ctx == before);
    cuCtxSetCurrent(g_one.ctx);
    line("reset-take", cuCtxDisablePeerAccess(g_zero.ctx));
    line("reset-give", cuCtxEnablePeerAccess(g_zero.ctx, 0));
}

/* vmm: taken by hand, for both handles at once; in one call with two devices. */
static void group_set_access(void)
{
    const CUmemAccessDesc both[] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};

    if (strcmp(g_kind, "vmm") != 0)
        return;
    line("set-access-both", cuMemSetAccess(g_far, 2 * SLOT, both, 2));
    try_kernel("set-access", &g_one);
    line("set-access-none", set_access(g_far, 2 * SLOT, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    try_kernel("set-access-owner", &g_zero);
    probe_kernel("set-access-none", &g_one);
}

/* What a free on device 0 waits for: work of device 1's context that names device 0's memory. */
static void free_after(const char *name, CUresult submitted)
{
    CUdeviceptr other;
    CUresult freed;

    cuCtxSetCurrent(g_zero.ctx);
    cuMemAlloc(&other, 4 * SLOT);
    freed = cuMemFree(other);
    cuCtxSetCurrent(g_one.ctx);
    printf("%s-free-behind-%s submitted %d, freed %d, the work %d\n", g_kind, name, submitted, freed,
           cuStreamQuery(g_one.stream));
    cuCtxSynchronize();
}

static void group_frees(void)
{
    spin(&g_one);
    free_after("a-kernel", CUDA_SUCCESS);
    spin(&g_one);
    free_after("dtod", cuMemcpyDtoDAsync(g_near, g_far, BYTES, g_one.stream));
    spin(&g_one);
    free_after("peer", cuMemcpyPeerAsync(g_near, g_one.ctx, g_far, g_zero.ctx, BYTES, g_one.stream));
}

static void (*const g_groups[])(void) = {group_kernel,
                                         group_copies,
                                         group_peer_copies,
                                         group_captures,
                                         group_sets,
                                         group_access,
                                         group_second_context,
                                         group_taken_in_flight,
                                         group_revoked_in_flight,
                                         group_given_while_busy,
                                         group_owner_reset,
                                         group_set_access,
                                         group_frees};

static void run(void (*group)(void), const char *kind)
{
    int count = 0;

    alarm(60);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 2)
        exit(SKIP);
    open_both(kind);
    group();
    exit(0);
}

int main(void)
{
    static const char *const kinds[] = {"raw", "vmm"};

    for (size_t kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof(g_groups) / sizeof(g_groups[0]); i++) {
            pid_t pid;
            int status;

            fflush(stdout);
            pid = fork();

            if (pid == 0)
                run(g_groups[i], kinds[kind]);
            waitpid(pid, &status, 0);
            if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
                return SKIP;
            if (status != 0)
                printf("%s-group-%zu ended with %d\n", kinds[kind], i, status);
        }
    return 0;
}
