/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order - the clock against a driver of numbers.
 * What:       the real driver's slots are replaced by functions over two counters: work submitted and work finished. A
 *             point is complete when what was submitted before its record is finished. Law, for every seed: a stamp that a
 *             poll calls complete covers a free whose work is finished; nothing is recorded during a capture; when all work
 *             is finished, a poll completes every stamp.
 * Threads:    one.
 */
#include <string.h>
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/order.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#define EVENTS_MAX 4096
#define FREES_MAX  20000

static struct {
    uint64_t submitted, finished;
    uint64_t recorded[EVENTS_MAX]; /* by event: work submitted before its record */
    uint64_t events, records, queries, waits;
    int capturing, relaxed;
    CUresult fail_record;
} gpu;

static struct {
    cup_point_t stamp;
    uint64_t work;
} g_free[FREES_MAX];

static CUresult fake_push(CUcontext ctx)
{
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ctx)
{
    *ctx = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUevent *event, unsigned flags)
{
    CHECK(++gpu.events < EVENTS_MAX);
    *event = (CUevent)(uintptr_t)gpu.events;
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUcontext ctx, CUevent event)
{
    CHECK(!gpu.capturing);
    if (gpu.fail_record != CUDA_SUCCESS)
        return gpu.fail_record;
    gpu.recorded[(uintptr_t)event] = gpu.submitted;
    gpu.records++;
    return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent event)
{
    CHECK(gpu.relaxed); /* plain, it would invalidate a capture */
    gpu.queries++;
    return gpu.recorded[(uintptr_t)event] <= gpu.finished ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_synchronize(CUevent event)
{
    gpu.waits++;
    if (gpu.finished < gpu.recorded[(uintptr_t)event])
        gpu.finished = gpu.recorded[(uintptr_t)event];
    return CUDA_SUCCESS;
}

static CUresult fake_exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = gpu.relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;

    gpu.relaxed = *mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    *mode = before;
    return CUDA_SUCCESS;
}

/* An order lives as long as the process (order.h); leak checkers find them here. */
static cup_order_t *g_order[64];
static unsigned g_order_count;

static cup_order_t *start(void)
{
    memset(&gpu, 0, sizeof(gpu));
    cup_drv.cuCtxPushCurrent_v2 = fake_push;
    cup_drv.cuCtxPopCurrent_v2 = fake_pop;
    cup_drv.cuEventCreate = fake_create;
    cup_drv.cuCtxRecordEvent = fake_record;
    cup_drv.cuEventQuery = fake_query;
    cup_drv.cuEventSynchronize = fake_synchronize;
    cup_drv.cuThreadExchangeStreamCaptureMode = fake_exchange;
    CHECK(g_order_count < 64);
    g_order[g_order_count] = cup_order_create(NULL);
    return g_order[g_order_count++];
}

/* One free: its work is what was submitted before it. */
static void note_free(cup_order_t *order, unsigned index, uint64_t bytes)
{
    g_free[index].stamp = cup_order_open(order);
    g_free[index].work = gpu.submitted;
    CHECK_EQ(cup_order_freed(order, bytes, false), CUDA_SUCCESS);
}

static void check_poll(cup_order_t *order, unsigned count)
{
    cup_point_t completed = 0;

    CHECK_EQ(cup_order_poll(order, &completed), CUDA_SUCCESS);
    CHECK(!gpu.relaxed);
    for (unsigned i = 0; i < count; i++)
        if (g_free[i].stamp <= completed)
            CHECK_MSG(g_free[i].work <= gpu.finished, "free %u: stamp %llu is complete, its work is not", i,
                      (unsigned long long)g_free[i].stamp);
}

