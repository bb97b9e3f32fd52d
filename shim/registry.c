/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a small array under CUP_LOCK_REGISTRY, and in front of it one remembered heap per thread. The
 * remembered one is right while no heap has ended since (g_generation); heap structs are never given back, so
 * a stale pointer is harmless: cup_heap_enter() refuses it.
 *
 * The end of a context. The driver's call gives the memory back while it runs, and another thread can have
 * the same addresses, in another context, before it returns. So the heap is put in doubt first: nobody gets
 * in, its users finish, and the span map stops answering for its chunks. Meanwhile allocations go to the
 * driver; a free of what may be a block of that heap waits, because whose the address is depends on how the
 * call ends. Afterwards the heap ends, or goes on as it was: the driver has refused, or there was another
 * reference. Memory of cuMemCreate (vmm) outlives the context; its addresses stay ours until the last
 * handle is unmapped, after the call, which has waited for the context's work.
 */
#include "shim/registry.h"
#include "allocator/lock.h"
#include "shim/drv.h"
#include "shim/green.h"
#include "shim/order.h"
#include "shim/peer.h"
#include "shim/pinning.h"
#include <stdatomic.h>
#include <time.h>

#define HEAPS_MAX     256
#define REST_US       50
#define DRAIN_MS      1000  /* longest wait for the users of a heap in doubt */
#define OWNER_WAIT_MS 10000 /* longest wait of a free for a call that may end its context */

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_REGISTRY);
static cup_heap_t *g_heap[HEAPS_MAX]; /* guarded by g_lock */
static size_t g_count;                /* likewise */
static cup_pool_stat_t g_ended;       /* likewise: the sum of heaps that ended */
static cup_ending_t *g_ending;        /* likewise: the calls under way */
static _Atomic int g_endings;         /* how many; changed under g_lock */
static _Atomic uint64_t g_decided;    /* calls that have returned, ever; likewise */
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

/*
 * A context that a call may be ending gets no heap: it could be taken for its successor's. The context is
 * current.
 */
