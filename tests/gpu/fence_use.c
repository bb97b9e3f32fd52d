/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence_use - how: a function for each kind. Captures are relaxed and of a stream that only captures, so
 * that natively nothing that the other threads do disturbs them. Copies go to a shadow, which is verified
 * on the same stream after the blocks are gone; an event keeps the next copy behind that.
 */
#include "tests/gpu/fence_use.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) dev_check((call), #call)
#define CALL_US     10 /* more than a copy or a set takes the host */

#define FENCE_KIND_NAME(kind) #kind,
const char *const fence_kind_names[FENCE_KIND_COUNT] = {FENCE_KIND_LIST(FENCE_KIND_NAME)};

static uint32_t newest_stream_id;

static struct {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, CUstream stream);
    int (*copy)(void *handle, int count, const double *from, int from_step, double *to, int to_step);
} blas;

uint32_t fence_new_stream_id(void)
{
    return __atomic_add_fetch(&newest_stream_id, 1, __ATOMIC_RELAXED);
}

/* In turn non-blocking, of high priority, and blocking: the last waits for the legacy stream, which waits for
 * it, so that work there seldom overtakes anything. */
static fence_stream_t make_stream(unsigned number)
{
    fence_stream_t stream = {.id = fence_new_stream_id(), .is_made = true};
    if (number % 3 == 1)
        CHECK(cuStreamCreateWithPriority(&stream.handle, CU_STREAM_NON_BLOCKING, -1));
    else
        CHECK(cuStreamCreate(&stream.handle, number % 3 == 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    return stream;
}

void fence_worker_open(fence_worker_t *worker, unsigned streams, uint64_t slot_bytes)
{
    worker->streams[0] = (fence_stream_t){.handle = CU_STREAM_LEGACY, .id = 0}; /* one for all threads */
    worker->streams[1] = (fence_stream_t){.handle = CU_STREAM_PER_THREAD};
    for (unsigned i = 0; i < streams; i++)
        worker->streams[2 + i] = make_stream(i);
    worker->stream_count = 2 + streams;
    worker->slot_bytes = slot_bytes;
    worker->fill_at_once = -1;
    worker->shadow = dev_alloc(DEV_BATCH_MAX * slot_bytes);
    worker->wrong = dev_alloc(8 * FENCE_KIND_COUNT);
    dev_zero(worker->wrong, 8 * FENCE_KIND_COUNT, NULL);
    dev_stream_sync(NULL); /* other streams don't wait for it */
    CHECK(cuStreamCreate(&worker->capture, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&worker->moved, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&worker->shadow_read, CU_EVENT_DISABLE_TIMING));
}

bool fence_blas_open(fence_worker_t *worker)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    void *library = NULL;
    for (unsigned i = 0; i < sizeof names / sizeof names[0] && !library; i++)
        library = dlopen(names[i], RTLD_NOW);
    if (!library)
        return false;
    blas.create = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    blas.set_stream = (int (*)(void *, CUstream))dlsym(library, "cublasSetStream_v2");
    blas.copy = (int (*)(void *, int, const double *, int, double *, int))dlsym(library, "cublasDcopy_v2");
    return blas.create && blas.set_stream && blas.copy && blas.create(&worker->blas) == 0;
}

void fence_worker_resume(fence_worker_t *worker)
{
    dev_join_device((int)worker->device);
    worker->streams[1].id = fence_new_stream_id();
    worker->streams[1].used_at = 0;
}

void fence_worker_sync(fence_worker_t *worker)
{
    for (unsigned i = 0; i < worker->stream_count; i++)
        dev_stream_sync(worker->streams[i].handle);
}

static void order_streams(fence_worker_t *worker, CUstream from, CUstream to)
{
    CHECK(cuEventRecord(worker->moved, from));
    CHECK(cuStreamWaitEvent(to, worker->moved, 0));
}

static CUstream stream_of(fence_worker_t *worker, const fence_group_t *group)
{
    worker->streams[group->stream].used_at = ++worker->step;
    return worker->streams[group->stream].handle;
}

void fence_move(fence_worker_t *worker, fence_group_t *group, unsigned stream)
{
    if (group->stream == stream)
        return;
    order_streams(worker, worker->streams[group->stream].handle, worker->streams[stream].handle);
    group->stream = stream;
    group->stream_id = worker->streams[stream].id;
}

static void aim(const fence_worker_t *worker, fence_group_t *group, fence_kind_t kind, uint64_t delay_us)
{
    group->batch.wrong = worker->wrong + 8 * (uint64_t)kind;
    group->batch.delay_us = delay_us;
}

void fence_verify(fence_worker_t *worker, fence_group_t *group, fence_kind_t kind, uint64_t delay_us)
{
    aim(worker, group, kind, delay_us);
    dev_batch_verify(&group->batch, stream_of(worker, group));
}

static void use_verify(fence_worker_t *worker, fence_group_t *group)
{
    fence_verify(worker, group, FENCE_verify, worker->delay_us);
}

/* Before calls that are made for each block: the host must be through with all of them, and with the next
 * fill, when the first one begins on the device. */
static void delay_calls(const fence_worker_t *worker, const fence_group_t *group, CUstream stream)
{
    dev_spin(worker->delay_us + CALL_US * group->batch.count, stream);
}

/* The batch of the copies, and the stream that is behind the reading of those before. */
static CUstream begin_copies(fence_worker_t *worker, fence_group_t *group, fence_kind_t kind,
                             CUdeviceptr shadow)
{
    CUstream stream = stream_of(worker, group);
    worker->pending = group->batch;
    worker->pending.wrong = worker->wrong + 8 * (uint64_t)kind;
    worker->pending.delay_us = 0;
    worker->pending_stream = stream;
    for (uint64_t i = 0; i < group->batch.count; i++) {
        dev_block_t *block = &worker->pending.blocks[i];
        block->base = shadow + i * worker->slot_bytes;
        block->bytes = block->bytes < worker->slot_bytes ? block->bytes : worker->slot_bytes;
    }
    CHECK(cuStreamWaitEvent(stream, worker->shadow_read, 0));
    delay_calls(worker, group, stream);
    return stream;
}

static void use_copy(fence_worker_t *worker, fence_group_t *group)
{
    CUstream stream = begin_copies(worker, group, FENCE_copy, worker->shadow);
    for (uint64_t i = 0; i < group->batch.count; i++)
        CHECK(cuMemcpyDtoDAsync(worker->pending.blocks[i].base, group->batch.blocks[i].base,
                                worker->pending.blocks[i].bytes, stream));
}

static void use_peer(fence_worker_t *worker, fence_group_t *group)
{
    CUstream stream = begin_copies(worker, group, FENCE_peer, worker->far_shadow);
    CUcontext here = dev_context((int)worker->device), there = dev_context((int)worker->other_device);
    for (uint64_t i = 0; i < group->batch.count; i++)
        CHECK(cuMemcpyPeerAsync(worker->pending.blocks[i].base, there, group->batch.blocks[i].base, here,
                                worker->pending.blocks[i].bytes, stream));
}

static void use_cublas(fence_worker_t *worker, fence_group_t *group)
{
    CUstream stream = begin_copies(worker, group, FENCE_cublas, worker->shadow);
    int status = blas.set_stream(worker->blas, stream);
    for (uint64_t i = 0; i < group->batch.count && status == 0; i++)
        status = blas.copy(worker->blas, (int)(worker->pending.blocks[i].bytes / 8),
                           (const double *)group->batch.blocks[i].base, 1,
                           (double *)worker->pending.blocks[i].base, 1);
    if (status != 0) {
        fprintf(stderr, "cuBLAS failed: %d\n", status);
        exit(1);
    }
}

static void use_set(fence_worker_t *worker, fence_group_t *group)
{
    fence_verify(worker, group, FENCE_set, 0);
    CUstream stream = stream_of(worker, group);
    delay_calls(worker, group, stream);
    for (uint64_t i = 0; i < group->batch.count; i++)
        CHECK(cuMemsetD32Async(group->batch.blocks[i].base, (unsigned)group->batch.blocks[i].seed,
                               group->batch.blocks[i].bytes / 4, stream));
}

static void use_fill(fence_worker_t *worker, fence_group_t *group)
{
    fence_verify(worker, group, FENCE_fill, 0);
    for (uint64_t i = 0; i < group->batch.count; i++)
        group->batch.blocks[i].seed = ~group->batch.blocks[i].seed;
    group->batch.delay_us = worker->delay_us;
    dev_batch_fill(&group->batch, stream_of(worker, group), false);
}

static void use_graph(fence_worker_t *worker, fence_group_t *group)
{
    CUgraph graph;
    CUgraphExec exec;
    aim(worker, group, FENCE_graph, worker->delay_us);
    CHECK(cuStreamBeginCapture(worker->capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    dev_batch_verify(&group->batch, worker->capture);
    CHECK(cuStreamEndCapture(worker->capture, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream_of(worker, group)));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void move_to_made_stream(fence_worker_t *worker, fence_group_t *group)
{
    if (!worker->streams[group->stream].is_made)
        fence_move(worker, group, 2 + (unsigned)cup_rng_below(&worker->rng, worker->stream_count - 2));
}

/* Half of the time the next fill is a programmatic launch right behind this kernel; else on an idle
 * stream. */
static void use_programmatic(fence_worker_t *worker, fence_group_t *group)
{
    move_to_made_stream(worker, group);
    fence_verify(worker, group, FENCE_programmatic, worker->delay_us);
    if (cup_rng_below(&worker->rng, 2))
        worker->fill_at_once = (int)group->stream;
}

static void use_destroyed(fence_worker_t *worker, fence_group_t *group)
{
    move_to_made_stream(worker, group);
    unsigned number = group->stream;
    for (unsigned i = 0; i < FENCE_LIVE; i++)
        if (worker->live[i] && worker->live[i] != group && worker->live[i]->stream == number)
            fence_move(worker, worker->live[i], 0);
    fence_verify(worker, group, FENCE_destroyed, worker->delay_us);
    CHECK(cuStreamDestroy(worker->streams[number].handle));
    worker->streams[number] = make_stream(number - 2); /* its used_at makes it the next one to be filled on */
}

typedef struct visit {
    fence_worker_t *worker;
    fence_group_t *group;
    bool makes_stream;
} visit_t;

static void *visit(void *argument)
{
    visit_t *guest = argument;
    CUstream stream = CU_STREAM_PER_THREAD;
    dev_join_device((int)guest->worker->device);
    if (guest->makes_stream)
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamWaitEvent(stream, guest->worker->moved, 0));
    dev_batch_verify(&guest->group->batch, stream);
    if (guest->makes_stream)
        CHECK(cuStreamDestroy(stream));
    return NULL;
}

static void use_exited(fence_worker_t *worker, fence_group_t *group)
{
    visit_t guest = {worker, group, cup_rng_below(&worker->rng, 2)};
    pthread_t thread;
    aim(worker, group, FENCE_exited, worker->delay_us);
    CHECK(cuEventRecord(worker->moved, stream_of(worker, group)));
    if (pthread_create(&thread, NULL, visit, &guest) != 0) {
        fputs("fence: no thread\n", stderr);
        exit(1);
    }
    pthread_join(thread, NULL);
    group->stream_id = fence_new_stream_id();
}

#define FENCE_KIND_USE(kind) use_##kind,
static void (*const uses[FENCE_KIND_COUNT])(fence_worker_t *,
                                            fence_group_t *) = {FENCE_KIND_LIST(FENCE_KIND_USE)};

void fence_use(fence_worker_t *worker, fence_group_t *group, fence_kind_t kind)
{
    uses[kind](worker, group);
    worker->kinds[kind] += group->batch.count;
}

void fence_use_after(fence_worker_t *worker)
{
    if (worker->pending.count == 0)
        return;
    dev_batch_verify(&worker->pending, worker->pending_stream);
    CHECK(cuEventRecord(worker->shadow_read, worker->pending_stream));
    worker->pending.count = 0;
}
