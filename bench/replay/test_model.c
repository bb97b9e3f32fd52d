/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What:       the models under a replay. The driver of numbers must see each misuse that a wrong pool could
 *             commit, or the laws of a replay prove nothing; the timeline must add up by hand.
 */
#include <stdlib.h>

#include "bench/replay/run.h"
#include "tests/support/unit.h"

#define PIECE (8 * CUP_MIB)

typedef struct rig {
    trace_event_t events[4];
    trace_t trace;
    timeline_t timeline;
    driver_t driver;
    cup_provider_t ops;
    cup_addr_t range;
    uint64_t handle; /* PIECE bytes at range */
} rig_t;

/* Four events 10 µs apart, a driver of 4 pieces, one handle mapped. */
static void set_up(rig_t *rig, double rate, size_t queue)
{
    timeline_conf_t conf = {.rate = rate, .cap_us = 1000, .queue = queue, .seed = 1};
    *rig = (rig_t){.trace = {.count = 4}};
    for (size_t i = 1; i < 4; i++)
        rig->events[i].gap_us = 10;
    rig->trace.events = rig->events;
    timeline_init(&rig->timeline, &conf, &rig->trace);
    driver_init(&rig->driver, &rig->timeline, 4 * PIECE);
    rig->ops = driver_ops(&rig->driver, false);
    CHECK_EQ(rig->ops.range_reserve(rig->ops.self, 64 * PIECE, &rig->range), CUP_OK);
    CHECK_EQ(rig->ops.commit(rig->ops.self, rig->range, PIECE, &rig->handle), CUP_OK);
    CHECK_EQ(rig->driver.faults, 0);
}

static void tear_down(rig_t *rig)
{
    driver_fini(&rig->driver);
    timeline_fini(&rig->timeline);
}

TEST(model, driver_counts_what_is_held)
{
    rig_t rig;
    cup_addr_t chunk;
    uint64_t handle;
    set_up(&rig, 0, 1000);
    CHECK_EQ(rig.range % (32 * CUP_MIB), 0);
    CHECK_EQ(rig.ops.reserve(rig.ops.self, 2 * PIECE, &chunk), CUP_OK);
    CHECK_EQ(rig.driver.held_bytes, 3 * PIECE);
    CHECK_EQ(rig.ops.commit(rig.ops.self, rig.range + PIECE, 2 * PIECE, &handle), CUP_ERR_OOM);
    CHECK_EQ(rig.driver.held_bytes, 3 * PIECE);
    CHECK_EQ(rig.ops.move(rig.ops.self, rig.range, rig.range + 9 * PIECE, PIECE, rig.handle), CUP_OK);
    driver_note_alloc(&rig.driver, rig.range + 9 * PIECE, PIECE);
    driver_note_free(&rig.driver, rig.range + 9 * PIECE, PIECE, 0);
    rig.ops.decommit(rig.ops.self, rig.range + 9 * PIECE, PIECE, rig.handle);
    rig.ops.release(rig.ops.self, chunk, 2 * PIECE);
    rig.ops.range_release(rig.ops.self, rig.range, 64 * PIECE);
    CHECK_EQ(rig.driver.faults, 0);
    CHECK_EQ(rig.driver.held_bytes, 0);
    CHECK_EQ(rig.driver.peak_bytes, 3 * PIECE);
    CHECK_EQ(driver_total_calls(&rig.driver), 8);
    CHECK_EQ(rig.driver.calls[DRIVER_MOVE], 1);
    tear_down(&rig);
}

/* A statement that must be seen as a fault, in a rig of its own. */
#define CHECK_FAULT(rig, ...)           \
    do {                                \
        set_up(&(rig), 0, 1000);        \
        __VA_ARGS__;                    \
        CHECK((rig).driver.faults > 0); \
        CHECK((rig).driver.fault);      \
        tear_down(&(rig));              \
    } while (0)

TEST(model, driver_sees_blocks_outside_of_what_is_held)
{
    rig_t rig;
    CHECK_FAULT(rig, driver_note_alloc(&rig.driver, rig.range + PIECE - 512, 1024));
    CHECK_FAULT(rig, driver_note_alloc(&rig.driver, rig.range + PIECE, 512));
}

TEST(model, driver_sees_memory_taken_from_under_a_block)
{
    rig_t rig;
    CHECK_FAULT(rig, driver_note_alloc(&rig.driver, rig.range + PIECE - 512, 512);
                rig.ops.decommit(rig.ops.self, rig.range, PIECE, rig.handle));
    CHECK_FAULT(rig, driver_note_alloc(&rig.driver, rig.range, 512);
                (void)rig.ops.move(rig.ops.self, rig.range, rig.range + PIECE, PIECE, rig.handle));
}

