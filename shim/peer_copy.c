/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a copy is far if one of its addresses is a block of ours, or of another process and open here, that
 * the current context's device, or that of the stream, can't reach. Then both sides get a context: a block of ours its heap's, other memory what
 * the driver says of it. Linear copies between devices become cuMemcpyPeer, everything else cuMemcpy3DPeer,
 * which takes memory of the host and arrays, too.
 *
 * A copy with host memory on a side that must be done on return is waited for: the Peer forms are
 * documented as asynchronous for the host.
 */
#include "shim/peer_copy.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/ipc_import.h"
#include "shim/registry.h"
#include "shim/stat.h"

#define PIECE_BYTES ((size_t)1 << 30) /* of one row: pitches have a limit (2 GiB) */

/* A side of a copy that has an address of the device's, or one that may be any. */
#define IS_ADDRESSED(type) ((type) == CU_MEMORYTYPE_DEVICE || (type) == CU_MEMORYTYPE_UNIFIED)

/* ---- who can reach what ---- */

/* The devices that the copy may run on. */
typedef struct reach {
    CUdevice current, stream;
} reach_t;

#define NO_DEVICE (-1) /* that can't be told reaches nothing: the Peer form is never wrong */

/* Null streams, by whatever name, are the current context's. One of another context may be of any device:
 * rare enough. */
static reach_t find_reach(const cup_peer_way_t *way)
{
    CUstream stream = way->is_async ? way->place.stream : NULL;
    CUcontext ctx = NULL, owner = NULL;
    reach_t reach = {NO_DEVICE, NO_DEVICE};

    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS ||
        cup_drv.cuCtxGetDevice(&reach.current) != CUDA_SUCCESS)
        return reach;
    reach.stream = reach.current;
    if (stream && cup_drv.cuStreamGetCtx(stream, &owner) == CUDA_SUCCESS && owner && owner != ctx)
        reach.stream = NO_DEVICE;
    return reach;
}

static bool is_import_near(const cup_ipc_block_t *import, CUdevice device)
{
    return device >= 0 && device < CUP_PEER_DEVICES_MAX && (import->devices >> device & 1);
}

static bool is_out_of_reach(const reach_t *reach, CUdeviceptr addr)
{
    cup_heap_t *heap = cup_registry_acquire_owner(addr);
    cup_ipc_block_t import;
    bool is_far;

    if (!heap)
        return cup_ipc_find(addr, &import) &&
               (!is_import_near(&import, reach->current) || !is_import_near(&import, reach->stream));
    is_far = !cup_heap_is_near(heap, reach->current) || !cup_heap_is_near(heap, reach->stream);
    cup_heap_leave(heap);
    return is_far;
}

/* ---- captures ---- */

