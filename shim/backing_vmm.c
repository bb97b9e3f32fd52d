/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a handle is created with the device's pinned memory and, where a trial works, as an exportable file descriptor and
 * for GPUDirect RDMA: attributes lie on some platforms, so the flags are tried and dropped one by one. Create, map and
 * set access cost about 50 us together whatever the size; unmap and release 43 us; none of them waits for the GPU, and
 * none of them disturbs a capture (measured, driver 580).
 *
 * Every step that fails is undone. What can't be undone in turn (the driver refuses to map back what it had mapped) is
 * reported as such, because the allocator then counts on memory that is not there: the heap stands aside.
 */
#include "shim/backing.h"
#include "shim/drv.h"
#include "shim/log.h"
#include "shim/stat.h"
#include <string.h>

#define RANGE_ALIGN (32 * CUP_MIB)

static cup_status_t status_of(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return CUP_OK;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUP_ERR_OOM : CUP_ERR_DRIVER;
}

static CUresult grant(const cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes)
{
    CUmemAccessDesc access = {.location = vmm->prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return cup_drv.cuMemSetAccess(addr, size_bytes, &access, 1);
}

/* A passing refusal must not leave addresses mapped that the allocator takes for a hole: asked twice. */
static CUresult unmap(cup_addr_t addr, uint64_t size_bytes)
{
    CUresult result = cup_drv.cuMemUnmap(addr, size_bytes);

    return result == CUDA_SUCCESS ? result : cup_drv.cuMemUnmap(addr, size_bytes);
}

/* Mapped and accessible, or not mapped at all. */
static CUresult map(const cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    CUresult result = cup_drv.cuMemMap(addr, size_bytes, 0, handle, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = grant(vmm, addr, size_bytes);
    if (result != CUDA_SUCCESS)
        unmap(addr, size_bytes);
    return result;
}

cup_status_t cup_backing_vmm_commit(const cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes,
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

void cup_backing_vmm_decommit(cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    CUP_STAT_ADD(driver_frees, 1);
    unmap(addr, size_bytes);
    cup_drv.cuMemRelease(handle);
}

cup_status_t cup_backing_vmm_move(const cup_backing_vmm_t *vmm, cup_addr_t from, cup_addr_t to,
                                  uint64_t size_bytes, uint64_t handle)
{
    CUresult result = unmap(from, size_bytes);

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

cup_status_t cup_backing_vmm_reserve(uint64_t size_bytes, cup_addr_t *out_base)
{
    CUdeviceptr base;
    CUresult result = cup_drv.cuMemAddressReserve(&base, size_bytes, RANGE_ALIGN, 0, 0);

    if (result == CUDA_SUCCESS)
        *out_base = base;
    return status_of(result);
}

void cup_backing_vmm_release(cup_addr_t base, uint64_t size_bytes)
{
    cup_drv.cuMemAddressFree(base, size_bytes);
}

/* The whole way once, with one set of flags. */
static bool try_flags(cup_backing_vmm_t *vmm, unsigned handle_types, unsigned char is_rdma)
{
    cup_addr_t addr;
    uint64_t handle;
    bool is_working;

    memset(&vmm->prop, 0, sizeof(vmm->prop));
    vmm->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    vmm->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    vmm->prop.location.id = vmm->device;
    vmm->prop.requestedHandleTypes = handle_types;
    vmm->prop.allocFlags.gpuDirectRDMACapable = is_rdma;
    if (cup_backing_vmm_reserve(RANGE_ALIGN, &addr) != CUP_OK)
        return false;
    is_working = cup_backing_vmm_commit(vmm, addr, CUP_CHUNK_ALIGN, &handle) == CUP_OK;
    if (is_working)
        cup_backing_vmm_decommit(addr, CUP_CHUNK_ALIGN, handle);
    cup_backing_vmm_release(addr, RANGE_ALIGN);
    return is_working;
}

bool cup_backing_vmm_probe(int device, cup_backing_vmm_t *out_vmm)
{
    out_vmm->device = device;
    return try_flags(out_vmm, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1) ||
           try_flags(out_vmm, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ||
           try_flags(out_vmm, CU_MEM_HANDLE_TYPE_NONE, 1) || try_flags(out_vmm, CU_MEM_HANDLE_TYPE_NONE, 0);
}
