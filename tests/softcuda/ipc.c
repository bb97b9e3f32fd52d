/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc - legacy IPC handles of allocations. A handle names the allocation, so that an interior address gives
 * the handle of its base (measured), and a new allocation at the same address has another one. Memory
 * becomes shareable with the first handle: its slots move to a memfd, once the context is idle; another
 * process opens that through /proc. Behind the slots the memfd has a page that says which allocations in
 * them live. Codes of what the hardware has not been asked: a handle whose process or allocation is gone is
 * INVALID_HANDLE, opening in the process itself INVALID_CONTEXT.
 */
#include "driver.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      0x63696d6f63746673ull
#define PAGE_BYTES 4096
#define ROWS       (PAGE_BYTES / sizeof(uint64_t))

/* 64 bytes: what the driver's handle is to the program. */
typedef struct {
    uint64_t magic, process, id, offset, size;
    int32_t pid, fd, device;
    uint32_t row;
} wire_t;

/* The slots of a memfd, and which allocations in them were exported: 0 or an id a row. */
typedef struct shared {
    struct shared *next;
    uint64_t base, bytes;
    int fd;
    uint64_t *live;
} shared_t;

typedef struct opened {
    struct opened *next;
    wire_t wire;
    sc_alloc_t *alloc;
    unsigned refs;
} opened_t;

static shared_t *shareds;
static opened_t *openeds;
static uint64_t process; /* tells processes apart that had the same pid */

static shared_t *find_shared(uint64_t base)
{
    shared_t *shared = shareds;

    while (shared && base - shared->base >= shared->bytes)
        shared = shared->next;
    return shared;
}

/* The same bytes at the same place, from now on in a memfd. */
static bool fill_memfd(int fd, uint64_t base, uint64_t bytes)
{
    void *at = (void *)(uintptr_t)base;

    for (uint64_t done = 0; done < bytes;) {
        ssize_t wrote = pwrite(fd, (char *)at + done, bytes - done, (off_t)done);
        if (wrote <= 0)
            return false;
        done += (uint64_t)wrote;
    }
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
}

static shared_t *share(uint64_t base, uint64_t bytes)
{
    int fd = memfd_create("softcuda-ipc", MFD_CLOEXEC);
    void *live = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)(bytes + PAGE_BYTES)) == 0)
        live = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)bytes);
    if (live == MAP_FAILED || !fill_memfd(fd, base, bytes)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    shared_t *shared = sc_zalloc(sizeof *shared);
    *shared = (shared_t){.next = shareds, .base = base, .bytes = bytes, .fd = fd, .live = live};
    shareds = shared;
    return shared;
}

void sc_ipc_drop_slots(uint64_t base)
{
    shared_t **at = &shareds;

    while (*at && (*at)->base != base)
        at = &(*at)->next;
    if (!*at)
        return;
    shared_t *shared = *at;
    *at = shared->next;
    munmap(shared->live, PAGE_BYTES);
    close(shared->fd);
    free(shared);
}

void sc_ipc_drop(const sc_alloc_t *alloc)
{
    shared_t *shared = find_shared(alloc->base);
    opened_t **at = &openeds;

    for (size_t row = 0; shared && row < ROWS; row++)
        if (shared->live[row] == alloc->id)
            __atomic_store_n(&shared->live[row], 0, __ATOMIC_RELEASE);
    while (*at && (*at)->alloc != alloc)
        at = &(*at)->next;
    if (!*at)
        return;
    opened_t *opened = *at;
    *at = opened->next;
    free(opened);
}

/* The row of the allocation, an old one or a new one; ROWS: none is free. */
static uint32_t enter_row(shared_t *shared, uint64_t id)
{
    uint32_t row = 0, empty = ROWS;

    while (row < ROWS && shared->live[row] != id) {
        if (shared->live[row] == 0 && empty == ROWS)
            empty = row;
        row++;
    }
    if (row == ROWS && empty < ROWS)
        __atomic_store_n(&shared->live[row = empty], id, __ATOMIC_RELEASE);
    return row;
}

