/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a small table of stream handles. The per-thread stream is one handle for many streams; each of its captures is an
 * entry, and any end of one takes one away. A table that is full counts what it could not hold; that count only comes down
 * by an End.
 *
 * A stream that is being destroyed, or whose context is, captures until the driver's call is over: its entry stays, but the
 * handle is not named any more. It may be another stream's, which captures too, before the call has returned.
 */
#include "shim/capture.h"
#include "allocator/lock.h"
#include "shim/drv.h"
#include "shim/order.h"
#include <stdatomic.h>
#include <stddef.h>

#define STREAMS_MAX 256

typedef struct entry {
    CUstream stream;
    CUcontext ctx;
    bool
        has_begun; /* the real Begin has returned: until then the driver would say that it does not capture */
    bool is_going;
} entry_t;

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_CAPTURE);
static entry_t g_entry[STREAMS_MAX]; /* guarded by g_lock */
static int g_entries;                /* in use; likewise */
_Atomic int cup_captures;            /* captures, those beyond the table included; changed under g_lock */

void cup_capture_lock(void)
{
    cup_lock_acquire(&g_lock);
}

void cup_capture_unlock(void)
{
    cup_lock_release(&g_lock);
}

int cup_capture_count(void)
{
    return atomic_load(&cup_captures);
}

static void leave_locked(int index)
{
    if (index >= 0)
        g_entry[index] = g_entry[--g_entries];
    atomic_fetch_sub(&cup_captures, 1);
    cup_order_capture_ended();
}

/* -1: not in the table. */
static int find_locked(CUstream stream, bool is_going)
{
    int index = g_entries - 1;

    while (index >= 0 && (g_entry[index].stream != stream || g_entry[index].is_going != is_going))
        index--;
    return index;
}

static CUcontext context_of(CUstream stream)
{
    bool is_null = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    CUcontext ctx = NULL;

    if ((is_null ? cup_drv.cuCtxGetCurrent(&ctx) : cup_drv.cuStreamGetCtx(stream, &ctx)) != CUDA_SUCCESS)
        return NULL;
    return ctx;
}

void cup_capture_begin(CUstream stream)
{
    CUcontext ctx = context_of(stream);

    cup_lock_acquire(&g_lock);
    atomic_fetch_add(&cup_captures, 1); /* first: who ends a call from here on leaves a tail (submit.c) */
    cup_order_capture_begins();
    if (g_entries < STREAMS_MAX)
        g_entry[g_entries++] = (entry_t){.stream = stream, .ctx = ctx};
    cup_lock_release(&g_lock);
}

static void leave(CUstream stream)
{
    int index;

    cup_lock_acquire(&g_lock);
    index = find_locked(stream, false);
    if (index >= 0 || atomic_load(&cup_captures) > g_entries)
        leave_locked(index);
    cup_lock_release(&g_lock);
}

void cup_capture_began(CUstream stream, bool is_success)
{
    if (!is_success) {
        leave(stream);
        return;
    }
    cup_lock_acquire(&g_lock);
    for (int i = 0; i < g_entries; i++)
        g_entry[i].has_begun |= g_entry[i].stream == stream && !g_entry[i].is_going;
    cup_lock_release(&g_lock);
}

/*
 * INVALIDATED and UNJOINED end the capture as success does: the stream captures no more (CUDA 13
 * documentation of cuStreamEndCapture; tests/gpu/quirks.c). Any other code leaves it capturing or never was
 * one of ours.
 */
void cup_capture_ended(CUstream stream, CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
        leave(stream);
        break;
    default:
        break;
    }
}

bool cup_capture_destroying(CUstream stream)
{
    int index;

    if (!cup_capture_is_active())
        return false;
    cup_lock_acquire(&g_lock);
    index = find_locked(stream, false);
    if (index >= 0)
        g_entry[index].is_going = true;
    cup_lock_release(&g_lock);
    return index >= 0;
}

void cup_capture_destroyed(CUstream stream, bool is_success)
{
    int index;

    cup_lock_acquire(&g_lock);
    index = find_locked(stream, true);
    if (index >= 0 && is_success)
        leave_locked(index);
    else if (index >= 0)
        g_entry[index].is_going = false;
    cup_lock_release(&g_lock);
}

void cup_capture_context_ending(CUcontext ctx)
{
    cup_lock_acquire(&g_lock);
    for (int i = 0; i < g_entries; i++)
        g_entry[i].is_going |= g_entry[i].ctx == ctx;
    cup_lock_release(&g_lock);
}

void cup_capture_context_ended(CUcontext ctx, bool has_ended)
{
    cup_lock_acquire(&g_lock);
    for (int i = g_entries - 1; i >= 0; i--) {
        if (g_entry[i].ctx != ctx)
            continue;
        if (has_ended)
            leave_locked(i);
        else
            g_entry[i].is_going = false;
    }
    cup_lock_release(&g_lock);
}

/* The null streams can't be asked about from another thread: theirs stay until an End. */
static bool has_ended(const entry_t *entry)
{
    CUstreamCaptureStatus status;

    if (!entry->has_begun || entry->is_going || !entry->stream || entry->stream == CU_STREAM_LEGACY ||
        entry->stream == CU_STREAM_PER_THREAD)
        return false;
    return cup_drv.cuStreamIsCapturing(entry->stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}

void cup_capture_sweep(void)
{
    cup_lock_acquire(&g_lock);
    for (int i = g_entries - 1; i >= 0; i--)
        if (has_ended(&g_entry[i]))
            leave_locked(i);
    cup_lock_release(&g_lock);
}
