/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launch - what a stream does and when: programmatic launches, held streams, host functions, words
 * that streams write and wait for, and that a record on the context covers every kind of work. What "may"
 * happen is tried ROUNDS times: it must be seen in one of them; what may not, in none.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/claim.h"
#include "tests/support/rng.h"

#define ROUNDS  24 /* never early by chance: 4^-24 */
#define WAIT_MS 20 /* longer than every delay before an operation */

/* ---- the words of the bed's pinned page, a cache line each ---- */

static uint32_t *word(const bed_t *bed, int number)
{
    return bed->flag + 16 * number;
}

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

static CUdeviceptr device_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static CUstream make_stream(void)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent make_event(void)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* ---- programmatic launches ---- */

static CUresult launch_programmatic(CUfunction function, CUstream stream, void **params)
{
    CUlaunchAttribute attributes[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
         .value.programmaticStreamSerializationAllowed = 1}};
    const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, attributes, 3};

    return cuLaunchKernelEx(&config, function, params, NULL);
}

/* Adds to the word, atomically: what the host may look at meanwhile. */
static CUresult add_to(const bed_t *bed, bool is_programmatic, CUstream stream, CUdeviceptr block,
                       const uint64_t *target)
{
    uint64_t bytes = 4096;
    CUdeviceptr out = device_address(target);
    void *params[] = {&block, &bytes, &out};

    return is_programmatic ? launch_programmatic(bed->hash, stream, params)
                           : launch(bed->hash, stream, params);
}

typedef enum {
    NOTHING,        /* the kernels are neighbours */
    STREAM_RECORD,  /* measured: runs across it */
    CONTEXT_RECORD, /* measured: runs across it */
    DONE_WAIT,      /* for what is done */
    OWN_WAIT,       /* for a record behind the first kernel (measured: runs after it) */
    OTHER_WAIT,     /* for a stream that is held */
    SET,            /* no kernel */
    VALUE_WRITE,    /* no kernel either */
    PLAIN,          /* without the attribute */
    BETWEEN_COUNT
} between_t;

static void put_between(const bed_t *bed, between_t between, CUstream stream, CUstream other, CUevent event)
{
    switch (between) {
    case STREAM_RECORD:
        OK(cuEventRecord(event, stream));
        break;
    case CONTEXT_RECORD:
        OK(cuCtxRecordEvent(bed->ctx, event));
        break;
    case DONE_WAIT:
        OK(cuEventRecord(event, other));
        OK(cuStreamWaitEvent(stream, event, 0));
        break;
    case OWN_WAIT:
        OK(cuEventRecord(event, stream));
        OK(cuStreamWaitEvent(stream, event, 0));
        break;
    case OTHER_WAIT:
        CHECK_EQ(softcuda_hold(other), 0);
        OK(cuEventRecord(event, other));
        OK(cuStreamWaitEvent(stream, event, 0));
        break;
    case SET:
        OK(cuMemsetD32Async(device_address(word(bed, 2)), 1, 1, stream));
        break;
    case VALUE_WRITE:
        OK(cuStreamWriteValue32(stream, device_address(word(bed, 2)), 1, 0));
        break;
    default:
        break;
    }
}

typedef struct {
    bed_t bed;
    CUstream stream, other;
    CUdeviceptr block; /* zeros */
} pair_t;

/* True when the second kernel was seen to run while the first could not end. */
static bool is_seen_early(const pair_t *pair, between_t between)
{
    uint64_t *target = (uint64_t *)(void *)word(&pair->bed, 4);
    CUevent event = make_event(), end = make_event();
    bool is_early = false;

    __atomic_store_n(target, 0, __ATOMIC_RELAXED);
    set_flag(&pair->bed, 0);
    OK(hold(&pair->bed, pair->stream));
    put_between(&pair->bed, between, pair->stream, pair->other, event);
    OK(add_to(&pair->bed, between != PLAIN, pair->stream, pair->block, target));
    OK(cuEventRecord(end, pair->stream));
    for (int ms = 0; ms < WAIT_MS && !is_early; ms++) {
        sleep_ms(1);
        is_early = __atomic_load_n(target, __ATOMIC_ACQUIRE) != 0;
    }
    CHECK_CU(cuEventQuery(end), CUDA_ERROR_NOT_READY); /* what is early is done in its turn */
    set_flag(&pair->bed, 1);
    softcuda_release(pair->other);
    OK(cuStreamSynchronize(pair->stream));
    CHECK(*target != 0);
    CHECK_CU(cuEventQuery(end), CUDA_SUCCESS);
    OK(cuEventDestroy(event));
    OK(cuEventDestroy(end));
    return is_early;
}

