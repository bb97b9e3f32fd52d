/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: see allocator/pool.h for the memory and order.h for the order; this file asks the one about the other.
 *
 * Under `exact` a freed block is the next one out: order points see to it that its next owner comes after the last.
 *
 * Growth against waiting. Under `overlap` and `deferred` a freed block comes back when the GPU has passed it, so a host
 * that runs far ahead of the GPU needs more memory than the program has live. Up to FLOOR of the device, or
 * live peak x SLACK, we grow; past that `overlap` takes what is freed in the order of points, and `deferred`
 * first waits, at most WAIT_MS, for memory that is about to be complete: bounded, because the kernel in flight may itself wait for something that the program does
 * only after this allocation.
 *
 * Out of memory is different: the memory exists, only the GPU is not done with it, and natively each free had
 * waited for just that. There the wait has no bound, and covers no more than the frees themselves would have
 * waited for (order.h).
 */
#include "shim/heap.h"
#include "allocator/meta.h"
#include "allocator/size.h"
#include "shim/backing.h"
#include "shim/capture.h"
#include "shim/conf.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/ipc_export.h"
#include "shim/ipc_import.h"
#include "shim/log.h"
#include "shim/order.h"
#include "shim/peer.h"
#include "shim/pinning.h"
#include "shim/registry.h"
#include "shim/stat.h"
#include "shim/submit.h"
#include "shim/zero.h"
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define SLACK_PERCENT     125             /* of the live peak, unless CUPOLA_SLACK says another */
#define OVERLAP_DUE_BYTES (256 * CUP_KIB) /* the free of so large a block closes its point at once */

/* vmm: addresses are free, and every range grows on; past this slack handles move before new ones are made. */
#define RANGE_FACTOR       4
#define MOVE_SLACK_PERCENT 105
#define MOVE_FLOOR_BYTES   (64 * CUP_MIB)

/* IN_DOUBT: a call is under way that may end the context; nobody gets in. */
typedef enum { ALIVE, IN_DOUBT, ENDED } life_t;

struct cup_heap {
    struct cup_heap *next_ended;
    CUcontext ctx;
    int device;
    uint64_t total_bytes, floor_bytes, cache_bytes, dedicated_bytes, redzone_bytes;
    uint64_t wait_us;                           /* longest wait of one allocation while memory is not short */
    unsigned slack_percent, move_slack_percent; /* of the live peak */
    cup_order_mode_t mode;                      /* CUPOLA_FREE */
    bool is_vmm;
    cup_backing_vmm_t vmm;
    unsigned long long ctx_id; /* a context that comes back at the same address has another; 0: unknown */
    cup_pool_t *pool;
    cup_order_t *order;
    cup_zero_t zero;              /* CUPOLA_ZERO */
    _Atomic bool has_pinned;      /* some block of the driver's own has been held */
    _Atomic(CUdeviceptr) witness; /* 0: not made; WITNESS_COMES: some thread makes it */
    _Atomic int users;
    _Atomic life_t life;
    _Atomic bool is_forgotten;
    int doubts;            /* calls that may be ending the context: the registry's lock */
    _Atomic bool is_aside; /* its memory turned out to be another context's */
    _Atomic int broken;    /* the sticky CUresult of a dead context, or CUDA_SUCCESS */
};

#define WITNESS_COMES 1

/* Heaps that ended stay as they are (registry.h); the list is there for leak checkers and debuggers. */
static _Atomic(cup_heap_t *) g_ended;

static cup_status_t reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    cup_heap_t *heap = self;
    cup_status_t status = cup_backing_raw_reserve(heap->ctx, size_bytes, out_base);

    if (status == CUP_ERR_INVALID && !atomic_exchange(&heap->is_aside, true)) {
        CUP_STAT_ADD(asides, 1);
        cup_log(CUP_LOG_INFO,
                "device %d: standing aside: the driver's memory can't be pooled in this context",
                heap->device);
    }
    return status;
}

static void release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    (void)self;
    (void)size_bytes;
    cup_backing_raw_release(base);
}