static void run_law(uint64_t seed, unsigned lag)
{
    cup_rng_t rng = {seed};
    cup_order_t *order = start();
    cup_point_t completed;
    unsigned count = 0;

    while (count < 6000) {
        switch (cup_rng_below(&rng, 16)) {
        case 0: /* the GPU gets on, but stays behind by up to lag */
            if (gpu.finished + lag < gpu.submitted)
                gpu.finished = gpu.submitted - lag + cup_rng_below(&rng, lag + 1);
            break;
        case 1:
            if (cup_rng_below(&rng, 8) == 0)
                check_poll(order, count);
            break;
        case 2:
            if (!gpu.capturing && cup_rng_below(&rng, 20) == 0) {
                cup_capture_begin((CUstream)1);
                gpu.capturing = 1;
            } else if (gpu.capturing) {
                gpu.capturing = 0;
                cup_capture_ended((CUstream)1, CUDA_SUCCESS);
            }
            break;
        case 3:
        case 4:
        case 5:
            gpu.submitted++;
            break;
        default:
            note_free(order, count++, cup_rng_below(&rng, 4) ? 4096 : 20 << 20);
        }
    }
    if (gpu.capturing)
        cup_capture_ended((CUstream)1, CUDA_SUCCESS);
    gpu.capturing = 0;
    check_poll(order, count);
    gpu.finished = gpu.submitted;
    CHECK_EQ(cup_order_poll(order, &completed), CUDA_SUCCESS);
    for (unsigned i = 0; i < count; i++)
        CHECK(g_free[i].stamp <= completed);
}

TEST(order, law)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        run_law(seed, seed % 4 == 0   ? 5000
                      : seed % 4 == 1 ? 0
                                      : (unsigned)(10 * seed)); /* 5000: the ring fills */
}

TEST(order, batches)
{
    cup_order_t *order = start();

    for (unsigned i = 0; i < 160; i++)
        note_free(order, i, 4096);
    CHECK_EQ(gpu.records, 10);
    note_free(order, 0, 64 << 20); /* much at once: at once */
    CHECK_EQ(gpu.records, 11);
    CHECK_EQ(cup_order_freed(order, 512, true), CUDA_SUCCESS);
    CHECK_EQ(gpu.records, 12);
}

/* A tight point is waited for; a loose one, that the GPU does not reach, is given up; an open one is not waited for. */
TEST(order, waits)
{
    cup_order_t *order = start();
    cup_point_t completed, stamp;

    gpu.submitted = 5;
    stamp = cup_order_open(order);
    CHECK_EQ(cup_order_wait(order, stamp), CUDA_SUCCESS);
    CHECK_EQ(gpu.waits, 0);
    CHECK_EQ(cup_order_freed(order, 64 << 20, false), CUDA_SUCCESS);
    CHECK_EQ(cup_order_wait(order, stamp), CUDA_SUCCESS);
    CHECK_EQ(gpu.waits, 1);
    gpu.submitted = 9;
    stamp = cup_order_open(order);
    CHECK_EQ(cup_order_freed(order, 4096, false), CUDA_SUCCESS);
    CHECK_EQ(cup_order_poll(order, &completed), CUDA_SUCCESS);
    CHECK(completed < stamp);
    CHECK_EQ(cup_order_wait(order, stamp), CUDA_ERROR_NOT_READY);
    CHECK_EQ(gpu.waits, 1);
}

/* A record that fails leaves the point open and its frees uncovered until one succeeds. */
TEST(order, failing_record)
{
    cup_order_t *order = start();
    cup_point_t completed;

    gpu.fail_record = CUDA_ERROR_UNKNOWN;
    g_free[0].stamp = cup_order_open(order);
    g_free[0].work = gpu.submitted = 3;
    CHECK_EQ(cup_order_freed(order, 64 << 20, false), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cup_order_poll(order, &completed), CUDA_ERROR_UNKNOWN);
    CHECK(completed < g_free[0].stamp);
    gpu.fail_record = CUDA_SUCCESS;
    check_poll(order, 1);
    gpu.finished = 3;
    CHECK_EQ(cup_order_poll(order, &completed), CUDA_SUCCESS);
    CHECK(completed >= g_free[0].stamp);
}

/* An idle GPU costs one query a poll, whatever the ring holds. */
TEST(order, queries)
{
    cup_order_t *order = start();
    cup_point_t completed;

    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(cup_order_freed(order, 64 << 20, false), CUDA_SUCCESS);
    CHECK_EQ(cup_order_poll(order, &completed), CUDA_SUCCESS);
    CHECK_EQ(gpu.queries, 1);
    CHECK_EQ(completed, 100);
}
