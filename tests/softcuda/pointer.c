/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pointer - what the driver says of an address: as tests/gpu/query_probe.expected has it, line by line. Not modelled, and
 * therefore told on that program's "probe" lines: hints (cuMemAdvise and its kin), pools of their own, multicast, tokens:
 * 801 where the GPU said 1 of plain memory; and how the driver packs small memory, which decides where dma-bufs begin.
 */
#include "driver.h"
#include <string.h>

bool sc_is_device_address(uint64_t addr)
{
    return sc_heap_owns(addr) || sc_range_holds(addr);
}

bool sc_is_usable(uint64_t addr, uint64_t size, int device)
{
    return sc_heap_owns(addr) ? sc_heap_holds(addr, size) : sc_mapping_holds(addr, size, device);
}

bool sc_is_writable(uint64_t addr, uint64_t size, int device)
{
    return sc_heap_owns(addr) || sc_mapping_writable(addr, size, device);
}

/* What an address lies in: an allocation of the device, pinned host memory, a mapping. */
typedef struct {
    uint64_t addr, base, size, id;
    uint64_t physical_base, physical_bytes, physical_id; /* whole slots, which small ones share (measured) */
    sc_ctx_t *ctx;
    int device;
    bool is_host, is_managed, is_async, is_opened, is_sync_memops;
    const sc_mapping_t *mapping;
} place_t;

static bool find_place(uint64_t addr, place_t *out_place)
{
    const sc_alloc_t *alloc = sc_heap_find(addr);
    const sc_mapping_t *mapping = alloc ? NULL : sc_mapping_find(addr);
    const sc_host_t *host = alloc || mapping ? NULL : sc_host_find(addr);

    if (mapping)
        *out_place = (place_t){.addr = addr,
                               .base = mapping->base,
                               .size = mapping->size,
                               .id = mapping->id,
                               .physical_base = mapping->base,
                               .physical_bytes = mapping->size,
                               .physical_id = mapping->id,
                               .device = mapping->handle->prop.location.id,
                               .mapping = mapping};
    else if (alloc)
        *out_place = (place_t){.addr = addr,
                               .base = alloc->base,
                               .size = alloc->size,
                               .id = alloc->id,
                               .ctx = alloc->ctx,
                               .device = alloc->device,
                               .is_managed = alloc->kind == SC_MEM_MANAGED,
                               .is_async = alloc->kind == SC_MEM_ASYNC,
                               .is_opened = alloc->kind == SC_MEM_IPC,
                               .is_sync_memops = alloc->is_sync_memops,
                               .physical_id = sc_heap_physical_id(alloc)};
    else if (host)
        *out_place =
            (place_t){.addr = addr,
                      .base = host->base,
                      .size = host->size,
                      .id = host->id,
                      .physical_base = host->base,
                      .physical_bytes = (host->size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES * SC_SLOT_BYTES,
                      .physical_id = host->id,
                      .ctx = host->ctx,
                      .device = host->ctx->device,
                      .is_host = true};
    if (alloc)
        sc_heap_place(alloc, &out_place->physical_base, &out_place->physical_bytes);
    return alloc || mapping || host;
}

#define PUT(type, value)                \
    do {                                \
        type put = (type)(value);       \
        memcpy(data, &put, sizeof put); \
        return CUDA_SUCCESS;            \
    } while (0)

static unsigned access_flags(const sc_mapping_t *mapping, int device)
{
    uint32_t bit = 1u << device;

    if (!(mapping->access & bit))
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return mapping->read_only & bit ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                    : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

/*
 * Of a mapping, where it differs: no context owns it; its range is not the mapping (measured), but the reservation (by the
 * attributes' names). NOT_FOUND: as any other memory.
 */
static CUresult get_mapping_attribute(void *data, CUpointer_attribute attribute, const place_t *place)
{
    const sc_mapping_t *mapping = place->mapping;
    const sc_ctx_t *ctx = sc_ctx_current();
    uint64_t range_base = 0, range_size = 0;

    sc_range_find(place->addr, &range_base, &range_size);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        PUT(CUcontext, NULL);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        PUT(CUdeviceptr, range_base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        PUT(size_t, range_size);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(unsigned, 0);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(uint64_t, mapping->handle->prop.requestedHandleTypes);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        PUT(unsigned, mapping->handle->prop.allocFlags.gpuDirectRDMACapable);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        PUT(unsigned, (mapping->handle->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        PUT(unsigned, access_flags(mapping, ctx ? ctx->device : place->device));
    default:
        return CUDA_ERROR_NOT_FOUND;
    }
}

/* Of an address that is known. */
static CUresult get_attribute(void *data, CUpointer_attribute attribute, const place_t *place)
{
    uint64_t host_pointer = place->is_host || place->is_managed ? place->addr : 0;
    CUresult status = place->mapping ? get_mapping_attribute(data, attribute, place) : CUDA_ERROR_NOT_FOUND;

    if (status != CUDA_ERROR_NOT_FOUND)
        return status;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        PUT(CUcontext, place->is_async ? NULL : place->ctx);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        PUT(unsigned, place->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        PUT(CUdeviceptr, place->addr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        memcpy(data, &host_pointer, sizeof host_pointer); /* refused or not (measured) */
        return host_pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        PUT(unsigned, place->is_sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        PUT(unsigned long long, place->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        PUT(unsigned, place->is_managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        PUT(int, place->device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(unsigned, !place->is_host && !place->is_managed && !place->is_async && !place->is_opened);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        PUT(CUdeviceptr, place->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        PUT(size_t, place->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        PUT(unsigned, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(uint64_t, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: /* as the device (device.c) */
        PUT(unsigned, !place->is_host && !place->is_managed);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        PUT(unsigned, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        PUT(CUmemoryPool, NULL);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        PUT(CUdeviceptr, place->physical_base);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        PUT(size_t, place->physical_bytes);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        PUT(unsigned long long, place->physical_id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        PUT(unsigned, !place->is_host && !place->is_managed);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static bool is_attribute(CUpointer_attribute attribute)
{
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
           attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

SC_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
    SC_ENTER(cuPointerGetAttribute);
    place_t place;

    if (!data || !is_attribute(attribute) || !find_place(addr, &place))
        return CUDA_ERROR_INVALID_VALUE;
    sc_time_take(SC_TIME_ATTRIBUTES, 0);
    return get_attribute(data, attribute, &place);
}

static size_t attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    default:
        return 4;
    }
}

/* Of an address that is nobody's the plural form tells (measured): */
static void put_unknown(void *data, CUpointer_attribute attribute, uint64_t addr)
{
    static const int nowhere = -2;

    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        return;
    memset(data, 0, attribute_size(attribute));
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(data, &nowhere, sizeof nowhere);
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        memcpy(data, &addr, sizeof addr);
}

SC_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                          CUdeviceptr addr)
{
    SC_ENTER(cuPointerGetAttributes);
    place_t place;
    bool is_known = find_place(addr, &place);

    if (count == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (!is_attribute(attributes[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (!data[i])
            continue;
        if (is_known) {
            memset(data[i], 0, attribute_size(attributes[i]));
            get_attribute(data[i], attributes[i], &place);
        } else {
            put_unknown(data[i], attributes[i], addr);
        }
    }
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr addr)
{
    SC_ENTER(cuPointerSetAttribute);
    sc_alloc_t *alloc = sc_heap_find(addr);

    if (value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && sc_mapping_find(addr))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!value || !alloc || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    alloc->is_sync_memops = *(const unsigned *)value != 0;
    return CUDA_SUCCESS;
}
