/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_quirks - what the shim relies on of virtual memory management, asked of the driver: as quirks.c, one
 * line each, codes and yes or no, no times.
 * What:       the output on an H200 is vmm_quirks.expected; the software driver must print the same.
 * Not here:   access before it was granted: on hardware it ends the context, and test_vmm.c asks the
 *             software driver.
 * Invariants: a spinning kernel is what makes "not complete yet" certain; nothing else is about time.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPIN_US 100000
#define SLOT    ((size_t)2 << 20)

typedef CUmemGenericAllocationHandle handle_t;

static CUcontext g_ctx;
static CUdeviceptr g_range; /* SLOTS of addresses, empty between the parts */
#define SLOTS 16

static const CUmemAllocationProp g_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc g_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void line(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}

static CUdeviceptr slot(unsigned i)
{
    return g_range + i * SLOT;
}

static handle_t create(unsigned slots)
{
    handle_t handle = 0;

    cuMemCreate(&handle, slots * SLOT, &g_prop, 0);
    return handle;
}

/* A handle of its own at that slot, accessible, kept by its mapping alone. */
static void back(unsigned i, unsigned slots)
{
    handle_t handle = create(slots);

    cuMemMap(slot(i), slots * SLOT, 0, handle, 0);
    cuMemSetAccess(slot(i), slots * SLOT, &g_access, 1);
    cuMemRelease(handle);
}

static unsigned read_word(CUdeviceptr from)
{
    unsigned word = 0;

    if (cuMemcpyDtoH(&word, from, sizeof(word)) != CUDA_SUCCESS)
        return 0xdead;
    return word;
}

/* ---- handles and addresses ---- */

