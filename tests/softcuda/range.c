/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range - reserved addresses and what is mapped into them. What the host may touch is what the device may: a
 * mapping is readable once some device has access, everything else in a reservation never is. None of these
 * calls waits for the device.
 *
 * Memory that is taken from under an operation that has begun must stay readable for it, so that a wrong
 * program gets a report and not a crash: the real unmapping lingers until no operation runs there any
 * more. The model does not wait: an operation that begins later finds nothing.
 */
#include "driver.h"
#include <stdlib.h>
#include <sys/mman.h>

/* Behind the end of a reservation the driver maps, too (measured, by one slot): that far nobody else's addresses lie. */
#define SPARE_BYTES SC_SLOT_BYTES

typedef struct range {
    struct range *next;
    uint64_t base, size;
    uint64_t room; /* size and what is spare behind it */
    uint64_t mapped_slots;
    sc_mapping_t **slots; /* what is mapped there; NULL */
    bool is_freed;        /* something lingers in it */
} range_t;

typedef struct linger {
    struct linger *next;
    uint64_t base, size;
} linger_t;

static range_t *ranges;
static linger_t *lingers;
static uint64_t mapped_bytes;

/* The live reservation that holds the address, or has it to spare; NULL. */
static range_t *find_range(uint64_t addr)
{
    range_t *range = ranges;

    while (range && (range->is_freed || addr - range->base >= range->room))
        range = range->next;
    return range;
}

/* The live reservation that holds all of it; NULL. */
static range_t *find_whole(uint64_t base, uint64_t size)
{
    range_t *range = find_range(base);

    return range && size <= range->room - (base - range->base) ? range : NULL;
}

bool sc_range_find(uint64_t addr, uint64_t *out_base, uint64_t *out_size)
{
    const range_t *range = find_range(addr);

    if (!range)
        return false;
    *out_base = range->base;
    *out_size = range->size;
    return true;
}

static sc_mapping_t **slot_at(const range_t *range, uint64_t addr)
{
    return &range->slots[(addr - range->base) / SC_SLOT_BYTES];
}

bool sc_range_holds(uint64_t addr)
{
    return find_range(addr) != NULL;
}

sc_mapping_t *sc_mapping_find(uint64_t addr)
{
    const range_t *range = find_range(addr);

    return range ? *slot_at(range, addr) : NULL;
}

bool sc_mapping_holds(uint64_t addr, uint64_t size, int device)
{
    const uint32_t wanted = device < 0 ? ~0u : 1u << device;
    uint64_t end = addr + size;

    while (addr < end) {
        const sc_mapping_t *mapping = sc_mapping_find(addr);
        if (!mapping || !(mapping->access & wanted))
            return false;
        addr = mapping->base + mapping->size;
    }
    return true;
}

bool sc_mapping_writable(uint64_t addr, uint64_t size, int device)
{
    const uint32_t wanted = device < 0 ? ~0u : 1u << device;
    uint64_t end = addr + size;

    while (addr < end) {
        const sc_mapping_t *mapping = sc_mapping_find(addr);
        if (!mapping || !(mapping->access & ~mapping->read_only & wanted))
            return false;
        addr = mapping->base + mapping->size;
    }
    return true;
}

SC_EXPORT uint64_t softcuda_mapped_bytes(void)
{
    pthread_mutex_lock(&sc.lock);
    uint64_t bytes = mapped_bytes;
    pthread_mutex_unlock(&sc.lock);
    return bytes;
}

static void *place(uint64_t addr)
{
    return (void *)(uintptr_t)addr;
}

/* ---- what lingers ---- */

static bool is_lingering(uint64_t base, uint64_t size)
{
    for (const linger_t *linger = lingers; linger; linger = linger->next)
        if (linger->base < base + size && base < linger->base + linger->size)
            return true;
    return false;
}

static void add_linger(uint64_t base, uint64_t size)
{
    linger_t *linger = sc_zalloc(sizeof *linger);

    *linger = (linger_t){.next = lingers, .base = base, .size = size};
    lingers = linger;
}

/* The mapping at addr whole, or the empty part up to end. */
static void find_extent(uint64_t addr, uint64_t end, sc_mapping_t **out_mapping, linger_t *out_extent)
{
    *out_mapping = sc_mapping_find(addr);
    if (*out_mapping) {
        *out_extent = (linger_t){.base = (*out_mapping)->base, .size = (*out_mapping)->size};
        return;
    }
    *out_extent = (linger_t){.base = addr};
    while (addr < end && !sc_mapping_find(addr))
        addr += SC_SLOT_BYTES;
    out_extent->size = addr - out_extent->base;
}

