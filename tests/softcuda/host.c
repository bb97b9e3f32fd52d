/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - pinned host memory, which is host memory with an entry in a list. A free waits for the context, as
 * the device's does.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

static sc_host_t *hosts;

sc_host_t *sc_host_find(uint64_t addr)
{
    sc_host_t *host = hosts;

    while (host && addr - host->base >= host->size)
        host = host->next;
    return host;
}

static void enter(void *base, size_t size, unsigned flags, bool is_registered)
{
    sc_host_t *host = sc_zalloc(sizeof *host);

    *host = (sc_host_t){.next = hosts,
                        .base = (uint64_t)(uintptr_t)base,
                        .size = size,
                        .id = sc_next_id(),
                        .ctx = sc_ctx_root(sc_ctx_current()),
                        .flags = flags,
                        .is_registered = is_registered};
    hosts = host;
}

static void leave(sc_host_t *host)
{
    sc_host_t **at = &hosts;

    while (*at != host)
        at = &(*at)->next;
    *at = host->next;
    if (!host->is_registered)
        free((void *)(uintptr_t)host->base);
    free(host);
}

void sc_host_free_context(sc_ctx_t *ctx)
{
    for (sc_host_t *host = hosts, *next; host; host = next) {
        next = host->next;
        if (host->ctx == ctx)
            leave(host);
    }
}

static CUresult allocate(void **out, size_t size, unsigned flags)
{
    if (!out || size == 0 || (flags & ~7u) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > sc.memory * 16)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t rounded = (size + 4095) / 4096 * 4096;
    void *base = aligned_alloc(4096, rounded);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(base, 0, rounded);
    enter(base, size, flags, false);
    sc_time_take(SC_TIME_HOST_ALLOC, size);
    *out = base;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    SC_ENTER(cuMemAllocHost_v2);
    return allocate(out, size, CU_MEMHOSTALLOC_PORTABLE);
}

SC_EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
    SC_ENTER(cuMemHostAlloc);
    return allocate(out, size, flags);
}

/* The entry that begins exactly there. */
static sc_host_t *find_base(void *base, bool is_registered)
{
    sc_host_t *host = sc_host_find((uint64_t)(uintptr_t)base);

    return host && host->base == (uint64_t)(uintptr_t)base && host->is_registered == is_registered ? host
                                                                                                   : NULL;
}

SC_EXPORT CUresult cuMemFreeHost(void *base)
{
    SC_ENTER(cuMemFreeHost);
    sc_host_t *host = find_base(base, false);

    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = sc_ctx_drain(host->ctx);
    host = find_base(base, false); /* the lock was released */
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    sc_time_waited();
    sc_time_take(SC_TIME_HOST_FREE, host->size);
    if (status == CUDA_SUCCESS)
        leave(host);
    return status;
}

SC_EXPORT CUresult cuMemHostRegister_v2(void *base, size_t size, unsigned int flags)
{
    SC_ENTER(cuMemHostRegister_v2);
    if (!base || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sc_host_find((uint64_t)(uintptr_t)base))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    enter(base, size, flags, true);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemHostUnregister(void *base)
{
    SC_ENTER(cuMemHostUnregister);
    sc_host_t *host = find_base(base, true);

    if (!host)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    leave(host);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned int flags)
{
    SC_ENTER(cuMemHostGetDevicePointer_v2);
    if (!out || flags != 0 || !sc_host_find((uint64_t)(uintptr_t)pointer))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    SC_ENTER(cuMemHostGetFlags);
    sc_host_t *host = sc_host_find((uint64_t)(uintptr_t)pointer);

    if (!flags || !host)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = host->flags;
    return CUDA_SUCCESS;
}