TEST(launch, programmatic_runs_beside_the_kernel_in_front)
{
    static const bool may_be_early[BETWEEN_COUNT] = {
        [NOTHING] = true, [STREAM_RECORD] = true, [CONTEXT_RECORD] = true, [DONE_WAIT] = true};
    pair_t pair = {.bed = make_bed(), .stream = make_stream(), .other = make_stream()};

    OK(cuMemAlloc(&pair.block, 4096));
    OK(cuMemsetD8(pair.block, 0, 4096));
    OK(cuCtxSynchronize());
    for (between_t between = NOTHING; between < BETWEEN_COUNT; between++) {
        int early = 0;
        for (int round = 0; round < ROUNDS && early == 0; round++)
            early += is_seen_early(&pair, between);
        CHECK_MSG((early > 0) == may_be_early[between], "case %d: early %d times", between, early);
    }
    drop_bed(&pair.bed);
}

/* True when the new owner of a block is reported, behind a kernel of the old one that cannot end. The
 * second kernel names the bytes, but takes no step over them: the test itself has no race. */
static bool is_overlap_found(const bed_t *bed, bool is_programmatic, CUstream stream, CUdeviceptr block)
{
    uint64_t bytes = 4096, seed = 1, words = bytes / 8, steps = 0;
    uint32_t *gate = word(bed, 6);
    CUdeviceptr out = device_address(word(bed, 7));
    void *old_params[] = {&block, &bytes, &seed, &gate}, *new_params[] = {&block, &words, &steps, &out};
    CUfunction held_fill, chase;

    OK(cuModuleGetFunction(&held_fill, bed->module, "held_fill"));
    OK(cuModuleGetFunction(&chase, bed->module, "chase"));
    __atomic_store_n(gate, 0, __ATOMIC_RELAXED);
    softcuda_claim_block(block, 4096);
    OK(launch(held_fill, stream, old_params));
    softcuda_claim_block(block, 4096);
    OK((is_programmatic ? launch_programmatic : launch)(chase, stream, new_params));
    for (int ms = 0; ms < WAIT_MS && softcuda_violations() == 0; ms++)
        sleep_ms(1);
    while (__atomic_load_n(gate, __ATOMIC_ACQUIRE) != 1)
        sleep_ms(1);
    __atomic_store_n(gate, 2, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(stream));
    return softcuda_violations() > 0;
}

/* A block that changes hands on one stream: ordered for a plain launch, not for a programmatic one. */
TEST(launch, programmatic_overlap_is_found)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream();
    CUdeviceptr block;
    bool is_found = false;

    OK(cuMemAlloc(&block, 4096));
    for (int round = 0; round < ROUNDS; round++)
        CHECK(!is_overlap_found(&bed, false, stream, block));
    for (int round = 0; round < ROUNDS && !is_found; round++)
        is_found = is_overlap_found(&bed, true, stream, block);
    CHECK(is_found);
    drop_bed(&bed);
}

/* Random programmatic work on streams that come and go, in front of everything that may stand there. */
TEST(launch, programmatic_storm)
{
    bed_t bed = make_bed();
    cup_rng_t rng = {cup_rng_seed(1)};
    CUstream streams[3] = {make_stream(), make_stream(), make_stream()};
    uint64_t *sum = (uint64_t *)(void *)word(&bed, 4);
    CUdeviceptr blocks[3];
    CUevent event = make_event();

    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&blocks[i], 4096));
    for (int i = 0; i < 3000; i++) {
        uint64_t which = cup_rng_below(&rng, 3);
        uint64_t draw = cup_rng_below(&rng, 64);
        if (draw == 0) { /* not ordered behind the old one: another block */
            OK(cuStreamDestroy(streams[which]));
            streams[which] = make_stream();
            OK(cuMemAlloc(&blocks[which], 4096));
        } else if (draw < 8) {
            OK(cuEventRecord(event, streams[which]));
        } else if (draw < 16) {
            OK(cuStreamWaitEvent(streams[which], event, 0));
        } else if (draw < 24) {
            OK(cuMemsetD8Async(blocks[which], 1, 4096, streams[which]));
        } else {
            OK(add_to(&bed, true, streams[which], blocks[which], sum));
        }
    }
    OK(cuCtxSynchronize());
    CHECK_EQ(softcuda_unfinished(), 0);
    drop_bed(&bed);
}

