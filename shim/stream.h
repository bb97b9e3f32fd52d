/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream - the streams that work is submitted to, and the threads that submit: the state that the order points keep
 * for each (order.h).
 * What:       handle -> entry, for the null stream by context, for per-thread streams by thread; a call word for each
 *             thread. Entries and threads are never given back, only used again: who holds a stale pointer reads memory
 *             of the right type.
 * Not here:   when a point is passed, what a call word is for (order.c).
 * Invariants: one entry for one stream that is alive. A destroyed handle comes back as another stream (measured: 200 of
 *             200), a dead thread's entries go to the next thread: both start with nothing passed.
 * Threads:    any thread. Finding takes no lock once the entry is there.
 */
#ifndef CUP_SHIM_STREAM_H
#define CUP_SHIM_STREAM_H
#include "allocator/types.h"
#include "shim/cuda_abi.h"
#include "shim/submit.h"
#include <stdatomic.h>

/* Contexts with a pool at one time: a slot number each, used again when the context has ended. */
#define CUP_ORDERS_MAX 64

struct cup_order;

typedef enum { CUP_STREAM_HANDLE, CUP_STREAM_LEGACY, CUP_STREAM_THREADS_OWN } cup_stream_kind_t;

typedef struct cup_stream {
    struct cup_stream *next; /* in its bucket */
    CUstream handle; /* as the driver takes it: for the null streams CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
    cup_stream_kind_t kind;
    _Atomic(struct cup_order *) order; /* of the stream's context; NULL: no pool there */
    _Atomic uint64_t generation;       /* the one in which `order` was found */
    _Atomic cup_point_t
        passed[CUP_ORDERS_MAX]; /* newest point of each context that later work here runs after */
    _Atomic uint64_t fenced;    /* points passed, of any context */
    _Atomic uint64_t plain;     /* of these, how many an operation without programmatic overlap came after */
    _Atomic(CUevent) tail;      /* of a thread's own: after its work so far, while captures are in progress */
    _Atomic uint64_t begun;     /* calls that began to submit to it */
    _Atomic uint64_t idle_at;   /* of these, how many were done when the program had waited for it (idle.h) */
    _Atomic uint64_t tailed;    /* of `begun`, how many the tail comes after */
    _Atomic(CUevent)
        host_event; /* after operations that touch host memory, once something else was put behind them */
    _Atomic bool
        is_host_open; /* such operations are the last on the stream: it has no event behind them yet */
    struct cup_stream *next_hosted;        /* in the list of hosted_by */
    _Atomic(struct cup_order *) hosted_by; /* the first context in which it had such operations */
    _Atomic uint64_t host_made;            /* such operations noted */
    _Atomic uint64_t host_paid;            /* of these, known finished */
} cup_stream_t;

/* The stream that a call is submitting to, or 0; the lowest bit: it may touch every context. */
typedef uintptr_t cup_call_word_t;

static inline cup_stream_t *cup_call_word_stream(cup_call_word_t word)
{
    return (cup_stream_t *)(word & ~(cup_call_word_t)1);
}

static inline bool cup_call_word_is_everywhere(cup_call_word_t word)
{
    return word & 1;
}

typedef struct cup_thread {
    struct cup_thread *next;
    _Atomic cup_call_word_t incall;
    _Atomic bool is_taken;             /* by a thread that lives */
    cup_stream_t *own[CUP_ORDERS_MAX]; /* its per-thread streams, by the context's slot */
} cup_thread_t;

extern _Thread_local cup_thread_t *cup_stream_self __attribute__((tls_model("initial-exec")));
cup_thread_t *cup_stream_join(void);

/* This thread's struct; NULL when there is no host memory. */
static inline cup_thread_t *cup_stream_thread(void)
{
    return cup_stream_self ? cup_stream_self : cup_stream_join();
}

/* Every thread that ever submitted, the first of a list by `next`. */
cup_thread_t *cup_stream_threads(void);

/* The entry of the place, made on demand; NULL when there is no host memory, no context, or nothing of ours there. */
cup_stream_t *cup_stream_find(cup_place_t place, cup_thread_t *thread);

/* A new entry of a kind, for a context's legacy stream. */
cup_stream_t *cup_stream_create(CUstream handle, cup_stream_kind_t kind, struct cup_order *order);

/* The handle's entry if there is one, for a stream that is about to be destroyed. */
cup_stream_t *cup_stream_known(CUstream handle);

#endif /* CUP_SHIM_STREAM_H */