static void creates(void)
{
    CUmemAllocationProp prop = g_prop;
    size_t granularity = 0;
    CUdeviceptr base = 0;
    handle_t handle;

    cuMemGetAllocationGranularity(&granularity, &g_prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    line("granularity-minimum", (long)granularity);
    cuMemGetAllocationGranularity(&granularity, &g_prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    line("granularity-recommended", (long)granularity);
    line("create-zero", cuMemCreate(&handle, 0, &g_prop, 0));
    line("create-odd-size", cuMemCreate(&handle, SLOT + 4096, &g_prop, 0));
    line("create-huge", cuMemCreate(&handle, (size_t)1 << 50, &g_prop, 0));
    prop.location.id = 1000;
    line("create-on-no-device", cuMemCreate(&handle, SLOT, &prop, 0));
    prop = g_prop;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    line("create-fabric", cuMemCreate(&handle, SLOT, &prop, 0));
    line("reserve-zero", cuMemAddressReserve(&base, 0, 0, 0, 0));
    line("reserve-odd-size", cuMemAddressReserve(&base, SLOT + 4096, 0, 0, 0));
    line("reserve-odd-alignment", cuMemAddressReserve(&base, SLOT, 3 << 20, 0, 0));
    line("reserve-aligned", cuMemAddressReserve(&base, 16 * SLOT, 16 * SLOT, 0, 0));
    line("reserve-aligned-is", base % (16 * SLOT) == 0);
    line("address-free-part", cuMemAddressFree(base, SLOT));
    line("address-free-interior", cuMemAddressFree(base + SLOT, 15 * SLOT));
    line("address-free", cuMemAddressFree(base, 16 * SLOT));
}

/* What should be refused; undone where it is not. */
static void map_wrongly(const char *name, CUdeviceptr base, size_t size, size_t offset, handle_t handle)
{
    CUresult result = cuMemMap(base, size, offset, handle, 0);

    line(name, result);
    if (result == CUDA_SUCCESS)
        cuMemUnmap(base, size);
}

static void maps(void)
{
    handle_t two = create(2), one = create(1);

    map_wrongly("map-at-an-offset", slot(0), SLOT, SLOT, two);
    map_wrongly("map-whole-at-an-offset", slot(0), 2 * SLOT, SLOT, two);
    map_wrongly("map-smaller", slot(0), SLOT, 0, two);
    map_wrongly("map-larger", slot(0), 4 * SLOT, 0, two);
    map_wrongly("map-unaligned", slot(0) + 4096, SLOT, 0, one);
    map_wrongly("map-over-the-end", slot(SLOTS - 1), 2 * SLOT, 0, two);
    line("map", cuMemMap(slot(1), 2 * SLOT, 0, two, 0));
    line("map-over-mapped", cuMemMap(slot(2), SLOT, 0, one, 0));
    line("map-into-a-hole", cuMemMap(slot(4), SLOT, 0, one, 0));
    line("map-twice", cuMemMap(slot(3), SLOT, 0, one, 0));
    line("address-free-mapped", cuMemAddressFree(g_range, SLOTS * SLOT));
    line("unmap-part", cuMemUnmap(slot(1), SLOT));
    line("unmap-across", cuMemUnmap(slot(2), 2 * SLOT));
    line("unmap-nothing", cuMemUnmap(slot(8), SLOT));
    line("unmap-zero", cuMemUnmap(slot(1), 0));
    line("unmap-several", cuMemUnmap(slot(1), 4 * SLOT));
    line("release", cuMemRelease(two));
    line("release-other", cuMemRelease(one));
    back(0, 1);
    back(2, 1);
    line("unmap-with-a-hole", cuMemUnmap(slot(0), 3 * SLOT));
    cuMemUnmap(slot(0), SLOT);
    cuMemUnmap(slot(2), SLOT);
}

static void accesses(void)
{
    CUmemAccessDesc desc = g_access;
    unsigned long long flags = 9;
    handle_t two = create(2), one = create(1);

    line("access-nothing-mapped", cuMemSetAccess(slot(0), SLOT, &g_access, 1));
    cuMemMap(slot(0), 2 * SLOT, 0, two, 0);
    cuMemMap(slot(2), SLOT, 0, one, 0);
    line("get-access", cuMemGetAccess(&flags, &g_access.location, slot(0)));
    line("get-access-before", (long)flags);
    line("access-part", cuMemSetAccess(slot(0), SLOT, &g_access, 1));
    line("access-over-a-hole", cuMemSetAccess(slot(0), 4 * SLOT, &g_access, 1));
    line("access-several", cuMemSetAccess(slot(0), 3 * SLOT, &g_access, 1));
    cuMemGetAccess(&flags, &g_access.location, slot(2));
    line("get-access-after", (long)flags);
    line("get-access-of-nothing", cuMemGetAccess(&flags, &g_access.location, slot(8)));
    line("access-null", cuMemSetAccess(slot(0), 3 * SLOT, NULL, 1));
    line("access-none", cuMemSetAccess(slot(0), 3 * SLOT, &g_access, 0));
    desc.location.id = 1000;
    line("access-of-no-device", cuMemSetAccess(slot(0), 3 * SLOT, &desc, 1));
    desc = g_access;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    line("access-read-only", cuMemSetAccess(slot(0), 3 * SLOT, &desc, 1));
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    line("access-taken", cuMemSetAccess(slot(0), 3 * SLOT, &desc, 1));
    cuMemUnmap(slot(0), 3 * SLOT);
    cuMemRelease(two);
    cuMemRelease(one);
}

/* ---- what the memory is, and whose ---- */

static void attributes(void)
{
    CUcontext owner = g_ctx;
    CUdeviceptr base = 0, block;
    CUipcMemHandle ipc;
    unsigned word = 1;
    size_t size = 0;
    handle_t handle;
    unsigned long long first = 0, second = 1;

    back(1, 2);
    line("context", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, slot(1)));
    line("context-is-null", owner == NULL);
    line("sync-memops-set", cuPointerSetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, slot(1)));
    line("sync-memops-get", cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, slot(1)));
    line("ipc-capable",
         cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, slot(1)));
    line("ipc-capable-is", word);
    line("memory-type", cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, slot(1)));
    line("memory-type-is", word);
    line("range", cuMemGetAddressRange(&base, &size, slot(2) + 8));
    line("range-is-the-mapping", base == slot(1) && size == 2 * SLOT);
    cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, slot(2) + 8);
    cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, slot(2) + 8);
    line("range-attributes-are-the-mapping", base == slot(1) && size == 2 * SLOT);
    printf("probe-range-attributes-are-the-reservation %d\n", base == g_range && size == SLOTS * SLOT);
    cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, slot(1));
    cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, slot(2));
    line("buffer-id-is-one", first == second);
    line("range-of-the-unmapped", cuMemGetAddressRange(&base, &size, slot(0)));
    line("attribute-of-the-unmapped",
         cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, slot(0)));
    line("ipc-get", cuIpcGetMemHandle(&ipc, slot(1)));
    line("mem-free", cuMemFree(slot(1)));
    cuMemAlloc(&block, 4096);
    line("retain-of-cumemalloc", cuMemRetainAllocationHandle(&handle, (void *)block));
    cuMemFree(block);
    cuMemUnmap(slot(1), 2 * SLOT);
}

static void retains(void)
{
    handle_t handle = create(1), again = 0;
    CUmemAllocationProp prop;

    cuMemMap(slot(0), SLOT, 0, handle, 0);
    cuMemSetAccess(slot(0), SLOT, &g_access, 1);
    cuMemsetD32(slot(0), 0x1234, SLOT / 4);
    line("retain", cuMemRetainAllocationHandle(&again, (void *)(slot(0) + 4096)));
    line("retain-is-the-handle", again == handle);
    line("release-mapped", cuMemRelease(handle));
    line("release-retained", cuMemRelease(again));
    line("released-but-mapped-contents", read_word(slot(0)));
    line("retain-after-release", cuMemRetainAllocationHandle(&again, (void *)slot(0)));
    line("unmap-retained", cuMemUnmap(slot(0), SLOT));
    line("move", cuMemMap(slot(3), SLOT, 0, again, 0));
    cuMemSetAccess(slot(3), SLOT, &g_access, 1);
    line("move-contents", read_word(slot(3) + SLOT - 4));
    line("properties", cuMemGetAllocationPropertiesFromHandle(&prop, again));
    line("properties-handle-types", prop.requestedHandleTypes);
    cuMemUnmap(slot(3), SLOT);
    cuMemRelease(again);
}