static bool is_ending_locked(CUcontext ctx)
{
    CUdevice device;

    if (!g_ending)
        return false;
    if (cup_drv.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return true;
    for (const cup_ending_t *ending = g_ending; ending; ending = ending->next)
        if (ending->ctx ? ending->ctx == ctx : ending->device == device)
            return true;
    return false;
}

static void end_locked(cup_heap_t *heap);

static cup_heap_t *find_or_create(CUcontext ctx, bool may_create)
{
    bool is_pinnable = may_create && cup_pinning_is_possible(); /* it takes the loader's lock */
    cup_heap_t *heap;

    cup_lock_acquire(&g_lock);
    heap = find_locked(ctx);
    if (heap && !g_ending && cup_heap_is_lost(heap)) { /* it ended out of our sight */
        end_locked(heap);
        heap = NULL;
    }
    if (!heap && may_create && g_count < HEAPS_MAX && !is_ending_locked(ctx)) {
        heap = cup_heap_create(ctx, is_pinnable);
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
    ctx = cup_green_primary(ctx);
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

void cup_registry_doubt_current(void)
{
    cup_heap_t *heap = cup_registry_acquire_current(false);

    if (!heap)
        return;
    cup_heap_is_sound(heap);
    cup_heap_leave(heap);
}

/* No pool answers for addr: because it is hidden until a call has returned. */
static bool is_hidden(cup_addr_t addr)
{
    bool is_found = false;

    if (atomic_load(&g_endings) == 0)
        return false;
    cup_lock_acquire(&g_lock);
    for (size_t i = 0; i < g_count && !is_found; i++)
        is_found = cup_heap_hides(g_heap[i], addr);
    cup_lock_release(&g_lock);
    return is_found;
}

static void rest(void)
{
    const struct timespec pause = {0, REST_US * 1000};

    nanosleep(&pause, NULL);
}

/*
 * While a call may be ending the context of addr, only its return tells whose addr is. The cap is for what
 * natively had been refused: a host function that the end of the context waits for.
 */
cup_heap_t *cup_registry_acquire_owner(cup_addr_t addr)
{
    for (unsigned i = 0; i < OWNER_WAIT_MS * 1000 / REST_US; i++) {
        uint64_t decided = atomic_load(&g_decided);
        cup_pool_t *pool = cup_pool_owner(addr);
        cup_heap_t *heap = pool ? cup_pool_self(pool) : NULL;

        if (heap && cup_heap_enter(heap))
            return heap;
        if (heap ? cup_heap_has_ended(heap) : !is_hidden(addr) && atomic_load(&g_decided) == decided)
            return NULL;
        rest();
    }
    return NULL;
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
    sum->quarantined_bytes += part->quarantined_bytes;
    sum->idle_bytes += part->idle_bytes;
    sum->cached_dedicated_bytes += part->cached_dedicated_bytes;
    sum->chunks += part->chunks;
    sum->reserves += part->reserves;
    sum->releases += part->releases;
}

/* Takes it out of the table; what it held is gone, what it did stays in the sum. */
static void end_locked(cup_heap_t *heap)
{
    cup_pool_stat_t stat;
    size_t index = 0;

    cup_heap_stat(heap, &stat);
    stat.footprint_bytes = stat.live_bytes = stat.live_blocks = stat.limbo_bytes = stat.limbo_blocks = 0;
    stat.idle_bytes = stat.cached_dedicated_bytes = stat.chunks = stat.quarantined_bytes = 0;
    add_stat(&g_ended, &stat);
    while (g_heap[index] != heap)
        index++;
    g_heap[index] = g_heap[--g_count];
    atomic_fetch_add(&g_generation, 1);
    cup_heap_end(heap);
}

/* ---- calls that may end contexts ---- */

static bool is_meant(const cup_ending_t *ending, const cup_heap_t *heap)
{
    return ending->ctx ? cup_heap_ctx(heap) == ending->ctx : cup_heap_device(heap) == ending->device;
}

static bool hide_locked(const cup_ending_t *ending)
{
    bool is_hidden = true;

    for (size_t i = 0; i < g_count; i++)
        if (is_meant(ending, g_heap[i]))
            is_hidden &= cup_heap_try_hide(g_heap[i]);
    return is_hidden;
}

/* Without the lock: it waits for the GPU. */
static void settle_meant(const cup_ending_t *ending)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = 0;

    cup_lock_acquire(&g_lock);
    for (size_t i = 0; i < g_count; i++)
        if (is_meant(ending, g_heap[i]))
            heap[count++] = g_heap[i];
    cup_lock_release(&g_lock);
    for (size_t i = 0; i < count; i++)
        cup_heap_settle(heap[i]);
}

/*
 * A user may be waiting for the GPU, in a call of the driver's. A context's end waits for that as well; the
 * release of one reference among several does not, so it is not kept for long. What is left then: a chunk
 * that is being given back while another context gets its addresses.
 */
void cup_registry_begin_end(cup_ending_t *ending)
{
    bool is_hidden = false;

    cup_order_begin_endings();
    settle_meant(ending);
    cup_lock_acquire(&g_lock);
    atomic_fetch_add(&g_endings, 1);
    ending->next = g_ending;
    g_ending = ending;
    for (size_t i = 0; i < g_count; i++)
        if (is_meant(ending, g_heap[i]))
            cup_heap_doubt(g_heap[i]);
    for (unsigned i = 0; i < DRAIN_MS * 1000 / REST_US && !is_hidden; i++) {
        is_hidden = hide_locked(ending);
        cup_lock_release(&g_lock);
        if (!is_hidden)
            rest();
        cup_lock_acquire(&g_lock);
    }
    cup_lock_release(&g_lock);
}

static void leave_list_locked(const cup_ending_t *ending)
{
    cup_ending_t **at = &g_ending;

    while (*at != ending)
        at = &(*at)->next;
    *at = ending->next;
}

/*
 * What had access by a context that has ended has none any more. A heap that was in doubt catches up, too.
 */
static void part_from_ended(CUcontext ended)
{
    cup_peer_forget_ended(ended);
    cup_registry_follow_peers(NULL);
}

void cup_registry_finish_end(cup_ending_t *ending, bool has_ended)
{
    cup_lock_acquire(&g_lock);
    for (size_t i = g_count; i-- > 0;) {
        if (!is_meant(ending, g_heap[i]))
            continue;
        if (has_ended || cup_heap_is_lost(g_heap[i]))
            end_locked(g_heap[i]);
        else
            cup_heap_trust(g_heap[i]);
    }
    leave_list_locked(ending);
    atomic_fetch_add(&g_decided, 1);
    atomic_fetch_sub(&g_endings, 1);
    cup_lock_release(&g_lock);
    cup_order_finish_endings();
    part_from_ended(has_ended ? ending->ctx : NULL);
}

void cup_registry_end_lost(int device)
{
    cup_lock_acquire(&g_lock);
    for (size_t i = g_count; i-- > 0;)
        if (cup_heap_device(g_heap[i]) == device && cup_heap_is_lost(g_heap[i]))
            end_locked(g_heap[i]);
    cup_lock_release(&g_lock);
    part_from_ended(NULL);
}

/* ---- all heaps ---- */

/* The heaps of a device, not entered: they are never given back, so each is entered when its turn comes. */
static size_t list_all(int device, cup_heap_t **out_heap)
{
    size_t count = 0;

    cup_lock_acquire(&g_lock);
    for (size_t i = 0; i < g_count; i++)
        if (device == CUP_REGISTRY_ANY_DEVICE || cup_heap_device(g_heap[i]) == device)
            out_heap[count++] = g_heap[i];
    cup_lock_release(&g_lock);
    return count;
}

CUresult cup_registry_follow_peers(CUcontext ctx)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = list_all(CUP_REGISTRY_ANY_DEVICE, heap);
    CUresult result = CUDA_SUCCESS, one;

    for (size_t i = 0; i < count; i++) {
        if ((ctx && cup_heap_ctx(heap[i]) != ctx) || !cup_heap_enter(heap[i]))
            continue;
        one = cup_heap_follow_peers(heap[i]);
        result = result == CUDA_SUCCESS ? one : result;
        cup_heap_leave(heap[i]);
    }
    return result;
}

uint64_t cup_registry_trim(int device, uint64_t want_bytes)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = list_all(device, heap);
    uint64_t given = 0;

    for (size_t i = 0; i < count && given < want_bytes; i++) {
        if (!cup_heap_enter(heap[i]))
            continue;
        given += cup_heap_trim(heap[i], want_bytes - given);
        cup_heap_leave(heap[i]);
    }
    return given;
}

uint64_t cup_registry_reusable_bytes(int device)
{
    cup_heap_t *heap[HEAPS_MAX];
    size_t count = list_all(device, heap);
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        cup_pool_stat_t stat;

        if (!cup_heap_enter(heap[i]))
            continue;
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
