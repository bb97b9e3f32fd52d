/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: an entry for each context, with the stream that waits there and events for copies that come from there. An event
 * may be recorded again as soon as the wait for it has been submitted: it goes back to its list then, and no two threads
 * use one at a time. The wait is submitted between cup_submit_begin and cup_submit_end, as the program's own would be.
 */
#include "shim/peer_trail.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "allocator/pool.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/green.h"
#include "shim/heap.h"
#include "shim/registry.h"
#include "shim/stat.h"

#define NOTED_MAX 8 /* contexts that one call touches; a batch may touch more */

typedef struct spare {
    struct spare *next;
    CUevent event;
} spare_t;

/* Never given back: few contexts, and others get the addresses of ended ones. */
typedef struct side {
    struct side *next;
    CUcontext ctx;
    unsigned long long id;
    CUstream trail; /* NULL: not made yet */
    spare_t *spares;
} side_t;

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_PEER);
static side_t *g_sides; /* guarded by g_lock, as is all that is in them */

static _Thread_local struct {
    CUcontext ctx[NOTED_MAX];
    unsigned count;
    bool is_more;
} t_noted __attribute__((tls_model("initial-exec")));

/* ---- what the call touches ---- */

static void note(CUcontext ctx)
{
    for (unsigned i = 0; i < t_noted.count; i++)
        if (t_noted.ctx[i] == ctx)
            return;
    if (t_noted.count < NOTED_MAX)
        t_noted.ctx[t_noted.count++] = ctx;
    else
        t_noted.is_more = true;
}

void cup_peer_trail_note_slow(CUdeviceptr addr)
{
    cup_heap_t *heap;

    if (!cup_pool_owner(addr) || !cup_gate_enter(false))
        return;
    heap = cup_registry_acquire_owner(addr);
    if (heap) {
        note(cup_heap_ctx(heap));
        cup_heap_leave(heap);
    }
    cup_gate_leave();
}

/* ---- sides ---- */

static void forget_locked(side_t *side)
{
    while (side->spares) {
        spare_t *spare = side->spares;

        side->spares = spare->next;
        cup_meta_free(spare, sizeof(*spare));
    }
    side->trail = NULL;
    side->ctx = NULL;
}

/* Without a number a context can't be told from its successor. */
static side_t *find_locked(CUcontext ctx)
{
    unsigned long long id = 0;
    side_t *side = g_sides, *idle = NULL;

    if (cup_drv.cuCtxGetId(ctx, &id) != CUDA_SUCCESS || id == 0)
        return NULL;
    for (; side && side->ctx != ctx; side = side->next)
        idle = side->ctx ? idle : side;
    if (side && side->id != id)
        forget_locked(side);
    else if (side)
        return side;
    side = side ? side : idle;
    if (!side && (side = cup_meta_alloc(sizeof(*side)))) {
        side->next = g_sides;
        g_sides = side;
    }
    if (side) {
        side->ctx = ctx;
        side->id = id;
    }
    return side;
}

/* ---- streams and events ---- */

static CUresult enter_context(CUcontext ctx, CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cup_drv.cuThreadExchangeStreamCaptureMode(mode);
    return cup_drv.cuCtxPushCurrent_v2(ctx);
}

static void leave_context(CUresult entered, CUstreamCaptureMode *mode)
{
    CUcontext ctx;

    if (entered == CUDA_SUCCESS)
        cup_drv.cuCtxPopCurrent_v2(&ctx);
    cup_drv.cuThreadExchangeStreamCaptureMode(mode);
}