static CUstream find_handle(const cup_place_t *place)
{
    if (place->stream)
        return place->stream;
    return place->is_null_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static bool is_captured(const cup_peer_way_t *way)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return way->is_async && cup_capture_is_active() &&
           cup_drv.cuStreamIsCapturing(find_handle(&way->place), &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUdevice device_of(CUcontext ctx)
{
    CUdevice device = NO_DEVICE;
    CUcontext popped;

    if (cup_drv.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
        return NO_DEVICE;
    if (cup_drv.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = NO_DEVICE;
    cup_drv.cuCtxPopCurrent_v2(&popped);
    return device;
}

/* The context's device gets to the memory at addr, for good. What fails shows in the program's own call. */
static void grant_to(CUcontext ctx, CUdeviceptr addr)
{
    CUdevice device = device_of(ctx);
    cup_heap_t *heap = cup_registry_acquire_owner(addr);
    CUcontext owner;
    bool is_near;

    if (!heap && device != NO_DEVICE)
        cup_ipc_reach(addr, device);
    if (!heap)
        return;
    owner = cup_heap_ctx(heap);
    is_near = device == NO_DEVICE || cup_heap_is_near(heap, device);
    cup_heap_leave(heap);
    if (!is_near && cup_peer_keep(ctx, device, owner))
        cup_registry_follow_peers(owner);
}

static void grant(const cup_peer_way_t *way, CUdeviceptr addr)
{
    CUcontext current = NULL, owner = NULL;

    if (cup_drv.cuCtxGetCurrent(&current) == CUDA_SUCCESS)
        grant_to(current, addr);
    if (cup_drv.cuStreamGetCtx(find_handle(&way->place), &owner) == CUDA_SUCCESS && owner != current)
        grant_to(owner, addr);
}

/*
 * The Peer forms are refused in a capture (measured), where the plain ones are not: there the plain form goes, and the
 * memory comes within reach first.
 */
static bool is_far(const cup_peer_way_t *way, CUdeviceptr dst, CUdeviceptr src)
{
    bool is_it;
    reach_t reach;

    if ((!cup_pool_owner(dst) && !cup_pool_owner(src) && !cup_ipc_has_imports()) || !cup_gate_enter(false))
        return false;
    reach = find_reach(way);
    is_it = is_out_of_reach(&reach, dst) || is_out_of_reach(&reach, src);
    if (is_it && is_captured(way)) {
        grant(way, dst);
        grant(way, src);
        is_it = false;
    }
    cup_gate_leave();
    return is_it;
}

/* ---- what the sides are ---- */

typedef struct side {
    CUmemorytype type;
    CUcontext ctx; /* of DEVICE: whose it is; else the current one */
} side_t;

/* Of a block of ours, or of another process's that is open here. */
static CUcontext find_heap_context(CUdeviceptr addr)
{
    CUcontext ctx = NULL;
    cup_ipc_block_t import;
    cup_heap_t *heap;

    if (!cup_gate_enter(false))
        return NULL;
    heap = cup_registry_acquire_owner(addr);
    if (heap) {
        ctx = cup_heap_ctx(heap);
        cup_heap_leave(heap);
    } else if (cup_ipc_find(addr, &import)) {
        ctx = import.ctx;
    }
    cup_gate_leave();
    return ctx;
}

/* Memory of the driver's own that is a context's. Managed memory, and the program's own mappings, are
 * nobody's. */
static CUcontext find_context(CUdeviceptr addr)
{
    CUcontext ctx = NULL;
    unsigned is_managed = 0;

    if (cup_drv.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, addr) != CUDA_SUCCESS ||
        is_managed || cup_drv.cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, addr) != CUDA_SUCCESS)
        return NULL;
    return ctx;
}

/* What the driver has never heard of is memory of the host. */
static bool is_host(CUdeviceptr addr)
{
    CUmemorytype type;
    CUresult result = cup_drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr);

    return result == CUDA_SUCCESS ? type == CU_MEMORYTYPE_HOST : result == CUDA_ERROR_INVALID_VALUE;
}

static side_t look_at(CUdeviceptr addr)
{
    side_t side = {.type = CU_MEMORYTYPE_DEVICE, .ctx = find_heap_context(addr)};

    if (side.ctx)
        return side;
    if (is_host(addr))
        side.type = CU_MEMORYTYPE_HOST;
    else if ((side.ctx = find_context(addr)) != NULL)
        return side;
    else
        side.type = CU_MEMORYTYPE_UNIFIED;
    cup_drv.cuCtxGetCurrent(&side.ctx);
    return side;
}

/* ---- the calls ---- */

static CUresult call_linear(const cup_peer_way_t *way, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                            CUcontext src_ctx, size_t bytes)
{
    bool is_ptsz = way->place.is_null_per_thread;

    if (!way->is_async)
        return (is_ptsz ? cup_drv.cuMemcpyPeer_ptds : cup_drv.cuMemcpyPeer)(dst, dst_ctx, src, src_ctx,
                                                                            bytes);
    return (is_ptsz ? cup_drv.cuMemcpyPeerAsync_ptsz : cup_drv.cuMemcpyPeerAsync)(dst, dst_ctx, src, src_ctx,
                                                                                  bytes, way->place.stream);
}

static CUresult call_3d(const cup_peer_way_t *way, const CUDA_MEMCPY3D_PEER *copy)
{
    bool is_ptsz = way->place.is_null_per_thread;
    CUresult result;

    if (way->is_async)
        return (is_ptsz ? cup_drv.cuMemcpy3DPeerAsync_ptsz : cup_drv.cuMemcpy3DPeerAsync)(copy,
                                                                                          way->place.stream);
    result = (is_ptsz ? cup_drv.cuMemcpy3DPeer_ptds : cup_drv.cuMemcpy3DPeer)(copy);
    if (result == CUDA_SUCCESS &&
        (copy->dstMemoryType != CU_MEMORYTYPE_DEVICE || copy->srcMemoryType != CU_MEMORYTYPE_DEVICE))
        result = (is_ptsz ? cup_drv.cuStreamSynchronize_ptsz : cup_drv.cuStreamSynchronize)(NULL);
    return result;
}

/* Fills in what one side is. */
#define COMPLETE(copy, x)                                           \
    do {                                                            \
        const side_t side_now = look_at((copy)->x##Device);         \
                                                                    \
        (copy)->x##MemoryType = side_now.type;                      \
        (copy)->x##Context = side_now.ctx;                          \
        if (side_now.type == CU_MEMORYTYPE_HOST)                    \
            (copy)->x##Host = (void *)(uintptr_t)(copy)->x##Device; \
    } while (0)

static CUresult copy_shaped(const cup_peer_way_t *way, CUDA_MEMCPY3D_PEER *copy)
{
    if (IS_ADDRESSED(copy->dstMemoryType))
        COMPLETE(copy, dst);
    if (IS_ADDRESSED(copy->srcMemoryType))
        COMPLETE(copy, src);
    CUP_STAT_ADD(peer_copies, 1);
    return call_3d(way, copy);
}

/* ---- linear ---- */

static CUresult copy_pieces(const cup_peer_way_t *way, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t done = 0, piece; result == CUDA_SUCCESS && done < bytes; done += piece) {
        piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        result = copy_shaped(way, &(CUDA_MEMCPY3D_PEER){.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                                        .dstDevice = dst + done,
                                                        .dstPitch = piece,
                                                        .dstHeight = 1,
                                                        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                                        .srcDevice = src + done,
                                                        .srcPitch = piece,
                                                        .srcHeight = 1,
                                                        .WidthInBytes = piece,
                                                        .Height = 1,
                                                        .Depth = 1});
    }
    return result;
}

static CUresult copy_far(const cup_peer_way_t *way, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    const side_t to = look_at(dst), from = look_at(src);

    if (to.type != CU_MEMORYTYPE_DEVICE || from.type != CU_MEMORYTYPE_DEVICE)
        return copy_pieces(way, dst, src, bytes);
    CUP_STAT_ADD(peer_copies, 1);
    return call_linear(way, dst, to.ctx, src, from.ctx, bytes);
}

/* Only in place of a context that is there: what the driver makes of others is its own. */
static CUcontext find_named(CUdeviceptr addr, CUcontext named)
{
    CUcontext owner = find_heap_context(addr);
    unsigned long long id;

    return owner && named && owner != named && cup_drv.cuCtxGetId(named, &id) == CUDA_SUCCESS ? owner : named;
}

bool cup_peer_copy_named(cup_peer_way_t way, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                         CUcontext src_ctx, size_t bytes, CUresult *out_result)
{
    CUcontext to = find_named(dst, dst_ctx), from = find_named(src, src_ctx);

    if (to == dst_ctx && from == src_ctx)
        return false;
    *out_result = call_linear(&way, dst, to, src, from, bytes);
    return true;
}

bool cup_peer_copy_linear(cup_peer_way_t way, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                          CUresult *out_result)
{
    if (bytes == 0 || !is_far(&way, dst, src))
        return false;
    *out_result = copy_far(&way, dst, src, bytes);
    return true;
}

/* ---- of two and three dimensions ---- */

#define ADDRESS_OF(copy, x) (IS_ADDRESSED((copy)->x##MemoryType) ? (copy)->x##Device : 0)

#define SIDE_2D(c, x)                                                                        \
    .x##XInBytes = (c)->x##XInBytes, .x##Y = (c)->x##Y, .x##MemoryType = (c)->x##MemoryType, \
    .x##Host = (c)->x##Host, .x##Device = (c)->x##Device, .x##Array = (c)->x##Array,         \
    .x##Pitch = (c)->x##Pitch
#define SIDE_3D(c, x) SIDE_2D(c, x), .x##Z = (c)->x##Z, .x##LOD = (c)->x##LOD, .x##Height = (c)->x##Height

bool cup_peer_copy_2d(cup_peer_way_t way, const CUDA_MEMCPY2D *copy, CUresult *out_result)
{
    if (!copy || !is_far(&way, ADDRESS_OF(copy, dst), ADDRESS_OF(copy, src)))
        return false;
    *out_result = copy_shaped(&way, &(CUDA_MEMCPY3D_PEER){SIDE_2D(copy, dst), SIDE_2D(copy, src),
                                                          .dstHeight = copy->dstY + copy->Height,
                                                          .srcHeight = copy->srcY + copy->Height,
                                                          .WidthInBytes = copy->WidthInBytes,
                                                          .Height = copy->Height, .Depth = 1});
    return true;
}

bool cup_peer_copy_3d(cup_peer_way_t way, const CUDA_MEMCPY3D *copy, CUresult *out_result)
{
    if (!copy || !is_far(&way, ADDRESS_OF(copy, dst), ADDRESS_OF(copy, src)))
        return false;
    *out_result = copy_shaped(&way, &(CUDA_MEMCPY3D_PEER){SIDE_3D(copy, dst), SIDE_3D(copy, src),
                                                          .WidthInBytes = copy->WidthInBytes,
                                                          .Height = copy->Height, .Depth = copy->Depth});
    return true;
}

#define UNIFIED_OF(copy, x) ((copy)->x##MemoryType == CU_MEMORYTYPE_UNIFIED ? (copy)->x##Device : 0)

/* A side that is typed as the device's has its context already, the program's. */
bool cup_peer_copy_peer(cup_peer_way_t way, const CUDA_MEMCPY3D_PEER *copy, CUresult *out_result)
{
    CUDA_MEMCPY3D_PEER named;

    if (!copy || !is_far(&way, UNIFIED_OF(copy, dst), UNIFIED_OF(copy, src)))
        return false;
    named = *copy;
    if (UNIFIED_OF(copy, dst))
        COMPLETE(&named, dst);
    if (UNIFIED_OF(copy, src))
        COMPLETE(&named, src);
    CUP_STAT_ADD(peer_copies, 1);
    *out_result = call_3d(&way, &named);
    return true;
}

/* ---- batches ---- */

typedef struct batch {
    CUdeviceptr *dsts, *srcs;
    const size_t *sizes;
    size_t count;
    CUmemcpyAttributes *attrs; /* each from its first copy on */
    const size_t *firsts;
    size_t attr_count;
} batch_t;

/* Only what the driver would take is read. It takes no batch on the legacy stream. */
static bool is_sound(const cup_peer_way_t *way, const batch_t *batch)
{
    CUstream stream = way->place.stream;

    if (!batch->dsts || !batch->srcs || !batch->sizes || !batch->attrs || !batch->firsts ||
        batch->count == 0 || batch->attr_count == 0 || batch->attr_count > batch->count ||
        batch->firsts[0] != 0 || stream == CU_STREAM_LEGACY || (!stream && !way->place.is_null_per_thread))
        return false;
    for (size_t i = 1; i < batch->attr_count; i++)
        if (batch->firsts[i] <= batch->firsts[i - 1] || batch->firsts[i] >= batch->count)
            return false;
    return true;
}

static bool is_any_far(const cup_peer_way_t *way, const batch_t *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->sizes[i] > 0 && is_far(way, batch->dsts[i], batch->srcs[i]))
            return true;
    return false;
}

