/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue - operations in order, each queue on a thread of its own. A queue's thread is started by the
 * first operation and ends when it has been idle for IDLE_MS. An operation starts when it is the head of
 * its queue and all that it depends on is done, after a random delay. The lock is released for the delay
 * and for the work. A closed queue lives on until it is drained: the handle of its stream may already
 * name another queue.
 *
 * The legacy stream: its operations depend on the newest one of every blocking queue, and theirs on its.
 *
 * Programmatic launches: one that the dice let may begin as soon as the kernel in front of it has begun,
 * on a thread of its own, also across records; across a wait once that is satisfied. It is done in its
 * turn, after all in front of it: stream order of completion is kept, what overlaps is the work.
 */
#include "driver.h"
#include "pattern.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_MS     200
#define STACK_BYTES (256 << 10)
#define EARLY_OF    4 /* one programmatic launch in so many is never early */

uint64_t sc_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Waits under the lock until woken, ms at most; false when the time is up. */
static bool wait_ms(pthread_cond_t *cond, uint64_t ms)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(ms / 1000);
    end.tv_nsec += (long)(ms % 1000 * 1000000);
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(cond, &sc.lock, &end) != ETIMEDOUT;
}

static void put_op(sc_op_t *op)
{
    if (!op || --op->refs > 0)
        return;
    free(op->work.staged);
    free(op->deps);
    free(op);
}

static void drop_deps(sc_op_t *op)
{
    for (unsigned i = 0; i < op->dep_count; i++)
        put_op(op->deps[i]);
    op->dep_count = 0;
}

/* ---- marks ---- */

bool sc_marks_are_done(const sc_marks_t *marks)
{
    for (unsigned i = 0; i < marks->count; i++)
        if (!marks->ops[i]->is_done)
            return false;
    return true;
}

void sc_marks_add(sc_marks_t *marks, sc_op_t *op)
{
    if (!op || op->is_done)
        return;
    marks->ops = sc_grow(marks->ops, marks->count + 1, sizeof *marks->ops);
    marks->ops[marks->count++] = op;
    op->refs++;
}

void sc_marks_clear(sc_marks_t *marks)
{
    for (unsigned i = 0; i < marks->count; i++)
        put_op(marks->ops[i]);
    free(marks->ops);
    *marks = (sc_marks_t){0};
}

uint64_t sc_marks_done_ns(const sc_marks_t *marks)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < marks->count; i++)
        if (marks->ops[i]->done_ns > newest)
            newest = marks->ops[i]->done_ns;
    return newest;
}