/* Two threads may make one each: the later one's is never used. */
static CUstream find_trail(CUcontext ctx)
{
    CUstreamCaptureMode mode;
    CUstream made = NULL, trail = NULL;
    CUresult entered;
    side_t *side;

    cup_lock_acquire(&g_lock);
    side = find_locked(ctx);
    trail = side ? side->trail : NULL;
    cup_lock_release(&g_lock);
    if (trail || !side)
        return trail;
    entered = enter_context(ctx, &mode);
    if (entered == CUDA_SUCCESS && cup_drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        made = NULL;
    leave_context(entered, &mode);
    cup_lock_acquire(&g_lock);
    side = made ? find_locked(ctx) : NULL;
    if (side && !side->trail)
        side->trail = made;
    trail = side ? side->trail : NULL;
    cup_lock_release(&g_lock);
    return trail;
}

/* An event of the context, this thread's until it is given back; NULL: there is none. */
static spare_t *take_event(CUcontext ctx)
{
    CUstreamCaptureMode mode;
    CUresult entered;
    spare_t *spare = NULL;
    side_t *side;

    cup_lock_acquire(&g_lock);
    side = find_locked(ctx);
    if (side && (spare = side->spares))
        side->spares = spare->next;
    cup_lock_release(&g_lock);
    if (spare || !side || !(spare = cup_meta_alloc(sizeof(*spare))))
        return spare;
    entered = enter_context(ctx, &mode);
    if (entered != CUDA_SUCCESS ||
        cup_drv.cuEventCreate(&spare->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        cup_meta_free(spare, sizeof(*spare));
        spare = NULL;
    }
    leave_context(entered, &mode);
    return spare;
}

static void give_event(CUcontext ctx, spare_t *spare)
{
    side_t *side;

    cup_lock_acquire(&g_lock);
    side = find_locked(ctx);
    if (side) {
        spare->next = side->spares;
        side->spares = spare;
    }
    cup_lock_release(&g_lock);
    if (!side)
        cup_meta_free(spare, sizeof(*spare));
}

/* ---- trails ---- */

/* The stream of a copy, as the driver takes it, and whose it is. */
typedef struct origin {
    CUstream handle;
    CUcontext ctx;
} origin_t;

static origin_t find_origin(cup_place_t place)
{
    origin_t origin = {.handle = place.stream};

    if (!place.stream)
        origin.handle = place.is_null_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (origin.handle == CU_STREAM_PER_THREAD || origin.handle == CU_STREAM_LEGACY)
        cup_drv.cuCtxGetCurrent(&origin.ctx);
    else if (cup_drv.cuStreamGetCtx(origin.handle, &origin.ctx) != CUDA_SUCCESS)
        origin.ctx = NULL;
    return origin;
}

/* What is captured is not submitted. */
static bool is_captured(const origin_t *origin)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cup_capture_is_active() &&
           (cup_drv.cuStreamIsCapturing(origin->handle, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUresult leave_one(const origin_t *origin, CUcontext ctx)
{
    CUstream trail = find_trail(ctx);
    spare_t *spare = trail ? take_event(origin->ctx) : NULL;
    CUresult result;
    cup_call_t call;

    if (!spare)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUP_STAT_ADD(peer_trails, 1);
    cup_submit_begin(&call, CUP_ON(trail), CUP_SUBMIT_PLAIN);
    result = cup_drv.cuEventRecord(spare->event, origin->handle);
    if (result == CUDA_SUCCESS)
        result = cup_drv.cuStreamWaitEvent(trail, spare->event, 0);
    cup_submit_end(&call, result);
    give_event(origin->ctx, spare);
    return result;
}

void cup_peer_trail_leave_slow(cup_place_t place, CUresult result)
{
    unsigned count = t_noted.count;
    bool is_lost = t_noted.is_more, is_captive = false;
    origin_t origin;

    t_noted.count = 0;
    t_noted.is_more = false;
    if (count == 0 || result != CUDA_SUCCESS)
        return;
    origin = find_origin(place);
    for (unsigned i = 0; !is_captive && i < count; i++) {
        if (t_noted.ctx[i] == cup_green_primary(origin.ctx))
            continue;
        is_captive = is_captured(&origin);
        is_lost |= !is_captive && leave_one(&origin, t_noted.ctx[i]) != CUDA_SUCCESS;
    }
    if (is_lost && !is_captive)
        cup_drv.cuStreamSynchronize(origin.handle);
}
