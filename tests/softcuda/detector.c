/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detector - the overlap detector against a program that allocates, submits and frees at random.
 * Usage: detector clean|caught
 *   clean   the driver alone: no violation with any kind of stream
 *   caught  under wrong_shim: a violation within OPERATIONS operations for every kind
 * Work goes to a stream of the kind and to a non-blocking one beside it: on one stream alone, reuse at once
 * is in order.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/softcuda/claim.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/rng.h"

#define OPERATIONS 1000
#define LIVE_MAX   8

#define CHECK_CU(call)                                \
    do {                                              \
        CUresult got_ = (call);                       \
        if (got_ != CUDA_SUCCESS) {                   \
            fprintf(stderr, "%s: %d\n", #call, got_); \
            exit(1);                                  \
        }                                             \
    } while (0)

typedef enum { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, PRIORITY, TWO_THREADS, KIND_COUNT } kind_t;
static const char *const kind_names[] = {"legacy",       "per-thread", "blocking",
                                         "non-blocking", "priority",   "two threads"};

typedef struct {
    kind_t kind;
    CUcontext ctx;
    CUfunction fill;
    uint64_t seed;
    unsigned operations; /* to do; then: done */
} worker_t;

typedef struct {
    CUdeviceptr base;
    size_t size;
} block_t;

/* Looked up as a runtime library does: the other door. */
static CUresult (*alloc_block)(CUdeviceptr *, size_t);
static CUresult (*free_block)(CUdeviceptr);

static void create_stream(kind_t kind, CUstream *out_stream)
{
    *out_stream = kind == LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    if (kind == BLOCKING)
        CHECK_CU(cuStreamCreate(out_stream, CU_STREAM_DEFAULT));
    if (kind == NON_BLOCKING)
        CHECK_CU(cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING));
    if (kind == PRIORITY)
        CHECK_CU(cuStreamCreateWithPriority(out_stream, CU_STREAM_NON_BLOCKING, -3));
}

static void submit(const worker_t *worker, const block_t *block, CUstream stream, cup_rng_t *rng)
{
    CUdeviceptr base = block->base;
    uint64_t bytes = block->size, seed = cup_rng_next(rng);
    void *params[] = {&base, &bytes, &seed};
    uint32_t word;

    switch (cup_rng_below(rng, 8)) {
    case 0:
        CHECK_CU(cuMemsetD8Async(base, 1, bytes, stream));
        break;
    case 1: /* a synchronous copy */
        if (cup_rng_below(rng, 8) == 0)
            CHECK_CU(cuMemcpyDtoH(&word, base, sizeof word));
        break;
    default:
        CHECK_CU(cuLaunchKernel(worker->fill, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    }
}

static void allocate(block_t *block, cup_rng_t *rng)
{
    block->size = (size_t)4096 << cup_rng_below(rng, 3);
    if (cup_rng_below(rng, 2))
        CHECK_CU(cuMemAlloc(&block->base, block->size));
    else
        CHECK_CU(alloc_block(&block->base, block->size));
    softcuda_claim_block(block->base, block->size);
}

static void release(const block_t *block, cup_rng_t *rng)
{
    if (cup_rng_below(rng, 2))
        CHECK_CU(cuMemFree(block->base));
    else
        CHECK_CU(free_block(block->base));
}

static void *work(void *argument)
{
    worker_t *worker = argument;
    cup_rng_t rng = {worker->seed};
    CUstream streams[2];
    block_t live[LIVE_MAX];
    unsigned count = 0, done = 0;

    CHECK_CU(cuCtxSetCurrent(worker->ctx));
    create_stream(worker->kind, &streams[0]);
    create_stream(NON_BLOCKING, &streams[1]);
    while (done < worker->operations && softcuda_violations() == 0) {
        uint64_t draw = cup_rng_below(&rng, 4);
        if (count == 0 || (draw == 0 && count < LIVE_MAX))
            allocate(&live[count++], &rng);
        else if (draw == 1)
            release(&live[--count], &rng);
        else
            submit(worker, &live[cup_rng_below(&rng, count)], streams[cup_rng_below(&rng, 2)], &rng);
        done++;
    }
    while (count > 0)
        release(&live[--count], &rng);
    worker->operations = done;
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuStreamDestroy(streams[1]));
    return NULL;
}

/* Runs one kind; returns the violations. */
static uint64_t run_kind(kind_t kind, CUcontext ctx, CUfunction fill, uint64_t seed)
{
    unsigned threads = kind == TWO_THREADS ? 2 : 1;
    worker_t workers[2];
    pthread_t handles[2];
    unsigned operations = 0;

    softcuda_reset_counters();
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (worker_t){kind, ctx, fill, seed + i, OPERATIONS / threads};
        if (pthread_create(&handles[i], NULL, work, &workers[i]) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        operations += workers[i].operations;
    }
    printf("%-12s  %4u operations, %llu violations, %llu claims in flight\n", kind_names[kind], operations,
           (unsigned long long)softcuda_violations(), (unsigned long long)softcuda_claims_in_flight());
    return softcuda_violations();
}

int main(int argc, char **argv)
{
    uint64_t seed = cup_rng_seed(1);
    bool must_catch = argc > 1 && strcmp(argv[1], "caught") == 0;
    int wrong = 0;
    CUcontext ctx;
    CUmodule module;
    CUfunction fill;

    printf("seed %llu\n", (unsigned long long)seed);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&ctx, 0));
    CHECK_CU(cuCtxSetCurrent(ctx));
    CHECK_CU(cuModuleLoadData(&module, "softcuda\nfill\n"));
    CHECK_CU(cuModuleGetFunction(&fill, module, "fill"));
    CHECK_CU(cuGetProcAddress("cuMemAlloc", (void **)&alloc_block, 13000, 0, NULL));
    CHECK_CU(cuGetProcAddress("cuMemFree", (void **)&free_block, 13000, 0, NULL));
    for (kind_t kind = 0; kind < KIND_COUNT; kind++)
        wrong += (run_kind(kind, ctx, fill, seed) > 0) != must_catch;
    return wrong != 0;
}
