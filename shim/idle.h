/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle - streams that the program itself has waited for: what was submitted to them is done, and a point need not cover it.
 * What:       look before a call that waits for a stream, note after it succeeded.
 * Not here:   what follows from it (order.c, step b).
 * Invariants: a stream is idle while nobody has begun to submit to it since a look at which nobody was in a call on it.
 *             Submitters publish their call word, then count, then call the driver; a look reads the count, then the call
 *             words: a call that it counted and does not see has returned, so the wait covers it.
 * Threads:    any thread; no lock.
 */
#ifndef CUP_SHIM_IDLE_H
#define CUP_SHIM_IDLE_H
#include "shim/stream.h"

typedef struct cup_idle {
    cup_stream_t *stream; /* NULL: nothing can be said */
    uint64_t begun;
} cup_idle_t;

static inline bool cup_idle_is(cup_stream_t *stream)
{
    return atomic_load(&stream->begun) == atomic_load(&stream->idle_at);
}

static inline cup_idle_t cup_idle_look(cup_stream_t *stream, const cup_thread_t *self)
{
    cup_idle_t idle = {stream, stream ? atomic_load(&stream->begun) : 0};

    for (cup_thread_t *thread = cup_stream_threads(); idle.stream && thread; thread = thread->next)
        if (thread != self && cup_call_word_stream(atomic_load(&thread->incall)) == stream)
            idle.stream = NULL;
    return idle;
}

static inline void cup_idle_note(const cup_idle_t *idle)
{
    if (idle->stream)
        atomic_store(&idle->stream->idle_at, idle->begun);
}

#endif /* CUP_SHIM_IDLE_H */
