/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latency - SOFTCUDA_LATENCY=h200: entry points take the host time that latency_list.h gives, from their
 * start or from the end of their wait for the device, and operations the device's. What a call does it does
 * first, under the lock; the rest of its time passes afterwards, without it, so that calls of several
 * threads pass side by side. The true contention of the driver's own lock is not modelled. A machine that is
 * slower than the figure is slower.
 */
#include "driver.h"
#include <string.h>
#include <time.h>

#define KIB        (1ull << 10)
#define MIB        (1ull << 20)
#define GIB        (1ull << 30)
#define POINTS_MAX 4
#define SPIN_NS    100000 /* a sleep may overrun by this */

typedef struct {
    uint64_t size_bytes, ns;
} point_t;

static const point_t costs[SC_TIME_COUNT][POINTS_MAX] = {
#define SC_TIME(name, ...) [SC_TIME_##name] = {__VA_ARGS__},
#include "latency_list.h"
#undef SC_TIME
};

/* A row ends where sizes no longer rise. */
static bool is_last(const point_t *row, unsigned i)
{
    return i + 1 == POINTS_MAX || row[i + 1].size_bytes <= row[i].size_bytes;
}

uint64_t sc_time_cost_ns(sc_time_t kind, uint64_t size_bytes)
{
    const point_t *row = costs[kind];
    unsigned i = 0;

    if (size_bytes <= row[0].size_bytes || is_last(row, 0))
        return row[0].ns;
    while (size_bytes > row[i + 1].size_bytes && !is_last(row, i + 1))
        i++;
    double slope = ((double)row[i + 1].ns - (double)row[i].ns) /
                   ((double)row[i + 1].size_bytes - (double)row[i].size_bytes);
    return row[i].ns + (uint64_t)(slope * (double)(size_bytes - row[i].size_bytes));
}

/* Sleeps for the long part, then spins: timers are too coarse for microseconds. */
static void pass_until(uint64_t end_ns)
{
    uint64_t now_ns = sc_now_ns();

    if (now_ns + 2 * SPIN_NS < end_ns) {
        uint64_t left_ns = end_ns - now_ns - SPIN_NS;
        const struct timespec pause = {.tv_sec = (time_t)(left_ns / 1000000000),
                                       .tv_nsec = (long)(left_ns % 1000000000)};
        nanosleep(&pause, NULL);
    }
    while (sc_now_ns() < end_ns)
        continue;
}

void sc_time_enter(void)
{
    if (!sc.has_latency)
        return;
    sc_thread()->entered_ns = sc_now_ns();
    sc_thread()->owed_ns = 0;
}

void sc_time_take(sc_time_t kind, uint64_t size_bytes)
{
    if (sc.has_latency)
        sc_thread()->owed_ns += sc_time_cost_ns(kind, size_bytes);
}

void sc_time_waited(void)
{
    if (sc.has_latency)
        sc_thread()->entered_ns = sc_now_ns();
}

void sc_time_leave(void)
{
    if (sc.has_latency && sc_thread()->owed_ns > 0)
        pass_until(sc_thread()->entered_ns + sc_thread()->owed_ns);
}

void sc_time_work(const sc_work_t *work, uint64_t begun_ns)
{
    uint64_t bytes = 0;

    if (!sc.has_latency)
        return;
    for (unsigned i = 0; i < work->range_count; i++)
        bytes += work->ranges[i].size;
    pass_until(begun_ns +
               sc_time_cost_ns(work->kind == SC_WORK_SET ? SC_TIME_DEVICE_SET : SC_TIME_DEVICE_BYTES, bytes));
}

SC_EXPORT uint64_t softcuda_latency_ns(const char *name, uint64_t size_bytes)
{
    static const char *const names[] = {
#define SC_TIME(name, ...) #name,
#include "latency_list.h"
#undef SC_TIME
    };

    for (int kind = 0; kind < SC_TIME_COUNT; kind++)
        if (strcmp(names[kind], name) == 0)
            return sc_time_cost_ns((sc_time_t)kind, size_bytes);
    return 0;
}
