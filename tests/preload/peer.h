/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - what the tests of several devices share: contexts with their kernels, and the question who reaches
 * what.
 * What:       a place is a context with a stream and the fill kernel. Whether its kernels reach a block is
 *             asked by running one: a context that breaks by it is healed (softcuda_heal).
 * Not here:   what must be so (peer.c, peer_law.c, peer_faults.c).
 */
#ifndef CUP_TESTS_PRELOAD_PEER_H
#define CUP_TESTS_PRELOAD_PEER_H
#include "tests/preload/client.h"
#include "tests/softcuda/pattern.h"
#include <stdbool.h>
#include <string.h>

typedef struct place {
    CUcontext ctx;
    int device;
    CUstream stream;
    CUfunction fill, spin;
} place_t;

/* Whether the backing under test is vmm: there access is by device, natively by context. */
static inline bool peer_is_vmm(void)
{
    const char *backing = getenv("CUPOLA_BACKING");

    return backing && strcmp(backing, "vmm") == 0;
}

static inline void peer_join(const place_t *place)
{
    REQUIRE(cuCtxSetCurrent(place->ctx) == CUDA_SUCCESS);
}

/* What a context needs beside itself, which becomes current. */
static inline place_t peer_furnish(CUcontext ctx, int device)
{
    place_t place = {.ctx = ctx, .device = device};
    CUmodule module;

    peer_join(&place);
    REQUIRE(cuModuleLoadData(&module, "softcuda\n") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&place.fill, module, "fill") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&place.spin, module, "spin") == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&place.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return place;
}

/* The device's primary context. */
static inline place_t peer_primary(int device)
{
    CUcontext ctx;

    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&ctx, device) == CUDA_SUCCESS);
    return peer_furnish(ctx, device);
}

/* A context of the program's own. */
static inline place_t peer_create(int device)
{
    CUcontext ctx;

    REQUIRE(cuCtxCreate(&ctx, NULL, 0, device) == CUDA_SUCCESS);
    REQUIRE(cuCtxPopCurrent(NULL) == CUDA_SUCCESS); /* the stack of current contexts does not grow */
    return peer_furnish(ctx, device);
}

static inline CUresult peer_fill(const place_t *place, CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    void *params[] = {&block, &bytes, &seed};

    peer_join(place);
    return cuLaunchKernel(place->fill, 1, 1, 1, 1, 1, 1, 0, place->stream, params, NULL);
}

/* Whether a kernel of the place can write 64 bytes there: it has written the pattern of seed then. */
static inline bool peer_can_write(const place_t *place, CUdeviceptr block, uint64_t seed)
{
    int code;

    REQUIRE(peer_fill(place, block, 64, seed) == CUDA_SUCCESS);
    code = softcuda_heal(place->ctx);
    REQUIRE(code == CUDA_SUCCESS || code == CUDA_ERROR_ILLEGAL_ADDRESS);
    return code == CUDA_SUCCESS;
}

/* The context becomes current. */
static inline CUdeviceptr peer_alloc(const place_t *place, size_t bytes)
{
    peer_join(place);
    return client_alloc(bytes);
}

#endif /* CUP_TESTS_PRELOAD_PEER_H */
