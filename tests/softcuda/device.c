/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - start, and what a device says of itself: one to eight equal ones named "softcuda".
 */
#include "driver.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static CUresult start(void)
{
    CUresult status = sc_read_env();

    sc.pid = getpid();
    __atomic_store_n(&sc.is_init, true, __ATOMIC_RELEASE);
    return status;
}

/* In a forked child of a process that had started: NOT_INITIALIZED, without touching the lock. */
SC_EXPORT CUresult cuInit(unsigned int flags)
{
    SC_ENTER(cuInit);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (__atomic_load_n(&sc.is_init, __ATOMIC_ACQUIRE))
        return sc.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&sc.lock);
    CUresult status = sc.is_init ? CUDA_SUCCESS : start();
    pthread_mutex_unlock(&sc.lock);
    return status;
}

SC_EXPORT CUresult cuDriverGetVersion(int *version)
{
    SC_ENTER(cuDriverGetVersion);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SOFTCUDA_VERSION;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SC_ENTER(cuGetExportTable);
    return CUDA_ERROR_NOT_FOUND;
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < sc.device_count;
}

SC_EXPORT CUresult cuDeviceGetCount(int *count)
{
    SC_ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sc.device_count;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SC_ENTER(cuDeviceGet);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SC_ENTER(cuDeviceGetName);
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "softcuda");
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "softcuda device", sizeof uuid->bytes);
    uuid->bytes[15] = (char)('0' + device);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    SC_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, device);
}

SC_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SC_ENTER(cuDeviceGetUuid_v2);
    return get_uuid(uuid, device);
}

SC_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SC_ENTER(cuDeviceTotalMem_v2);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sc.memory;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    SC_ENTER(cuDeviceGetPCIBusId);
    if (!id || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)length, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

/* The values that programs branch on; what is not listed is 0: not supported. */
#define ATTRIBUTE_LIST(X)                             \
    X(MAX_THREADS_PER_BLOCK, 1024)                    \
    X(MAX_BLOCK_DIM_X, 1024)                          \
    X(MAX_BLOCK_DIM_Y, 1024)                          \
    X(MAX_BLOCK_DIM_Z, 64)                            \
    X(MAX_GRID_DIM_X, 2147483647)                     \
    X(MAX_GRID_DIM_Y, 65535)                          \
    X(MAX_GRID_DIM_Z, 65535)                          \
    X(MAX_SHARED_MEMORY_PER_BLOCK, 49152)             \
    X(WARP_SIZE, 32)                                  \
    X(MAX_PITCH, 2147483647)                          \
    X(MAX_REGISTERS_PER_BLOCK, 65536)                 \
    X(CLOCK_RATE, 1000000)                            \
    X(TEXTURE_ALIGNMENT, 512)                         \
    X(MULTIPROCESSOR_COUNT, 4)                        \
    X(CAN_MAP_HOST_MEMORY, 1)                         \
    X(CONCURRENT_KERNELS, 1)                          \
    X(ASYNC_ENGINE_COUNT, 2)                          \
    X(UNIFIED_ADDRESSING, 1)                          \
    X(COMPUTE_CAPABILITY_MAJOR, 9)                    \
    X(COMPUTE_CAPABILITY_MINOR, 0)                    \
    X(STREAM_PRIORITIES_SUPPORTED, 1)                 \
    X(MANAGED_MEMORY, 1)                              \
    X(COOPERATIVE_LAUNCH, 1)                          \
    X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)     \
    X(CAN_USE_64_BIT_STREAM_MEM_OPS, 1)               \
    X(CAN_USE_STREAM_WAIT_VALUE_NOR, 1)               \
    X(CONCURRENT_MANAGED_ACCESS, 1)                   \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1)         \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1) \
    X(HANDLE_TYPE_FABRIC_SUPPORTED, 1)                \
    X(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1)     \
    X(MEMORY_POOLS_SUPPORTED, 1)                      \
    X(IPC_EVENT_SUPPORTED, 1)

/* What SOFTCUDA_ATTRIBUTES says of it ("20=3,125=0"); false: nothing. */
static bool is_overridden(CUdevice_attribute attribute, int *out_value)
{
    const char *entry = getenv("SOFTCUDA_ATTRIBUTES");
    int number, value;

    for (; entry && sscanf(entry, "%d=%d", &number, &value) == 2; entry += *entry == ',') {
        if (number == (int)attribute) {
            *out_value = value;
            return true;
        }
        entry += strcspn(entry, ",");
    }
    return false;
}

static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    int value;

    if (is_overridden(attribute, &value))
        return value;
    switch ((int)attribute) {
#define X(name, value)               \
    case CU_DEVICE_ATTRIBUTE_##name: \
        return value;
        ATTRIBUTE_LIST(X)
#undef X
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    default:
        return 0;
    }
}

SC_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SC_ENTER(cuDeviceGetAttribute);
    if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_value(attribute, device);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SC_ENTER(cuDeviceCanAccessPeer);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device) || !is_device(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && !(getenv("SOFTCUDA_REACH") && atoi(getenv("SOFTCUDA_REACH")) == 0);
    return CUDA_SUCCESS;
}

/* ---- access to other contexts' memory ---- */

static bool is_peer(const sc_peer_t *entry, const sc_ctx_t *peer)
{
    return entry->ctx == peer && peer->is_alive && entry->id == peer->id;
}

bool sc_ctx_reaches(const sc_ctx_t *ctx, const sc_ctx_t *peer)
{
    const sc_peer_t *entry = ctx->peers;

    while (entry && !is_peer(entry, peer))
        entry = entry->next;
    return entry != NULL;
}

bool sc_ctx_may_use(const sc_ctx_t *ctx, const sc_alloc_t *alloc)
{
    if (alloc->device == ctx->device || alloc->kind == SC_MEM_MANAGED)
        return true;
    return alloc->kind != SC_MEM_ASYNC && sc_ctx_reaches(ctx, alloc->ctx);
}

void sc_ctx_drop_peers(sc_ctx_t *ctx, const sc_ctx_t *dropped)
{
    for (sc_peer_t **at = &ctx->peers; *at;) {
        sc_peer_t *entry = *at;

        if (dropped && entry->ctx != dropped) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        free(entry);
    }
}

static void add_peer(sc_ctx_t *ctx, const sc_ctx_t *peer)
{
    sc_peer_t *entry = sc_zalloc(sizeof *entry);

    *entry = (sc_peer_t){.next = ctx->peers, .ctx = peer, .id = peer->id};
    ctx->peers = entry;
}

SC_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SC_ENTER(cuCtxEnablePeerAccess);
    sc_ctx_t *ctx = sc_ctx_current();

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peer || !peer->is_alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == ctx->device) /* measured */
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (sc_ctx_reaches(ctx, peer))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    add_peer(ctx, peer);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SC_ENTER(cuCtxDisablePeerAccess);
    sc_ctx_t *ctx = sc_ctx_current();

    if (!peer || !peer->is_alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sc_ctx_reaches(ctx, peer))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    sc_ctx_drop_peers(ctx, peer);
    return CUDA_SUCCESS;
}
