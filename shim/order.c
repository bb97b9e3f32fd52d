/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol. Numbers 1, 2, 3 ... each an order point. What must hold: whatever was submitted before a free starts runs,
 * on the device, before whatever is submitted by a call that starts after the free has returned.
 *
 *   free        stamp the block with `open`; then dirty = 1; then give the block away
 *   submission  1  incall = the stream, by an exchange (full fence)
 *    on t       2  if dirty: close, under the lock, if it is still dirty:
 *                    a  dirty = 2, n = open, open = n + 1
 *                    b  the streams of other threads' call words: I. Then the busy set, taken out: B. Then call words again.
 *                    c  record event n so that it covers B and I
 *                    d  publish point = n; add I to the busy set; dirty from 2 to 0, if it is still 2
 *               3  if t has not passed `point`: make it wait for the event, unless that was recorded on t; then note it
 *               4  add t to the busy set; the real call; incall = none
 *
 * Why no byte is early. The next owner's submission starts after the free, so it meets dirty, or a point recorded after
 * the free; either way its stream passes a point that covers what came before the free. A free that marks while a point
 * is being recorded turns 2 into 1, and d leaves it. Work that a busy set forgets is in no later point's record, so
 * nothing is ever forgotten: a call that began before a and submits after c is in its call word at b, and goes back
 * into the set; one that begins after a sees dirty and waits for the lock.
 *
 * Why nobody hangs who would not hang natively. With one thread a point covers just what the native free had waited
 * for: nothing that was submitted after the free is in it, because the first submission after it closes it first. Points
 * that are closed for other reasons (loose) are for the clock alone: nobody is made to pass them. Waits go to the
 * submitting stream only.
 *
 * overlap. Freed blocks wait until they are complete; frees close points in batches (tight: a native free would have
 * waited for all that the last of the batch finds). Only when memory is short are blocks of closed, tight points handed
 * out early: `need` rises first, and from then on a submission must have passed it.
 *
 * What the program itself has waited for needs no point: a stream that it synchronised, and to which nobody has begun to
 * submit since, is left out (idle.h). A loop that waits for each result costs nothing here.
 *
 * Slots. A context that ends leaves its slot to another, whose numbers go on where its own ended: what streams
 * noted as passed stays true.
 *
 * How a point is recorded, and the audit: order_record.c. The ring of closed points, the clock: order_ring.c. Passing, and
 * who is busy: order_pass.c. What operations do to host memory: order_host.c.
 */
#include "shim/order.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/green.h"
#include "shim/idle.h"
#include "shim/order_inner.h"
#include "shim/stat.h"

#define FREES_MAX 16
#define BYTES_MAX (16 * CUP_MIB)
#define SLOT_GAP  1000000 /* numbers that submitters which still hold the order that had the slot may close */

_Atomic(cup_order_t *) cup_orders[CUP_ORDERS_MAX];
_Atomic int cup_order_slots;              /* ever used */
static _Atomic int g_followed;            /* live orders that follow submissions */
static _Atomic uint64_t g_generation = 1; /* never 0 */
static _Atomic int g_endings;             /* calls under way that may end contexts */

static _Thread_local struct {
    uint64_t generation;
    CUcontext ctx;
    cup_order_t *order;
} t_last __attribute__((tls_model("initial-exec")));

/* A slot that was never used or whose context has ended, with the number that it goes on from. */
static int find_slot_locked(cup_point_t *out_point)
{
    for (int i = 0; i < CUP_ORDERS_MAX; i++) {
        cup_order_t *order = atomic_load(&cup_orders[i]);

        if (order && atomic_load(&order->life) != CUP_ORDER_ENDED)
            continue;
        *out_point = order ? atomic_load(&order->open) + SLOT_GAP : 0;
        return i;
    }
    return -1;
}

static bool install_locked(cup_order_t *order)
{
    cup_point_t point;

    order->slot = find_slot_locked(&point);
    if (order->slot < 0)
        return false;
    order->before = atomic_load(&cup_orders[order->slot]);
    order->completed = point;
    order->captures = cup_capture_count();
    atomic_store(&order->point, point);
    atomic_store(&order->open, point + 1);
    atomic_store(&cup_orders[order->slot], order);
    if (order->slot >= atomic_load(&cup_order_slots))
        atomic_store(&cup_order_slots, order->slot + 1);
    atomic_fetch_add(&g_generation, 1);
    if (cup_order_follows(order))
        atomic_fetch_add(&g_followed, 1);
    return true;
}

