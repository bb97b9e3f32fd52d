/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_cost - what order points cost the host where nothing is to be recorded: nanoseconds of what they add to a free, and
 * to a launch on a stream that has passed the newest point. No driver: the calls that it would get are counted.
 * Usage:      ORDER_COST_ROUNDS=N test_order_cost
 * Not here:   a whole free or launch (bench/); the record that a free and a launch cost together.
 */
#include "tests/shim/order_bed.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void free_one(cup_order_t *order)
{
    cup_point_t stamp;

    cup_order_stamp_ordered(order, &stamp);
    cup_order_pay_managed(order);
    cup_order_pay_host(order);
}

static void launch_one(void)
{
    cup_call_t call;

    cup_submit_begin(&call, CUP_ON(handle_of(0, 0)), CUP_SUBMIT_PLAIN);
    cup_submit_end(&call, CUDA_SUCCESS);
}

static uint64_t driver_calls(void)
{
    return gpu.own_records + gpu.context_records + gpu.waits + gpu.synchronizes;
}

TEST(order_cost, figures)
{
    const char *text = getenv("ORDER_COST_ROUNDS");
    long rounds = text ? atol(text) : 1000000;
    uint64_t calls;
    double begun;

    start(CUP_ORDER_EXACT, 1);
    launch(0, 0);
    free_block(0);
    launch(0, 0);
    calls = driver_calls();
    begun = now_ns();
    for (long i = 0; i < rounds; i++)
        free_one(g_order[0]);
    printf("free %.1f ns", (now_ns() - begun) / (double)rounds);
    CHECK_EQ(driver_calls(), calls);
    launch(0, 0);
    calls = driver_calls();
    begun = now_ns();
    for (long i = 0; i < rounds; i++)
        launch_one();
    printf(", launch %.1f ns, of %ld; no driver call\n", (now_ns() - begun) / (double)rounds, rounds);
    CHECK_EQ(driver_calls(), calls);
    stop(1);
}
