/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order_moments - the order points when something happens at a moment that matters: a second thread submits
 * or frees while the first records, waits or is in a call; a thread, a context or a capture ends between calls.
 * Threads:    two that take turns: each step of the second is waited for, but where it has to wait itself.
 */
#define _GNU_SOURCE
#include "allocator/lock.h"
#include "allocator/pool.h"
#include "shim/heap.h"
#include "tests/shim/order_bed.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

static struct {
    pthread_t thread;
    sem_t go, done;
    void (*act)(void); /* NULL: the thread ends */
    int index;
    unsigned rule;
    cup_call_t call;
} other;

static void *follow(void *unused)
{
    t_own = THEIRS;
    for (;;) {
        sem_wait(&other.go);
        if (!other.act)
            return unused;
        other.act();
        sem_post(&other.done);
    }
}

static void other_starts(void)
{
    CHECK(sem_init(&other.go, 0, 0) == 0 && sem_init(&other.done, 0, 0) == 0);
    CHECK_EQ(pthread_create(&other.thread, NULL, follow, NULL), 0);
}

static void other_goes(void (*act)(void), int index)
{
    other.act = act;
    other.index = index;
    sem_post(&other.go);
}

static bool other_is_done(int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return sem_timedwait(&other.done, &until) == 0;
}

static void other_does(void (*act)(void), int index)
{
    other_goes(act, index);
    CHECK(other_is_done(10000));
}

static void other_ends(void)
{
    other_goes(NULL, 0);
    CHECK_EQ(pthread_join(other.thread, NULL), 0);
}

/* Its acts. No CHECK here (unit.h). */
static void begin_call(void)
{
    cup_submit_begin(&other.call, CUP_ON(handle_of(0, other.index)), other.rule);
}

static void end_call(void)
{
    cup_submit_end(&other.call, CUDA_SUCCESS);
}

static void launch_there(void)
{
    begin_call();
    operate(line_of(handle_of(0, other.index)));
    end_call();
}

static line_t *line_at(int context, int index)
{
    return &gpu.line[gpu.now[context][index]];
}

/* Every stream is known, has passed the newest point, and is idle. */
static void start_idle(void)
{
    start(CUP_ORDER_EXACT, 1);
    other.rule = CUP_SUBMIT_PLAIN;
    launch(0, 0);
    free_block(0);
    for (int i = 0; i < HANDLES; i++)
        launch(0, i);
    for (int i = 0; i < HANDLES; i++)
        synchronize(0, i);
    other_starts();
}

static void finish_idle(void)
{
    other_ends();
    stop(1);
}

static void submit_and_free(void)
{
    operate(line_at(0, 1));
    free_block(0);
}

/* A call that began before a close submits after the point is recorded, and frees before it is closed. */
TEST(moments, call_and_free_beside_a_close)
{
    cup_call_t call;

    start_idle();
    launch(0, 0);
    other_does(begin_call, 1);
    free_block(0);
    gpu.meanwhile = submit_and_free;
    cup_submit_begin(&call, CUP_ON(handle_of(0, 0)), CUP_SUBMIT_PLAIN);
    CHECK(!gpu.meanwhile);
    cup_submit_end(&call, CUDA_SUCCESS);
    other_does(end_call, 1);
    launch(0, 2); /* after the other's operation */
    memcpy(gpu.finished, gpu.submitted, sizeof(gpu.finished));
    gpu.finished[gpu.now[0][1]]--;
    CHECK(check_poll(0) > 0);
    finish_idle();
}

static bool g_is_through;

static void let_other_begin(void)
{
    other_goes(begin_call, 1);
    g_is_through = other_is_done(50);
}

/* A submission that begins while a point is recorded passes it: until then it waits for the lock. */
TEST(moments, submission_beside_a_close)
{
    start_idle();
    launch(0, 0);
    free_block(0);
    gpu.meanwhile = let_other_begin;
    launch(0, 0);
    CHECK(!gpu.meanwhile);
    CHECK(g_is_through || other_is_done(10000));
    check_order(line_at(0, 1), false);
    operate(line_at(0, 1));
    other_does(end_call, 1);
    finish_idle();
}

static void close_another(void)
{
    other_does(launch_there, 0);
    free_block(0);
    other_does(launch_there, 0);
}