SC_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr addr)
{
    if (addr == 0 && !sc_has_ended()) /* this it looks at first (measured) */
        return CUDA_ERROR_INVALID_VALUE;
    SC_ENTER(cuIpcGetMemHandle);
    sc_alloc_t *alloc = sc_heap_find(addr);
    uint64_t base, bytes;

    if (!handle || !alloc || !sc_heap_place(alloc, &base, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (process == 0 && getrandom(&process, sizeof process, 0) != sizeof process)
        return CUDA_ERROR_OPERATING_SYSTEM;
    shared_t *shared = find_shared(base);
    if (!shared) {
        CUresult status = sc_ctx_drain(alloc->ctx);
        alloc = sc_heap_find(addr); /* the lock was released */
        if (status != CUDA_SUCCESS || !alloc || !sc_heap_place(alloc, &base, &bytes))
            return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_VALUE;
        shared = find_shared(base);
    }
    shared = shared ? shared : share(base, bytes);
    uint32_t row = shared ? enter_row(shared, alloc->id) : ROWS;
    if (row == ROWS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const wire_t wire = {MAGIC,       process,           alloc->id,  alloc->base - base,
                         alloc->size, (int32_t)getpid(), shared->fd, alloc->device,
                         row};
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &wire, sizeof wire);
    return CUDA_SUCCESS;
}

/* The descriptor of a handle whose allocation lives; -1. */
static int open_wire(const wire_t *wire)
{
    uint64_t bytes = (wire->offset + wire->size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES * SC_SLOT_BYTES, id = 0;
    char path[64], target[64];
    struct stat stat;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", wire->pid, wire->fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    int fd = strncmp(target, "/memfd:softcuda-ipc", 19) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0 &&
        (fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != bytes + PAGE_BYTES ||
         pread(fd, &id, sizeof id, (off_t)(bytes + wire->row * sizeof id)) != sizeof id || id != wire->id)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static CUresult open_handle(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags)
{
    sc_ctx_t *ctx = sc_ctx_current();
    opened_t *opened = openeds;
    wire_t wire;

    memcpy(&wire, handle->reserved, sizeof wire);
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (wire.magic != MAGIC) /* measured */
        return CUDA_ERROR_INVALID_VALUE;
    if (wire.size == 0 || wire.row >= ROWS || wire.size > SC_RESERVATION_BYTES ||
        wire.offset >= SC_SLOT_BYTES)
        return CUDA_ERROR_INVALID_HANDLE;
    if (wire.pid == (int32_t)getpid() && wire.process == process)
        return CUDA_ERROR_INVALID_CONTEXT;
    while (opened && memcmp(&opened->wire, &wire, sizeof wire) != 0)
        opened = opened->next;
    if (opened && opened->alloc->ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE; /* one context at a time (measured) */
    if (!opened) {
        int fd = open_wire(&wire);
        if (fd < 0)
            return kill(wire.pid, 0) == 0 ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_ERROR_INVALID_HANDLE; /* both measured */
        sc_alloc_t *alloc = sc_heap_map(ctx->device, ctx, fd, wire.offset, wire.size);
        close(fd);
        if (!alloc)
            return CUDA_ERROR_OUT_OF_MEMORY;
        opened = sc_zalloc(sizeof *opened);
        *opened = (opened_t){.next = openeds, .wire = wire, .alloc = alloc};
        openeds = opened;
    }
    opened->refs++;
    *out = opened->alloc->base;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    SC_ENTER(cuIpcOpenMemHandle);
    return open_handle(out, &handle, flags);
}

SC_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    SC_ENTER(cuIpcOpenMemHandle_v2);
    return open_handle(out, &handle, flags);
}

static opened_t *find_opened(CUdeviceptr addr)
{
    opened_t *opened = openeds;

    while (opened && opened->alloc->base != addr)
        opened = opened->next;
    return opened;
}

/* The last close waits for the context, as a free does. */
SC_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr addr)
{
    SC_ENTER(cuIpcCloseMemHandle);
    opened_t *opened = find_opened(addr);

    if (!opened)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = opened->refs == 1 ? sc_ctx_drain(opened->alloc->ctx) : CUDA_SUCCESS;
    opened = find_opened(addr); /* the lock was released */
    if (!opened || status != CUDA_SUCCESS)
        return opened ? status : CUDA_ERROR_INVALID_VALUE;
    if (--opened->refs == 0)
        sc_heap_free(opened->alloc);
    return CUDA_SUCCESS;
}
