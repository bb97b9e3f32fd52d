/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: nothing is kept for each stream. While a set may be under way, each submission asks the event and,
 * if it is not complete, makes its stream wait for it; the first that finds it complete takes `open` back,
 * and all go fast again. An event that is recorded anew meanwhile covers more, all of it sets: the number
 * tells the two apart.
 *
 * Captures. The stream is ours and is never captured. Queries, waits on the host and the set itself go
 * under an exchange to relaxed mode, so that no capture of the calling thread minds (measured,
 * docs/captures.md). Work that is captured is not submitted: its graph's launch is, and passes.
 */
#include "shim/zero.h"
#include "shim/drv.h"
#include "shim/stat.h"
#include <stddef.h>

_Atomic unsigned cup_zero_count;

static _Atomic(cup_zero_t *) g_first;
static _Atomic uint64_t g_number;

static CUresult create_stream(CUstream *out_stream, CUevent *out_event)
{
    CUresult result = cup_drv.cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING);

    if (result != CUDA_SUCCESS)
        return result;
    result = cup_drv.cuEventCreate(out_event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        cup_drv.cuStreamDestroy_v2(*out_stream);
    return result;
}

CUresult cup_zero_init(cup_zero_t *zero, CUcontext ctx)
{
    CUcontext ignored;
    CUstream stream;
    CUresult result = cup_drv.cuCtxPushCurrent_v2(ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = create_stream(&stream, &zero->event);
    cup_drv.cuCtxPopCurrent_v2(&ignored);
    if (result != CUDA_SUCCESS)
        return result;
    zero->stream = stream;
    zero->next = atomic_load(&g_first);
    while (!atomic_compare_exchange_weak(&g_first, &zero->next, zero))
        ;
    atomic_fetch_add(&cup_zero_count, 1);
    return CUDA_SUCCESS;
}

void cup_zero_end(cup_zero_t *zero)
{
    atomic_store(&zero->has_ended, true);
}

static bool is_open(const cup_zero_t *zero, uint64_t *out_number)
{
    *out_number = atomic_load(&zero->open);
    return *out_number != 0 && !atomic_load(&zero->has_ended);
}

static void note_done(cup_zero_t *zero, uint64_t number)
{
    atomic_compare_exchange_strong(&zero->open, &number, 0);
}

CUresult cup_zero_set(cup_zero_t *zero, cup_addr_t addr, uint64_t size_bytes, bool is_ordered)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuMemsetD8Async(addr, 0, size_bytes, zero->stream);
    if (result == CUDA_SUCCESS && is_ordered)
        result = cup_drv.cuEventRecord(zero->event, zero->stream);
    else if (result == CUDA_SUCCESS)
        result = cup_drv.cuStreamSynchronize(zero->stream);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_ordered)
        atomic_store(&zero->open, atomic_fetch_add(&g_number, 1) + 1);
    CUP_STAT_ADD(zeroed, 1);
    return CUDA_SUCCESS;
}

static bool is_done(const cup_zero_t *zero)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuEventQuery(zero->event);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS;
}

/* False: the driver does not tell, and nothing is known. */
static bool settle(cup_zero_t *zero, uint64_t number)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    CUP_STAT_ADD(waits, 1);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    result = cup_drv.cuEventSynchronize(zero->event);
    cup_drv.cuThreadExchangeStreamCaptureMode(&mode);
    if (result == CUDA_SUCCESS)
        note_done(zero, number);
    return result == CUDA_SUCCESS;
}

/*
 * Captures may have begun out of our sight; what is captured is not submitted. A stream that refuses the
 * wait is served by the host.
 */
static void pass(cup_zero_t *zero, uint64_t number, cup_stream_t *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cup_drv.cuStreamIsCapturing(stream->handle, &status);

    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE)
        return;
    if (result == CUDA_SUCCESS)
        result = cup_drv.cuStreamWaitEvent(stream->handle, zero->event, 0);
    if (result == CUDA_SUCCESS) /* a programmatic launch would overlap across it (submit.c) */
        atomic_fetch_add_explicit(&stream->fenced, 1, memory_order_relaxed);
    else
        settle(zero, number);
}

void cup_zero_pass_slow(cup_stream_t *stream)
{
    uint64_t number;

    for (cup_zero_t *zero = atomic_load(&g_first); zero; zero = zero->next) {
        if (!is_open(zero, &number) || stream->handle == zero->stream)
            continue;
        if (is_done(zero))
            note_done(zero, number);
        else
            pass(zero, number, stream);
    }
}

bool cup_zero_settle_slow(void)
{
    bool has_waited = false;
    uint64_t number;

    for (cup_zero_t *zero = atomic_load(&g_first); zero; zero = zero->next)
        if (is_open(zero, &number))
            has_waited |= settle(zero, number);
    return has_waited;
}
