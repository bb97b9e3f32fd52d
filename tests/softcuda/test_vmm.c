/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_vmm - virtual memory management of the software driver: codes, what is readable when, who holds the
 * bytes, what an unmapping under a running operation does, and a law: bytes follow their handle wherever it
 * is mapped. Where a value was measured on hardware the test says "measured". Needs two devices:
 * SOFTCUDA_DEVICES=2.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/softcuda/bed.h"
#include "tests/softcuda/claim.h"
#include "tests/softcuda/pattern.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#define SLOT (2 * MIB)

typedef CUmemGenericAllocationHandle handle_t;

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc open_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc no_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};

static CUdeviceptr reserve(uint64_t size)
{
    CUdeviceptr base = 0;

    OK(cuMemAddressReserve(&base, size, 0, 0, 0));
    return base;
}

static handle_t create(uint64_t size)
{
    handle_t handle = 0;

    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static void map(CUdeviceptr base, uint64_t size, handle_t handle)
{
    OK(cuMemMap(base, size, 0, handle, 0));
    OK(cuMemSetAccess(base, size, &open_access, 1));
}

/* Mapped, accessible, owned by nobody but its mapping. */
static void back(CUdeviceptr base, uint64_t size)
{
    handle_t handle = create(size);

    map(base, size, handle);
    OK(cuMemRelease(handle));
}

/* Whether this process may touch the byte: the kernel says EFAULT instead of a signal. */
static bool is_readable(CUdeviceptr addr)
{
    int ends[2];

    CHECK_EQ(pipe(ends), 0);
    ssize_t written = write(ends[1], (const void *)(uintptr_t)addr, 1);
    close(ends[0]);
    close(ends[1]);
    return written == 1;
}

/* Wrong words of what should be the fill pattern of seed. */
static uint64_t count_wrong(const bed_t *bed, CUdeviceptr block, uint64_t bytes, uint64_t seed)
{
    CUdeviceptr out;
    uint64_t wrong = 0;
    void *params[] = {&block, &bytes, &seed, &out};

    OK(cuMemAlloc(&out, 8));
    OK(cuMemsetD8(out, 0, 8));
    OK(launch(bed->verify, NULL, params));
    OK(cuMemcpyDtoH(&wrong, out, 8));
    OK(cuMemFree(out));
    return wrong;
}

/* ---- codes ---- */

TEST(vmm, granularity_measured)
{
    bed_t bed = make_bed();
    size_t granularity = 0;

    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, 2 * MIB);
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK_EQ(granularity, 2 * MIB);
    CHECK_CU(cuMemGetAllocationGranularity(NULL, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemGetAllocationGranularity(&granularity, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    drop_bed(&bed);
}

TEST(vmm, create_codes)
{
    bed_t bed = make_bed();
    CUmemAllocationProp other = prop;
    handle_t handle;

    CHECK_CU(cuMemCreate(NULL, SLOT, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemCreate(&handle, SLOT + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemCreate(&handle, SLOT, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemCreate(&handle, SLOT, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemCreate(&handle, 1ull << 50, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    other.location.id = 7;
    CHECK_CU(cuMemCreate(&handle, SLOT, &other, 0), CUDA_ERROR_INVALID_DEVICE);
    other = prop;
    other.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CHECK_CU(cuMemCreate(&handle, SLOT, &other, 0), CUDA_ERROR_NOT_PERMITTED); /* measured */
    CHECK_CU(cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
    handle = create(SLOT);
    OK(cuMemRelease(handle));
    CHECK_CU(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CHECK(create(SLOT) != handle); /* a stale handle names nothing */
    drop_bed(&bed);
}

TEST(vmm, reserve_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr base, hinted;

    CHECK_CU(cuMemAddressReserve(NULL, SLOT, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressReserve(&base, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressReserve(&base, SLOT + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressReserve(&base, SLOT, 3 * MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&base, 64ull << 30, 32 * MIB, 0, 0));
    CHECK_EQ(base % (32 * MIB), 0);
    CHECK(!is_readable(base));
    CHECK_CU(cuMemAddressFree(base, SLOT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressFree(base + SLOT, SLOT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(base, 64ull << 30));
    CHECK_CU(cuMemAddressFree(base, 64ull << 30), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&hinted, 4 * SLOT, 0, base + SLOT, 0));
    CHECK_EQ(hinted, base + SLOT);
    OK(cuMemAddressFree(hinted, 4 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, map_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(8 * SLOT);
    handle_t handle = create(2 * SLOT);

    CHECK_CU(cuMemMap(range, 2 * SLOT, SLOT, handle, 0), CUDA_ERROR_NOT_SUPPORTED); /* measured */
    CHECK_CU(cuMemMap(range, SLOT, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);        /* measured: less */
    CHECK_CU(cuMemMap(range, 4 * SLOT, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);    /* measured: more */
    CHECK_CU(cuMemMap(range + 4096, 2 * SLOT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemMap(range, 2 * SLOT, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemMap(range, 2 * SLOT, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range + 7 * SLOT, 2 * SLOT, 0, handle, 0)); /* measured: over the end */
    CHECK_CU(cuMemAddressFree(range, 8 * SLOT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range + 7 * SLOT, 2 * SLOT));
    CHECK_CU(cuMemMap(range + 8 * SLOT, 2 * SLOT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemMap(SLOT, 2 * SLOT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range + SLOT, 2 * SLOT, 0, handle, 0));
    CHECK_CU(cuMemMap(range + 2 * SLOT, 2 * SLOT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressFree(range, 8 * SLOT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range + 4 * SLOT, 2 * SLOT, 0, handle, 0)); /* twice is fine */
    CHECK_EQ(softcuda_mapped_bytes(), 4 * SLOT);
    OK(cuMemUnmap(range + SLOT, 2 * SLOT));
    OK(cuMemUnmap(range + 4 * SLOT, 2 * SLOT));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(range, 8 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, unmap_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(8 * SLOT);

    back(range, 2 * SLOT);
    back(range + 2 * SLOT, SLOT);
    back(range + 4 * SLOT, SLOT);
    CHECK_CU(cuMemUnmap(range, SLOT), CUDA_ERROR_INVALID_VALUE); /* measured: a part of a handle */
    CHECK_CU(cuMemUnmap(range + SLOT, 2 * SLOT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemUnmap(range + SLOT, 4 * SLOT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemUnmap(range, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range + 5 * SLOT, SLOT)); /* measured: nothing, and holes below */
    CHECK_EQ(softcuda_mapped_bytes(), 4 * SLOT);
    OK(cuMemUnmap(range, 3 * SLOT)); /* two whole ones */
    CHECK(!is_readable(range) && !is_readable(range + 2 * SLOT) && is_readable(range + 4 * SLOT));
    back(range + SLOT, SLOT);
    OK(cuMemUnmap(range, 8 * SLOT));
    CHECK_EQ(softcuda_mapped_bytes(), 0);
    OK(cuMemAddressFree(range, 8 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, access_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(8 * SLOT);
    CUmemAccessDesc desc = open_access;
    unsigned long long flags = 9;
    handle_t handle = create(2 * SLOT);

    CHECK_CU(cuMemSetAccess(range, SLOT, &open_access, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range, 2 * SLOT, 0, handle, 0));
    OK(cuMemGetAccess(&flags, &open_access.location, range + SLOT));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(!is_readable(range));
    CHECK_CU(cuMemSetAccess(range, SLOT, &open_access, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemSetAccess(range, 2 * SLOT, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemSetAccess(range, 2 * SLOT, &open_access, 0), CUDA_ERROR_INVALID_VALUE);
    desc.location.id = 9;
    CHECK_CU(cuMemSetAccess(range, 2 * SLOT, &desc, 1), CUDA_ERROR_INVALID_VALUE); /* measured */
    desc = open_access;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemSetAccess(range, 2 * SLOT, &desc, 1)); /* measured */
    OK(cuMemGetAccess(&flags, &open_access.location, range));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemSetAccess(range, 2 * SLOT, &open_access, 1));
    OK(cuMemGetAccess(&flags, &open_access.location, range));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(is_readable(range) && is_readable(range + 2 * SLOT - 1));
    OK(cuMemSetAccess(range, 2 * SLOT, &no_access, 1));
    CHECK(!is_readable(range));
    CHECK_CU(cuMemGetAccess(&flags, &open_access.location, range + 2 * SLOT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range, 2 * SLOT));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(range, 8 * SLOT));
    drop_bed(&bed);
}

/* ---- who holds the bytes ---- */

TEST(vmm, memory_lives_until_released_and_unmapped)
{
    bed_t bed = make_bed();
    uint64_t held = softcuda_held_bytes();
    CUdeviceptr range = reserve(4 * SLOT);
    handle_t handle = create(2 * SLOT), again = 0;

    CHECK_EQ(softcuda_held_bytes(), held + 2 * SLOT);
    map(range, 2 * SLOT, handle);
    OK(cuMemRelease(handle));
    CHECK_CU(cuMemMap(range + 2 * SLOT, 2 * SLOT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(softcuda_held_bytes(), held + 2 * SLOT);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + SLOT + 5)));
    OK(cuMemUnmap(range, 2 * SLOT));
    CHECK_EQ(softcuda_held_bytes(), held + 2 * SLOT);
    map(range + 2 * SLOT, 2 * SLOT, again);
    OK(cuMemUnmap(range + 2 * SLOT, 2 * SLOT));
    OK(cuMemRelease(again));
    CHECK_EQ(softcuda_held_bytes(), held);
    CHECK_EQ(softcuda_mapped_bytes(), 0);
    OK(cuMemAddressFree(range, 4 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, memory_limit_counts_both_kinds)
{
    bed_t bed = make_bed();
    size_t idle, total, left;
    CUdeviceptr block;

    OK(cuMemGetInfo(&idle, &total));
    softcuda_set_memory(total - idle + 8 * SLOT);
    handle_t handle = create(6 * SLOT), other;
    OK(cuMemGetInfo(&left, NULL));
    CHECK_EQ(left, 2 * SLOT);
    CHECK_CU(cuMemCreate(&other, 4 * SLOT, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CU(cuMemAlloc(&block, 3 * SLOT), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&block, 2 * SLOT));
    CHECK_CU(cuMemCreate(&other, SLOT, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(create(6 * SLOT)));
    OK(cuMemFree(block));
    softcuda_set_memory(total);
    drop_bed(&bed);
}

TEST(vmm, descriptors_share_the_memory)
{
    bed_t bed = make_bed();
    uint64_t held = softcuda_held_bytes();
    CUdeviceptr range = reserve(4 * SLOT);
    handle_t handle = create(2 * SLOT), imported = 0;
    CUmemAllocationProp found;
    int fd = -1, null = open("/dev/null", O_RDWR);

    map(range, 2 * SLOT, handle);
    OK(fill(&bed, NULL, range, 2 * SLOT, 5));
    OK(cuCtxSynchronize());
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemGetAllocationPropertiesFromHandle(&found, imported));
    CHECK_EQ(found.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_EQ(softcuda_held_bytes(), held + 2 * SLOT);
    OK(cuMemUnmap(range, 2 * SLOT));
    OK(cuMemRelease(handle));
    CHECK_EQ(softcuda_held_bytes(), held + 2 * SLOT); /* the import holds it */
    map(range + 2 * SLOT, 2 * SLOT, imported);
    CHECK_EQ(count_wrong(&bed, range + 2 * SLOT, 2 * SLOT, 5), 0);
    OK(cuMemUnmap(range + 2 * SLOT, 2 * SLOT));
    OK(cuMemRelease(imported));
    CHECK_EQ(softcuda_held_bytes(), held);
    CHECK_CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)null,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_UNKNOWN); /* measured with a pipe */
    CHECK_CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)-1,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_UNKNOWN);
    close(null);
    OK(cuMemAddressFree(range, 4 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, only_what_asked_for_it_is_exported)
{
    bed_t bed = make_bed();
    CUmemAllocationProp private = prop;
    handle_t handle;
    int fd = -1;

    private.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&handle, SLOT, &private, 0));
    CHECK_CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(fd, -1);
    OK(cuMemRelease(handle));
    drop_bed(&bed);
}

/* ---- work on it ---- */

TEST(vmm, work_crosses_handles_measured)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(4 * SLOT);
    unsigned char row[64];

    back(range, SLOT);
    back(range + SLOT, 2 * SLOT);
    OK(fill(&bed, NULL, range + SLOT - 1000, 4096, 3));
    CHECK_EQ(count_wrong(&bed, range + SLOT - 1000, 4096, 3), 0);
    OK(cuMemsetD8(range + SLOT - 8, 0xA5, 16));
    OK(cuMemcpyDtoD(range + 3 * SLOT - 16, range + SLOT - 8, 16));
    OK(cuMemcpyDtoH(row, range + 3 * SLOT - 16, 16));
    for (int i = 0; i < 16; i++)
        CHECK_EQ(row[i], 0xA5);
    CHECK_CU(cuMemcpyDtoH(row, range + 3 * SLOT - 16, 32), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range, 3 * SLOT));
    OK(cuMemAddressFree(range, 4 * SLOT));
    drop_bed(&bed);
}

/* A kernel on memory without access, or without a mapping, breaks its context; a copy is refused. */
TEST(vmm, access_comes_before_use)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT);
    handle_t handle = create(SLOT);
    char byte;

    OK(cuMemMap(range, SLOT, 0, handle, 0));
    CHECK_CU(cuMemcpyDtoH(&byte, range, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemsetD8(range, 1, 16), CUDA_ERROR_INVALID_VALUE);
    OK(fill(&bed, NULL, range, 64, 1));
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    OK(cuMemSetAccess(range, SLOT, &open_access, 1));
    OK(fill(&bed, NULL, range + SLOT - 64, 128, 1)); /* over the end */
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(range, 2 * SLOT));
    drop_bed(&bed);
}

/* Mapped for reading only: the bytes are there, and a write of any kind breaks its context and changes none. */
TEST(vmm, read_only_is_not_written)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT), twin = range + SLOT;
    CUmemAccessDesc desc = open_access;
    handle_t handle = create(SLOT);

    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    map(range, SLOT, handle);
    OK(cuMemMap(twin, SLOT, 0, handle, 0));
    OK(cuMemSetAccess(twin, SLOT, &desc, 1));
    OK(fill(&bed, NULL, range, SLOT, 1));
    CHECK_EQ(count_wrong(&bed, twin, SLOT, 1), 0);
    OK(fill(&bed, NULL, twin + 64, 64, 2));
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    CHECK_CU(cuMemsetD8Async(twin, 1, 16, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemcpyDtoDAsync(twin, range + 512, 64, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    CHECK_EQ(count_wrong(&bed, range, SLOT, 1), 0);
    OK(cuMemUnmap(range, 2 * SLOT));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(range, 2 * SLOT));
    drop_bed(&bed);
}

/* Measured: usable from a second context of the device; another device needs a grant, and a peer copy
 * none. */
TEST(vmm, other_contexts_and_devices)
{
    bed_t bed = make_bed(), other = make_bed();
    CUmemAccessDesc grants[2] = {open_access, open_access};
    CUdeviceptr range = reserve(SLOT), block;
    CUcontext peer;
    char byte = 0;

    back(range, SLOT);
    OK(fill(&other, NULL, range, SLOT, 8));
    CHECK_EQ(count_wrong(&other, range, SLOT, 8), 0);
    OK(cuCtxCreate(&peer, NULL, 0, 1));
    OK(cuMemAlloc(&block, 64));
    CHECK_CU(cuMemcpyDtoD(block, range, 64), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyPeer(block, peer, range, bed.ctx, 64));
    OK(cuCtxSynchronize());
    grants[1].location.id = 1;
    OK(cuMemSetAccess(range, SLOT, grants, 2));
    OK(cuMemcpyDtoD(block, range, 64));
    OK(cuMemcpyDtoH(&byte, range, 1));
    OK(cuCtxDestroy(peer));
    OK(cuCtxSetCurrent(other.ctx));
    drop_bed(&other);
    OK(cuCtxSetCurrent(bed.ctx));
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemAddressFree(range, SLOT));
    drop_bed(&bed);
}

static unsigned attribute(CUdeviceptr addr, CUpointer_attribute name)
{
    unsigned value = 77;

    OK(cuPointerGetAttribute(&value, name, addr));
    return value;
}

TEST(vmm, attributes_measured)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(4 * SLOT), base = 0, block;
    CUcontext owner = bed.ctx;
    CUipcMemHandle ipc;
    handle_t handle;
    size_t size = 0;
    unsigned word = 1;

    back(range + SLOT, 2 * SLOT);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, range + SLOT));
    CHECK(owner == NULL);
    OK(cuMemGetAddressRange(&base, &size, range + 2 * SLOT + 7));
    CHECK_EQ(base, range + SLOT);
    CHECK_EQ(size, 2 * SLOT);
    CHECK_EQ(attribute(range + SLOT, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0);
    CHECK_EQ(attribute(range + SLOT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(attribute(range + SLOT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    CHECK_EQ(attribute(range + SLOT, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 0);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + SLOT));
    CHECK_EQ(base, range); /* measured: not the mapping */
    CHECK_CU(cuPointerSetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, range + SLOT),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CU(cuIpcGetMemHandle(&ipc, range + SLOT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFree(range + SLOT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemGetAddressRange(&base, &size, range), CUDA_ERROR_NOT_FOUND);
    OK(cuMemAlloc(&block, 4096));
    CHECK_CU(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)block), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range + SLOT, 2 * SLOT));
    OK(cuMemAddressFree(range, 4 * SLOT));
    drop_bed(&bed);
}

/* Whole pages of one allocation, or of mappings with access. */
TEST(vmm, dma_buf_codes)
{
    bed_t bed = make_bed();
    CUdeviceptr base = reserve(4 * SLOT), block;
    struct stat stat;
    int fd = -1;

    back(base, SLOT);
    back(base + SLOT, SLOT);
    OK(cuMemAlloc(&block, 3 * SLOT));
    const CUmemRangeHandleType type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    for (int i = 0; i < 2; i++) {
        CUdeviceptr at = i ? block : base;
        OK(cuMemGetHandleForAddressRange(&fd, at + 4096, 2 * SLOT - 4096, type, 0));
        CHECK(fstat(fd, &stat) == 0 && close(fd) == 0);
        CHECK_CU(cuMemGetHandleForAddressRange(&fd, at + 512, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemGetHandleForAddressRange(&fd, at, 4608, type, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemGetHandleForAddressRange(&fd, at, 0, type, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemGetHandleForAddressRange(&fd, at, 4 * SLOT, type, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemGetHandleForAddressRange(&fd, at, 4096, type, 1), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemGetHandleForAddressRange(NULL, at, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemSetAccess(base, SLOT, &no_access, 1));
    CHECK_CU(cuMemGetHandleForAddressRange(&fd, base, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(block));
    CHECK_CU(cuMemGetHandleForAddressRange(&fd, block, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(base, 2 * SLOT));
    OK(cuMemAddressFree(base, 4 * SLOT));
    drop_bed(&bed);
}

TEST(vmm, context_flags_are_what_was_set)
{
    bed_t bed = make_bed();
    unsigned before = 0, flags = 0;

    OK(cuCtxGetFlags(&before));
    OK(cuCtxSetFlags(before | CU_CTX_SYNC_MEMOPS));
    OK(cuCtxGetFlags(&flags));
    CHECK_EQ(flags, before | CU_CTX_SYNC_MEMOPS);
    OK(cuCtxSetFlags(before));
    drop_bed(&bed);
}

/* Measured: fine in every mode; and the address can be mapped again within one capture. */
TEST(vmm, captures_do_not_mind)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT);
    CUstreamCaptureStatus status;
    CUstream stream;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
        for (int pass = 0; pass < 2; pass++) {
            back(range, SLOT);
            OK(cuMemUnmap(range, SLOT));
        }
        OK(cuStreamIsCapturing(stream, &status));
        CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuMemAddressFree(range, 2 * SLOT));
    drop_bed(&bed);
}

/* ---- beside running work ---- */

/* Measured: none of these waits; this test would hang if one did. */
TEST(vmm, nothing_waits)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT);

    OK(hold(&bed, NULL));
    back(range, SLOT);
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemAddressFree(range, 2 * SLOT));
    CHECK_CU(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQ(softcuda_violations(), 0);
    drop_bed(&bed);
}

/* A kernel that runs on the block, and goes on to fill it once let_go() is called. */
static void start_on(const bed_t *bed, CUstream stream, CUdeviceptr block, uint64_t bytes)
{
    uint64_t seed = 1;
    uint32_t *gate = bed->flag + 1;
    void *params[] = {&block, &bytes, &seed, (void *)&gate};
    CUfunction function = NULL;

    __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
    OK(cuModuleGetFunction(&function, bed->module, "held_fill"));
    OK(launch(function, stream, params));
    for (int i = 0; i < 100000 && __atomic_load_n(gate, __ATOMIC_ACQUIRE) != 1; i++)
        usleep(100);
    CHECK_EQ(__atomic_load_n(gate, __ATOMIC_ACQUIRE), 1);
}

static void let_go(const bed_t *bed, CUstream stream)
{
    __atomic_store_n(bed->flag + 1, 2, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(stream));
}

/* The wrong program gets a report; the operation that runs goes on, and nothing crashes. */
TEST(vmm, unmap_under_a_kernel_is_caught)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    back(range, SLOT);
    start_on(&bed, stream, range, SLOT);
    OK(cuMemUnmap(range, SLOT));
    CHECK_EQ(softcuda_unmap_violations(), 1);
    CHECK_EQ(softcuda_violations(), 1);
    CHECK_EQ(softcuda_mapped_bytes(), 0);
    back(range, SLOT); /* something else at the address while it still runs */
    let_go(&bed, stream);
    OK(cuMemUnmap(range, SLOT));
    CHECK_EQ(softcuda_violations(), 1);
    CHECK(!is_readable(range));
    OK(cuMemAddressFree(range, 2 * SLOT));
    drop_bed(&bed);
}

/* Access is what lingers too: a mapping that never got it is closed when the operation of the one before
 * it ends. */
TEST(vmm, what_lingers_is_closed_at_the_end)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(2 * SLOT), again = 0;
    handle_t handle = create(2 * SLOT);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    back(range, SLOT);
    start_on(&bed, stream, range, SLOT);
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemMap(range, 2 * SLOT, 0, handle, 0));
    let_go(&bed, stream);
    CHECK(!is_readable(range) && !is_readable(range + SLOT));
    OK(cuMemUnmap(range, 2 * SLOT));
    back(range, 2 * SLOT);
    start_on(&bed, stream, range, SLOT);
    OK(cuMemUnmap(range, 2 * SLOT));
    OK(cuMemAddressFree(range, 2 * SLOT));
    let_go(&bed, stream);
    CHECK(!is_readable(range));
    OK(cuMemAddressReserve(&again, 2 * SLOT, 0, range, 0));
    CHECK_EQ(again, range); /* the addresses are free again */
    OK(cuMemAddressFree(again, 2 * SLOT));
    OK(cuMemRelease(handle));
    drop_bed(&bed);
}

/* Access counts as the mapping does, for the devices that lose it. */
TEST(vmm, access_taken_under_a_kernel_is_caught)
{
    bed_t bed = make_bed();
    CUmemAccessDesc peer_access = no_access;
    CUdeviceptr range = reserve(SLOT);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    back(range, SLOT);
    peer_access.location.id = 1;
    peer_access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemSetAccess(range, SLOT, &peer_access, 1));
    start_on(&bed, stream, range, SLOT);
    peer_access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(range, SLOT, &peer_access, 1));
    CHECK_EQ(softcuda_violations(), 0);
    OK(cuMemSetAccess(range, SLOT, &no_access, 1));
    CHECK_EQ(softcuda_unmap_violations(), 1);
    let_go(&bed, stream);
    CHECK(!is_readable(range));
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemAddressFree(range, SLOT));
    drop_bed(&bed);
}

/* Submitted before, begun after: as on the device, an illegal address. */
TEST(vmm, work_that_begins_after_the_unmap_faults)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(SLOT);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    back(range, SLOT);
    OK(hold(&bed, stream));
    OK(fill(&bed, stream, range, 64, 1));
    OK(cuMemUnmap(range, SLOT));
    CHECK_EQ(softcuda_unmap_violations(), 1);
    set_flag(&bed, 1);
    CHECK_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CU(cuMemAlloc(&range, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
    softcuda_stick(bed.ctx, CUDA_SUCCESS);
    drop_bed(&bed);
}

/* The right program: the host knows that the work is complete. */
TEST(vmm, unmap_after_the_work_is_clean)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(SLOT);
    CUstream stream;
    CUevent event;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    back(range, SLOT);
    OK(fill(&bed, stream, range, SLOT, 1));
    OK(cuCtxRecordEvent(bed.ctx, event));
    OK(hold(&bed, stream));
    OK(cuEventSynchronize(event));
    OK(cuMemUnmap(range, SLOT));
    CHECK_EQ(softcuda_violations(), 0);
    CHECK(!is_readable(range));
    OK(cuMemAddressFree(range, SLOT));
    drop_bed(&bed);
}

/* Claims know mapped memory: reuse without order is caught there as elsewhere. */
TEST(vmm, claims_reach_mapped_memory)
{
    bed_t bed = make_bed();
    CUdeviceptr range = reserve(SLOT);
    CUstream first, second;

    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    back(range, SLOT);
    softcuda_claim_block(range, 4096);
    OK(hold(&bed, first));
    OK(fill(&bed, first, range, 4096, 1));
    softcuda_claim_block(range, 4096);
    OK(fill(&bed, second, range, 64, 2));
    OK(cuStreamSynchronize(second));
    CHECK_EQ(softcuda_violations(), 1);
    CHECK_EQ(softcuda_unmap_violations(), 0);
    set_flag(&bed, 1);
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(range, SLOT));
    OK(cuMemAddressFree(range, SLOT));
    drop_bed(&bed);
}

/* ---- law: bytes follow their handle ---- */

#define PLACES  12 /* slots of the range */
#define HANDLES 6
#define STEPS   400

/* The model: what each handle holds, and where it is. */
typedef struct {
    handle_t handle;
    unsigned slots;
    uint64_t seed; /* of its contents; 0: none yet */
    int place;     /* first slot; -1 */
} piece_t;

static int find_place(const piece_t *pieces, unsigned slots, cup_rng_t *rng)
{
    bool is_used[PLACES] = {false};
    unsigned first = (unsigned)cup_rng_below(rng, PLACES);

    for (int i = 0; i < HANDLES; i++)
        for (unsigned s = 0; pieces[i].place >= 0 && s < pieces[i].slots; s++)
            is_used[(unsigned)pieces[i].place + s] = true;
    for (unsigned try = 0; try < PLACES; try++) {
        unsigned place = (first + try) % PLACES, run = 0;
        while (run < slots && place + run < PLACES && !is_used[place + run])
            run++;
        if (run == slots)
            return (int)place;
    }
    return -1;
}

static void step_piece(const bed_t *bed, CUdeviceptr range, piece_t *pieces, piece_t *piece, cup_rng_t *rng)
{
    CUdeviceptr base = range + (uint64_t)(piece->place < 0 ? 0 : piece->place) * SLOT;

    if (piece->slots == 0) {
        piece->slots = 1 + (unsigned)cup_rng_below(rng, 3);
        piece->handle = create(piece->slots * SLOT);
    } else if (piece->place < 0 && cup_rng_below(rng, 6) == 0) {
        OK(cuMemRelease(piece->handle));
        *piece = (piece_t){.place = -1};
    } else if (piece->place < 0) {
        piece->place = find_place(pieces, piece->slots, rng);
        if (piece->place >= 0)
            map(range + (uint64_t)piece->place * SLOT, piece->slots * SLOT, piece->handle);
    } else if (cup_rng_below(rng, 2)) {
        OK(cuCtxSynchronize());
        OK(cuMemUnmap(base, piece->slots * SLOT));
        piece->place = -1;
    } else {
        piece->seed = cup_rng_next(rng) | 1;
        OK(fill(bed, NULL, base, piece->slots * SLOT, piece->seed));
    }
}

TEST(vmm, law_bytes_follow_their_handle)
{
    bed_t bed = make_bed();
    cup_rng_t rng = {cup_rng_seed(11)};
    uint64_t held = softcuda_held_bytes(), mapped;
    CUdeviceptr range = reserve(PLACES * SLOT);
    piece_t pieces[HANDLES];

    fprintf(stderr, "seed %llu\n", (unsigned long long)rng.state);
    for (int i = 0; i < HANDLES; i++)
        pieces[i] = (piece_t){.place = -1};
    for (int step = 0; step < STEPS; step++) {
        piece_t *piece = &pieces[cup_rng_below(&rng, HANDLES)];
        step_piece(&bed, range, pieces, piece, &rng);
        if (piece->place >= 0 && piece->seed != 0 && cup_rng_below(&rng, 4) == 0)
            CHECK_EQ(
                count_wrong(&bed, range + (uint64_t)piece->place * SLOT, piece->slots * SLOT, piece->seed),
                0);
        uint64_t owned = mapped = 0;
        for (int i = 0; i < HANDLES; i++) {
            owned += pieces[i].slots * SLOT;
            mapped += pieces[i].place >= 0 ? pieces[i].slots * SLOT : 0;
        }
        CHECK_EQ(softcuda_mapped_bytes(), mapped);
        CHECK(softcuda_held_bytes() == held + owned);
    }
    CHECK_EQ(softcuda_violations(), 0);
    OK(cuCtxSynchronize());
    for (int i = 0; i < HANDLES; i++) {
        if (pieces[i].place >= 0)
            OK(cuMemUnmap(range + (uint64_t)pieces[i].place * SLOT, pieces[i].slots * SLOT));
        if (pieces[i].slots > 0)
            OK(cuMemRelease(pieces[i].handle));
    }
    OK(cuMemAddressFree(range, PLACES * SLOT));
    drop_bed(&bed);
    CHECK_EQ(softcuda_mapped_bytes(), 0);
}
