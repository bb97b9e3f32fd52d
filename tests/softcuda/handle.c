/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle - device memory without an address: cuMemCreate and what can be done with its handles. The memory
 * is a memfd, so that the descriptor that an export gives is the memory itself, in any process. What an
 * importer must know travels with it: the size is the file's, the device and the flags are in its name.
 * Memory lives until its last handle is released and unmapped; then its device has the bytes back. Imported
 * memory counts in the process that created it, and there as long as that process refers to it.
 */
#include "driver.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* One memfd; every handle of this process on it, created and imported, shares it. */
struct sc_memory {
    sc_memory_t *next;
    ino_t inode;
    unsigned refs; /* handles */
    int device;
    bool is_charged; /* created here */
};

/* A key is the generation of its row above the row's number + 1: a stale key is told apart. */
typedef struct {
    sc_handle_t *handle;
    uint32_t generation;
    uint32_t next_free; /* row number + 1; 0 */
} row_t;

static sc_memory_t *memories;
static row_t *rows;
static uint32_t row_count, first_free;

static void enter_row(sc_handle_t *handle)
{
    uint32_t row = first_free;

    if (row != 0) {
        first_free = rows[row - 1].next_free;
    } else {
        rows = sc_grow(rows, row_count + 1, sizeof *rows);
        rows[row_count] = (row_t){0};
        row = ++row_count;
    }
    rows[row - 1].handle = handle;
    handle->key = (uint64_t)++rows[row - 1].generation << 32 | row;
}

static void leave_row(const sc_handle_t *handle)
{
    uint32_t row = (uint32_t)handle->key;

    rows[row - 1].handle = NULL;
    rows[row - 1].next_free = first_free;
    first_free = row;
}

sc_handle_t *sc_handle_find(uint64_t key)
{
    uint32_t row = (uint32_t)key;
    sc_handle_t *handle = row != 0 && row <= row_count ? rows[row - 1].handle : NULL;

    return handle && handle->key == key && handle->refs > 0 ? handle : NULL;
}

/* Takes over fd. */
static sc_handle_t *new_handle(sc_memory_t *memory, int fd, uint64_t size, const CUmemAllocationProp *prop)
{
    sc_handle_t *handle = sc_zalloc(sizeof *handle);

    *handle = (sc_handle_t){.memory = memory, .fd = fd, .size = size, .prop = *prop, .refs = 1};
    memory->refs++;
    enter_row(handle);
    return handle;
}

static sc_memory_t *find_memory(ino_t inode)
{
    sc_memory_t *memory = memories;

    while (memory && memory->inode != inode)
        memory = memory->next;
    return memory;
}

static sc_memory_t *new_memory(ino_t inode, int device, bool is_charged)
{
    sc_memory_t *memory = sc_zalloc(sizeof *memory);

    *memory = (sc_memory_t){.next = memories, .inode = inode, .device = device, .is_charged = is_charged};
    memories = memory;
    return memory;
}

static void put_memory(sc_memory_t *memory, uint64_t size)
{
    sc_memory_t **at = &memories;

    if (--memory->refs > 0)
        return;
    if (memory->is_charged)
        sc_heap_uncharge(memory->device, size / SC_SLOT_BYTES);
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    free(memory);
}

void sc_handle_put(sc_handle_t *handle)
{
    if (handle->refs > 0 || handle->mappings > 0)
        return;
    put_memory(handle->memory, handle->size);
    close(handle->fd);
    leave_row(handle);
    free(handle);
}

/* ---- memfds ---- */

/* A handle costs a descriptor; the soft limit of most systems is 1,024. */
static int open_memfd(const char *name)
{
    struct rlimit limit;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fd;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return -1;
    return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

#define DMA_BUF_PAGE_BYTES 4096

#define NAME_FORMAT "softcuda:%d:%d:%d" /* device, GPUDirect RDMA, usage */

/* -1 when there is no memory. */
static int create_memfd(uint64_t size, const CUmemAllocationProp *prop)
{
    char name[64];

    snprintf(name, sizeof name, NAME_FORMAT, prop->location.id, prop->allocFlags.gpuDirectRDMACapable,
             prop->allocFlags.usage);
    int fd = open_memfd(name);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* False for a descriptor of anything else. */
static bool read_memfd(int fd, struct stat *out_stat, CUmemAllocationProp *out_prop)
{
    char path[64], target[128];
    int device, rdma, usage;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0 || fstat(fd, out_stat) != 0)
        return false;
    target[length] = 0;
    if (sscanf(target, "/memfd:" NAME_FORMAT, &device, &rdma, &usage) != 3 || device < 0 ||
        device >= sc.device_count)
        return false;
    *out_prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .allocFlags = {.gpuDirectRDMACapable = (unsigned char)rdma, .usage = (unsigned short)usage}};
    return out_stat->st_size > 0 && (uint64_t)out_stat->st_size % SC_SLOT_BYTES == 0;
}