static cup_status_t reserve_range(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    return cup_backing_vmm_reserve(&((cup_heap_t *)self)->vmm, size_bytes, out_base);
}

static void release_range(void *self, cup_addr_t base, uint64_t size_bytes)
{
    cup_backing_vmm_release(&((cup_heap_t *)self)->vmm, base, size_bytes);
}

static cup_status_t commit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t *out_handle)
{
    return cup_backing_vmm_commit(&((cup_heap_t *)self)->vmm, addr, size_bytes, out_handle);
}

static void decommit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    cup_backing_vmm_decommit(&((cup_heap_t *)self)->vmm, addr, size_bytes, handle);
}

static cup_status_t move(void *self, cup_addr_t from, cup_addr_t to, uint64_t size_bytes, uint64_t handle)
{
    cup_heap_t *heap = self;
    cup_status_t status = cup_backing_vmm_move(&heap->vmm, from, to, size_bytes, handle);

    if (status == CUP_ERR_INVALID)
        atomic_store(&heap->is_aside, true);
    return status;
}

static bool may_move(void *self)
{
    (void)self;
    return !cup_pinning_is_possible();
}

static const cup_provider_t g_raw = {.reserve = reserve, .release = release};
static const cup_provider_t g_vmm = {.range_reserve = reserve_range,
                                     .range_release = release_range,
                                     .commit = commit,
                                     .decommit = decommit,
                                     .move = move,
                                     .may_move = may_move};

static bool has_attribute(int device, CUdevice_attribute attribute)
{
    int value = 0;

    return cup_drv_has(CUP_DRV_cuDeviceGetAttribute) &&
           cup_drv.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

/* A kernel may write what the CPU reads without a call: the program's own heap (HMM, ATS). */
static void note_pageable(int device)
{
    if (!has_attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS))
        return;
    cup_log(CUP_LOG_INFO,
            "device %d reaches pageable memory: each free waits for the GPU, as natively, unless "
            "CUPOLA_FREE=overlap says that nothing relies on that",
            device);
    cup_order_note_managed();
}