static CUresult wait_for_marks(const sc_marks_t *marks)
{
    uint64_t end_ns = sc_now_ns() + SC_WAIT_CAP_S * 1000000000ull;

    while (!sc_marks_are_done(marks)) {
        wait_ms(&sc.done, 1000);
        if (sc_now_ns() > end_ns) {
            fputs("softcuda: TIMEOUT waiting for operations\n", stderr);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
    }
    return CUDA_SUCCESS;
}

/* The caller's marks may be cleared by another thread while we wait: wait on a copy. */
CUresult sc_marks_wait(const sc_marks_t *marks)
{
    sc_marks_t copy = {0};

    for (unsigned i = 0; i < marks->count; i++)
        sc_marks_add(&copy, marks->ops[i]);
    CUresult status = wait_for_marks(&copy);
    sc_marks_clear(&copy);
    return status;
}

void sc_ctx_mark(sc_ctx_t *ctx, sc_marks_t *marks)
{
    for (sc_queue_t *queue = ctx->queues; queue; queue = queue->next)
        sc_marks_add(marks, queue->last);
    /* A primary context's green ones are parts of it. */
    for (sc_ctx_t *part = sc.contexts; part; part = part->next)
        for (sc_queue_t *queue = part->root == ctx ? part->queues : NULL; queue; queue = queue->next)
            sc_marks_add(marks, queue->last);
}

CUresult sc_ctx_drain(sc_ctx_t *ctx)
{
    sc_marks_t marks = {0};

    sc_ctx_mark(ctx, &marks);
    CUresult status = wait_for_marks(&marks);
    sc_marks_clear(&marks);
    return status == CUDA_SUCCESS ? ctx->sticky : status;
}

CUresult sc_op_wait(sc_op_t *op)
{
    sc_marks_t marks = {0};
    sc_ctx_t *ctx = op->queue->ctx;

    sc_marks_add(&marks, op);
    CUresult status = wait_for_marks(&marks);
    sc_marks_clear(&marks);
    return status == CUDA_SUCCESS ? ctx->sticky : status;
}

/* ---- the thread of a queue ---- */

static void unlink_unfinished(sc_op_t *op)
{
    *(op->older ? &op->older->newer : &sc.oldest) = op->newer;
    *(op->newer ? &op->newer->older : &sc.newest) = op->older;
    sc.unfinished--;
}

static bool is_ready(const sc_op_t *op)
{
    for (unsigned i = 0; i < op->dep_count; i++)
        if (!op->deps[i]->is_done)
            return false;
    return true;
}

static bool start_thread(void *(*run)(void *), void *argument);
static void *run_early(void *argument);

static void start_early(sc_op_t *op)
{
    op->refs++;
    op->may_be_early = false;
    op->queue->early_count--;
    op->is_early = start_thread(run_early, op);
    if (!op->is_early) /* it runs in its turn */
        op->refs--;
}

/* Starts what may begin beside the kernel in front of it. */
static void look_for_early(sc_queue_t *queue)
{
    const sc_op_t *front = NULL;

    if (queue->early_count == 0 || queue->holder)
        return;
    for (sc_op_t *op = queue->head; op && is_ready(op); op = op->next) {
        if (op->work.kind == SC_WORK_MARK)
            continue;
        if (op->work.kind != SC_WORK_KERNEL)
            return;
        if (front && op->may_be_early)
            start_early(op);
        if (!op->is_begun)
            return;
        front = op;
    }
}

static void wake_stuck(void)
{
    for (sc_ctx_t *ctx = sc.contexts; ctx; ctx = ctx->next)
        for (sc_queue_t *queue = ctx->queues; queue; queue = queue->next) {
            if (queue->is_stuck)
                pthread_cond_signal(&queue->wake);
            look_for_early(queue);
        }
}

static void finish_op(sc_queue_t *queue, sc_op_t *op, CUresult status)
{
    if (status != CUDA_SUCCESS && queue->ctx->sticky == CUDA_SUCCESS)
        queue->ctx->sticky = status;
    op->done_ns = sc_now_ns();
    op->is_done = true;
    queue->head = op->next;
    queue->length--;
    unlink_unfinished(op);
    if (sc_range_lingers())
        sc_range_settle();
    wake_stuck();
    pthread_cond_broadcast(&sc.done);
    put_op(op);
}

/* Mostly short, now and then the longest: both kinds of race want to be met. */
static uint64_t draw_delay_us(sc_queue_t *queue)
{
    uint64_t draw = softcuda_splitmix64(++queue->random);

    if (sc.delay_us == 0)
        return 0;
    return draw % 4 == 0 ? (draw >> 8) % (sc.delay_us + 1) : (draw >> 8) % (sc.delay_us / 8 + 1);
}

/* The lock is released while it runs. What it touches stays readable until it is finished: range.c. */
static CUresult begin_op(sc_queue_t *queue, sc_op_t *op)
{
    uint64_t begun_ns = sc_now_ns();

    sc_overlap_check(op);
    if (!sc_work_is_legal(&op->work, queue->ctx))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    op->is_begun = true;
    look_for_early(queue);
    pthread_mutex_unlock(&sc.lock);
    CUresult status = sc_work_run(&op->work);
    sc_time_work(&op->work, begun_ns);
    pthread_mutex_lock(&sc.lock);
    return status;
}

/* Nobody stays held for ever. */
static bool is_held(sc_queue_t *queue)
{
    if (queue->holder && sc_now_ns() > queue->held_ns + SC_WAIT_CAP_S * 1000000000ull) {
        fputs("softcuda: TIMEOUT waiting for softcuda_release\n", stderr);
        queue->holder = NULL;
    }
    return queue->holder != NULL;
}

/* The delay, then the work; not while the queue is held. */
static CUresult run_op(sc_queue_t *queue, sc_op_t *op)
{
    uint64_t delay_us = op->work.kind == SC_WORK_MARK ? 0 : draw_delay_us(queue);
    const struct timespec delay = {.tv_sec = (time_t)(delay_us / 1000000),
                                   .tv_nsec = (long)(delay_us % 1000000 * 1000)};

    if (delay_us > 0) {
        pthread_mutex_unlock(&sc.lock);
        nanosleep(&delay, NULL);
        pthread_mutex_lock(&sc.lock);
    }
    while (is_held(queue))
        wait_ms(&sc.done, IDLE_MS);
    if (queue->ctx->sticky != CUDA_SUCCESS) /* a context with an error runs nothing any more */
        return CUDA_SUCCESS;
    return begin_op(queue, op);
}

static void *run_early(void *argument)
{
    sc_op_t *op = argument;
    sc_queue_t *queue = op->queue;

    pthread_mutex_lock(&sc.lock);
    op->status = run_op(queue, op);
    op->has_run = true;
    pthread_cond_signal(&queue->wake); /* the queue lives while the operation is in it */
    put_op(op);
    pthread_mutex_unlock(&sc.lock);
    return NULL;
}

static void run_head(sc_queue_t *queue)
{
    sc_op_t *op = queue->head;

    drop_deps(op);
    if (op->may_be_early) {
        op->may_be_early = false;
        queue->early_count--;
    }
    if (!op->is_early)
        op->status = run_op(queue, op);
    finish_op(queue, op, op->status);
}

static bool may_run(sc_queue_t *queue)
{
    const sc_op_t *op = queue->head;

    return op && is_ready(op) && !is_held(queue) && (!op->is_early || op->has_run);
}

static void free_queue(sc_queue_t *queue)
{
    sc_queue_t **at = &queue->ctx->queues;

    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    put_op(queue->last);
    pthread_cond_destroy(&queue->wake);
    free(queue);
}

static void *run_queue(void *argument)
{
    sc_queue_t *queue = argument;
    bool is_timely = true;

    pthread_mutex_lock(&sc.lock);
    while (queue->head || (is_timely && !queue->is_closed)) {
        if (may_run(queue)) {
            run_head(queue);
            is_timely = true;
            continue;
        }
        queue->is_stuck = queue->head != NULL;
        is_timely = wait_ms(&queue->wake, IDLE_MS);
        queue->is_stuck = false;
    }
    queue->has_thread = false;
    if (queue->is_closed)
        free_queue(queue);
    pthread_mutex_unlock(&sc.lock);
    return NULL;
}

/* The program's signals are not for us: they stay blocked in the thread. */
static bool start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#ifndef CUP_SANITIZED
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
#endif
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return is_started;
}

