/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the device side. Late work on one stream, a free, then work of another stream on the same bytes:
 * the second one must win.
 */
#include "tests/gpu/debts.h"
#include <pthread.h>
#include <string.h>

/* ---- later work, on the device ---- */

bool debts_run_later_kernel(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream first = dev_stream(), second = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    dev_free(other);
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, second);
    return debts_is_device(x, DEBTS_NEW);
}

bool debts_run_later_sync_copy(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_NEW, DEBTS_SPIN_US, stream);
    dev_free(other);
    dev_read(debts_host, x, DEBTS_BYTES); /* the legacy stream does not wait for this one */
    return debts_is_host(debts_host, DEBTS_NEW);
}

bool debts_run_later_own_block(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), next;
    CUstream first = dev_stream(), second = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    dev_free(x);
    next = dev_alloc(DEBTS_BYTES);
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, second);
    return debts_is_device(next, DEBTS_NEW);
}

/* Work that was submitted before the first allocation counts, too. */
bool debts_run_earlier_kernel(void)
{
    CUdeviceptr x = (CUdeviceptr)debts_host, other;
    CUstream first = dev_stream(), second = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    other = dev_alloc(DEBTS_BYTES);
    dev_free(other);
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, second);
    dev_sync();
    return debts_is_host(debts_host, DEBTS_NEW);
}

bool debts_run_destroyed_stream(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), next;
    CUstream stream = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuStreamDestroy(stream));
    stream = dev_stream(); /* the same handle, but not ordered behind the old one's work */
    dev_free(x);
    next = dev_alloc(DEBTS_BYTES);
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, stream);
    return debts_is_device(next, DEBTS_NEW);
}

bool debts_run_destroyed_after_free(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), next;
    CUstream stream = dev_stream();

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, stream);
    dev_free(x);
    DEBTS_CHECK(cuStreamDestroy(stream));
    stream = dev_stream();
    next = dev_alloc(DEBTS_BYTES);
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, stream);
    return debts_is_device(next, DEBTS_NEW);
}

static void *fill_on_own_stream(void *block)
{
    dev_join();
    dev_late_fill((CUdeviceptr)block, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, CU_STREAM_PER_THREAD);
    return NULL;
}

/* The stream of a thread that has ended; the next user is the stream of another thread. */
bool debts_run_thread_streams(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), next;
    pthread_t thread;

    pthread_create(&thread, NULL, fill_on_own_stream, (void *)x);
    pthread_join(thread, NULL);
    dev_free(x);
    next = dev_alloc(DEBTS_BYTES);
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, CU_STREAM_PER_THREAD);
    return debts_is_device(next, DEBTS_NEW);
}

/* The fill may start before the kernel in front of it has ended: natively nobody uses the block. */
bool debts_run_programmatic(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), next;
    dev_batch_t reads = {1, DEBTS_SPIN_US, (CUdeviceptr)debts_other, {{x, DEBTS_BYTES, DEBTS_OLD}}},
                writes = {.count = 1};
    CUstream stream = dev_stream();

    *debts_other = 0;
    dev_fill(x, DEBTS_BYTES, DEBTS_OLD, stream);
    dev_batch_verify(&reads, stream);
    dev_free(x);
    next = dev_alloc(DEBTS_BYTES);
    writes.blocks[0] = (dev_block_t){next, DEBTS_BYTES, DEBTS_NEW};
    dev_batch_fill(&writes, stream, true);
    dev_sync();
    return *debts_other == 0 && debts_is_device(next, DEBTS_NEW);
}

/* ---- a second context of the device ---- */

typedef struct second {
    CUcontext context, old;
    CUstream stream;
} second_t;

static second_t second_create(void)
{
    second_t second;
    CUdevice device;

    DEBTS_CHECK(cuCtxGetCurrent(&second.old));
    DEBTS_CHECK(cuCtxGetDevice(&device));
    DEBTS_CHECK(cuCtxCreate_v4(&second.context, NULL, 0, device));
    DEBTS_CHECK(cuStreamCreate(&second.stream, CU_STREAM_NON_BLOCKING));
    DEBTS_CHECK(cuCtxSetCurrent(second.old));
    return second;
}

/* Sets the block on the stream of the second context, and waits until both contexts are done. */
static bool is_set_by_second(const second_t *second, CUdeviceptr block)
{
    static unsigned char bytes[DEBTS_BYTES], wanted[DEBTS_BYTES];

    DEBTS_CHECK(cuCtxSetCurrent(second->context));
    DEBTS_CHECK(cuMemsetD8Async(block, 0x5a, DEBTS_BYTES, second->stream));
    DEBTS_CHECK(cuCtxSynchronize());
    DEBTS_CHECK(cuCtxSetCurrent(second->old));
    dev_sync();
    dev_read(bytes, block, DEBTS_BYTES);
    memset(wanted, 0x5a, DEBTS_BYTES);
    return memcmp(bytes, wanted, DEBTS_BYTES) == 0;
}