/* While a stream is made to wait for a point, the next one is closed: it has passed the first only. */
TEST(moments, close_beside_a_pass)
{
    cup_call_t call;

    start_idle();
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    gpu.meanwhile = close_another;
    cup_submit_begin(&call, CUP_ON(handle_of(0, 1)), CUP_SUBMIT_PLAIN);
    CHECK(!gpu.meanwhile);
    cup_submit_end(&call, CUDA_SUCCESS);
    launch(0, 1);
    finish_idle();
}

static void launch_on_the_same(void)
{
    other_does(begin_call, 1);
    check_order(line_at(0, 1), false);
    other_does(end_call, 1);
}

/* Two threads on one stream: the second does not rely on a wait that the first is yet to issue. */
TEST(moments, pass_beside_a_pass)
{
    start_idle();
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    gpu.meanwhile = launch_on_the_same;
    launch(0, 1);
    CHECK(!gpu.meanwhile);
    finish_idle();
}

/* The program waits for a stream while another thread is in a call on it: its work is still to come. */
TEST(moments, call_beside_a_wait)
{
    start_idle();
    other_does(begin_call, 1);
    synchronize(0, 1);
    operate(line_at(0, 1));
    other_does(end_call, 1);
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    launch(0, 2);
    finish_idle();
}

/* A thread ends; the next one gets its entry, and a stream that is ordered behind nothing. */
TEST(moments, thread_after_a_thread)
{
    start_idle();
    other_does(launch_there, THEIRS);
    free_block(0);
    other_does(launch_there, THEIRS); /* closes the point and has passed it */
    other_ends();
    new_line(0, THEIRS);
    other_starts();
    other_does(begin_call, THEIRS);
    check_order(line_at(0, THEIRS), false);
    other_does(end_call, THEIRS);
    finish_idle();
}

/* What another thread has on its per-thread stream: no event on a stream of this thread covers that. */
TEST(moments, stream_of_another_thread)
{
    start_idle();
    other_does(launch_there, THEIRS);
    other_does(launch_there, THEIRS);
    free_block(0);
    launch(0, 0);
    launch(0, 2);
    finish_idle();
}

/* A context ends and another takes its slot: what the thread's own stream had passed says nothing there. */
TEST(moments, context_after_a_context)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 10; i++) {
        launch(0, OWN);
        free_block(0);
    }
    stop(1);
    start(CUP_ORDER_EXACT, 1);
    launch(0, 0);
    free_block(0);
    launch(0, 1);
    launch(0, OWN);
    stop(1);
}

/* A context that has no pool yet. */
static void new_context(int context)
{
    for (int i = 0; i <= HIDDEN; i++)
        new_line(context, i);
}

static void new_pool(int context)
{
    gpu.current = context;
    g_order[context] = cup_order_create(ctx_of(context), CUP_ORDER_EXACT);
    CHECK(g_order[context] != NULL);
}

/* What was submitted before there was a pool is before the first free, too. */
TEST(moments, first_free_of_a_pool)
{
    start(CUP_ORDER_EXACT, 0);
    new_context(0);
    launch(0, 0);
    new_pool(0);
    launch(0, 1);
    free_block(0);
    launch(0, 2);
    stop(1);
}

/* A stream that was used before its context had a pool counts as soon as it has one. */
TEST(moments, pool_after_a_launch)
{
    start(CUP_ORDER_EXACT, 1);
    new_context(1);
    launch(1, 0);
    new_pool(1);
    launch(1, 1);
    free_block(1);
    launch(1, 1);
    launch(1, 0);
    free_block(1);
    launch(1, 1);
    launch(1, 2);
    stop(2);
}

/* A node of a graph that runs in another context than the stream's. */
static void run_node(void)
{
    line_t *node = line_at(1, HIDDEN);

    join(&node->at, &line_at(0, 1)->at);
    operate(node);
}

static void start_two(void)
{
    start(CUP_ORDER_EXACT, 2);
    for (int c = 0; c < 2; c++) {
        launch(c, 0);
        free_block(c);
        launch(c, 0);
    }
    launch(0, 1);
    launch(1, 0);
    other.rule = CUP_SUBMIT_EVERYWHERE;
    other_starts();
}

static void finish_two(void)
{
    free_block(1);
    launch(1, 0);
    launch(1, 2); /* after the node */
    other_ends();
    stop(2);
}

TEST(moments, graph_over_contexts)
{
    cup_call_t call;

    start_two();
    gpu.current = 0;
    cup_submit_begin(&call, CUP_ON(handle_of(0, 1)), CUP_SUBMIT_EVERYWHERE);
    check_order(line_at(0, 1), false);
    run_node();
    cup_submit_end(&call, CUDA_SUCCESS);
    finish_two();
}