/* ---- queues ---- */

sc_queue_t *sc_queue_create(sc_ctx_t *ctx, bool is_legacy, bool is_blocking)
{
    sc_queue_t *queue = sc_zalloc(sizeof *queue);

    queue->ctx = ctx;
    queue->is_legacy = is_legacy;
    queue->is_blocking = is_blocking;
    queue->random = softcuda_splitmix64(sc.seed ^ sc_next_id());
    pthread_cond_init(&queue->wake, NULL);
    queue->next = ctx->queues;
    ctx->queues = queue;
    return queue;
}

void sc_queue_close(sc_queue_t *queue)
{
    queue->is_closed = true;
    if (queue->has_thread)
        pthread_cond_signal(&queue->wake);
    else
        free_queue(queue);
}

bool sc_queue_is_idle(const sc_queue_t *queue)
{
    return queue->length == 0;
}

static void add_deps(sc_op_t *op, sc_queue_t *queue, const sc_marks_t *deps)
{
    sc_marks_t all = {0};

    for (unsigned i = 0; deps && i < deps->count; i++)
        sc_marks_add(&all, deps->ops[i]);
    for (sc_queue_t *other = queue->ctx->queues; other; other = other->next)
        if ((queue->is_legacy && other->is_blocking) || (queue->is_blocking && other->is_legacy))
            sc_marks_add(&all, other->last);
    for (unsigned i = 0; i < queue->ctx->barrier.count; i++)
        sc_marks_add(&all, queue->ctx->barrier.ops[i]);
    op->deps = all.ops; /* with its references */
    op->dep_count = all.count;
}