static void free_at(rig_t *rig, cup_point_t point)
{
    driver_note_alloc(&rig->driver, rig->range, 512);
    driver_note_free(&rig->driver, rig->range, 512, point);
}

TEST(model, driver_sees_memory_unmapped_before_its_free_is_told)
{
    rig_t rig;
    CHECK_FAULT(rig, free_at(&rig, 7); rig.driver.usable = rig.driver.movable = 6;
                rig.ops.decommit(rig.ops.self, rig.range, PIECE, rig.handle));
    CHECK_FAULT(rig, free_at(&rig, 7); rig.driver.usable = rig.driver.movable = 6;
                (void)rig.ops.move(rig.ops.self, rig.range, rig.range + PIECE, PIECE, rig.handle));
}

static void note_wait(void *host, cup_point_t point)
{
    *(cup_point_t *)host = point;
}

TEST(model, driver_waits_before_it_unmaps_what_is_not_complete)
{
    rig_t rig;
    cup_point_t waited = 0;
    set_up(&rig, 0, 1000);
    free_at(&rig, 7);
    rig.driver.usable = 7;
    rig.driver.movable = 6;
    rig.driver.wait = note_wait;
    rig.driver.host = &waited;
    CHECK_EQ(rig.ops.move(rig.ops.self, rig.range, rig.range + PIECE, PIECE, rig.handle), CUP_OK);
    CHECK_EQ(waited, 7);
    waited = 0;
    rig.ops.decommit(rig.ops.self, rig.range + PIECE, PIECE, rig.handle); /* nobody used it there */
    CHECK_EQ(waited, 0);
    CHECK_EQ(rig.driver.faults, 0);
    tear_down(&rig);
}

TEST(model, driver_sees_wrong_handles_and_places)
{
    rig_t rig;
    uint64_t handle;
    CHECK_FAULT(rig, (void)rig.ops.commit(rig.ops.self, rig.range, PIECE, &handle));
    CHECK_FAULT(rig, (void)rig.ops.commit(rig.ops.self, rig.range + 64 * PIECE, PIECE, &handle));
    CHECK_FAULT(rig, rig.ops.decommit(rig.ops.self, rig.range, PIECE / 2, rig.handle));
    CHECK_FAULT(rig, rig.ops.decommit(rig.ops.self, rig.range + PIECE, PIECE, rig.handle));
    CHECK_FAULT(rig, rig.ops.decommit(rig.ops.self, rig.range, PIECE, rig.handle + 1));
    CHECK_FAULT(rig, rig.ops.release(rig.ops.self, rig.range, PIECE));
    CHECK_FAULT(rig, rig.ops.range_release(rig.ops.self, rig.range, 64 * PIECE));
}

TEST(model, time_is_the_hosts_where_the_gpu_does_nothing)
{
    rig_t rig;
    set_up(&rig, 0, 1000);
    CHECK_EQ(rig.timeline.host_us, 29 + 50); /* a range and a handle */
    for (int i = 0; i < 4; i++)
        timeline_step(&rig.timeline);
    CHECK_EQ(rig.timeline.host_us, 79 + 30);
    CHECK_EQ(timeline_completed(&rig.timeline), 4);
    CHECK_EQ(timeline_end_us(&rig.timeline), 109);
    CHECK_EQ(timeline_ideal_us(&rig.timeline.conf, &rig.trace), 30);
    tear_down(&rig);
}

TEST(model, waiting_takes_until_the_work_is_done)
{
    rig_t rig;
    set_up(&rig, 1000, 1000);
    for (int i = 0; i < 4; i++)
        timeline_step(&rig.timeline);
    CHECK_EQ(timeline_completed(&rig.timeline), 1); /* no gap before the first event: no work */
    timeline_wait(&rig.timeline, 2);
    CHECK(rig.timeline.host_us == rig.timeline.finish_us[1]);
    CHECK_EQ(timeline_completed(&rig.timeline), 2);
    timeline_wait(&rig.timeline, CUP_POINT_MAX);
    CHECK_EQ(timeline_completed(&rig.timeline), 4);
    CHECK(rig.timeline.host_us == timeline_end_us(&rig.timeline));
    tear_down(&rig);
}

TEST(model, a_full_queue_holds_the_host)
{
    rig_t rig;
    set_up(&rig, 1000, 2);
    for (int i = 0; i < 4; i++)
        timeline_step(&rig.timeline);
    CHECK(rig.timeline.host_us >= rig.timeline.finish_us[1]); /* two pieces may be outstanding */
    CHECK(rig.timeline.host_us < rig.timeline.finish_us[2]);
    tear_down(&rig);
}