/* The other context's point is closed while the call is under way. */
TEST(moments, close_beside_a_graph_over_contexts)
{
    start_two();
    gpu.current = 0;
    other_does(begin_call, 1);
    free_block(1);
    launch(1, 0);
    run_node();
    other_does(end_call, 1);
    finish_two();
}

/* ---- a free ---- */

static CUresult fake_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *bytes, CUdevice device)
{
    *bytes = CUP_GIB;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_id(CUcontext ctx, unsigned long long *id)
{
    *id = (uintptr_t)ctx;
    return CUDA_SUCCESS;
}

static CUresult fake_alloc(CUdeviceptr *base, size_t bytes)
{
    *base = CUP_GIB;
    return bytes <= CUP_GIB ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_free(CUdeviceptr base)
{
    return base == CUP_GIB ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_attribute(void *out, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    *(CUcontext *)out = ctx_of(0);
    return attribute == CU_POINTER_ATTRIBUTE_CONTEXT && pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The linker puts this in front of the pool (--wrap): the block has just become free for others. */
static bool g_is_watched;

cup_status_t __real_cup_pool_free_ordered(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                                          uint64_t *out_occupied_bytes);
cup_status_t __wrap_cup_pool_free_ordered(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                                          uint64_t *out_occupied_bytes);

cup_status_t __wrap_cup_pool_free_ordered(cup_pool_t *pool, cup_addr_t addr, cup_point_t stamp,
                                          uint64_t *out_occupied_bytes)
{
    cup_status_t status = __real_cup_pool_free_ordered(pool, addr, stamp, out_occupied_bytes);

    if (g_is_watched) {
        note_free(0, true, stamp);
        other_does(begin_call, 1);
        check_order(line_at(0, 1), false);
        other_does(end_call, 1);
    }
    return status;
}

/* A block's next owner may submit as soon as it is in the pool, before the free has returned. */
TEST(moments, next_owner_beside_a_free)
{
    cup_heap_t *heap;
    cup_addr_t block;

    start(CUP_ORDER_EXACT, 0);
    new_context(0);
    cup_drv.cuCtxGetDevice = fake_device;
    cup_drv.cuDeviceTotalMem_v2 = fake_total;
    cup_drv.cuCtxGetId = fake_id;
    cup_drv.cuMemAlloc_v2 = fake_alloc;
    cup_drv.cuMemFree_v2 = fake_free;
    cup_drv.cuPointerGetAttribute = fake_attribute;
    heap = cup_heap_create(ctx_of(0), false);
    CHECK(heap && cup_heap_alloc(heap, 65536, &block));
    g_order[0] = cup_order_of(ctx_of(0));
    other.rule = CUP_SUBMIT_PLAIN;
    other_starts();
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    launch(0, 1); /* has passed the newest point */
    g_is_watched = true;
    CHECK_EQ(cup_heap_free(heap, block, false), CUDA_SUCCESS);
    g_is_watched = false;
    other_ends();
    cup_heap_end(heap);
}

/* Of a stream that can't be found: another thread closes a point while the call is under way. */
TEST(moments, unseen_call_beside_a_close)
{
    cup_call_t call;

    start_idle();
    new_context(1); /* without a pool */
    gpu.current = 1;
    cup_submit_begin(&call, CUP_ON(NULL), CUP_SUBMIT_PLAIN);
    gpu.current = 0;
    free_block(0);
    other_does(launch_there, 0);
    operate(line_at(0, HIDDEN));
    gpu.current = 1;
    cup_submit_end(&call, CUDA_SUCCESS);
    gpu.current = 0;
    free_block(0);
    launch(0, 0);
    launch(0, 2); /* after the hidden operation */
    finish_idle();
}

/* A call that nobody can see submit: another thread closes a point before it does. */
TEST(moments, unknown_call_beside_a_close)
{
    start_idle();
    cup_submit_unknown();
    free_block(0);
    other_does(launch_there, 0);
    operate(line_at(0, HIDDEN));
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    launch(0, 2); /* after the hidden operation */
    finish_idle();
}

/* Whoever is not trusted can't be closed beside a capture: what is freed there waits until it is complete. */
TEST(moments, distrust_beside_a_capture)
{
    start_idle();
    cup_submit_unknown();
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    capture(0, 4);
    launch(0, 0);
    free_block(0);
    CHECK_EQ(gpu.native_frees, 1);
    launch(0, 2);
    capture(0, 4);
    launch(0, 0);
    finish_idle();
}

/* A context that gets the slot of one that has ended goes on far behind its numbers: late submitters may still close some. */
TEST(moments, numbers_of_a_slot)
{
    cup_point_t last;

    start(CUP_ORDER_EXACT, 1);
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    last = cup_order_newest(g_order[0]);
    stop(1);
    start(CUP_ORDER_EXACT, 1);
    CHECK(cup_order_newest(g_order[0]) > last + 1000);
    stop(1);
}

static _Atomic unsigned g_locks;

void __real_cup_lock_acquire(cup_lock_t *lock);
void __wrap_cup_lock_acquire(cup_lock_t *lock);

void __wrap_cup_lock_acquire(cup_lock_t *lock)
{
    g_locks++;
    __real_cup_lock_acquire(lock);
}

/* What order adds to a free: no lock, and nothing is asked of the driver, submission between or not. */
TEST(moments, free_takes_no_lock)
{
    unsigned locks = 0;
    uint64_t records, own_records, waits;
    cup_point_t stamp;

    start_idle();
    for (int i = 0; i < 100; i++) {
        if (i % 3 == 0)
            launch(0, i % HANDLES);
        locks = g_locks;
        records = gpu.context_records;
        own_records = gpu.own_records;
        waits = gpu.waits;
        CHECK(cup_order_stamp_ordered(g_order[0], &stamp));
        cup_order_pay_managed(g_order[0]);
        CHECK_EQ(cup_order_pay_host(g_order[0]), CUDA_SUCCESS);
        CHECK_EQ(g_locks, locks);
        note_free(0, true, stamp);
        CHECK(gpu.context_records == records && gpu.own_records == own_records && gpu.waits == waits);
    }
    launch(0, 1);
    CHECK(g_locks > locks); /* they are counted at all */
    finish_idle();
}

/* ---- captures ---- */

/* In a call on the stream when a capture begins, of it or of one that it may not be recorded beside. */
static void check_not_recorded(int index, int capturing)
{
    start_idle();
    other_does(begin_call, index);
    capture(0, capturing);
    other_does(end_call, index);
    recreate(0, 3); /* closes a point, if that can be recorded */
    capture(0, capturing);
    launch(0, 2);
    finish_idle();
}

TEST(moments, nothing_on_a_stream_that_captures)
{
    check_not_recorded(1, 1);
}

TEST(moments, nothing_on_the_legacy_stream_beside_a_blocking_one_that_captures)
{
    check_not_recorded(LEGACY, 1);
}

/*
 * A stream is busy, and goes on to capture while nothing can be closed, because another thread is in a call on a stream that
 * only it can name: the work from before is in later points all the same.
 */
TEST(moments, busy_stream_that_goes_on_to_capture)
{
    start_idle();
    capture(0, 4);
    other_does(begin_call, THEIRS);
    launch(0, 3);
    capture(0, 3);
    other_does(end_call, THEIRS);
    free_block(0);
    launch(0, 2);
    CHECK_EQ(gpu.native_frees, 0);
    capture(0, 3);
    capture(0, 4);
    launch(0, 0);
    finish_idle();
}

/*
 * A stream with work in flight is destroyed beside a capture, while another thread is in a call on a stream that only it can
 * name: later points cover the work all the same, and nothing is waited for.
 */
TEST(moments, stream_destroyed_beside_a_capture_and_a_call)
{
    uint64_t before;

    start_idle();
    before = gpu.context_records;
    capture(0, 4);
    other_does(begin_call, THEIRS);
    launch(0, 3);
    launch(0, 2);
    free_block(0);
    recreate(0, 3);
    other_does(end_call, THEIRS);
    launch(0, 2);
    free_block(0);
    launch(0, 0);
    CHECK_EQ(gpu.synchronizes + gpu.native_frees, 0);
    CHECK_EQ(gpu.context_records, before);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

/* It captures, and no event was left on it, because another thread was in a call on it: the host waits. */
TEST(moments, capturing_stream_destroyed_beside_a_capture)
{
    start_idle();
    capture(0, 4);
    other_does(begin_call, 3);
    capture(0, 3);
    other_does(end_call, 3);
    launch(0, 2);
    free_block(0);
    recreate(0, 3);
    CHECK_EQ(gpu.native_frees, 1);
    launch(0, 0);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

static void launch_on_another(void)
{
    other_does(launch_there, 1);
}

/* Until the driver's call has returned a stream that is destroyed captures. */
TEST(moments, capturing_stream_goes)
{
    start_idle();
    capture(0, 3);
    launch(0, 2);
    free_block(0);
    gpu.meanwhile = launch_on_another;
    recreate(0, 3);
    CHECK(!gpu.meanwhile);
    capture(0, 3); /* of the stream that has the handle now */
    launch(0, 0);
    CHECK_EQ(gpu.native_frees, 0);
    capture(0, 3);
    launch(0, 2);
    finish_idle();
}

static void begin_really(void)
{
    line_at(0, 3)->is_capturing = true;
}

/* A stream that is busy captures once it has been asked whether it does. */
TEST(moments, stream_captures_when_it_was_asked)
{
    start_idle();
    capture(0, 4);
    other_does(begin_call, THEIRS);
    launch(0, 3);
    cup_capture_begin(handle_of(0, 3));
    cup_submit_before_join(CUP_ON(handle_of(0, 3)));
    other_does(end_call, THEIRS);
    free_block(0);
    gpu.asked = begin_really;
    gpu.asked_of = handle_of(0, 3);
    launch(0, 2);
    begin_really();
    cup_capture_began(handle_of(0, 3), true);
    launch(0, 0);
    capture(0, 3);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

/* With nothing in flight it leaves nothing, and nobody is waited for. */
TEST(moments, idle_capturing_stream_goes)
{
    start_idle();
    capture(0, 4);
    capture(0, 3);
    recreate(0, 3);
    launch(0, 2);
    free_block(0);
    launch(0, 0);
    CHECK_EQ(gpu.native_frees, 0);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

/* A device that is full has the byte that was kept. */
TEST(moments, full_device_beside_a_capture)
{
    start_idle();
    capture(0, 4);
    gpu.is_full = true;
    launch(0, 2);
    call_unknown(0);
    free_block(0);
    launch(0, 0);
    CHECK_EQ(gpu.native_frees, 1);
    CHECK_EQ(gpu.synchronizes, 0);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

/* Not even that free works: the streams are waited for, but none that captures. */
TEST(moments, refused_wait_beside_a_capture)
{
    start_idle();
    capture(0, 4);
    other_does(begin_call, 3);
    capture(0, 3);
    other_does(end_call, 3);
    launch(0, 2);
    free_block(0);
    gpu.must_refuse_free = true;
    model.is_tight = false; /* a point that could not be recorded is the host's */
    launch(0, 0);
    gpu.must_refuse_free = false;
    capture(0, 3);
    capture(0, 4);
    launch(0, 1);
    finish_idle();
}

static bool is_finished_on(int index)
{
    int line = gpu.now[0][index];

    return gpu.finished[line] == gpu.submitted[line];
}

/* The copy is waited for, and nothing else is; no stream is asked that captures, or that a capture implies. */
static void copy_and_capture(int index, int capturing)
{
    start_idle();
    submit(0, index, CUP_SUBMIT_HOST);
    capture(0, capturing);
    launch(0, 2);
    free_block(0);
    CHECK(!is_finished_on(2) && gpu.native_frees == 0);
    capture(0, capturing);
    launch(0, 2);
    finish_idle();
}

TEST(moments, copy_before_its_stream_captures)
{
    copy_and_capture(3, 3);
}

TEST(moments, legacy_copy_before_a_blocking_stream_captures)
{
    copy_and_capture(LEGACY, 1);
}

/* The copy's call returns when the capture has begun. */
TEST(moments, legacy_copy_across_the_begin_of_a_capture)
{
    start_idle();
    other.rule = CUP_SUBMIT_HOST;
    other_does(begin_call, LEGACY);
    operate(line_at(0, LEGACY));
    capture(0, 1);
    other_does(end_call, LEGACY);
    other.rule = CUP_SUBMIT_PLAIN;
    free_block(0);
    CHECK(line_at(0, 1)->is_capturing);
    capture(0, 1);
    launch(0, 2);
    finish_idle();
}

/* A driver that records on no context: of another thread's own stream nothing can be told but by its tail. */
TEST(moments, older_driver_with_two_threads)
{
    start_idle();
    become_old(1);
    other_does(launch_there, THEIRS);
    launch(0, 2);
    free_block(0);
    launch(0, 0);
    other_does(launch_there, THEIRS);
    free_block(0);
    launch(0, 2);
    CHECK_EQ(gpu.synchronizes, 0);
    finish_idle();
}

static void start_two_idle(void)
{
    start(CUP_ORDER_EXACT, 2);
    launch(1, 2);
    free_block(1);
    launch(0, 0);
    launch(1, 2);
    free_block(1); /* marked */
}

/* What has ended is not named by those that come to capture, or to a call that nobody knows. */
TEST(moments, ended_context_is_not_named)
{
    start_two_idle();
    cup_order_end(g_order[1]);
    gpu.is_dead[1] = true;
    memset(&model.required[1], 0, sizeof(model.required[1])); /* its memory is gone */
    capture(0, 4);
    call_unknown(0);
    launch(0, 2);
    free_block(0);
    recreate(0, 3);
    capture(0, 4);
    launch(0, 1);
    stop(1);
}

/* While a call ends a context: what its frees had waited for is complete, and others' submissions leave it alone. */
TEST(moments, ending_context_is_not_named)
{
    uint64_t generation;

    start_two_idle();
    cup_order_begin_endings();
    cup_order_ending(g_order[1]);
    gpu.is_dead[1] = true;
    launch(0, 3);
    free_block(0);
    launch(0, 0);
    generation = cup_order_generation();
    gpu.is_dead[1] = false;
    cup_order_go_on(g_order[1]); /* the driver has refused */
    cup_order_finish_endings();
    CHECK(cup_order_generation() != generation);
    launch(1, 3);
    free_block(1);
    launch(0, 1);
    launch(1, 0);
    stop(2);
}

TEST(moments, dead_stream_is_not_named)
{
    start_idle();
    capture(0, 4);
    launch(0, 3);
    destroy(0, 3);
    launch(0, 2);
    free_block(0);
    launch(0, 0);
    capture(0, 4);
    new_line(0, 3);
    finish_idle();
}

/* What a call that nobody knows submits is in no event beside a capture: the host waits, and knows again who is busy. */
TEST(moments, unknown_call_beside_a_capture_and_a_call)
{
    start_idle();
    capture(0, 4);
    other_does(begin_call, THEIRS);
    launch(0, 2);
    free_block(0);
    call_unknown(0);
    CHECK(gpu.native_frees > 0);
    other_does(end_call, THEIRS);
    launch(0, 0);
    free_block(0); /* not marked */
    launch(0, 1);
    CHECK_EQ(gpu.synchronizes, 0);
    capture(0, 4);
    launch(0, 2);
    finish_idle();
}

static void launch_beside(void)
{
    other_does(begin_call, 3);
    check_order(line_at(0, 3), false);
    other_does(end_call, 3);
}

/* The context can't be waited for, so the host waits for each busy stream; meanwhile others meet the mark. */
TEST(moments, failing_record_beside_a_capture)
{
    start_idle();
    capture(0, 4);
    launch(0, 2);
    free_block(0);
    gpu.fail_record = CUDA_ERROR_UNKNOWN;
    gpu.meanwhile = launch_beside;
    launch(0, 1);
    CHECK(!gpu.meanwhile);
    capture(0, 4);
    finish_idle();
}

/* A context gets its pool while a capture is in progress in another one: the count is right after that. */
TEST(moments, context_within_a_capture)
{
    start(CUP_ORDER_EXACT, 1);
    new_context(1);
    capture(0, 4);
    new_pool(1);
    capture(0, 4);
    capture(1, 4);
    launch(1, 0);
    launch(1, 1);
    free_block(1);
    launch(1, 2); /* by no record on the context */
    capture(1, 4);
    stop(2);
}

/* In a full ring points take each other's place, but not that of the one that streams are still to pass. */
TEST(moments, full_ring)
{
    start(CUP_ORDER_EXACT, 1);
    for (int i = 0; i < 200; i++) {
        launch(0, 2);
        free_block(0);
    }
    launch(0, 2);
    capture(0, 4); /* closes a point, which nobody has to pass */
    launch(0, 3);  /* and which is not what this waits for */
    capture(0, 4);
    memcpy(gpu.finished, gpu.submitted, sizeof(gpu.finished));
    CHECK_EQ(cup_order_close(g_order[0], true), CUDA_SUCCESS);
    CHECK_EQ(check_poll(0), 0);
    stop(1);
}
