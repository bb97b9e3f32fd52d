/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the frame of steps 1, 3 and 4 of order.c's protocol around the real call. Work that is captured is not submitted:
 * its graph's launch is.
 */
#include "shim/submit.h"
#include "allocator/pool.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/green.h"
#include "shim/idle.h"
#include "shim/order.h"
#include "shim/stat.h"
#include "shim/stream.h"
#include "shim/zero.h"

/* The legacy stream says IMPLICIT while a blocking stream captures: the real call will be refused. */
static bool is_captured(const cup_stream_t *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cup_capture_is_active() &&
           (cup_drv.cuStreamIsCapturing(stream->handle, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static void doubt(void (*note)(void))
{
    CUP_STAT_ADD(doubts, 1);
    cup_order_settle_all();
    cup_zero_settle();
    note();
}

static bool is_green_current(void)
{
    CUcontext ctx = NULL;

    return cup_drv.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx && cup_green_is(ctx);
}

/*
 * A stream that can't be found (another context's null stream, a driver that does not answer) may be any. Of a green context
 * it is one more stream of its primary's, in which this call can't be seen.
 */
static void begin(cup_call_t *call, cup_place_t place)
{
    cup_thread_t *thread = cup_stream_thread();
    cup_stream_t *stream = thread ? cup_stream_find(place, thread) : NULL;

    if (!stream) {
        doubt(is_green_current() ? cup_order_distrust_all : cup_order_note_all_busy);
        call->is_unseen = true;
        return;
    }
    if (is_captured(stream) || atomic_load_explicit(&thread->incall, memory_order_relaxed))
        return;
    call->thread = thread;
    call->stream = stream;
    atomic_exchange(&thread->incall, (cup_call_word_t)stream | !!(call->rule & CUP_SUBMIT_EVERYWHERE));
    cup_order_pass_all(stream, thread);
    cup_zero_pass(stream);
    if (call->rule & CUP_SUBMIT_EVERYWHERE)
        cup_order_note_others_busy(stream);
    cup_order_note_busy(stream);
    if (call->rule & CUP_SUBMIT_BLOCKING) {
        cup_idle_t idle = cup_idle_look(stream, thread);

        call->is_alone = idle.stream != NULL;
        call->begun = idle.begun;
    }
    if (!(call->rule & CUP_SUBMIT_HOST) && atomic_load_explicit(&stream->is_host_open, memory_order_relaxed))
        cup_order_seal_host(stream);
    call->fenced = atomic_load_explicit(&stream->fenced, memory_order_relaxed);
    call->must_be_plain = call->rule & CUP_SUBMIT_PROGRAMMATIC &&
                          atomic_load_explicit(&stream->plain, memory_order_relaxed) < call->fenced;
}

void cup_submit_begin(cup_call_t *call, cup_place_t place, unsigned rule)
{
    *call = (cup_call_t){.rule = rule};
    if (!cup_order_is_followed() || place.is_nowhere || !cup_gate_enter(false))
        return;
    begin(call, place);
    cup_gate_leave();
}

void cup_submit_begin_own(cup_call_t *call, CUstream stream)
{
    *call = (cup_call_t){.rule = CUP_SUBMIT_PLAIN};
    if (cup_order_is_followed())
        begin(call, CUP_ON(stream));
}

/* From here on a programmatic launch on the stream can't run beside what the points cover. */
static void note_plain(const cup_call_t *call)
{
    bool is_plain = !(call->rule & (CUP_SUBMIT_PROGRAMMATIC | CUP_SUBMIT_MARK)) || call->must_be_plain;
    uint64_t plain = atomic_load_explicit(&call->stream->plain, memory_order_relaxed);

    while (is_plain && plain < call->fenced &&
           !atomic_compare_exchange_weak(&call->stream->plain, &plain, call->fenced))
        ;
}

static void note_host(const cup_call_t *call)
{
    if (!(call->rule & CUP_SUBMIT_HOST) || !cup_gate_enter(false))
        return;
    cup_order_note_host(call->stream);
    cup_gate_leave();
}

/*
 * After the call word is taken back: a capture that begins counts itself, then reads the call words; so either it sees this
 * call, and this thread sees the capture, or the call is over before the capture's first point.
 */
static void note_tail(const cup_call_t *call)
{
    if (call->stream->kind != CUP_STREAM_THREADS_OWN || !cup_order_needs_tail(call->stream) ||
        !cup_gate_enter(false))
        return;
    cup_order_note_tail(call->stream, call->thread);
    cup_gate_leave();
}

/* No call word told of it: a point may have been closed before it submitted, and have taken the note from before it. */
static void note_unseen(void)
{
    if (!cup_gate_enter(false))
        return;
    cup_order_note_all_busy();
    cup_gate_leave();
}

void cup_submit_end(cup_call_t *call, CUresult result)
{
    if (call->is_unseen)
        note_unseen();
    if (!call->stream)
        return;
    if (result == CUDA_SUCCESS) {
        note_plain(call);
        note_host(call);
        if (call->is_alone)
            cup_idle_note(&(cup_idle_t){call->stream, call->begun});
    }
    if (call->stream->kind == CUP_STREAM_THREADS_OWN)
        atomic_exchange(&call->thread->incall, 0);
    else
        atomic_store_explicit(&call->thread->incall, 0, memory_order_release);
    note_tail(call);
}

void cup_submit_destroyed(CUstream handle)
{
    cup_stream_t *stream;

    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return;
    stream = cup_stream_known(handle);
    if (stream)
        cup_order_stream_ends(stream);
    cup_gate_leave();
}

cup_idle_t cup_submit_look(cup_place_t place)
{
    cup_idle_t idle = {NULL, 0};
    cup_thread_t *thread;

    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return idle;
    thread = cup_stream_thread();
    if (thread)
        idle = cup_idle_look(cup_stream_find(place, thread), thread);
    cup_gate_leave();
    return idle;
}

int cup_submit_look_at_context(CUcontext ctx, cup_idle_t *out_idle)
{
    cup_thread_t *thread;
    cup_order_t *order;
    int count = 0;

    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return 0;
    thread = cup_stream_thread();
    order = ctx ? cup_order_of(ctx) : cup_order_current();
    if (thread && order)
        count = cup_order_look_at_busy(order, thread, out_idle);
    cup_gate_leave();
    return count;
}

void cup_submit_before_join(cup_place_t place)
{
    cup_thread_t *thread;
    cup_stream_t *stream;

    if (!cup_order_is_followed() || !cup_capture_is_active() || !cup_gate_enter(false))
        return;
    thread = cup_stream_thread();
    stream = thread ? cup_stream_find(place, thread) : NULL;
    if (stream && !is_captured(stream))
        cup_order_before_join(stream, thread);
    cup_gate_leave();
}

bool cup_submit_collect(void)
{
    bool has_waited;

    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return false;
    has_waited = cup_order_settle_all();
    cup_gate_leave();
    return has_waited;
}

void cup_submit_note_managed(void)
{
    cup_order_note_managed();
}

/* Or may be: the driver does not tell. */
static bool is_managed(CUdeviceptr pointer)
{
    unsigned is_managed = 0;

    return cup_drv.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer) !=
               CUDA_SUCCESS ||
           is_managed;
}

void cup_submit_note_global(CUdeviceptr pointer)
{
    if (is_managed(pointer))
        cup_order_note_managed();
}

bool cup_submit_is_host(CUdeviceptr pointer)
{
    CUmemorytype type = CU_MEMORYTYPE_HOST;

    if (!cup_order_is_followed() || cup_pool_owner(pointer))
        return false;
    /* Unknown to the driver: pageable memory of the host. Managed memory says DEVICE, and is the host's, too. */
    if (cup_drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS)
        return true;
    if (type != CU_MEMORYTYPE_DEVICE)
        return true;
    return is_managed(pointer);
}

static void doubt_in_gate(void (*note)(void))
{
    if (!cup_order_is_followed() || !cup_gate_enter(false))
        return;
    doubt(note);
    cup_gate_leave();
}

void cup_submit_doubt(void)
{
    doubt_in_gate(cup_order_note_all_busy);
}

void cup_submit_unknown(void)
{
    doubt_in_gate(cup_order_distrust_all);
}
