/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a handle is created with the device's pinned memory and, where a trial works, as an exportable file
 * descriptor, for GPUDirect RDMA and for the decompression engine, all of which memory of cuMemAlloc is good
 * for (measured): attributes lie on some platforms, so the flags are tried and dropped one by one. Create, map and set access cost about 50 us together whatever the size; unmap and release 43
 * us; none of them waits for the GPU, and none of them disturbs a capture (measured, driver 580).
 *
 * Every step that fails is undone. What can't be undone in turn (the driver refuses to map back what it had
 * mapped) is reported as such, because the allocator then counts on memory that is not there: the heap
 * stands aside.
 *
 * Peers. A bit for each slot says what is mapped, so that a device that is given access later gets it for
 * all of it, in one call for each run of mapped slots (one call may cover many handles: measured,
 * tests/gpu/vmm_quirks.c). The lock is held from the map to its access and over a whole change of peers:
 * otherwise a handle mapped during the change could miss it.
 */
#include "shim/backing.h"
#include "allocator/meta.h"
#include "shim/drv.h"
#include "shim/log.h"
#include "shim/peer.h"
#include "shim/stat.h"
#include <stdatomic.h>
#include <string.h>

#define RANGE_ALIGN (32 * CUP_MIB)
#define WORD_BITS   64

static cup_status_t status_of(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return CUP_OK;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUP_ERR_OOM : CUP_ERR_DRIVER;
}

static uint64_t bit_of(int device)
{
    return device >= 0 && device < CUP_PEER_DEVICES_MAX ? (uint64_t)1 << device : 0;
}

/* ---- what is mapped ---- */

static uint64_t words_of(const cup_backing_range_t *range)
{
    return (range->slots + WORD_BITS - 1) / WORD_BITS;
}

/* The allocator names addresses of its ranges only. */
static cup_backing_range_t *find_range_locked(cup_backing_vmm_t *vmm, cup_addr_t addr)
{
    cup_backing_range_t *range = vmm->range;

    while (range->base == 0 || addr - range->base >= range->slots * CUP_CHUNK_ALIGN)
        range++;
    return range;
}

static bool is_mapped(const cup_backing_range_t *range, uint64_t slot)
{
    return range->mapped[slot / WORD_BITS] >> slot % WORD_BITS & 1;
}

static void note_locked(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, bool is_mapped_now)
{
    cup_backing_range_t *range = find_range_locked(vmm, addr);
    uint64_t slot = (addr - range->base) / CUP_CHUNK_ALIGN, end = slot + size_bytes / CUP_CHUNK_ALIGN;

    for (; slot < end; slot++) {
        uint64_t bit = (uint64_t)1 << slot % WORD_BITS, *word = &range->mapped[slot / WORD_BITS];

        *word = is_mapped_now ? *word | bit : *word & ~bit;
    }
    if (range->top < end)
        range->top = end;
}

/* The next run of mapped slots from *slot on; false behind the last one. */
static bool next_run(const cup_backing_range_t *range, uint64_t *slot, uint64_t *out_end)
{
    while (*slot < range->top && !is_mapped(range, *slot))
        *slot += range->mapped[*slot / WORD_BITS] == 0 ? WORD_BITS - *slot % WORD_BITS : 1;
    *out_end = *slot;
    while (*out_end < range->top && is_mapped(range, *out_end))
        (*out_end)++;
    return *slot < *out_end;
}

/* ---- access ---- */