TEST(model, giving_a_chunk_back_waits_for_the_gpu)
{
    rig_t rig;
    cup_addr_t chunk;
    set_up(&rig, 1000, 1000);
    CHECK_EQ(rig.ops.reserve(rig.ops.self, PIECE, &chunk), CUP_OK);
    for (int i = 0; i < 4; i++)
        timeline_step(&rig.timeline);
    CHECK(timeline_completed(&rig.timeline) < 4);
    rig.driver.usable = 3;
    rig.ops.release(rig.ops.self, chunk, PIECE);
    CHECK_EQ(timeline_completed(&rig.timeline), 4);
    CHECK_EQ(rig.driver.movable, 3);
    tear_down(&rig);
}

TEST(model, work_is_exponential_with_the_mean_asked_for)
{
    enum { EVENTS = 20000 };
    timeline_conf_t conf = {.rate = 1.3, .cap_us = 100, .queue = EVENTS, .seed = 5};
    trace_t trace = {.count = EVENTS};
    timeline_t timeline;
    uint64_t above = 0;
    trace.events = replay_alloc(EVENTS, sizeof *trace.events);
    for (size_t i = 0; i < EVENTS; i++)
        trace.events[i].gap_us = 1e6; /* cut to 100 */
    timeline_init(&timeline, &conf, &trace);
    for (size_t i = 0; i < EVENTS; i++) {
        double start_us = i && timeline.finish_us[i - 1] > timeline.host_us + 100 ? timeline.finish_us[i - 1]
                                                                                  : timeline.host_us + 100;
        timeline_step(&timeline);
        above += timeline.finish_us[i] - start_us > 130; /* e^-1 of them: 36.8 % */
    }
    CHECK_MSG(above > EVENTS * 0.355 && above < EVENTS * 0.381, "%llu above the mean",
              (unsigned long long)above);
    timeline_fini(&timeline);
    free(trace.events);
}

/* ---- wrong policies: a run must say so ---- */

typedef struct wrong {
    cup_provider_t driver;
    cup_addr_t addr;
    uint64_t bytes;
} wrong_t;

static void *wrong_create(host_t *host)
{
    wrong_t *self = replay_alloc(1, sizeof *self);
    self->driver = driver_ops(host->driver, true);
    return self;
}

static bool wrong_alloc(void *policy, uint64_t bytes, cup_addr_t *out_addr)
{
    wrong_t *self = policy;
    self->bytes = bytes;
    bool is_served = self->driver.reserve(self->driver.self, bytes, &self->addr) == CUP_OK;
    *out_addr = self->addr;
    return is_served;
}

static bool too_small_alloc(void *policy, uint64_t bytes, cup_addr_t *out_addr)
{
    return wrong_alloc(policy, bytes / 4, out_addr);
}

static void keep(void *policy, cup_addr_t addr, cup_point_t point)
{
    (void)policy, (void)addr, (void)point;
}

/* Right only where a free is usable at once. */
static void give_back_at_once(void *policy, cup_addr_t addr, cup_point_t point)
{
    wrong_t *self = policy;
    (void)point;
    self->driver.release(self->driver.self, addr, self->bytes);
}

static void nothing(void *policy)
{
    (void)policy;
}

static const char *say_nothing(void *policy)
{
    (void)policy;
    return NULL;
}

static const char *say_broken(void *policy)
{
    (void)policy;
    return "broken";
}

/* One block of 8 MiB, allocated and freed. Returns what a run finds. */
static const char *run_wrong(const policy_ops_t *ops, uint64_t lag)
{
    trace_event_t events[2] = {{.bytes = PIECE, .is_alloc = true}, {.bytes = PIECE}};
    trace_t trace = {.events = events, .count = 2, .blocks = 1, .peak_live_bytes = PIECE};
    replay_conf_t conf = {.lag.events = lag, .movable.events = lag, .limit_bytes = 4 * PIECE};
    replay_result_t result;
    conf.timeline.queue = 1000;
    replay_run(&conf, ops, &trace, &result);
    return result.broken;
}

TEST(model, a_run_finds_wrong_policies)
{
    policy_ops_t ops = {.create = wrong_create,
                        .alloc = wrong_alloc,
                        .free = give_back_at_once,
                        .complete = nothing,
                        .check = say_nothing,
                        .check_empty = say_nothing,
                        .destroy = free};
    CHECK_SOUND(run_wrong(&ops, 0));
    CHECK(run_wrong(&ops, 1)); /* given back before it was told to be free */
    ops.free = keep;
    CHECK(run_wrong(&ops, 0)); /* never given back */
    ops.free = give_back_at_once;
    ops.alloc = too_small_alloc;
    CHECK(run_wrong(&ops, 0)); /* a block beyond its memory */
    ops.alloc = wrong_alloc;
    ops.check = say_broken;
    CHECK(run_wrong(&ops, 0));
    ops.check = say_nothing;
    ops.check_empty = say_broken;
    CHECK(run_wrong(&ops, 0));
}
