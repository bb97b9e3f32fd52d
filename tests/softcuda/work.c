/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work - what one operation does, apart from when: copies, sets, kernels, host functions. A range that is
 * not wholly inside a live allocation, or mapped with access, when the operation begins is an illegal
 * address (700), as on the device.
 */
#include "driver.h"
#include <string.h>

void sc_work_touch(sc_work_t *work, uint64_t base, uint64_t size)
{
    if (size > 0 && work->range_count < SC_RANGES_MAX && sc_is_device_address(base))
        work->ranges[work->range_count++] = (sc_range_t){.base = base, .size = size};
}

static CUresult run_copy(const sc_work_t *work)
{
    for (size_t row = 0; row < work->copy.height; row++) {
        uint64_t src = work->copy.src + row * work->copy.src_pitch;
        uint64_t dst = work->copy.dst + row * work->copy.dst_pitch;
        memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, work->copy.width);
    }
    return CUDA_SUCCESS;
}

static void set_row(uint64_t dst, const sc_work_t *work)
{
    for (size_t i = 0; i < work->set.width; i++)
        memcpy((void *)(uintptr_t)(dst + i * work->set.element), &work->set.value, work->set.element);
}

static CUresult run_set(const sc_work_t *work)
{
    for (size_t row = 0; row < work->set.height; row++) {
        uint64_t dst = work->set.dst + row * work->set.pitch;
        if (work->set.element == 1)
            memset((void *)(uintptr_t)dst, (int)work->set.value, work->set.width);
        else
            set_row(dst, work);
    }
    return CUDA_SUCCESS;
}

static CUresult run_host(const sc_work_t *work)
{
    sc_thread_t *thread = sc_thread();

    thread->is_in_host_fn = true;
    if (work->host.callback)
        work->host.callback(work->host.stream, CUDA_SUCCESS, work->host.user);
    else
        work->host.fn(work->host.user);
    thread->is_in_host_fn = false;
    return CUDA_SUCCESS;
}

/* A copy reaches a peer's memory without a grant: those that may not were refused when they were
 * submitted. */
bool sc_work_is_legal(const sc_work_t *work, int device)
{
    for (unsigned i = 0; i < work->range_count; i++)
        if (!sc_is_usable(work->ranges[i].base, work->ranges[i].size,
                          work->kind == SC_WORK_COPY ? -1 : device))
            return false;
    return true;
}

static CUresult run_free(uint64_t base)
{
    pthread_mutex_lock(&sc.lock);
    sc_alloc_t *alloc = sc_heap_find(base);
    if (alloc && alloc->base == base)
        sc_heap_free(alloc);
    pthread_mutex_unlock(&sc.lock);
    return CUDA_SUCCESS;
}

CUresult sc_work_run(sc_work_t *work)
{
    switch (work->kind) {
    case SC_WORK_COPY:
        return run_copy(work);
    case SC_WORK_SET:
        return run_set(work);
    case SC_WORK_KERNEL:
        return sc_kernel_run(work->kernel.kernel, work->kernel.args);
    case SC_WORK_HOST:
        return run_host(work);
    case SC_WORK_FREE:
        return run_free(work->free_base);
    case SC_WORK_MARK:
        break;
    }
    return CUDA_SUCCESS;
}

const char *sc_work_name(const sc_work_t *work)
{
    static const char *const names[] = {"mark", "copy", "set", "kernel", "host function", "free"};

    return work->kind == SC_WORK_KERNEL ? sc_kernel_name(work->kernel.kernel) : names[work->kind];
}
