/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: handles are in a hash table of chains that only grow: readers walk them without a lock, a new entry is put in
 * front under one. A context's legacy stream hangs on its order, a thread's own streams on the thread.
 *
 * An entry remembers which order its stream belongs to, for one generation: contexts with a pool come and go seldom, and
 * each time every entry asks cuStreamGetCtx (15 ns) once more. It may be another stream by then, whose handle died with
 * its context: it starts with nothing passed, which costs one wait too many at most.
 *
 * A thread's struct is taken at its first submission and left at its end, by a key's destructor. Destructors of the
 * program that run later and submit take another one.
 */
#include "shim/stream.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/order.h"
#include <pthread.h>

#define BUCKETS 1024

static _Atomic(cup_stream_t *) g_bucket[BUCKETS];
static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_STREAM); /* adding to buckets and to the threads */
static _Atomic(cup_thread_t *) g_threads;
static pthread_key_t g_key;
static pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
static bool g_has_key;

_Thread_local cup_thread_t *cup_stream_self __attribute__((tls_model("initial-exec")));

/* ---- threads ---- */

/* The thread has ended, so its streams have; what it submitted may still run. */
static void leave_thread(void *arg)
{
    cup_thread_t *thread = arg;

    cup_stream_self = NULL;
    if (!cup_gate_enter(false))
        return; /* a forked child, or one that stands aside */
    for (int i = 0; i < CUP_ORDERS_MAX; i++)
        if (thread->own[i])
            cup_order_stream_ends(thread->own[i]);
    cup_gate_leave();
    atomic_store(&thread->is_taken, false);
}

static void make_key(void)
{
    g_has_key = pthread_key_create(&g_key, leave_thread) == 0;
}

static cup_thread_t *reuse_thread(void)
{
    for (cup_thread_t *thread = atomic_load(&g_threads); thread; thread = thread->next) {
        bool is_taken = false;

        if (!atomic_load_explicit(&thread->is_taken, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&thread->is_taken, &is_taken, true))
            return thread;
    }
    return NULL;
}

static cup_thread_t *make_thread(void)
{
    cup_thread_t *thread = cup_meta_alloc(sizeof(*thread));

    if (!thread)
        return NULL;
    atomic_store(&thread->is_taken, true);
    thread->next = atomic_load(&g_threads);
    while (!atomic_compare_exchange_weak(&g_threads, &thread->next, thread))
        ;
    return thread;
}

cup_thread_t *cup_stream_join(void)
{
    cup_thread_t *thread = reuse_thread();

    pthread_once(&g_key_once, make_key);
    if (!thread)
        thread = make_thread();
    if (thread && g_has_key)
        pthread_setspecific(g_key, thread);
    cup_stream_self = thread;
    return thread;
}

cup_thread_t *cup_stream_threads(void)
{
    return atomic_load(&g_threads);
}

/* ---- entries ---- */

cup_stream_t *cup_stream_create(CUstream handle, cup_stream_kind_t kind, struct cup_order *order)
{
    cup_stream_t *stream = cup_meta_alloc(sizeof(*stream));

    if (!stream)
        return NULL;
    stream->handle = handle;
    stream->kind = kind;
    atomic_store(&stream->order, order);
    return stream;
}

static _Atomic(cup_stream_t *) *bucket_of(CUstream handle)
{
    return &g_bucket[((uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 54];
}

cup_stream_t *cup_stream_known(CUstream handle)
{
    cup_stream_t *stream = atomic_load_explicit(bucket_of(handle), memory_order_acquire);

    while (stream && stream->handle != handle)
        stream = stream->next;
    return stream;
}

static cup_stream_t *add_handle(CUstream handle)
{
    cup_stream_t *stream;

    cup_lock_acquire(&g_lock);
    stream = cup_stream_known(handle);
    if (!stream) {
        stream = cup_stream_create(handle, CUP_STREAM_HANDLE, NULL);
        if (stream) {
            stream->next = atomic_load(bucket_of(handle));
            atomic_store_explicit(bucket_of(handle), stream, memory_order_release);
        }
    }
    cup_lock_release(&g_lock);
    return stream;
}

/* In another context than before it is another stream: the events of the one before ended with that. */
static void move_to(cup_stream_t *stream, struct cup_order *order)
{
    if (atomic_load_explicit(&stream->order, memory_order_relaxed) == order)
        return;
    atomic_store(&stream->host_event, NULL);
    atomic_store(&stream->is_host_open, false);
    atomic_store(&stream->tail, NULL);
    atomic_store(&stream->tailed, 0);
    atomic_store(&stream->order, order);
}

/* A handle that the driver does not know gets no entry: the call will be refused. */
static bool resolve(cup_stream_t *stream, CUstream handle, uint64_t generation)
{
    CUcontext ctx = NULL;

    if (cup_drv.cuStreamGetCtx(handle, &ctx) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < CUP_ORDERS_MAX; i++)
        atomic_store_explicit(&stream->passed[i], 0, memory_order_relaxed);
    move_to(stream, cup_order_of(ctx));
    atomic_store_explicit(&stream->generation, cup_order_is_steady() ? generation : 0, memory_order_release);
    return true;
}

static cup_stream_t *find_handle(CUstream handle)
{
    uint64_t generation = cup_order_generation();
    cup_stream_t *stream = cup_stream_known(handle);

    if (stream && atomic_load_explicit(&stream->generation, memory_order_acquire) == generation)
        return stream;
    if (!stream)
        stream = add_handle(handle);
    return stream && resolve(stream, handle, generation) ? stream : NULL;
}

static cup_stream_t *find_own(struct cup_order *order, cup_thread_t *thread)
{
    cup_stream_t **own = &thread->own[cup_order_slot(order)];

    if (!*own)
        *own = cup_stream_create(CU_STREAM_PER_THREAD, CUP_STREAM_THREADS_OWN, order);
    else
        move_to(*own, order);
    return *own;
}

cup_stream_t *cup_stream_find(cup_place_t place, cup_thread_t *thread)
{
    struct cup_order *order;

    if (place.stream && place.stream != CU_STREAM_LEGACY && place.stream != CU_STREAM_PER_THREAD)
        return find_handle(place.stream);
    order = cup_order_current();
    if (!order)
        return NULL;
    if (place.stream == CU_STREAM_PER_THREAD || (!place.stream && place.is_null_per_thread))
        return find_own(order, thread);
    return cup_order_legacy(order);
}