/* Makes the addresses what the model says they are; where an operation runs, once it has ended. */
static void settle(uint64_t base, uint64_t size)
{
    for (uint64_t addr = base; addr < base + size;) {
        sc_mapping_t *mapping;
        linger_t extent;
        find_extent(addr, base + size, &mapping, &extent);
        if (sc_overlap_is_running(extent.base, extent.size))
            add_linger(extent.base, extent.size);
        else if (mapping)
            mprotect(place(extent.base), extent.size, mapping->access ? PROT_READ | PROT_WRITE : PROT_NONE);
        else
            mmap(place(extent.base), extent.size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        addr = extent.base + extent.size;
    }
}

static void drop_range(range_t *range)
{
    range_t **at = &ranges;

    while (*at != range)
        at = &(*at)->next;
    *at = range->next;
    munmap(place(range->base), range->room);
    free(range->slots);
    free(range);
}

void sc_range_settle(void)
{
    linger_t *linger = lingers;

    lingers = NULL;
    while (linger) {
        linger_t *next = linger->next;
        settle(linger->base, linger->size);
        free(linger);
        linger = next;
    }
    for (range_t *range = ranges, *next; range; range = next) {
        next = range->next;
        if (range->is_freed && !is_lingering(range->base, range->room))
            drop_range(range);
    }
}

bool sc_range_lingers(void)
{
    return lingers != NULL;
}

/* ---- reservations ---- */

/* Unreadable addresses; 0 when there are none. */
static uint64_t reserve(uint64_t size, uint64_t alignment, uint64_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    if (hint != 0 && hint % alignment == 0) {
        void *at = mmap(place(hint), size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == place(hint))
            return hint;
        if (at != MAP_FAILED)
            munmap(at, size);
    }
    void *at = mmap(NULL, size + alignment, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    uint64_t start = (uint64_t)(uintptr_t)at, base = (start + alignment - 1) & ~(alignment - 1);
    if (base > start)
        munmap(at, base - start);
    munmap(place(base + size), start + alignment - base);
    return base;
}

SC_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                                       unsigned long long flags)
{
    SC_ENTER(cuMemAddressReserve);
    if (!out || size == 0 || size % SC_SLOT_BYTES != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < SC_SLOT_BYTES)
        alignment = SC_SLOT_BYTES;
    uint64_t room = size + SPARE_BYTES;
    uint64_t base = room + alignment > size ? reserve(room, alignment, hint) : 0;
    if (base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range_t *range = sc_zalloc(sizeof *range);
    *range = (range_t){.next = ranges,
                       .base = base,
                       .size = size,
                       .room = room,
                       .slots = sc_zalloc(room / SC_SLOT_BYTES * sizeof *range->slots)};
    ranges = range;
    *out = base;
    sc_time_take(SC_TIME_ADDRESS_RESERVE, size);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
    SC_ENTER(cuMemAddressFree);
    range_t *range = find_range(base);

    if (!range || range->base != base || range->size != size || range->mapped_slots > 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_lingering(base, range->room))
        range->is_freed = true;
    else
        drop_range(range);
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

static bool is_slotted(uint64_t base, uint64_t size)
{
    return size > 0 && base % SC_SLOT_BYTES == 0 && size % SC_SLOT_BYTES == 0;
}

static bool is_empty(const range_t *range, uint64_t base, uint64_t size)
{
    for (uint64_t addr = base; addr < base + size; addr += SC_SLOT_BYTES)
        if (*slot_at(range, addr))
            return false;
    return true;
}

/* The addresses consist of whole mappings, one after the other, and of holes where those are allowed. */
static bool are_whole_mappings(uint64_t base, uint64_t size, bool may_have_holes)
{
    uint64_t addr = base;

    while (addr < base + size) {
        const sc_mapping_t *mapping = sc_mapping_find(addr);
        if (mapping ? mapping->base != addr : !may_have_holes)
            return false;
        addr += mapping ? mapping->size : SC_SLOT_BYTES;
    }
    return addr == base + size;
}

static void enter(const range_t *range, uint64_t base, uint64_t size, sc_mapping_t *mapping)
{
    for (uint64_t addr = base; addr < base + size; addr += SC_SLOT_BYTES)
        *slot_at(range, addr) = mapping;
}

/* Readable at once where an operation still runs on what was there before. */
static bool map_memory(uint64_t base, const sc_handle_t *handle)
{
    int access = is_lingering(base, handle->size) ? PROT_READ | PROT_WRITE : PROT_NONE;

    return mmap(place(base), handle->size, access, MAP_SHARED | MAP_FIXED, handle->fd, 0) != MAP_FAILED;
}

SC_EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle key,
                            unsigned long long flags)
{
    SC_ENTER(cuMemMap);
    range_t *range = find_whole(base, size);
    sc_handle_t *handle = sc_handle_find(key);

    if (size == 0 || flags != 0 || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0 || size != handle->size) /* before it is asked where (measured) */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_slotted(base, size) || !range)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_empty(range, base, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!map_memory(base, handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sc_mapping_t *mapping = sc_zalloc(sizeof *mapping);
    *mapping = (sc_mapping_t){.base = base, .size = size, .id = sc_next_id(), .handle = handle};
    enter(range, base, size, mapping);
    handle->mappings++;
    range->mapped_slots += size / SC_SLOT_BYTES;
    mapped_bytes += size;
    sc_time_take(SC_TIME_MAP, size);
    return CUDA_SUCCESS;
}

static void unmap(range_t *range, sc_mapping_t *mapping)
{
    sc_overlap_unmap(mapping->base, mapping->size, ~0u);
    enter(range, mapping->base, mapping->size, NULL);
    settle(mapping->base, mapping->size);
    range->mapped_slots -= mapping->size / SC_SLOT_BYTES;
    mapped_bytes -= mapping->size;
    sc_time_take(SC_TIME_UNMAP, mapping->size);
    mapping->handle->mappings--;
    sc_handle_put(mapping->handle);
    free(mapping);
}

SC_EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
    SC_ENTER(cuMemUnmap);
    range_t *range = find_whole(base, size);

    if (!is_slotted(base, size) || !range || !are_whole_mappings(base, size, true))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t addr = base; addr < base + size; addr += SC_SLOT_BYTES) {
        sc_mapping_t *mapping = sc_mapping_find(addr);
        if (mapping)
            unmap(range, mapping);
    }
    return CUDA_SUCCESS;
}

/* ---- access ---- */

/* Memory of a device can be given to devices only. */
static CUresult check_access(const CUmemAccessDesc *desc, size_t count)
{
    if (!desc || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (desc[i].location.id < 0 || desc[i].location.id >= sc.device_count)
            return CUDA_ERROR_INVALID_VALUE;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static void grant(sc_mapping_t *mapping, const CUmemAccessDesc *desc, size_t count)
{
    uint32_t before = mapping->access;

    for (size_t i = 0; i < count; i++) {
        uint32_t bit = 1u << desc[i].location.id;
        mapping->access = desc[i].flags ? mapping->access | bit : mapping->access & ~bit;
        mapping->read_only = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? mapping->read_only | bit
                                                                            : mapping->read_only & ~bit;
    }
    sc_time_take(SC_TIME_SET_ACCESS, mapping->size);
    if (before & ~mapping->access)
        sc_overlap_unmap(mapping->base, mapping->size, before & ~mapping->access);
    if (mapping->access)
        mprotect(place(mapping->base), mapping->size, PROT_READ | PROT_WRITE);
    else if (before)
        settle(mapping->base, mapping->size);
}

SC_EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    SC_ENTER(cuMemSetAccess);
    CUresult status = check_access(desc, count);

    if (!is_slotted(base, size) || !find_whole(base, size) || !are_whole_mappings(base, size, false))
        return CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS)
        return status;
    for (uint64_t addr = base; addr < base + size;) {
        sc_mapping_t *mapping = sc_mapping_find(addr);
        addr += mapping->size;
        grant(mapping, desc, count);
    }
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr)
{
    SC_ENTER(cuMemGetAccess);
    const sc_mapping_t *mapping = sc_mapping_find(addr);

    const bool is_plain = sc_heap_find(addr) || sc_host_find(addr);

    if (!flags || !location || (!mapping && !is_plain) || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->id < 0 || location->id >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (!mapping) /* other memory has none to tell (measured) */
        return CUDA_SUCCESS;
    const uint32_t bit = 1u << location->id;
    if (mapping->access & bit)
        *flags =
            mapping->read_only & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
