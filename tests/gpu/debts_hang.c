/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: programs that natively end, but for the last of one device: a kernel waits for something that its
 * program does only after an allocation, or after a launch, that must not wait for that kernel. Ended by
 * SIGALRM where they hang (debts.c).
 */
#include "tests/gpu/debts.h"
#include <pthread.h>
#include <unistd.h>

/* Work, and a free after it: a point to be closed by whoever submits next. */
static void leave_debt(CUstream stream)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);

    dev_fill(other, DEBTS_BYTES, DEBTS_OLD, stream);
    dev_free(other);
}

/* Blocks that were freed just now, and more than was ever held. */
static void allocate_some(void)
{
    static const uint64_t sizes[] = {DEBTS_BYTES, DEBTS_BYTES, 512, 3 << 20, 40 << 20};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        dev_alloc(sizes[i]);
}

bool debts_run_hang_malloc(void)
{
    CUstream stream = dev_stream();

    leave_debt(stream);
    debts_wait_for_flag(stream);
    allocate_some();
    debts_raise_flag();
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

bool debts_run_hang_partner(void)
{
    CUstream first = dev_stream(), second = dev_stream();

    leave_debt(second);
    leave_debt(first);
    debts_wait_for_flag(first);
    allocate_some();
    debts_raise_flag_by_kernel(second);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

/* Was in flight when the first allocation came, which must not wait for it either. */
bool debts_run_hang_mailbox(void)
{
    CUstream first = dev_stream(), second = dev_stream();
    CUdeviceptr x;

    debts_wait_for_flag(first);
    x = dev_alloc(DEBTS_BYTES);
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, second);
    allocate_some();
    dev_stream_sync(second);
    debts_raise_flag();
    return debts_is_device(x, DEBTS_NEW);
}

bool debts_run_hang_wait_value(void)
{
    CUstream first = dev_stream(), second = dev_stream();
    CUdeviceptr x;

    leave_debt(first);
    DEBTS_CHECK(cuStreamWaitValue32(first, (CUdeviceptr)debts_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    x = dev_alloc(DEBTS_BYTES);
    allocate_some();
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, second);
    dev_stream_sync(second);
    debts_raise_flag();
    return debts_is_device(x, DEBTS_NEW);
}

/* The flag is raised by a later kernel on another stream, which has work from before the free. */
bool debts_run_hang_persistent(void)
{
    CUstream used = dev_stream(), other = dev_stream();

    dev_spin(DEBTS_SPIN_US / 4, other);
    leave_debt(used);
    debts_wait_for_flag(used);
    debts_raise_flag_by_kernel(other);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

static void take_mutex(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&g_mutex);
    pthread_mutex_unlock(&g_mutex);
}

bool debts_run_hang_host_function(void)
{
    CUstream stream = dev_stream();

    leave_debt(stream);
    pthread_mutex_lock(&g_mutex);
    DEBTS_CHECK(cuLaunchHostFunc(stream, take_mutex, NULL));
    allocate_some();
    pthread_mutex_unlock(&g_mutex);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

/* As many launches as fit into a queue (1,021 on an H200), all behind a kernel that waits for the host. */
bool debts_run_hang_queue(void)
{
    CUstream full = dev_stream(), other = dev_stream();
    CUdeviceptr x = dev_alloc(DEBTS_BYTES);

    leave_debt(full);
    debts_wait_for_flag(full);
    for (int i = 0; i < 1000; i++)
        dev_spin(1, full);
    allocate_some();
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, other);
    dev_stream_sync(other);
    debts_raise_flag();
    return debts_is_device(x, DEBTS_NEW);
}

static void *raise_later(void *stream)
{
    dev_join();
    usleep(100000);
    debts_raise_flag_by_kernel(stream);
    return NULL;
}

/* Another thread's kernel would end the wait of this one's free, but natively that thread can't launch
 * meanwhile. */
/* A stream-ordered free of plain memory: work on other streams is not behind it. */
bool debts_run_hang_free_async(void)
{
    CUstream first = dev_stream(), second = dev_stream(), third = dev_stream();
    CUdeviceptr block = dev_alloc(DEBTS_BYTES);

    debts_wait_for_flag(first);
    DEBTS_CHECK(cuMemFreeAsync(block, third));
    debts_raise_flag_by_kernel(second);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

/* Nor does the host wait for a host function that is in front of it. */
bool debts_run_hang_free_async_host(void)
{
    CUstream stream = dev_stream();
    CUdeviceptr block = dev_alloc(DEBTS_BYTES);

    pthread_mutex_lock(&g_mutex);
    DEBTS_CHECK(cuLaunchHostFunc(stream, take_mutex, NULL));
    DEBTS_CHECK(cuMemFreeAsync(block, stream));
    pthread_mutex_unlock(&g_mutex);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

bool debts_run_hang_two_threads(void)
{
    CUstream first = dev_stream(), second = dev_stream();
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    pthread_t thread;

    debts_wait_for_flag(first);
    pthread_create(&thread, NULL, raise_later, second);
    dev_free(other);
    pthread_join(thread, NULL);
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

/* A free on one device does not wait for the other. */
bool debts_run_hang_peer(void)
{
    CUstream first, second;

    debts_open_two();
    first = dev_stream();
    leave_debt(first);
    debts_join(0);
    second = dev_stream();
    leave_debt(second);
    debts_join(1);
    debts_wait_for_flag(first);
    debts_join(0);
    leave_debt(second);
    allocate_some();
    debts_raise_flag_by_kernel(second);
    debts_sync_both();
    return true;
}
