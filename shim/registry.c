/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a small array under CUP_LOCK_REGISTRY, and in front of it one remembered heap per thread. The
 * remembered one is right while no heap has ended since (g_generation); heap structs are never given back, so
 * a stale pointer is harmless: cup_heap_enter() refuses it.
 */
#include "shim/registry.h"
#include "allocator/lock.h"
#include "shim/drv.h"
#include <stdatomic.h>

#define HEAPS_MAX 256

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_REGISTRY);
static cup_heap_t *g_heap[HEAPS_MAX]; /* guarded by g_lock */
static size_t g_count;                /* likewise */
static cup_pool_stat_t g_ended;       /* likewise: the sum of heaps that ended */
static _Atomic uint64_t g_generation = 1;

static _Thread_local struct {
    uint64_t generation;
    CUcontext ctx;
    cup_heap_t *heap;
} t_last __attribute__((tls_model("initial-exec")));

static cup_heap_t *find_locked(CUcontext ctx)
{
    for (size_t i = 0; i < g_count; i++)
        if (cup_heap_ctx(g_heap[i]) == ctx)
            return g_heap[i];
    return NULL;
}

static cup_heap_t *find_or_create(CUcontext ctx, bool may_create)
{
    cup_heap_t *heap;

    cup_lock_acquire(&g_lock);
    heap = find_locked(ctx);
    if (!heap && may_create && g_count < HEAPS_MAX) {
        heap = cup_heap_create(ctx);
        if (heap)
            g_heap[g_count++] = heap;
    }
    cup_lock_release(&g_lock);
    return heap;
}

cup_heap_t *cup_registry_acquire_current(bool may_create)
{
    uint64_t generation = atomic_load_explicit(&g_generation, memory_order_acquire);
    CUcontext ctx = NULL;
    cup_heap_t *heap;

    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return NULL;
    if (t_last.ctx == ctx && t_last.generation == generation && cup_heap_enter(t_last.heap))
        return t_last.heap;
    heap = find_or_create(ctx, may_create);
    if (!heap || !cup_heap_enter(heap))
        return NULL;
    t_last.generation = generation;
    t_last.ctx = ctx;
    t_last.heap = heap;
    return heap;
}

cup_heap_t *cup_registry_acquire_owner(cup_addr_t addr)
{
    cup_pool_t *pool = cup_pool_owner(addr);
    cup_heap_t *heap = pool ? cup_pool_self(pool) : NULL;

    return heap && cup_heap_enter(heap) ? heap : NULL;
}

static void add_stat(cup_pool_stat_t *sum, const cup_pool_stat_t *part)
{
    sum->footprint_bytes += part->footprint_bytes;
    sum->footprint_peak_bytes += part->footprint_peak_bytes;
    sum->live_bytes += part->live_bytes;
    sum->live_peak_bytes += part->live_peak_bytes;
    sum->live_blocks += part->live_blocks;
    sum->limbo_bytes += part->limbo_bytes;
    sum->limbo_blocks += part->limbo_blocks;
    sum->idle_bytes += part->idle_bytes;
    sum->cached_dedicated_bytes += part->cached_dedicated_bytes;
    sum->chunks += part->chunks;
    sum->reserves += part->reserves;
    sum->releases += part->releases;
}

/* Takes entry index out; what it held is gone, what it did stays in the sum. */
static void end_locked(size_t index)
{
    cup_heap_t *heap = g_heap[index];
    cup_pool_stat_t stat;

    cup_heap_stat(heap, &stat);
    stat.footprint_bytes = stat.live_bytes = stat.live_blocks = stat.limbo_bytes = stat.limbo_blocks = 0;
    stat.idle_bytes = stat.cached_dedicated_bytes = stat.chunks = 0;
    add_stat(&g_ended, &stat);
    g_heap[index] = g_heap[--g_count];
    atomic_fetch_add(&g_generation, 1);
    cup_heap_end(heap);
}

void cup_registry_end_context(CUcontext ctx)
{
    cup_lock_acquire(&g_lock);
    for (size_t i = 0; i < g_count; i++)
        if (cup_heap_ctx(g_heap[i]) == ctx) {
            end_locked(i);
            break;
        }
    cup_lock_release(&g_lock);
}

void cup_registry_end_lost(int device)
{
    cup_lock_acquire(&g_lock);
    for (size_t i = g_count; i-- > 0;)
        if (cup_heap_device(g_heap[i]) == device && !cup_heap_has_memory(g_heap[i]))
            end_locked(i);
    cup_lock_release(&g_lock);
}

/* The heaps of a device, entered, so that they can be worked on without the lock. */
static size_t enter_all(int device, cup_heap_t **out_heap)
{
    size_t count = 0;

    cup_lock_acquire(&g_lock);
    for (size_t i = 0; i < g_count; i++)
        if (cup_heap_device(g_heap[i]) == device && cup_heap_enter(g_heap[i]))
            out_heap[count++] = g_heap[i];
    cup_lock_release(&g_lock);
    return count;
}

uint64_t cup_registry_trim(int device, uint64_t want_bytes)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = enter_all(device, heap);
    uint64_t given = 0;

    for (size_t i = 0; i < count; i++) {
        if (given < want_bytes)
            given += cup_heap_trim(heap[i], want_bytes - given);
        cup_heap_leave(heap[i]);
    }
    return given;
}

uint64_t cup_registry_reusable_bytes(int device)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = enter_all(device, heap);
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        cup_pool_stat_t stat;

        cup_heap_stat(heap[i], &stat);
        bytes += stat.idle_bytes + stat.limbo_bytes;
        cup_heap_leave(heap[i]);
    }
    return bytes;
}

void cup_registry_stat(cup_pool_stat_t *out_sum)
{
    cup_lock_acquire(&g_lock);
    *out_sum = g_ended;
    for (size_t i = 0; i < g_count; i++) {
        cup_pool_stat_t stat;

        cup_heap_stat(g_heap[i], &stat);
        add_stat(out_sum, &stat);
    }
    cup_lock_release(&g_lock);
}
