/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover - the detector's kind UNMAP against a program that moves its memory at random: handles in one
 * range, each filled on a stream of its own, unmapped and mapped elsewhere.
 * Usage: mover clean|caught
 *   clean   waits for a record on the context before it unmaps: no violation with any kind of stream
 *   caught  does not wait: a violation within OPERATIONS operations for every kind, and no crash
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/softcuda/softcuda.h"
#include "tests/support/rng.h"

#define OPERATIONS 1000
#define HANDLES    6
#define PLACES     16
#define SIZE       (2ull << 20)

typedef enum { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, KIND_COUNT } kind_t;
static const char *const kind_names[] = {"legacy", "per-thread", "blocking", "non-blocking"};

typedef struct {
    CUmemGenericAllocationHandle handle;
    unsigned place;
    CUstream stream;
} piece_t;

typedef struct {
    CUdeviceptr range;
    CUfunction fill;
    CUevent event;
    piece_t pieces[HANDLES];
    bool is_used[PLACES];
    bool must_wait;
} mover_t;

/* The wrong program breaks its context sooner or later: that ends its run. */
static bool check(const char *what, CUresult got)
{
    if (got == CUDA_SUCCESS)
        return true;
    if (got == CUDA_ERROR_ILLEGAL_ADDRESS && softcuda_unmap_violations() > 0)
        return false;
    fprintf(stderr, "%s: %d\n", what, got);
    exit(1);
}
#define CHECK_CU(call) check(#call, call)

static void map(mover_t *mover, piece_t *piece, cup_rng_t *rng)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    do
        piece->place = (unsigned)cup_rng_below(rng, PLACES);
    while (mover->is_used[piece->place]);
    mover->is_used[piece->place] = true;
    CHECK_CU(cuMemMap(mover->range + piece->place * SIZE, SIZE, 0, piece->handle, 0));
    CHECK_CU(cuMemSetAccess(mover->range + piece->place * SIZE, SIZE, &access, 1));
}

static void unmap(mover_t *mover, piece_t *piece)
{
    CHECK_CU(cuMemUnmap(mover->range + piece->place * SIZE, SIZE));
    mover->is_used[piece->place] = false;
}

static bool move(mover_t *mover, CUcontext ctx, piece_t *piece, cup_rng_t *rng)
{
    if (mover->must_wait &&
        !(CHECK_CU(cuCtxRecordEvent(ctx, mover->event)) && CHECK_CU(cuEventSynchronize(mover->event))))
        return false;
    unmap(mover, piece);
    map(mover, piece, rng);
    return true;
}

static bool work(const mover_t *mover, const piece_t *piece, cup_rng_t *rng)
{
    uint64_t bytes = 4096, seed = cup_rng_next(rng);
    CUdeviceptr base = mover->range + piece->place * SIZE + cup_rng_below(rng, 500) * 4096;
    void *params[] = {&base, &bytes, &seed};

    return CHECK_CU(cuLaunchKernel(mover->fill, 1, 1, 1, 1, 1, 1, 0, piece->stream, params, NULL));
}

static void create(mover_t *mover, kind_t kind, cup_rng_t *rng)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmodule module;

    CHECK_CU(cuModuleLoadData(&module, "softcuda\nfill\n"));
    CHECK_CU(cuModuleGetFunction(&mover->fill, module, "fill"));
    CHECK_CU(cuEventCreate(&mover->event, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuMemAddressReserve(&mover->range, PLACES * SIZE, 0, 0, 0));
    for (int i = 0; i < HANDLES; i++) {
        piece_t *piece = &mover->pieces[i];
        piece->stream = kind == LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
        if (kind >= BLOCKING)
            CHECK_CU(cuStreamCreate(&piece->stream,
                                    kind == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        CHECK_CU(cuMemCreate(&piece->handle, SIZE, &prop, 0));
        map(mover, piece, rng);
    }
}

/* Runs one kind in a context of its own; returns the violations. */
static uint64_t run_kind(kind_t kind, bool must_wait, uint64_t seed)
{
    mover_t mover = {.must_wait = must_wait};
    cup_rng_t rng = {seed};
    unsigned done = 0;
    bool is_good = true;
    CUcontext ctx;

    softcuda_reset_counters();
    CHECK_CU(cuCtxCreate(&ctx, NULL, 0, 0));
    create(&mover, kind, &rng);
    for (; is_good && done < OPERATIONS && softcuda_violations() == 0; done++) {
        piece_t *piece = &mover.pieces[cup_rng_below(&rng, HANDLES)];
        is_good = cup_rng_below(&rng, 4) == 0 ? move(&mover, ctx, piece, &rng) : work(&mover, piece, &rng);
    }
    CHECK_CU(cuCtxSynchronize());
    uint64_t violations = softcuda_violations();
    cuCtxDestroy(ctx);
    for (int i = 0; i < HANDLES; i++) {
        unmap(&mover, &mover.pieces[i]);
        CHECK_CU(cuMemRelease(mover.pieces[i].handle));
    }
    CHECK_CU(cuMemAddressFree(mover.range, PLACES * SIZE));
    printf("%-12s  %4u operations, %llu violations\n", kind_names[kind], done,
           (unsigned long long)violations);
    return violations;
}

int main(int argc, char **argv)
{
    uint64_t seed = cup_rng_seed(1);
    bool must_catch = argc > 1 && strcmp(argv[1], "caught") == 0;
    int wrong = 0;

    printf("seed %llu\n", (unsigned long long)seed);
    CHECK_CU(cuInit(0));
    for (kind_t kind = 0; kind < KIND_COUNT; kind++)
        wrong += (run_kind(kind, !must_catch, seed) > 0) != must_catch;
    if (softcuda_held_bytes() != 0 || softcuda_mapped_bytes() != 0) {
        fprintf(stderr, "%llu bytes held, %llu mapped at the end\n",
                (unsigned long long)softcuda_held_bytes(), (unsigned long long)softcuda_mapped_bytes());
        wrong++;
    }
    return wrong != 0;
}