/* Where a device can't reach another's memory, a captured copy between them works with memory of cuMemAlloc alone. */
static bool is_reachable_by_all(int device)
{
    int count = 1, can = 1;

    if (!cup_drv_has(CUP_DRV_cuDeviceCanAccessPeer) || cup_drv.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return true;
    for (int other = 0; can && other < count; other++)
        if (other != device && cup_drv.cuDeviceCanAccessPeer(&can, other, device) != CUDA_SUCCESS)
            can = 0;
    return can;
}

/*
 * What CUPOLA_BACKING asks for, as far as the device can do it. auto: handles, but where others can pin pages behind our
 * back, which they ask for as of cuMemAlloc's, below MPS, and where some device can't reach the memory.
 */
static void choose_backing(cup_heap_t *heap, const cup_conf_t *conf, bool is_pinnable)
{
    bool is_asked = conf->backing.word == CUP_BACKING_VMM;
    bool is_wanted = is_asked || (conf->backing.word == CUP_BACKING_AUTO && !is_pinnable &&
                                  !has_attribute(heap->device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED) &&
                                  is_reachable_by_all(heap->device));

    /* Its memory does not tell when the context has ended: the id must. */
    heap->is_vmm =
        is_wanted && heap->ctx_id != 0 && cup_backing_vmm_probe(heap->ctx, heap->device, &heap->vmm);
    if (is_asked && !heap->is_vmm)
        cup_log(CUP_LOG_ERROR, "device %d: CUPOLA_BACKING=vmm does not work here; using raw", heap->device);
    cup_peer_note_heap(heap->is_vmm);
    cup_log(CUP_LOG_INFO, "device %d: backing: %s", heap->device, heap->is_vmm ? "vmm" : "raw");
}

/* Whole steps of the driver's own spacing: blocks stay aligned. */
static uint64_t redzone_bytes(const cup_conf_size_t *size, int device, uint64_t total_bytes)
{
    uint64_t bytes = cup_conf_bytes(size, device, total_bytes);

    if (bytes > total_bytes)
        bytes = total_bytes; /* nothing is served then: the driver answers */
    return (bytes + CUP_SIZE_STEP - 1) / CUP_SIZE_STEP * CUP_SIZE_STEP;
}

static cup_status_t create_pool(cup_heap_t *heap, const cup_conf_t *conf, uint64_t total_bytes)
{
    cup_provider_t provider = heap->is_vmm ? g_vmm : g_raw;
    cup_pool_conf_t pool_conf = {
        .dedicated_bytes = heap->dedicated_bytes,
        .redzone_bytes = heap->redzone_bytes,
        .range_bytes = heap->is_vmm ? RANGE_FACTOR * total_bytes : 0,
        .slack_percent = heap->move_slack_percent,
        .slack_floor_bytes = MOVE_FLOOR_BYTES,
        .is_isolating = conf->ipc_isolate.word,
        .handle_bytes = conf->ipc_isolate.word ? CUP_CHUNK_ALIGN : 0,
    };

    provider.self = heap;
    return cup_pool_create(&pool_conf, &provider, &heap->pool);
}

static void set_bounds(cup_heap_t *heap, const cup_conf_t *conf)
{
    unsigned slack = (unsigned)conf->slack.hundredths;

    heap->floor_bytes = cup_conf_bytes(&conf->floor.size, heap->device, heap->total_bytes);
    heap->cache_bytes = cup_conf_bytes(&conf->cache.size, heap->device, heap->total_bytes);
    heap->dedicated_bytes = cup_conf_bytes(&conf->dedicated.size, heap->device, heap->total_bytes);
    heap->redzone_bytes = redzone_bytes(&conf->redzone.size, heap->device, heap->total_bytes);
    heap->wait_us = conf->wait_ms.hundredths * 10;
    heap->slack_percent = slack ? slack : SLACK_PERCENT;
    heap->move_slack_percent = slack ? slack : MOVE_SLACK_PERCENT;
}

cup_heap_t *cup_heap_create(CUcontext ctx, bool is_pinnable)
{
    const cup_conf_t *conf = cup_gate_conf();
    cup_heap_t *heap = cup_meta_alloc(sizeof(*heap));
    size_t total;
    CUdevice device;

    if (!heap)
        return NULL;
    if (cup_drv.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        cup_drv.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        goto free_heap;
    heap->ctx = ctx;
    heap->device = device;
    heap->total_bytes = total;
    set_bounds(heap, conf);
    heap->mode = (cup_order_mode_t)conf->free_mode.word;
    if (cup_drv.cuCtxGetId(ctx, &heap->ctx_id) != CUDA_SUCCESS)
        heap->ctx_id = 0;
    choose_backing(heap, conf, is_pinnable);
    if (create_pool(heap, conf, total) != CUP_OK)
        goto free_heap;
    heap->order = cup_order_create(ctx, heap->mode);
    if (!heap->order)
        goto free_pool;
    if (conf->zero.word == CUP_ZERO_ALLOC && cup_zero_init(&heap->zero, ctx) != CUDA_SUCCESS)
        goto end_order;
    note_pageable(device);
    CUP_STAT_ADD(contexts, 1);
    return heap;

end_order:
    cup_order_end(heap->order);
free_pool:
    cup_pool_destroy(heap->pool);
free_heap:
    cup_meta_free(heap, sizeof(*heap));
    return NULL;
}

CUcontext cup_heap_ctx(const cup_heap_t *heap)
{
    return heap->ctx;
}

int cup_heap_device(const cup_heap_t *heap)
{
    return heap->device;
}

CUresult cup_heap_follow_peers(cup_heap_t *heap)
{
    return heap->is_vmm ? cup_backing_vmm_follow_peers(&heap->vmm) : CUDA_SUCCESS;
}

bool cup_heap_is_near(const cup_heap_t *heap, int device)
{
    return !heap->is_vmm || cup_backing_vmm_is_reachable(&heap->vmm, device);
}

bool cup_heap_enter(cup_heap_t *heap)
{
    atomic_fetch_add(&heap->users, 1);
    if (atomic_load(&heap->life) == ALIVE)
        return true;
    cup_heap_leave(heap);
    return false;
}

void cup_heap_leave(cup_heap_t *heap)
{
    if (atomic_fetch_sub(&heap->users, 1) != 1 || atomic_load(&heap->life) != ENDED)
        return;
    if (!atomic_exchange(&heap->is_forgotten, true))
        cup_pool_destroy(heap->pool);
}

/* ---- the end of its context ---- */

void cup_heap_settle(cup_heap_t *heap)
{
    cup_zero_settle();
    cup_order_ending(heap->order);
}

void cup_heap_doubt(cup_heap_t *heap)
{
    if (heap->doubts++ == 0)
        atomic_store(&heap->life, IN_DOUBT);
}

bool cup_heap_has_ended(const cup_heap_t *heap)
{
    return atomic_load(&heap->life) == ENDED;
}

bool cup_heap_try_hide(cup_heap_t *heap)
{
    if (atomic_load(&heap->life) != IN_DOUBT)
        return true;
    if (atomic_load(&heap->users) > 0)
        return false;
    cup_pool_hide(heap->pool);
    return true;
}

void cup_heap_trust(cup_heap_t *heap)
{
    if (--heap->doubts > 0)
        return;
    cup_order_go_on(heap->order);
    cup_pool_show(heap->pool);
    atomic_store(&heap->life, ALIVE);
}

bool cup_heap_hides(cup_heap_t *heap, cup_addr_t addr)
{
    return cup_pool_hides(heap->pool, addr);
}

void cup_heap_end(cup_heap_t *heap)
{
    cup_ipc_end_exports(heap->pool);
    cup_ipc_end_imports(heap->ctx);
    cup_order_end(heap->order);
    cup_zero_end(&heap->zero);
    heap->next_ended = atomic_load(&g_ended);
    while (!atomic_compare_exchange_weak(&g_ended, &heap->next_ended, heap))
        ;
    atomic_fetch_add(&heap->users, 1);
    atomic_store(&heap->life, ENDED);
    cup_heap_leave(heap);
}

/* Drivers before 12.0 have no ids: then a chunk is asked after. */
static bool has_memory(cup_heap_t *heap)
{
    cup_addr_t base;
    size_t size;

    return cup_pool_any_chunk(heap->pool, &base) &&
           cup_drv.cuMemGetAddressRange_v2(NULL, &size, base) == CUDA_SUCCESS;
}

static bool is_end(CUresult result)
{
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_VALUE;
}

/*
 * A context that comes back at the same address has another id (tests/gpu/quirks.c). Asked twice, because a
 * refusal that passes is no end; nor is a code that says nothing of the context, such as its asynchronous
 * error.
 */
bool cup_heap_is_lost(cup_heap_t *heap)
{
    unsigned long long id = 0;
    CUresult first, second;

    if (heap->ctx_id == 0)
        return !has_memory(heap);
    first = cup_drv.cuCtxGetId(heap->ctx, &id);
    second = first == CUDA_SUCCESS ? first : cup_drv.cuCtxGetId(heap->ctx, &id);
    return second == CUDA_SUCCESS ? id != heap->ctx_id : is_end(first) || is_end(second);
}

/* "Not now": inside a host function, or a capture that we did not see begin. Everything else is the context's
 * end. */
static bool is_passing(CUresult result)
{
    return result == CUDA_ERROR_NOT_PERMITTED || (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                                                  result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}

static void note_error(cup_heap_t *heap, CUresult result)
{
    int healthy = CUDA_SUCCESS;

    if (is_passing(result))
        return;
    if (atomic_compare_exchange_strong(&heap->broken, &healthy, (int)result))
        cup_log(CUP_LOG_INFO, "device %d: the context reports error %d; nothing of it is reused from now on",
                heap->device, (int)result);
}

static CUresult close_and_poll(cup_heap_t *heap, cup_point_t *out_completed)
{
    CUresult result = cup_order_close(heap->order, false);

    return result == CUDA_SUCCESS ? cup_order_poll(heap->order, out_completed) : result;
}

/* A context's end is sticky, so an error counts only when the same call meets it twice. */
static CUresult poll_points(cup_heap_t *heap, cup_point_t *out_completed)
{
    CUresult result = close_and_poll(heap, out_completed);

    if (result != CUDA_SUCCESS && !is_passing(result))
        result = close_and_poll(heap, out_completed);
    return result;
}

/* Asks the clock and takes complete blocks out of limbo. Returns how many. */
static uint64_t collect(cup_heap_t *heap)
{
    cup_point_t completed = 0;
    CUresult result = poll_points(heap, &completed);

    if (result != CUDA_SUCCESS) {
        note_error(heap, result);
        return 0;
    }
    return cup_pool_complete(heap->pool, completed);
}

/* Gives back what is cached beyond CUPOLA_CACHE. It waits for the GPU, and in a capture it would spoil it. */
static void enforce_cache(cup_heap_t *heap, const cup_pool_stat_t *stat)
{
    if (stat->cached_dedicated_bytes <= heap->cache_bytes || cup_capture_is_active())
        return;
    cup_pool_trim(heap->pool, stat->cached_dedicated_bytes - heap->cache_bytes);
}

static bool alloc_from_pool(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    return cup_pool_alloc(heap->pool, size_bytes, out_addr) == CUP_OK;
}

static bool is_over(const cup_pool_stat_t *stat, uint64_t size_bytes, unsigned slack_percent,
                    uint64_t floor_bytes)
{
    uint64_t live = stat->live_bytes + size_bytes;
    uint64_t budget = (live > stat->live_peak_bytes ? live : stat->live_peak_bytes) / 100 * slack_percent;

    if (budget < floor_bytes)
        budget = floor_bytes;
    return stat->footprint_bytes + size_bytes > budget;
}

static bool is_over_budget(const cup_heap_t *heap, const cup_pool_stat_t *stat, uint64_t size_bytes)
{
    return is_over(stat, size_bytes, heap->slack_percent, heap->floor_bytes);
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Up to WAIT_MS for limbo to yield a block that fits. */
static bool alloc_by_waiting(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    uint64_t deadline = now_us() + heap->wait_us;

    CUP_STAT_ADD(waits, 1);
    do {
        struct timespec pause = {0, 20000};

        nanosleep(&pause, NULL);
        if (collect(heap) > 0 && alloc_from_pool(heap, size_bytes, out_addr))
            return true;
    } while (now_us() < deadline && cup_pool_oldest_stamp(heap->pool) != 0);
    return false;
}

/* overlap: what was freed is handed out although it is not complete; later submissions pass the points that matter. */
static bool alloc_by_ordering(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_point_t ordered = cup_order_hand_out(heap->order);

    return cup_pool_order_limbo(heap->pool, ordered) > 0 && alloc_from_pool(heap, size_bytes, out_addr);
}

/* Out of memory: handles move, and go back, only when what was freed in them is complete. */
static void settle_points(cup_heap_t *heap)
{
    CUresult result = cup_order_wait(heap->order, cup_order_newest(heap->order));

    if (result == CUDA_SUCCESS)
        collect(heap);
    else if (result != CUDA_ERROR_NOT_READY)
        note_error(heap, result);
}

/* Out of memory: everything that the GPU still has of ours, point by point. */
static bool alloc_by_draining(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_point_t oldest;

    collect(heap); /* closes the open point, unless a capture is in progress */
    while ((oldest = cup_pool_oldest_stamp(heap->pool)) != 0) {
        CUresult result = cup_order_wait(heap->order, oldest);

        if (result != CUDA_SUCCESS) {
            if (result != CUDA_ERROR_NOT_READY)
                note_error(heap, result);
            return false;
        }
        if (collect(heap) == 0)
            return false; /* the point is still open: nothing to wait for */
        if (alloc_from_pool(heap, size_bytes, out_addr))
            return true;
    }
    return false;
}

/* Out of memory: give back, a little, then all of this device, growing as tightly as the request allows. */
static bool alloc_by_giving_back(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    if (cup_pool_trim(heap->pool, size_bytes) > 0 &&
        cup_pool_grow(heap->pool, size_bytes, true, out_addr) == CUP_OK)
        return true;
    cup_registry_trim(heap->device, UINT64_MAX);
    return cup_pool_grow(heap->pool, size_bytes, true, out_addr) == CUP_OK;
}

/*
 * vmm, past its slack: handles move rather than that new ones are made, but only complete ones can. Up to WAIT_MS for that,
 * where what is free would be enough.
 */
static void await_movable(cup_heap_t *heap, uint64_t size_bytes)
{
    uint64_t deadline = now_us() + heap->wait_us;
    const struct timespec pause = {0, 20000};
    cup_point_t completed = 0;
    cup_pool_stat_t stat;

    cup_pool_stat(heap->pool, &stat);
    if (!is_over(&stat, size_bytes, heap->move_slack_percent, MOVE_FLOOR_BYTES) ||
        cup_order_poll(heap->order, &completed) != CUDA_SUCCESS ||
        cup_pool_movable(heap->pool, completed) >= size_bytes ||
        cup_pool_movable(heap->pool, UINT64_MAX) < size_bytes)
        return;
    CUP_STAT_ADD(waits, 1);
    while (now_us() < deadline && cup_pool_movable(heap->pool, completed) < size_bytes) {
        nanosleep(&pause, NULL);
        if (cup_order_poll(heap->order, &completed) != CUDA_SUCCESS)
            return;
    }
    cup_pool_complete(heap->pool, completed);
}

static bool is_usable(cup_heap_t *heap)
{
    return atomic_load_explicit(&heap->broken, memory_order_relaxed) == CUDA_SUCCESS &&
           !atomic_load_explicit(&heap->is_aside, memory_order_relaxed);
}

/*
 * A growth is where the program's allocation would have met it: cuMemAlloc tells, cuMemCreate knows of no
 * context.
 */
bool cup_heap_is_sound(cup_heap_t *heap)
{
    size_t free_bytes, total_bytes;
    CUresult result = cup_drv.cuMemGetInfo_v2(&free_bytes, &total_bytes);

    if (result != CUDA_SUCCESS && !is_passing(result)) /* sticky, if the same call meets it twice */
        result = cup_drv.cuMemGetInfo_v2(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        note_error(heap, result);
    return is_usable(heap);
}

static bool alloc_by_growing(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_status_t status;

    if (size_bytes + heap->redzone_bytes > heap->total_bytes || size_bytes > heap->total_bytes)
        return false; /* or handles would be made until the device is full, only to be given back */
    if (heap->is_vmm && !cup_heap_is_sound(heap))
        return false;
    if (heap->is_vmm && heap->mode == CUP_ORDER_EXACT)
        await_movable(heap, size_bytes);
    status = cup_pool_grow(heap->pool, size_bytes, false, out_addr);
    if (status == CUP_ERR_DRIVER && !cup_heap_is_sound(heap))
        return false;
    if (status == CUP_ERR_OOM || status == CUP_ERR_DRIVER) { /* whatever it was, it passes or comes again */
        if (!alloc_by_draining(heap, size_bytes, out_addr)) {
            if (heap->is_vmm)
                settle_points(heap);
            if (!is_usable(heap) || !alloc_by_giving_back(heap, size_bytes, out_addr))
                return false;
        }
        CUP_STAT_ADD(oom_rescues, 1);
        return true;
    }
    return status == CUP_OK;
}

bool cup_heap_alloc_quick(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    return !cup_zero_is_on(&heap->zero) && is_usable(heap) && alloc_from_pool(heap, size_bytes, out_addr);
}

static bool find_block(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_pool_stat_t stat;

    if (is_usable(heap) && alloc_from_pool(heap, size_bytes, out_addr))
        return true;
    if (!is_usable(heap))
        return false;
    if (collect(heap) > 0 && alloc_from_pool(heap, size_bytes, out_addr))
        return true;
    if (!is_usable(heap))
        return false;
    cup_pool_stat(heap->pool, &stat);
    enforce_cache(heap, &stat);
    if (stat.limbo_bytes >= size_bytes) {
        bool (*without_growing)(cup_heap_t *, uint64_t, cup_addr_t *) =
            heap->mode == CUP_ORDER_OVERLAP ? alloc_by_ordering : alloc_by_waiting;

        if (is_over_budget(heap, &stat, size_bytes) && without_growing(heap, size_bytes, out_addr))
            return true;
        CUP_STAT_ADD(limbo_misses, 1);
    }
    return is_usable(heap) && alloc_by_growing(heap, size_bytes, out_addr);
}

/* raw: more than CUPOLA_CACHE does not stay with a program that allocates no more, where it can go without a wait. */
static void give_back_cached(cup_heap_t *heap)
{
    cup_pool_stat_t stat;

    cup_pool_stat(heap->pool, &stat);
    if (stat.cached_dedicated_bytes <= heap->cache_bytes)
        return;
    collect(heap);
    if (cup_order_is_quiet(heap->order))
        enforce_cache(heap, &stat);
}

/* Both forms: gives the block back, and sees to the rest of what the free means. */
static CUresult free_ordered(cup_heap_t *heap, cup_addr_t addr)
{
    cup_point_t stamp;
    bool is_ordered = cup_order_stamp_ordered(heap->order, &stamp);
    uint64_t bytes;
    CUresult result;

    if ((is_ordered ? cup_pool_free_ordered : cup_pool_free)(heap->pool, addr, stamp, &bytes) != CUP_OK)
        return CUDA_ERROR_INVALID_VALUE;
    cup_ipc_note_free(heap->pool, addr, stamp, is_ordered);
    cup_order_pay_managed(heap->order);
    result = cup_order_pay_host(heap->order);
    if (result != CUDA_SUCCESS && !is_passing(result)) /* sticky, if the same call meets it twice */
        result = cup_order_pay_host(heap->order);
    if (!heap->is_vmm && bytes >= heap->dedicated_bytes)
        give_back_cached(heap);
    return result;
}

/* is_sync: returns when all is done that was submitted before. */
static CUresult free_to_limbo(cup_heap_t *heap, cup_addr_t addr, bool is_sync)
{
    cup_point_t stamp = cup_order_stamp(heap->order);
    bool is_due;
    CUresult result;
    uint64_t bytes;

    if (cup_pool_free(heap->pool, addr, stamp, &bytes) != CUP_OK)
        return CUDA_ERROR_INVALID_VALUE;
    cup_ipc_note_free(heap->pool, addr, stamp, false);
    is_due = is_sync || (heap->mode == CUP_ORDER_OVERLAP && bytes >= OVERLAP_DUE_BYTES);
    result = cup_order_freed(heap->order, bytes, is_due);
    if (result != CUDA_SUCCESS && !is_passing(result)) /* sticky, if the same call meets it twice */
        result = cup_order_freed(heap->order, 0, true);
    if (result == CUDA_SUCCESS && is_sync)
        result = cup_order_wait(heap->order, stamp);
    return result;
}

static CUresult free_block(cup_heap_t *heap, cup_addr_t addr)
{
    return heap->mode == CUP_ORDER_EXACT ? free_ordered(heap, addr)
                                         : free_to_limbo(heap, addr, heap->mode == CUP_ORDER_SYNC);
}

/* A driver allocation that others may have pinned: only the driver can tell them that it ends. */
static CUresult free_pinned(cup_addr_t addr)
{
    CUP_STAT_ADD(pass_frees, 1);
    CUP_STAT_ADD(driver_frees, 1);
    return cup_drv.cuMemFree_v2(addr);
}

/*
 * A submission like the program's: it comes after whoever had the block before. What follows it is ordered on the device,
 * but where submissions are not followed, or others may reach the block without one. The steps of 512 bytes that the program
 * asked for are the block's alone.
 */
static CUresult zero_block(cup_heap_t *heap, cup_addr_t addr, uint64_t size_bytes)
{
    uint64_t bytes = (size_bytes + CUP_SIZE_STEP - 1) / CUP_SIZE_STEP * CUP_SIZE_STEP;
    cup_call_t call;
    CUresult result;

    cup_submit_begin_own(&call, heap->zero.stream);
    result = cup_zero_set(&heap->zero, addr, bytes, call.stream && !cup_pinning_is_possible());
    cup_submit_end(&call, result);
    return result;
}

bool cup_heap_alloc(cup_heap_t *heap, uint64_t size_bytes, cup_addr_t *out_addr)
{
    cup_addr_t addr;
    CUresult result;

    if (!find_block(heap, size_bytes, &addr))
        return false;
    result = cup_zero_is_on(&heap->zero) ? zero_block(heap, addr, size_bytes) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        cup_log(CUP_LOG_INFO, "device %d: %llu bytes could not be set to zero (%d): the driver answers",
                heap->device, (unsigned long long)size_bytes, (int)result);
        free_block(heap, addr);
        return false;
    }
    *out_addr = addr;
    return true;
}

CUresult cup_heap_free(cup_heap_t *heap, cup_addr_t addr, bool is_async)
{
    CUresult result = (CUresult)atomic_load_explicit(&heap->broken, memory_order_relaxed);

    if (result != CUDA_SUCCESS)
        return result;
    if (atomic_load_explicit(&heap->has_pinned, memory_order_relaxed) &&
        cup_pool_surrender_held(heap->pool, addr) == CUP_OK)
        return free_pinned(addr);
    result = is_async ? free_to_limbo(heap, addr, false) : free_block(heap, addr);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        CUP_STAT_ADD(bad_frees, 1);
        return result; /* measured: double, interior and unknown alike */
    }
    CUP_STAT_ADD(pool_frees, 1);
    if (is_passing(result))
        return CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        note_error(heap, result);
    return result;
}

/* Natively the frees had waited. */
uint64_t cup_heap_trim(cup_heap_t *heap, uint64_t want_bytes)
{
    collect(heap);
    settle_points(heap);
    return is_usable(heap) ? cup_pool_trim(heap->pool, want_bytes) : 0;
}

bool cup_heap_surrender(cup_heap_t *heap, cup_addr_t addr)
{
    return cup_pool_surrender(heap->pool, addr) == CUP_OK;
}

/* ---- what is asked about blocks ---- */

void cup_heap_mark(cup_heap_t *heap, cup_addr_t addr, unsigned marks)
{
    if (!heap->is_vmm && (marks & CUP_MARK_HOLDS))
        atomic_store_explicit(&heap->has_pinned, true, memory_order_relaxed);
    cup_pool_mark(heap->pool, addr, marks);
}

void cup_heap_unmark(cup_heap_t *heap, cup_addr_t addr, unsigned marks)
{
    cup_pool_unmark(heap->pool, addr, marks, cup_order_stamp(heap->order));
}

bool cup_heap_is_vmm(const cup_heap_t *heap)
{
    return heap->is_vmm;
}

/* In the heap's context, whichever is current. */
static CUdeviceptr make_witness(cup_heap_t *heap)
{
    CUcontext ignored;
    cup_addr_t base = 0;

    if (cup_drv.cuCtxPushCurrent_v2(heap->ctx) != CUDA_SUCCESS)
        return 0;
    if (cup_backing_raw_reserve(heap->ctx, CUP_CHUNK_ALIGN, &base) == CUP_ERR_OOM &&
        cup_heap_trim(heap, CUP_CHUNK_ALIGN) > 0)
        (void)cup_backing_raw_reserve(heap->ctx, CUP_CHUNK_ALIGN, &base);
    cup_drv.cuCtxPopCurrent_v2(&ignored);
    return base;
}

/*
 * One of several threads makes it; it waits for nothing of the GPU's, so the others yield until it is
 * there.
 */
CUdeviceptr cup_heap_witness(cup_heap_t *heap)
{
    CUdeviceptr seen = atomic_load(&heap->witness);

    if (seen == 0 && atomic_compare_exchange_strong(&heap->witness, &seen, WITNESS_COMES)) {
        seen = make_witness(heap);
        atomic_store(&heap->witness, seen);
    }
    while (seen == WITNESS_COMES) {
        sched_yield();
        seen = atomic_load(&heap->witness);
    }
    return seen;
}

void cup_heap_stat(cup_heap_t *heap, cup_pool_stat_t *out_stat)
{
    cup_pool_stat(heap->pool, out_stat);
}