bool debts_run_two_contexts(void)
{
    second_t second = second_create();
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, dev_stream());
    dev_free(other);
    return is_set_by_second(&second, x);
}

bool debts_run_two_contexts_own_block(void)
{
    second_t second = second_create();
    CUdeviceptr x = dev_alloc(DEBTS_BYTES);

    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, dev_stream());
    dev_free(x);
    return is_set_by_second(&second, dev_alloc(DEBTS_BYTES));
}

/* ---- calls that natively find the GPU done ---- */

bool debts_run_event_elapsed(void)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    CUevent start, stop;
    CUresult result;
    float ms;

    DEBTS_CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    DEBTS_CHECK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    DEBTS_CHECK(cuEventRecord(start, stream));
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuEventRecord(stop, stream));
    dev_free(other);
    result = cuEventElapsedTime(&ms, start, stop);
    dev_sync();
    return result == CUDA_SUCCESS;
}

/* Without a wait the driver tells the truth: the work is not done. */
bool debts_run_stream_query(void)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_spin(DEBTS_SPIN_US, stream);
    dev_free(other);
    is_kept = cuStreamQuery(stream) == CUDA_SUCCESS;
    dev_sync();
    return is_kept;
}

/* The driver may take it for unused and wait for nothing: natively it is unused by now. */
bool debts_run_async_free(void)
{
    CUstream first = dev_stream(), second = dev_stream();
    CUdeviceptr x, next, other = dev_alloc(DEBTS_BYTES);

    DEBTS_CHECK(cuMemAllocAsync(&x, DEBTS_BYTES, first));
    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    dev_free(other);
    DEBTS_CHECK(cuMemFree(x));
    DEBTS_CHECK(cuMemAllocAsync(&next, DEBTS_BYTES, second));
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, second);
    return cuCtxSynchronize() == CUDA_SUCCESS && debts_is_device(next, DEBTS_NEW);
}

/* Freed on a stream that is not ordered behind the one that uses it, but after a free. */
bool debts_run_async_free_elsewhere(void)
{
    CUstream first = dev_stream(), second = dev_stream();
    CUdeviceptr x, next, other = dev_alloc(DEBTS_BYTES);

    DEBTS_CHECK(cuMemAllocAsync(&x, DEBTS_BYTES, first));
    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    dev_free(other);
    DEBTS_CHECK(cuMemFreeAsync(x, second));
    DEBTS_CHECK(cuMemAllocAsync(&next, DEBTS_BYTES, second));
    dev_fill(next, DEBTS_BYTES, DEBTS_NEW, second);
    return cuCtxSynchronize() == CUDA_SUCCESS && debts_is_device(next, DEBTS_NEW);
}

/* Not ours: its own wait stays. */
bool debts_run_free_host(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES);
    void *host = debts_pinned(DEBTS_BYTES);
    CUstream stream = dev_stream();
    CUevent end;
    bool is_kept;

    DEBTS_CHECK(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
    dev_late_fill(x, DEBTS_BYTES, DEBTS_NEW, DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuEventRecord(end, stream));
    DEBTS_CHECK(cuMemFreeHost(host));
    is_kept = cuEventQuery(end) == CUDA_SUCCESS;
    dev_sync();
    return is_kept;
}

/* A mapping of the program's own. When it is lost the context is lost. */
bool debts_run_unmap_own(void)
{
    const size_t bytes = (size_t)2 << 20;
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr x, other = dev_alloc(DEBTS_BYTES);

    DEBTS_CHECK(cuMemAddressReserve(&x, bytes, 0, 0, 0));
    DEBTS_CHECK(cuMemCreate(&handle, bytes, &property, 0));
    DEBTS_CHECK(cuMemMap(x, bytes, 0, handle, 0));
    DEBTS_CHECK(cuMemSetAccess(x, bytes, &access, 1));
    dev_late_fill(x, DEBTS_BYTES, DEBTS_NEW, DEBTS_SPIN_US, dev_stream());
    dev_free(other);
    DEBTS_CHECK(cuMemUnmap(x, bytes));
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

/* ---- two devices ---- */

/* A free waits for the work of its own device; what comes later on the other one comes after that. */
bool debts_run_peer_kernel(void)
{
    CUdeviceptr x, other;
    CUstream first, second;

    debts_open_two();
    x = dev_alloc(DEBTS_BYTES);
    other = dev_alloc(DEBTS_BYTES);
    first = dev_stream();
    debts_join(0);
    second = dev_stream();
    debts_join(1);
    dev_late_fill(x, DEBTS_BYTES, DEBTS_OLD, DEBTS_SPIN_US, first);
    dev_free(other);
    debts_join(0);
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, second);
    debts_sync_both();
    return debts_is_device(x, DEBTS_NEW);
}