TEST(launch, attributes_that_record_are_refused)
{
    bed_t bed = make_bed();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
    uint64_t us = 0;
    void *params[] = {&us};
    CUfunction spin;

    OK(cuModuleGetFunction(&spin, bed.module, "spin"));
    CHECK_CU(cuLaunchKernelEx(&config, spin, params, NULL), CUDA_ERROR_NOT_SUPPORTED);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    OK(cuLaunchKernelEx(&config, spin, params, NULL));
    config.attrs = NULL;
    CHECK_CU(cuLaunchKernelEx(&config, spin, params, NULL), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

/* ---- held streams ---- */

TEST(launch, held_streams_begin_nothing)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream(), other = make_stream();
    CUevent event = make_event();

    CHECK_EQ(softcuda_hold(stream), 0);
    CHECK_EQ(softcuda_hold(NULL), 0);
    OK(cuMemsetD32Async(device_address(word(&bed, 2)), 5, 1, stream));
    OK(cuMemsetD32Async(device_address(word(&bed, 3)), 6, 1, NULL));
    OK(cuMemsetD32Async(device_address(word(&bed, 4)), 7, 1, other));
    OK(cuEventRecord(event, stream));
    OK(cuStreamSynchronize(other));
    sleep_ms(WAIT_MS);
    CHECK_EQ(*word(&bed, 2), 0);
    CHECK_EQ(*word(&bed, 3), 0);
    CHECK_EQ(*word(&bed, 4), 7);
    CHECK_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    softcuda_release(stream);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(*word(&bed, 2), 5);
    CHECK_CU(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    softcuda_release(NULL);
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(*word(&bed, 3), 6);
    drop_bed(&bed);
}

/* The hold is the work's: the handle's next stream is free, and the handle ends it. */
TEST(launch, hold_outlives_the_handle)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream();
    CUevent event = make_event();

    CHECK_EQ(softcuda_hold(stream), 0);
    OK(cuMemsetD32Async(device_address(word(&bed, 2)), 5, 1, stream));
    OK(cuStreamDestroy(stream));
    CHECK_EQ(softcuda_hold(stream), -1);
    CHECK(make_stream() == stream);
    OK(cuStreamSynchronize(stream));
    OK(cuCtxRecordEvent(bed.ctx, event));
    sleep_ms(WAIT_MS);
    CHECK_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_EQ(*word(&bed, 2), 0);
    softcuda_release(stream);
    OK(cuEventSynchronize(event));
    CHECK_EQ(*word(&bed, 2), 5);
    drop_bed(&bed);
}

/* ---- host functions ---- */

typedef struct {
    uint32_t *word; /* what it sees when it runs */
    uint32_t seen;
    CUresult alloc, query, launch;
    CUstream stream;
    const bed_t *bed;
} witness_t;

static void witness(void *user)
{
    witness_t *found = user;
    CUdeviceptr block;

    found->seen = __atomic_load_n(found->word, __ATOMIC_ACQUIRE);
    found->alloc = cuMemAlloc(&block, 512);
    found->query = cuStreamQuery(found->stream);
    found->launch = hold(found->bed, found->stream);
}

static void CUDA_CB witness_callback(CUstream stream, CUresult status, void *user)
{
    witness_t *found = user;

    found->stream = stream;
    witness(user);
    found->seen += status; /* success is 0 */
}

TEST(launch, host_functions_in_order_and_without_calls)
{
    bed_t bed = make_bed();
    CUstream stream = make_stream();

    for (int is_callback = 0; is_callback < 2; is_callback++) {
        witness_t found = {.word = word(&bed, 2), .stream = stream, .bed = &bed};
        *found.word = 0;
        CHECK_EQ(softcuda_hold(stream), 0);
        OK(cuMemsetD32Async(device_address(found.word), 5, 1, stream));
        if (is_callback)
            OK(cuStreamAddCallback(stream, witness_callback, &found, 0));
        else
            OK(cuLaunchHostFunc(stream, witness, &found));
        OK(cuMemsetD32Async(device_address(found.word), 6, 1, stream));
        CHECK_EQ(*found.word, 0);
        softcuda_release(stream);
        OK(cuStreamSynchronize(stream));
        CHECK_EQ(found.seen, 5);
        CHECK_EQ(*found.word, 6);
        CHECK_EQ(found.alloc, CUDA_ERROR_NOT_PERMITTED);
        CHECK_EQ(found.query, CUDA_ERROR_NOT_PERMITTED);
        CHECK_EQ(found.launch, CUDA_ERROR_NOT_PERMITTED);
    }
    CHECK_CU(cuLaunchHostFunc(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamAddCallback(stream, witness_callback, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

/* ---- words that streams write and wait for ---- */

/* The waiting stream goes on when another one writes the word, not before. */
static void check_pair(CUdeviceptr at, bool is_wide, unsigned comparison, uint64_t before, uint64_t after,
                       uint64_t value)
{
    CUstream waiting = make_stream(), writing = make_stream();

    if (is_wide) {
        OK(cuStreamWriteValue64(writing, at, before, 0));
        OK(cuStreamSynchronize(writing));
        OK(cuStreamWaitValue64(waiting, at, value, comparison));
    } else {
        OK(cuStreamWriteValue32(writing, at, (uint32_t)before, 0));
        OK(cuStreamSynchronize(writing));
        OK(cuStreamWaitValue32(waiting, at, (uint32_t)value, comparison));
    }
    sleep_ms(3);
    CHECK_CU(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    if (is_wide)
        OK(cuStreamWriteValue64(writing, at, after, 0));
    else
        OK(cuStreamWriteValue32(writing, at, (uint32_t)after, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    OK(cuStreamSynchronize(waiting));
    OK(cuStreamDestroy(waiting));
    OK(cuStreamDestroy(writing));
}

TEST(launch, streams_wait_for_values)
{
    bed_t bed = make_bed();
    CUdeviceptr block;

    OK(cuMemAlloc(&block, 4096));
    const CUdeviceptr places[] = {block + 8, device_address(word(&bed, 2))};
    for (int place = 0; place < 2; place++)
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            CUdeviceptr at = places[place];
            check_pair(at, is_wide, CU_STREAM_WAIT_VALUE_EQ, 1, 3, 3);
            check_pair(at, is_wide, CU_STREAM_WAIT_VALUE_GEQ, 1, 9, 3);
            check_pair(at, is_wide, CU_STREAM_WAIT_VALUE_GEQ, ~0ull - 1, 2, 1); /* cyclic */
            check_pair(at, is_wide, CU_STREAM_WAIT_VALUE_AND, 1, 6, 4);
            check_pair(at, is_wide, CU_STREAM_WAIT_VALUE_NOR, ~0ull, 0, 5);
        }
    drop_bed(&bed);
}

TEST(launch, value_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr block;
    uint32_t local = 0;

    OK(cuMemAlloc(&block, 4096));
    CHECK_CU(cuStreamWriteValue32(NULL, block + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamWriteValue64(NULL, block + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamWriteValue32(NULL, block, 1, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamWriteValue32(NULL, device_address(&local), 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamWaitValue32(NULL, block + 8192, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamWaitValue32(NULL, block, 1, 4), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

/* In order; one that is wrong stops all of them. */
TEST(launch, values_in_batches)
{
    bed_t bed = make_bed();
    uint32_t *first = word(&bed, 2), *second = word(&bed, 3);
    CUstream stream = make_stream();
    CUstreamBatchMemOpParams ops[3] = {{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                       .address = device_address(first),
                                                       .value = 5}},
                                       {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                      .address = device_address(bed.flag),
                                                      .value = 1}},
                                       {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                                       .address = device_address(second),
                                                       .value64 = 6}}};

    OK(cuStreamBatchMemOp(stream, 3, ops, 0));
    while (__atomic_load_n(first, __ATOMIC_ACQUIRE) != 5)
        sleep_ms(1);
    sleep_ms(3);
    CHECK_EQ(__atomic_load_n(second, __ATOMIC_ACQUIRE), 0);
    set_flag(&bed, 1);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(*second, 6);
    ops[0].writeValue.value = 7;
    ops[2].writeValue.address += 2;
    CHECK_CU(cuStreamBatchMemOp(stream, 3, ops, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(*first, 5);
    CHECK_CU(cuStreamBatchMemOp(stream, 0, ops, 0), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

/* ---- a record on the context covers every kind of work ---- */

typedef struct {
    bed_t bed;
    CUdeviceptr block, managed;
    void *pinned;
    CUstream stream;
    CUgraphExec graph;
} work_bed_t;

static void nothing(void *user)
{
    (void)user;
}

static void CUDA_CB nothing_callback(CUstream stream, CUresult status, void *user)
{
    (void)stream;
    (void)status;
    (void)user;
}

#define PARAMS(w)                  \
    uint64_t bytes = 64, seed = 1; \
    void *params[] = {&(w)->block, &bytes, &seed}

static CUresult do_kernel(work_bed_t *w)
{
    PARAMS(w);
    return launch(w->bed.fill, w->stream, params);
}

static CUresult do_programmatic(work_bed_t *w)
{
    PARAMS(w);
    return launch_programmatic(w->bed.fill, w->stream, params);
}

static CUresult do_cooperative(work_bed_t *w)
{
    PARAMS(w);
    return cuLaunchCooperativeKernel(w->bed.fill, 1, 1, 1, 1, 1, 1, 0, w->stream, params);
}

static CUresult do_set(work_bed_t *w)
{
    return cuMemsetD2D16Async(w->block, 16, 1, 4, 4, w->stream);
}

static CUresult do_copy_out(work_bed_t *w)
{
    return cuMemcpyDtoHAsync(w->pinned, w->block, 64, w->stream);
}

static CUresult do_copy_in(work_bed_t *w)
{
    return cuMemcpyHtoDAsync(w->block, w->pinned, 64, w->stream);
}

static CUresult do_copy_pageable(work_bed_t *w)
{
    const char bytes[64] = {1};

    return cuMemcpyHtoDAsync(w->block, bytes, sizeof bytes, w->stream);
}

static CUresult do_copy_3d(work_bed_t *w)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = w->block,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = w->block + 1024,
                                .WidthInBytes = 8,
                                .Height = 2,
                                .Depth = 2};

    return cuMemcpy3DAsync(&copy, w->stream);
}

static CUresult do_copy_batch(work_bed_t *w)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr dst = w->block, src = w->block + 512;
    size_t size = 64, first = 0;

    return cuMemcpyBatchAsync(&dst, &src, &size, 1, &attributes, &first, 1, w->stream);
}

static CUresult do_host_function(work_bed_t *w)
{
    return cuLaunchHostFunc(w->stream, nothing, NULL);
}

static CUresult do_callback(work_bed_t *w)
{
    return cuStreamAddCallback(w->stream, nothing_callback, NULL, 0);
}

static CUresult do_write(work_bed_t *w)
{
    return cuStreamWriteValue32(w->stream, w->block, 1, 0);
}

static CUresult do_wait(work_bed_t *w)
{
    return cuStreamWaitValue32(w->stream, w->block, 0x80000001u, CU_STREAM_WAIT_VALUE_NOR);
}

static CUresult do_graph(work_bed_t *w)
{
    return cuGraphLaunch(w->graph, w->stream);
}

static CUresult do_prefetch(work_bed_t *w)
{
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};

    return cuMemPrefetchAsync(w->managed, 4096, host, 0, w->stream);
}

static CUresult do_free_async(work_bed_t *w)
{
    CUdeviceptr block;
    CUresult status = cuMemAllocAsync(&block, 4096, w->stream);

    return status == CUDA_SUCCESS ? cuMemFreeAsync(block, w->stream) : status;
}

typedef CUresult (*deed_fn_t)(work_bed_t *);
static const deed_fn_t deeds[] = {
    do_kernel,        do_programmatic, do_cooperative, do_set,           do_copy_out, do_copy_in,
    do_copy_pageable, do_copy_3d,      do_copy_batch,  do_host_function, do_callback, do_write,
    do_wait,          do_graph,        do_prefetch,    do_free_async,
};

static work_bed_t make_work_bed(void)
{
    work_bed_t w = {.bed = make_bed(), .stream = make_stream()};
    CUgraph graph;

    OK(cuMemAlloc(&w.block, 4096));
    OK(cuMemAllocManaged(&w.managed, 4096, CU_MEM_ATTACH_GLOBAL));
    w.pinned = word(&w.bed, 8);
    OK(cuStreamBeginCapture(w.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(do_kernel(&w));
    OK(cuStreamEndCapture(w.stream, &graph));
    OK(cuGraphInstantiate(&w.graph, graph, 0));
    OK(cuGraphDestroy(graph));
    return w;
}

/* Also with the stream destroyed at once, and for a free: it returns when the work is done. */
TEST(launch, context_record_covers_every_kind_of_work)
{
    work_bed_t w = make_work_bed();
    CUevent event = make_event(), aside = make_event();
    CUstream idle = make_stream();

    for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++)
        for (int destroys = 0; destroys < 2; destroys++) {
            CHECK_EQ(softcuda_hold(w.stream), 0);
            CHECK_MSG(deeds[i](&w) == CUDA_SUCCESS, "deed %zu", i);
            if (destroys)
                OK(cuStreamDestroy(w.stream));
            OK(cuCtxRecordEvent(w.bed.ctx, event));
            OK(cuEventRecord(aside, idle));
            OK(cuEventSynchronize(aside));
            CHECK_MSG(cuEventQuery(event) == CUDA_ERROR_NOT_READY, "deed %zu", i);
            softcuda_release(w.stream);
            OK(cuEventSynchronize(event));
            CHECK_EQ(softcuda_unfinished(), 0);
            if (destroys)
                w.stream = make_stream();
        }
    OK(cuGraphExecDestroy(w.graph));
    drop_bed(&w.bed);
}