/* The device's own, and its peers'. */
static CUresult grant_locked(const cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes)
{
    CUmemAccessDesc access[1 + CUP_PEER_DEVICES_MAX] = {
        {.location = vmm->prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    uint64_t peers = atomic_load_explicit(&vmm->peers, memory_order_relaxed);
    size_t count = 1;

    for (; peers != 0; peers &= peers - 1) {
        access[count] = access[0];
        access[count++].location.id = __builtin_ctzll(peers);
    }
    return cup_drv.cuMemSetAccess(addr, size_bytes, access, count);
}

/* Of one device to everything that is mapped. Stops at the first refusal. */
static CUresult set_access_locked(cup_backing_vmm_t *vmm, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = vmm->prop.location, .flags = flags};
    CUresult result = CUDA_SUCCESS;

    access.location.id = device;
    for (const cup_backing_range_t *range = vmm->range; range < vmm->range + CUP_BACKING_RANGES_MAX; range++)
        for (uint64_t slot = 0, end; result == CUDA_SUCCESS && range->base && next_run(range, &slot, &end);
             slot = end)
            result = cup_drv.cuMemSetAccess(range->base + slot * CUP_CHUNK_ALIGN,
                                            (end - slot) * CUP_CHUNK_ALIGN, &access, 1);
    return result;
}

/* A passing refusal is asked twice. */
static void take_locked(cup_backing_vmm_t *vmm, int device)
{
    if (set_access_locked(vmm, device, CU_MEM_ACCESS_FLAGS_PROT_NONE) != CUDA_SUCCESS)
        set_access_locked(vmm, device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

CUresult cup_backing_vmm_follow_peers(cup_backing_vmm_t *vmm)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t wanted, given, changed;

    cup_lock_acquire(&vmm->lock);
    wanted = cup_peer_devices(vmm->ctx) & ~bit_of(vmm->device);
    given = atomic_load_explicit(&vmm->peers, memory_order_relaxed);
    for (changed = wanted ^ given; changed != 0; changed &= changed - 1) {
        int device = __builtin_ctzll(changed);
        CUresult given_result = CUDA_SUCCESS;

        CUP_STAT_ADD(peer_changes, 1);
        atomic_fetch_and(&vmm->peers, ~bit_of(device));
        if (wanted & bit_of(device))
            given_result = set_access_locked(vmm, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (wanted & bit_of(device) && given_result == CUDA_SUCCESS)
            atomic_fetch_or(&vmm->peers, bit_of(device));
        else
            take_locked(vmm, device);
        result = result == CUDA_SUCCESS ? given_result : result;
    }
    cup_lock_release(&vmm->lock);
    return result;
}

bool cup_backing_vmm_is_reachable(const cup_backing_vmm_t *vmm, int device)
{
    return device == vmm->device ||
           (atomic_load_explicit(&vmm->peers, memory_order_relaxed) & bit_of(device)) != 0;
}

/* ---- handles ---- */

/* A passing refusal must not leave addresses mapped that the allocator takes for a hole: asked twice. */
static CUresult unmap(cup_addr_t addr, uint64_t size_bytes)
{
    CUresult result = cup_drv.cuMemUnmap(addr, size_bytes);

    return result == CUDA_SUCCESS ? result : cup_drv.cuMemUnmap(addr, size_bytes);
}

/* Mapped and accessible, or not mapped at all. */
static CUresult map_locked(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    CUresult result = cup_drv.cuMemMap(addr, size_bytes, 0, handle, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = grant_locked(vmm, addr, size_bytes);
    if (result != CUDA_SUCCESS)
        unmap(addr, size_bytes);
    else
        note_locked(vmm, addr, size_bytes, true);
    return result;
}

static CUresult map(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    CUresult result;

    cup_lock_acquire(&vmm->lock);
    result = map_locked(vmm, addr, size_bytes, handle);
    cup_lock_release(&vmm->lock);
    return result;
}

/* What can't be unmapped stays noted: a run must be mapped to its last slot, and have no hole that is
 * none. */
static CUresult unmap_noted(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes)
{
    CUresult result;

    cup_lock_acquire(&vmm->lock);
    result = unmap(addr, size_bytes);
    if (result == CUDA_SUCCESS)
        note_locked(vmm, addr, size_bytes, false);
    cup_lock_release(&vmm->lock);
    return result;
}

cup_status_t cup_backing_vmm_commit(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes,
                                    uint64_t *out_handle)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = cup_drv.cuMemCreate(&handle, size_bytes, &vmm->prop, 0);

    CUP_STAT_ADD(driver_allocs, 1);
    if (result != CUDA_SUCCESS)
        return status_of(result);
    result = map(vmm, addr, size_bytes, handle);
    if (result != CUDA_SUCCESS)
        cup_drv.cuMemRelease(handle);
    else
        *out_handle = handle;
    return status_of(result);
}

void cup_backing_vmm_decommit(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    CUP_STAT_ADD(driver_frees, 1);
    unmap_noted(vmm, addr, size_bytes);
    cup_drv.cuMemRelease(handle);
}

cup_status_t cup_backing_vmm_move(cup_backing_vmm_t *vmm, cup_addr_t from, cup_addr_t to, uint64_t size_bytes,
                                  uint64_t handle)
{
    CUresult result = unmap_noted(vmm, from, size_bytes);

    if (result != CUDA_SUCCESS)
        return status_of(result);
    CUP_STAT_ADD(moves, 1);
    result = map(vmm, to, size_bytes, handle);
    if (result == CUDA_SUCCESS || map(vmm, from, size_bytes, handle) == CUDA_SUCCESS ||
        map(vmm, from, size_bytes, handle) == CUDA_SUCCESS)
        return status_of(result);
    cup_log(CUP_LOG_ERROR, "device %d: %llu bytes could not be mapped back; nothing more is pooled",
            vmm->device, (unsigned long long)size_bytes);
    return CUP_ERR_INVALID;
}

/* ---- ranges ---- */

/* Takes a place for a range that is about to be there; false: none is free, or no memory. */
static bool open_range(cup_backing_vmm_t *vmm, cup_addr_t base, uint64_t size_bytes)
{
    cup_backing_range_t range = {.base = base, .slots = size_bytes / CUP_CHUNK_ALIGN};
    cup_backing_range_t *at = vmm->range, *end = vmm->range + CUP_BACKING_RANGES_MAX;

    range.mapped = cup_meta_alloc(words_of(&range) * sizeof(*range.mapped));
    if (!range.mapped)
        return false;
    cup_lock_acquire(&vmm->lock);
    while (at < end && at->base)
        at++;
    if (at < end)
        *at = range;
    cup_lock_release(&vmm->lock);
    if (at == end)
        cup_meta_free(range.mapped, words_of(&range) * sizeof(*range.mapped));
    return at < end;
}

cup_status_t cup_backing_vmm_reserve(cup_backing_vmm_t *vmm, uint64_t size_bytes, cup_addr_t *out_base)
{
    CUdeviceptr base;
    CUresult result = cup_drv.cuMemAddressReserve(&base, size_bytes, RANGE_ALIGN, 0, 0);

    if (result != CUDA_SUCCESS)
        return status_of(result);
    if (!open_range(vmm, base, size_bytes)) {
        cup_drv.cuMemAddressFree(base, size_bytes);
        return CUP_ERR_NOMEM;
    }
    *out_base = base;
    return CUP_OK;
}

void cup_backing_vmm_release(cup_backing_vmm_t *vmm, cup_addr_t base, uint64_t size_bytes)
{
    cup_backing_range_t range, *at;

    cup_lock_acquire(&vmm->lock);
    at = find_range_locked(vmm, base);
    range = *at;
    *at = (cup_backing_range_t){0};
    cup_lock_release(&vmm->lock);
    cup_meta_free(range.mapped, words_of(&range) * sizeof(*range.mapped));
    cup_drv.cuMemAddressFree(base, size_bytes);
}

/* What is wanted of a handle: the first to be dropped is the lowest. */
enum { FOR_DECOMPRESSION = 1, FOR_RDMA = 2, AS_DESCRIPTOR = 4 };

/* The whole way once, with one set of flags. */
static bool try_flags(cup_backing_vmm_t *vmm, unsigned flags)
{
    cup_addr_t addr;
    uint64_t handle;
    bool is_working;

    memset(&vmm->prop, 0, sizeof(vmm->prop));
    vmm->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    vmm->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    vmm->prop.location.id = vmm->device;
    vmm->prop.requestedHandleTypes =
        flags & AS_DESCRIPTOR ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    vmm->prop.allocFlags.gpuDirectRDMACapable = (flags & FOR_RDMA) != 0;
    vmm->prop.allocFlags.usage = flags & FOR_DECOMPRESSION ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0;
    if (cup_backing_vmm_reserve(vmm, RANGE_ALIGN, &addr) != CUP_OK)
        return false;
    is_working = cup_backing_vmm_commit(vmm, addr, CUP_CHUNK_ALIGN, &handle) == CUP_OK;
    if (is_working)
        cup_backing_vmm_decommit(vmm, addr, CUP_CHUNK_ALIGN, handle);
    cup_backing_vmm_release(vmm, addr, RANGE_ALIGN);
    return is_working;
}

bool cup_backing_vmm_probe(CUcontext ctx, int device, cup_backing_vmm_t *out_vmm)
{
    memset(out_vmm, 0, sizeof(*out_vmm));
    out_vmm->ctx = ctx;
    out_vmm->device = device;
    cup_lock_init(&out_vmm->lock, CUP_LOCK_BACKING);
    atomic_init(&out_vmm->peers, cup_peer_devices(ctx) & ~bit_of(device));
    for (unsigned flags = AS_DESCRIPTOR | FOR_RDMA | FOR_DECOMPRESSION; flags > 0; flags--)
        if (try_flags(out_vmm, flags))
            return true;
    return try_flags(out_vmm, 0);
}