static void wait_for_room(sc_queue_t *queue)
{
    uint64_t end_ns = sc_now_ns() + SC_WAIT_CAP_S * 1000000000ull;

    while (queue->length >= SC_QUEUE_DEPTH && sc_now_ns() < end_ns)
        wait_ms(&sc.done, 1000);
    if (queue->length >= SC_QUEUE_DEPTH)
        fputs("softcuda: TIMEOUT waiting for room in a launch queue\n", stderr);
}

static void link_op(sc_queue_t *queue, sc_op_t *op)
{
    op->older = sc.newest;
    *(sc.newest ? &sc.newest->newer : &sc.oldest) = op;
    sc.newest = op;
    sc.unfinished++;
    if (queue->head)
        queue->last->next = op;
    else
        queue->head = op;
    put_op(queue->last);
    queue->last = op;
    queue->length++;
}

sc_op_t *sc_queue_push(sc_queue_t *queue, const sc_work_t *work, const sc_marks_t *deps)
{
    wait_for_room(queue);
    sc_op_t *op = sc_zalloc(sizeof *op);
    op->work = *work;
    op->refs = 2; /* the queue's, and that of last */
    op->number = ++sc.op_numbers;
    op->queue = queue;
    add_deps(op, queue, deps);
    sc_overlap_stamp(op);
    if (work->kind == SC_WORK_KERNEL && work->kernel.is_programmatic)
        op->may_be_early = softcuda_splitmix64(++queue->random) % EARLY_OF != 0;
    queue->early_count += op->may_be_early;
    link_op(queue, op);
    if (queue->has_thread)
        pthread_cond_signal(&queue->wake);
    else if (!(queue->has_thread = start_thread(run_queue, queue)))
        fputs("softcuda: cannot start the thread of a stream\n", stderr);
    look_for_early(queue);
    return op;
}

/* ---- held by a test ---- */

/* The queue that the handle names now; NULL. */
static sc_stream_t *find_stream(void *handle)
{
    sc_stream_t *stream = handle;
    bool is_special = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;

    if (is_special && sc_stream_find(handle, SC_LEGACY, &stream) != CUDA_SUCCESS)
        return NULL;
    return stream;
}

SC_EXPORT int softcuda_hold(void *handle)
{
    pthread_mutex_lock(&sc.lock);
    const sc_stream_t *stream = find_stream(handle);
    bool is_found = stream && stream->is_live;
    if (is_found) {
        stream->queue->holder = stream;
        stream->queue->held_ns = sc_now_ns();
    }
    pthread_mutex_unlock(&sc.lock);
    return is_found ? 0 : -1;
}

SC_EXPORT void softcuda_release(void *handle)
{
    pthread_mutex_lock(&sc.lock);
    const sc_stream_t *stream = find_stream(handle);
    for (sc_ctx_t *ctx = sc.contexts; ctx && stream; ctx = ctx->next)
        for (sc_queue_t *queue = ctx->queues; queue; queue = queue->next)
            if (queue->holder == stream)
                queue->holder = NULL;
    pthread_cond_broadcast(&sc.done); /* operations that were held in their delay */
    wake_stuck();
    pthread_mutex_unlock(&sc.lock);
}
