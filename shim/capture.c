/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a small table of stream handles under a readers-writer lock: records read, captures write. The
 * per-thread stream is one handle for many streams; each of its captures is an entry, and any end of one
 * takes one away. A table that is full counts what it could not hold; that count only comes down by an End.
 */
#include "shim/capture.h"
#include <pthread.h>
#include <stddef.h>

#define STREAMS_MAX 256

static pthread_rwlock_t g_lock = PTHREAD_RWLOCK_INITIALIZER;
static CUstream g_stream[STREAMS_MAX];
static size_t g_count;    /* entries in use */
static size_t g_overflow; /* captures beyond the table */

bool cup_capture_hold(void)
{
    pthread_rwlock_rdlock(&g_lock);
    if (g_count == 0 && g_overflow == 0)
        return true;
    pthread_rwlock_unlock(&g_lock);
    return false;
}

void cup_capture_put(void)
{
    pthread_rwlock_unlock(&g_lock);
}

/* False: the stream was not in the table. */
static bool drop_locked(CUstream stream)
{
    for (size_t i = 0; i < g_count; i++) {
        if (g_stream[i] == stream) {
            g_stream[i] = g_stream[--g_count];
            return true;
        }
    }
    return false;
}

void cup_capture_begin(CUstream stream)
{
    pthread_rwlock_wrlock(&g_lock);
    if (g_count < STREAMS_MAX)
        g_stream[g_count++] = stream;
    else
        g_overflow++;
    pthread_rwlock_unlock(&g_lock);
}

static void leave(CUstream stream)
{
    pthread_rwlock_wrlock(&g_lock);
    if (!drop_locked(stream) && g_overflow > 0)
        g_overflow--;
    pthread_rwlock_unlock(&g_lock);
}

void cup_capture_began(CUstream stream, bool is_success)
{
    if (!is_success)
        leave(stream);
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

void cup_capture_destroyed(CUstream stream)
{
    pthread_rwlock_wrlock(&g_lock);
    drop_locked(stream);
    pthread_rwlock_unlock(&g_lock);
}