static void shares(void)
{
    CUmemAllocationProp prop = g_prop;
    handle_t handle = create(1), imported = 0, closed = 0;
    int fd = -1, null[2];

    line("export", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    line("import", cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    printf("probe-import-is-the-handle %d\n", imported == handle);
    cuMemMap(slot(0), SLOT, 0, handle, 0);
    cuMemMap(slot(4), SLOT, 0, imported, 0);
    cuMemSetAccess(slot(0), SLOT, &g_access, 1);
    cuMemSetAccess(slot(4), SLOT, &g_access, 1);
    cuMemsetD32(slot(0), 0x77, SLOT / 4);
    line("import-shares-contents", read_word(slot(4)));
    cuMemUnmap(slot(0), SLOT);
    cuMemUnmap(slot(4), SLOT);
    cuMemRelease(handle);
    cuMemRelease(imported);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    cuMemCreate(&closed, SLOT, &prop, 0);
    line("export-not-asked-for",
         cuMemExportToShareableHandle(&fd, closed, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    cuMemRelease(closed);
    if (pipe(null) == 0)
        line("import-of-a-pipe", cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)null[0],
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

/* ---- work ---- */

static void crossings(void)
{
    CUdevice device;
    CUcontext made, popped;

    back(0, 1);
    back(1, 2);
    line("set-across-handles", cuMemsetD32(slot(1) - 4096, 0x99, 2048));
    line("set-across-handles-is", read_word(slot(1) + 4092));
    line("copy-across-handles", cuMemcpyDtoD(slot(2), slot(1) - 4096, 8192));
    line("copy-across-handles-is", read_word(slot(2) + 8188));
    cuDeviceGet(&device, 0);
    cuCtxCreate_v4(&made, NULL, 0, device);
    line("set-in-another-context", cuMemsetD32(slot(0), 0x55, 16));
    line("set-in-another-context-is", read_word(slot(0)));
    cuCtxPopCurrent(&popped);
    cuCtxDestroy(made);
    line("contents-outlive-that-context", read_word(slot(0)));
    cuMemUnmap(slot(0), 3 * SLOT);
}

static void waits(void)
{
    CUevent mark;
    handle_t handle;
    CUstream busy;

    cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING);
    cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING);
    back(0, 2);
    dev_spin(SPIN_US, busy);
    cuEventRecord(mark, busy);
    handle = create(2);
    line("create-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemMap(slot(4), 2 * SLOT, 0, handle, 0);
    line("map-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemSetAccess(slot(4), 2 * SLOT, &g_access, 1);
    line("access-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemUnmap(slot(0), 2 * SLOT);
    line("unmap-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuMemUnmap(slot(4), 2 * SLOT);
    cuMemRelease(handle);
    line("release-waits", cuEventQuery(mark) == CUDA_SUCCESS);
    cuCtxSynchronize();
    line("waits-ends", cuEventQuery(mark));
    cuStreamDestroy(busy);
    cuEventDestroy(mark);
}

static void capture(const char *name, CUstreamCaptureMode mode)
{
    CUstreamCaptureStatus status;
    CUstream capturing;
    CUgraph graph = NULL;

    cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(capturing, mode);
    for (int pass = 0; pass < 2; pass++) {
        handle_t handle = 0;
        printf("capture-%s pass %d: create %d,", name, pass, cuMemCreate(&handle, SLOT, &g_prop, 0));
        printf(" map %d,", cuMemMap(slot(0), SLOT, 0, handle, 0));
        printf(" access %d,", cuMemSetAccess(slot(0), SLOT, &g_access, 1));
        printf(" unmap %d,", cuMemUnmap(slot(0), SLOT));
        printf(" release %d\n", cuMemRelease(handle));
    }
    cuStreamIsCapturing(capturing, &status);
    printf("capture-%s then capturing %d, end %d\n", name, status, cuStreamEndCapture(capturing, &graph));
    cuGraphDestroy(graph);
    cuStreamDestroy(capturing);
}

int main(void)
{
    dev_open();
    cuCtxGetCurrent(&g_ctx);
    creates();
    line("reserve", cuMemAddressReserve(&g_range, SLOTS * SLOT, 0, 0, 0));
    maps();
    accesses();
    attributes();
    retains();
    shares();
    crossings();
    waits();
    capture("global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    capture("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    line("address-free-at-the-end", cuMemAddressFree(g_range, SLOTS * SLOT));
    line("sound-at-the-end", cuCtxSynchronize());
    return 0;
}
