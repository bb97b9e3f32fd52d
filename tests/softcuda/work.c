/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work - what one operation does, apart from when: copies, sets, kernels, host functions, words that a
 * stream writes or waits for. A range that is not wholly inside a live allocation, or mapped with access,
 * when the operation begins is an illegal address (700), as on the device; so is one that is written and
 * mapped for reading only (measured).
 */
#include "driver.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

void sc_work_touch(sc_work_t *work, uint64_t base, uint64_t size)
{
    if (size > 0 && work->range_count < SC_RANGES_MAX && sc_is_device_address(base))
        work->ranges[work->range_count++] = (sc_range_t){.base = base, .size = size};
}

void sc_work_write(sc_work_t *work, uint64_t base, uint64_t size)
{
    unsigned before = work->range_count;

    sc_work_touch(work, base, size);
    if (work->range_count > before)
        work->ranges[before].is_written = true;
}

static CUresult run_copy(const sc_work_t *work)
{
    const sc_side_t *dst = &work->copy.dst, *src = &work->copy.src;

    for (size_t z = 0; z < work->copy.depth; z++)
        for (size_t y = 0; y < work->copy.height; y++)
            memmove((void *)(uintptr_t)(dst->base + z * dst->slice + y * dst->pitch),
                    (const void *)(uintptr_t)(src->base + z * src->slice + y * src->pitch), work->copy.width);
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

static CUresult run_write_value(const sc_work_t *work)
{
    void *word = (void *)(uintptr_t)work->value.addr;

    if (work->value.bytes == 4)
        __atomic_store_n((uint32_t *)word, (uint32_t)work->value.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)word, work->value.value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

/* The comparisons of cuda.h; both words of 8 bytes, those of 4 with zeros above. */
static bool is_satisfied(const sc_work_t *work, uint64_t word)
{
    uint64_t value = work->value.value;

    switch (work->value.comparison) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return work->value.bytes == 4 ? (int32_t)((uint32_t)word - (uint32_t)value) >= 0
                                      : (int64_t)(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    default: /* NOR */
        return work->value.bytes == 4 ? (uint32_t) ~(word | value) != 0 : ~(word | value) != 0;
    }
}

static CUresult run_wait_value(const sc_work_t *work)
{
    const struct timespec pause = {.tv_nsec = 50000};
    const void *word = (const void *)(uintptr_t)work->value.addr;
    uint64_t end_ns = sc_now_ns() + SC_WAIT_CAP_S * 1000000000ull;

    while (!is_satisfied(work, work->value.bytes == 4
                                   ? __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE)
                                   : __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE))) {
        if (sc_now_ns() > end_ns) {
            fputs("softcuda: TIMEOUT of a stream that waits for a value\n", stderr);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

/* What the device itself reads and writes of another one's plain allocations needs access enabled in the
 * context; managed memory does not, and sets and copies go by other ways. */
static bool has_peer_access(const sc_work_t *work, const sc_ctx_t *ctx, uint64_t addr)
{
    const sc_alloc_t *alloc = sc_heap_find(addr);
    bool is_direct =
        work->kind == SC_WORK_KERNEL || work->kind == SC_WORK_WRITE_VALUE || work->kind == SC_WORK_WAIT_VALUE;

    return !is_direct || !alloc || alloc->device == ctx->device || alloc->kind == SC_MEM_MANAGED ||
           sc_ctx_reaches(ctx, alloc->ctx);
}

/* A copy reaches a peer's memory without a grant: those that may not were refused when they were
 * submitted. */
bool sc_work_is_legal(const sc_work_t *work, const sc_ctx_t *ctx)
{
    bool is_copy = work->kind == SC_WORK_COPY || work->kind == SC_WORK_PREFETCH;

    for (unsigned i = 0; i < work->range_count; i++) {
        const sc_range_t *range = &work->ranges[i];
        int device = is_copy ? -1 : ctx->device;

        if (!sc_is_usable(range->base, range->size, device) || !has_peer_access(work, ctx, range->base) ||
            (range->is_written && !sc_is_writable(range->base, range->size, device)))
            return false;
    }
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
    case SC_WORK_WRITE_VALUE:
        return run_write_value(work);
    case SC_WORK_WAIT_VALUE:
        return run_wait_value(work);
    case SC_WORK_PREFETCH: /* where the bytes are makes no difference here */
    case SC_WORK_MARK:
        break;
    }
    return CUDA_SUCCESS;
}

const char *sc_work_name(const sc_work_t *work)
{
    static const char *const names[] = {"mark", "copy",        "set",        "kernel",  "host function",
                                        "free", "value write", "value wait", "prefetch"};

    return work->kind == SC_WORK_KERNEL ? sc_kernel_name(work->kernel.kernel) : names[work->kind];
}