/* ---- entry points ---- */

/* FABRIC: as on hardware, whose attribute says supported (measured). Host memory is not modelled. */
static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || prop->location.id >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_NOT_PERMITTED;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return prop->allocFlags.compressionType || (prop->allocFlags.usage & ~CU_MEM_CREATE_USAGE_HW_DECOMPRESS)
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                                 CUmemAllocationGranularity_flags option)
{
    SC_ENTER(cuMemGetAllocationGranularity);
    if (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = check_prop(prop);
    if (status == CUDA_SUCCESS || status == CUDA_ERROR_NOT_PERMITTED) {
        *granularity = SC_SLOT_BYTES;
        status = CUDA_SUCCESS;
    }
    return status;
}

SC_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *key, size_t size,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    SC_ENTER(cuMemCreate);
    struct stat stat;
    CUresult status = check_prop(prop);

    if (!key || size == 0 || size % SC_SLOT_BYTES != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS)
        return status;
    if (!sc_heap_charge(prop->location.id, size / SC_SLOT_BYTES))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = create_memfd(size, prop);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        fprintf(stderr, "softcuda: memfd of %zu bytes: %s\n", size, strerror(errno));
        sc_heap_uncharge(prop->location.id, size / SC_SLOT_BYTES);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *key = new_handle(new_memory(stat.st_ino, prop->location.id, true), fd, size, prop)->key;
    sc_time_take(SC_TIME_CREATE, size);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle key)
{
    SC_ENTER(cuMemRelease);
    sc_handle_t *handle = sc_handle_find(key);

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sc_time_take(SC_TIME_RELEASE, handle->size);
    handle->refs--;
    sc_handle_put(handle);
    return CUDA_SUCCESS;
}

/* The handle of mapped memory comes back to life even if it was released. */
SC_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *key, void *addr)
{
    SC_ENTER(cuMemRetainAllocationHandle);
    sc_mapping_t *mapping = sc_mapping_find((uint64_t)(uintptr_t)addr);

    if (!key || !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    mapping->handle->refs++;
    *key = mapping->handle->key;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                          CUmemGenericAllocationHandle key)
{
    SC_ENTER(cuMemGetAllocationPropertiesFromHandle);
    const sc_handle_t *handle = sc_handle_find(key);

    if (!prop || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = handle->prop;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuMemExportToShareableHandle(void *out_fd, CUmemGenericAllocationHandle key,
                                                CUmemAllocationHandleType type, unsigned long long flags)
{
    SC_ENTER(cuMemExportToShareableHandle);
    const sc_handle_t *handle = sc_handle_find(key);

    if (!out_fd || !handle || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(handle->prop.requestedHandleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out_fd, &fd, sizeof fd);
    sc_time_take(SC_TIME_EXPORT, handle->size);
    return CUDA_SUCCESS;
}

/* A dma-buf of whole pages of one allocation or mapping: a descriptor that can't be imported here. Codes not measured. */
SC_EXPORT CUresult cuMemGetHandleForAddressRange(void *out_fd, CUdeviceptr addr, size_t size,
                                                 CUmemRangeHandleType type, unsigned long long flags)
{
    SC_ENTER(cuMemGetHandleForAddressRange);
    const sc_ctx_t *ctx = sc_ctx_current();

    if (!out_fd || flags != 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 ||
        addr % DMA_BUF_PAGE_BYTES != 0 || size % DMA_BUF_PAGE_BYTES != 0 ||
        !sc_is_usable(addr, size, ctx->device))
        return CUDA_ERROR_INVALID_VALUE;
    int fd = open_memfd("softcuda-dma-buf");
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out_fd, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

/* The descriptor stays the caller's. A new handle each time. */
SC_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *key, void *os_handle,
                                                  CUmemAllocationHandleType type)
{
    SC_ENTER(cuMemImportFromShareableHandle);
    int given = (int)(intptr_t)os_handle;
    CUmemAllocationProp prop;
    struct stat stat;

    if (!key || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!read_memfd(given, &stat, &prop))
        return CUDA_ERROR_UNKNOWN; /* measured */
    int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    sc_memory_t *memory = find_memory(stat.st_ino);
    if (!memory)
        memory = new_memory(stat.st_ino, prop.location.id, false);
    *key = new_handle(memory, fd, (uint64_t)stat.st_size, &prop)->key;
    sc_time_take(SC_TIME_IMPORT, (uint64_t)stat.st_size);
    return CUDA_SUCCESS;
}
