/* SPDX-License-Identifier: Apache-2.0 */
/* How: see run.h. An event is point 1, 2, …: its work is submitted before its allocation or free. */
#include "bench/replay/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
    const trace_t *trace;
    const policy_ops_t *ops;
    void *policy;
    host_t host;
    driver_t driver;
    timeline_t timeline;
    cup_addr_t *addr; /* by block; 0: not live */
    uint64_t *bytes;  /* by block */
    replay_result_t *result;
} run_t;

static void alloc_block(run_t *run, const trace_event_t *event)
{
    cup_addr_t addr;
    if (!run->ops->alloc(run->policy, event->bytes, &addr)) {
        run->result->failed++;
        return;
    }
    run->addr[event->block] = addr;
    run->bytes[event->block] = event->bytes;
    driver_note_alloc(&run->driver, addr, event->bytes);
}

static void free_block(run_t *run, size_t block)
{
    if (run->addr[block] == 0)
        return;
    driver_note_free(&run->driver, run->addr[block], run->bytes[block], run->host.now);
    run->ops->free(run->policy, run->addr[block], run->host.now);
    run->addr[block] = 0;
    run->ops->complete(run->policy);
}

static void note_broken(run_t *run, const char *broken)
{
    if (broken && !run->result->broken)
        run->result->broken = broken;
}

static void play(run_t *run)
{
    uint64_t check_every = run->host.conf->check_every;
    for (size_t i = 0; i < run->trace->count; i++) {
        const trace_event_t *event = &run->trace->events[i];
        host_step(&run->host);
        run->ops->complete(run->policy);
        if (event->is_alloc)
            alloc_block(run, event);
        else
            free_block(run, event->block);
        host_poll(&run->host);
        if (check_every && i % check_every == 0)
            note_broken(run, run->ops->check(run->policy));
    }
}

static void take_account(run_t *run)
{
    replay_result_t *result = run->result;
    result->footprint_bytes = run->driver.peak_bytes;
    result->end_bytes = run->driver.held_bytes;
    result->waits = run->host.waits;
    result->driver_calls = driver_total_calls(&run->driver);
    memcpy(result->calls, run->driver.calls, sizeof result->calls);
    result->end_us = timeline_end_us(&run->timeline);
    result->ideal_us = timeline_ideal_us(&run->host.conf->timeline, run->trace);
}

/* Everything freed and complete: the law of an empty pool. */
static void end(run_t *run)
{
    note_broken(run, run->ops->check(run->policy));
    for (size_t block = 0; block < run->trace->blocks; block++)
        free_block(run, block);
    host_wait(&run->host, CUP_POINT_MAX);
    run->ops->complete(run->policy);
    note_broken(run, run->ops->check(run->policy));
    note_broken(run, run->ops->check_empty(run->policy));
    run->ops->destroy(run->policy);
    note_broken(run, run->driver.fault);
    if (run->driver.held_bytes)
        note_broken(run, "the driver still holds memory after the end");
}

void replay_run(const replay_conf_t *conf, const policy_ops_t *ops, const trace_t *trace,
                replay_result_t *out_result)
{
    run_t run = {.trace = trace, .ops = ops, .result = out_result};
    *out_result = (replay_result_t){0};
    run.addr = replay_alloc(trace->blocks, sizeof *run.addr);
    run.bytes = replay_alloc(trace->blocks, sizeof *run.bytes);
    timeline_init(&run.timeline, &conf->timeline, trace);
    driver_init(&run.driver, &run.timeline, conf->limit_bytes);
    host_init(&run.host, conf, &run.timeline, &run.driver);
    run.policy = run.ops->create(&run.host);
    play(&run);
    take_account(&run);
    end(&run);
    driver_fini(&run.driver);
    timeline_fini(&run.timeline);
    free(run.bytes);
    free(run.addr);
}