/* A batch of one, by the newer call where there is one. */
static CUresult copy_near(const cup_peer_way_t *way, const batch_t *batch, size_t i, size_t attr)
{
    bool is_ptsz = way->place.is_null_per_thread;
    CUstream stream = way->place.stream;
    size_t size = batch->sizes[i], first = 0, failed;

    if (cup_drv_has(CUP_DRV_cuMemcpyBatchAsync_v2))
        return (is_ptsz ? cup_drv.cuMemcpyBatchAsync_v2_ptsz : cup_drv.cuMemcpyBatchAsync_v2)(
            &batch->dsts[i], &batch->srcs[i], &size, 1, &batch->attrs[attr], &first, 1, stream);
    return (is_ptsz ? cup_drv.cuMemcpyBatchAsync_ptsz : cup_drv.cuMemcpyBatchAsync)(
        &batch->dsts[i], &batch->srcs[i], &size, 1, &batch->attrs[attr], &first, 1, &failed, stream);
}

/* A source that the program may change after the call is read before it returns. */
static CUresult copy_one(const cup_peer_way_t *way, const batch_t *batch, size_t i, size_t attr)
{
    bool is_ptsz = way->place.is_null_per_thread;
    CUresult result;

    if (batch->sizes[i] == 0 || !is_far(way, batch->dsts[i], batch->srcs[i]))
        return copy_near(way, batch, i, attr);
    result = copy_far(way, batch->dsts[i], batch->srcs[i], batch->sizes[i]);
    if (result == CUDA_SUCCESS &&
        batch->attrs[attr].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
        result =
            (is_ptsz ? cup_drv.cuStreamSynchronize_ptsz : cup_drv.cuStreamSynchronize)(way->place.stream);
    return result;
}

bool cup_peer_copy_batch(cup_peer_way_t way, CUdeviceptr *dsts, CUdeviceptr *srcs, const size_t *sizes,
                         size_t count, CUmemcpyAttributes *attrs, const size_t *firsts, size_t attr_count,
                         size_t *failed, CUresult *out_result)
{
    const batch_t batch = {dsts, srcs, sizes, count, attrs, firsts, attr_count};
    CUresult result = CUDA_SUCCESS;

    if (!is_sound(&way, &batch) || !is_any_far(&way, &batch))
        return false;
    for (size_t i = 0, attr = 0; result == CUDA_SUCCESS && i < count; i++) {
        attr += attr + 1 < attr_count && firsts[attr + 1] == i;
        result = copy_one(&way, &batch, i, attr);
        if (result != CUDA_SUCCESS && failed)
            *failed = i;
    }
    *out_result = result;
    return true;
}