cup_order_t *cup_order_create(CUcontext ctx, cup_order_mode_t mode)
{
    cup_order_t *order = cup_meta_alloc(sizeof(*order));
    bool is_installed = false;

    if (!order)
        return NULL;
    order->ctx = ctx;
    order->mode = mode;
    order->has_record = cup_drv_has(CUP_DRV_cuCtxRecordEvent);
    order->legacy = cup_stream_create(CU_STREAM_LEGACY, CUP_STREAM_LEGACY, order);
    atomic_store(&order->busy.is_several, true);
    cup_lock_init(&order->lock, CUP_LOCK_ORDER);
    if (order->legacy) {
        cup_capture_lock();
        is_installed = install_locked(order);
        cup_capture_unlock();
    }
    if (is_installed)
        return order;
    cup_meta_free(order->legacy, sizeof(*order->legacy));
    cup_meta_free(order, sizeof(*order));
    return NULL;
}

void cup_order_begin_endings(void)
{
    atomic_fetch_add(&g_endings, 1);
    atomic_fetch_add(&g_generation, 1);
}

void cup_order_finish_endings(void)
{
    atomic_fetch_sub(&g_endings, 1);
    atomic_fetch_add(&g_generation, 1);
}

bool cup_order_is_steady(void)
{
    return atomic_load(&g_endings) == 0;
}

void cup_order_ending(cup_order_t *order)
{
    cup_order_life_t live = CUP_ORDER_LIVE;

    if (cup_order_follows(order))
        cup_order_settle(order);
    cup_capture_context_ending(order->ctx);
    atomic_compare_exchange_strong(&order->life, &live, CUP_ORDER_ENDING);
    atomic_fetch_add(&g_generation, 1);
}

/* What was submitted meanwhile was not followed. */
void cup_order_go_on(cup_order_t *order)
{
    cup_order_life_t ending = CUP_ORDER_ENDING;

    atomic_store(&order->busy.is_several, true);
    atomic_compare_exchange_strong(&order->life, &ending, CUP_ORDER_LIVE);
    cup_capture_context_ended(order->ctx, false);
    atomic_fetch_add(&g_generation, 1);
}

void cup_order_end(cup_order_t *order)
{
    if (atomic_exchange(&order->life, CUP_ORDER_ENDED) == CUP_ORDER_ENDED)
        return;
    cup_capture_context_ended(order->ctx, true);
    atomic_fetch_add(&g_generation, 1);
    if (cup_order_follows(order))
        atomic_fetch_sub(&g_followed, 1);
}

cup_order_t *cup_order_of(CUcontext ctx)
{
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);

    ctx = cup_green_primary(ctx);
    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        if (order->ctx == ctx && cup_order_is_live(order))
            return order;
    }
    return NULL;
}

cup_order_t *cup_order_current(void)
{
    uint64_t generation = cup_order_generation();
    CUcontext ctx = NULL;

    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return NULL;
    if (t_last.generation != generation || t_last.ctx != ctx) {
        t_last.order = cup_green_is(ctx) ? NULL : cup_order_of(ctx);
        t_last.ctx = ctx;
        t_last.generation = generation;
    }
    return t_last.order;
}

uint64_t cup_order_generation(void)
{
    return atomic_load_explicit(&g_generation, memory_order_acquire);
}

bool cup_order_is_followed(void)
{
    return atomic_load_explicit(&g_followed, memory_order_relaxed) > 0;
}

int cup_order_slot(const cup_order_t *order)
{
    return order->slot;
}

cup_stream_t *cup_order_legacy(cup_order_t *order)
{
    return order->legacy;
}

bool cup_order_holds(cup_addr_t addr)
{
    int slots = atomic_load_explicit(&cup_order_slots, memory_order_acquire);

    for (int i = 0; addr != 0 && i < slots; i++) {
        cup_order_t *order = atomic_load_explicit(&cup_orders[i], memory_order_acquire);

        if (cup_order_is_live(order) && atomic_load(&order->byte) == addr)
            return true;
    }
    return false;
}

/* ---- free ---- */

cup_point_t cup_order_stamp(cup_order_t *order)
{
    cup_point_t stamp = atomic_load_explicit(&order->open, memory_order_acquire);

    atomic_store_explicit(&order->is_awaited, true, memory_order_release);
    return stamp;
}

static bool is_closable(cup_order_t *order)
{
    bool is_closable;

    cup_lock_acquire(&order->lock);
    is_closable = order->captures == 0 || cup_order_is_busy_known(order);
    cup_lock_release(&order->lock);
    return is_closable;
}

