/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - pinned host memory, which is host memory with an entry in a list. A free waits for the context, as
 * the device's does.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    if (!out || (flags & ~7u) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) { /* measured */
        *out = NULL;
        return CUDA_SUCCESS;
    }
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

    if (!base)
        return CUDA_SUCCESS;
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

/* Memory of the program's own: mapped, and no device's. */
static bool is_host_page(void *base)
{
    unsigned char ignored;
    uintptr_t page = (uintptr_t)base & ~(uintptr_t)4095;

    return !sc_is_device_address((uint64_t)(uintptr_t)base) && mincore((void *)page, 1, &ignored) == 0;
}

SC_EXPORT CUresult cuMemHostRegister_v2(void *base, size_t size, unsigned int flags)
{
    SC_ENTER(cuMemHostRegister_v2);
    if (!base || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const sc_host_t *host = sc_host_find((uint64_t)(uintptr_t)base);
    if (host && host->is_registered)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (host || !is_host_page(base)) /* measured */
        return CUDA_ERROR_INVALID_VALUE;
    enter(base, size, flags, true);
    return CUDA_SUCCESS;
}

static bool is_known(uint64_t addr)
{
    return sc_host_find(addr) || sc_heap_find(addr) || sc_mapping_find(addr);
}

SC_EXPORT CUresult cuMemHostUnregister(void *base)
{
    SC_ENTER(cuMemHostUnregister);
    sc_host_t *host = find_base(base, true);

    if (!host) /* of memory that is known as something else (measured) */
        return !base || is_known((uint64_t)(uintptr_t)base) ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    leave(host);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned int flags)
{
    SC_ENTER(cuMemHostGetDevicePointer_v2);
    CUdeviceptr addr = (CUdeviceptr)(uintptr_t)pointer;
    const sc_mapping_t *mapping = sc_mapping_find(addr);

    if (!out || flags != 0 || (!mapping && !sc_host_find(addr)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = mapping ? mapping->base : addr; /* a mapping, too; inside one not the address itself (measured) */
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    SC_ENTER(cuMemHostGetFlags);
    const sc_host_t *host = sc_host_find((uint64_t)(uintptr_t)pointer);
    const sc_mapping_t *mapping = sc_mapping_find((uint64_t)(uintptr_t)pointer);

    if (!flags || (!host && !mapping))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = mapping ? CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP /* measured: 3 */
                     : host->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
