/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: kernels on every kind of stream, and what else a stream does in its turn. Where nobody can ask the
 * stream any more, the kernel leaves its effect in pinned memory.
 */
#define _GNU_SOURCE
#include "tests/gpu/coverage.h"
#include <pthread.h>
#include <semaphore.h>

static CUresult on(coverage_bed_t *bed, CUstream stream)
{
    coverage_late(stream);
    bed->own = bed->asked = stream;
    return CUDA_SUCCESS;
}

CUresult coverage_kernel(coverage_bed_t *bed)
{
    return on(bed, bed->stream);
}

CUresult coverage_legacy(coverage_bed_t *bed)
{
    return on(bed, CU_STREAM_LEGACY);
}

CUresult coverage_per_thread(coverage_bed_t *bed)
{
    return on(bed, CU_STREAM_PER_THREAD);
}

/* In place of the bed's, which goes at the end. */
static CUresult replace(coverage_bed_t *bed, CUstream stream)
{
    dev_check(cuStreamDestroy(bed->stream), "cuStreamDestroy");
    bed->stream = stream;
    return on(bed, stream);
}

CUresult coverage_blocking(coverage_bed_t *bed)
{
    CUstream stream;

    dev_check(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    return replace(bed, stream);
}

CUresult coverage_priority(coverage_bed_t *bed)
{
    CUstream stream;
    int low, high;

    dev_check(cuCtxGetStreamPriorityRange(&low, &high), "cuCtxGetStreamPriorityRange");
    dev_check(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, high),
              "cuStreamCreateWithPriority");
    return replace(bed, stream);
}

/* ---- a stream that is another thread's ---- */

static struct {
    coverage_bed_t *bed;
    sem_t launched, leave;
    pthread_t thread;
    bool is_alive;
} g_other;

static void let_go(void)
{
    if (!g_other.is_alive)
        return;
    sem_post(&g_other.leave);
    pthread_join(g_other.thread, NULL);
    g_other.is_alive = false;
}

static void *launch_on_own(void *may_leave)
{
    dev_join();
    coverage_late(CU_STREAM_PER_THREAD);
    coverage_leave_effect(g_other.bed, CU_STREAM_PER_THREAD);
    sem_post(&g_other.launched);
    while (!may_leave && sem_wait(&g_other.leave) != 0)
        ;
    return NULL;
}

static CUresult start_thread(coverage_bed_t *bed, bool may_leave)
{
    let_go();
    g_other.bed = bed;
    bed->own = bed->asked = NULL;
    sem_init(&g_other.launched, 0, 0);
    sem_init(&g_other.leave, 0, 0);
    if (pthread_create(&g_other.thread, NULL, launch_on_own, may_leave ? bed : NULL) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (sem_wait(&g_other.launched) != 0)
        ;
    return CUDA_SUCCESS;
}

/* It is let go when the next one is started. */
CUresult coverage_thread_alive(coverage_bed_t *bed)
{
    CUresult result = start_thread(bed, false);

    g_other.is_alive = result == CUDA_SUCCESS;
    return result;
}

CUresult coverage_thread_exited(coverage_bed_t *bed)
{
    CUresult result = start_thread(bed, true);

    if (result == CUDA_SUCCESS)
        pthread_join(g_other.thread, NULL);
    return result;
}

CUresult coverage_stream_destroyed(coverage_bed_t *bed)
{
    bed->own = bed->asked = NULL;
    coverage_late(bed->stream);
    coverage_leave_effect(bed, bed->stream);
    return cuStreamDestroy(bed->stream);
}

/* ---- what else a stream does ---- */

/* May start before the kernel in front of it has ended, and is not done before that. */
CUresult coverage_programmatic(coverage_bed_t *bed)
{
    dev_batch_t batch = {.count = 1};

    batch.blocks[0].base = bed->to;
    batch.blocks[0].bytes = 4096;
    coverage_late(bed->stream);
    dev_batch_fill(&batch, bed->stream, true);
    return CUDA_SUCCESS;
}

CUresult coverage_event_record(coverage_bed_t *bed)
{
    CUevent event;
    CUresult result;

    dev_check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    coverage_late(bed->stream);
    result = cuEventRecord(event, bed->stream);
    dev_check(cuEventDestroy(event), "cuEventDestroy");
    return result;
}

/* A stream that has nothing of its own but the wait. */
CUresult coverage_event_chain(coverage_bed_t *bed)
{
    CUstream first = dev_stream();
    CUevent event;
    CUresult result;

    dev_check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    coverage_late(first);
    result = cuEventRecord(event, first);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent(bed->stream, event, 0);
    dev_check(cuEventDestroy(event), "cuEventDestroy");
    dev_check(cuStreamDestroy(first), "cuStreamDestroy");
    return result;
}

static void nothing(void *unused)
{
    (void)unused;
}

static void nothing_more(CUstream stream, CUresult result, void *unused)
{
    (void)stream;
    (void)result;
    (void)unused;
}

CUresult coverage_host_function(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuLaunchHostFunc(bed->stream, nothing, NULL);
}

CUresult coverage_callback(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuStreamAddCallback(bed->stream, nothing_more, NULL, 0);
}

CUresult coverage_write_value(coverage_bed_t *bed)
{
    coverage_late(bed->stream);
    return cuStreamWriteValue32(bed->stream, (CUdeviceptr)bed->pinned, 1, 0);
}

CUresult coverage_wait_value(coverage_bed_t *bed)
{
    return cuStreamWaitValue32(bed->stream, (CUdeviceptr)bed->gate, 1, CU_STREAM_WAIT_VALUE_EQ);
}

CUresult coverage_batch_memop(coverage_bed_t *bed)
{
    CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                  .address = (CUdeviceptr)bed->pinned,
                                                  .value = 1}};

    coverage_late(bed->stream);
    return cuStreamBatchMemOp(bed->stream, 1, &op, 0);
}

CUresult coverage_alloc_async(coverage_bed_t *bed)
{
    CUdeviceptr block;

    coverage_late(bed->stream);
    return cuMemAllocAsync(&block, 4096,
                           bed->stream); /* lost: the driver's own free has other rules for it */
}

CUresult coverage_free_async(coverage_bed_t *bed)
{
    CUdeviceptr block;
    CUresult result = cuMemAllocAsync(&block, 4096, bed->stream);

    if (result != CUDA_SUCCESS)
        return result;
    coverage_late(bed->stream);
    return cuMemFreeAsync(block, bed->stream);
}

CUresult coverage_prefetch(coverage_bed_t *bed)
{
    static CUdeviceptr managed;
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

    if (!managed)
        dev_check(cuMemAllocManaged(&managed, COVERAGE_BYTES, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    coverage_late(bed->stream);
    return cuMemPrefetchAsync(managed, COVERAGE_BYTES, here, 0, bed->stream);
}