/* Captures that are over, and nobody has said so, are asked for only where they would matter. */
static bool can_close(cup_order_t *order)
{
    if (!cup_capture_is_active() || is_closable(order))
        return true;
    cup_capture_sweep();
    return is_closable(order);
}

/* Beside a capture, where nobody knows who is busy: the host waits, as the native free had. */
static bool close_at_once(cup_order_t *order)
{
    CUresult result;

    cup_lock_acquire(&order->lock);
    result = cup_point_close_locked(order, NULL, false, true);
    cup_lock_release(&order->lock);
    return result == CUDA_SUCCESS;
}

bool cup_order_stamp_ordered(cup_order_t *order, cup_point_t *out_stamp)
{
    *out_stamp = atomic_load_explicit(&order->open, memory_order_acquire);
    if (!can_close(order)) {
        if (close_at_once(order))
            return true;
        atomic_store(&order->is_awaited, true);
        return false;
    }
    if (atomic_load_explicit(&order->dirty, memory_order_relaxed) != 1)
        atomic_store_explicit(&order->dirty, 1, memory_order_release);
    return true;
}

CUresult cup_order_freed(cup_order_t *order, uint64_t size_bytes, bool is_due)
{
    CUresult result = CUDA_SUCCESS;
    bool is_captured;

    cup_lock_acquire(&order->lock);
    order->freed_count++;
    order->freed_bytes += size_bytes;
    is_captured = order->captures > 0;
    if (!is_captured && (is_due || order->freed_count >= FREES_MAX || order->freed_bytes >= BYTES_MAX))
        result = cup_point_close_locked(order, NULL, order->mode == CUP_ORDER_EXACT, false);
    cup_lock_release(&order->lock);
    return is_captured && is_due && order->mode == CUP_ORDER_SYNC ? cup_point_wait_natively(order) : result;
}

/* ---- overlap ---- */

cup_point_t cup_order_hand_out(cup_order_t *order)
{
    cup_point_t tight = atomic_load_explicit(&order->due, memory_order_acquire);
    cup_point_t need = atomic_load(&order->need);

    while (need < tight && !atomic_compare_exchange_weak(&order->need, &need, tight))
        ;
    return tight;
}

/* ---- captures ---- */

/* Another capture may be in progress, and another thread in a call on a stream of its own. */
static void close_patiently(cup_order_t *order)
{
    CUresult result = CUP_POINT_NOT_NOW;

    for (int tries = 0; result == CUP_POINT_NOT_NOW && tries < CUP_ORDER_PATIENT_TRIES; tries++) {
        if (tries > 0)
            cup_order_rest(NULL);
        cup_lock_acquire(&order->lock);
        cup_point_need_joiner_locked(order);
        result = cup_point_close_locked(order, cup_stream_thread(), true, false);
        if (!cup_order_is_busy_known(order)) /* that does not pass */
            result = CUDA_SUCCESS;
        cup_lock_release(&order->lock);
    }
}

/*
 * From now on only streams that don't capture can be recorded on: what is busy now is closed off, or a stream that goes on
 * to capture would keep the next point from being closed.
 */
void cup_order_capture_begins(void)
{
    int slots = atomic_load(&cup_order_slots);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load(&cup_orders[i]);

        if (cup_order_follows(order) && cup_order_is_live(order)) {
            close_patiently(order);
            cup_order_seal_host(order->legacy); /* which a capture of a blocking stream implies */
        }
        cup_lock_acquire(&order->lock);
        order->captures++;
        cup_lock_release(&order->lock);
    }
}

void cup_order_before_join(cup_stream_t *stream, cup_thread_t *self)
{
    cup_order_t *order = atomic_load_explicit(&stream->order, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;

    if (!order || !cup_order_follows(order))
        return;
    if (atomic_load(&stream->is_host_open))
        cup_order_seal_host(stream);
    cup_lock_acquire(&order->lock);
    if (order->captures > 0 && cup_order_is_busy(order, stream) && !cup_idle_is(stream))
        result = cup_point_close_locked(order, self, true, false);
    cup_lock_release(&order->lock);
    if (result != CUDA_SUCCESS)
        cup_order_note_tail(stream, self);
}

void cup_order_capture_ended(void)
{
    int slots = atomic_load(&cup_order_slots);

    for (int i = 0; i < slots; i++) {
        cup_order_t *order = atomic_load(&cup_orders[i]);

        cup_lock_acquire(&order->lock);
        order->captures--;
        cup_lock_release(&order->lock);
    }
}
