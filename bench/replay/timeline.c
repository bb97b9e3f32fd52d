/* SPDX-License-Identifier: Apache-2.0 */
/* How: see timeline.h. Work finishes in order, so completion is one cursor over finish_us. */
#include "bench/replay/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "bench/replay/table.h"

void timeline_init(timeline_t *timeline, const timeline_conf_t *conf, const trace_t *trace)
{
    *timeline = (timeline_t){.conf = *conf, .trace = trace, .rng = conf->seed};
    timeline->finish_us = replay_alloc(trace->count, sizeof *timeline->finish_us);
}

void timeline_fini(timeline_t *timeline)
{
    free(timeline->finish_us);
    *timeline = (timeline_t){0};
}

/* Exponential with mean 1, from splitmix64. */
static double draw(timeline_t *timeline)
{
    uint64_t x = timeline->rng += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return -log1p(-(double)(x >> 11) * 0x1p-53);
}

static double gpu_end_us(const timeline_t *timeline)
{
    return timeline->submitted ? timeline->finish_us[timeline->submitted - 1] : 0;
}

static void wait_until(timeline_t *timeline, double us)
{
    if (timeline->host_us < us)
        timeline->host_us = us;
}

void timeline_step(timeline_t *timeline)
{
    size_t i = timeline->submitted;
    double gap_us = fmin(timeline->trace->events[i].gap_us, timeline->conf.cap_us);
    timeline->host_us += gap_us;
    if (i >= timeline->conf.queue)
        wait_until(timeline, timeline->finish_us[i - timeline->conf.queue]);
    double work_us = timeline->conf.rate * gap_us * draw(timeline);
    timeline->finish_us[i] = fmax(gpu_end_us(timeline), timeline->host_us) + work_us;
    timeline->submitted++;
}

void timeline_spend(timeline_t *timeline, double us)
{
    timeline->host_us += us;
}

void timeline_wait(timeline_t *timeline, cup_point_t point)
{
    if (point > timeline->submitted)
        point = timeline->submitted;
    if (point)
        wait_until(timeline, timeline->finish_us[point - 1]);
}

cup_point_t timeline_completed(timeline_t *timeline)
{
    while (timeline->completed < timeline->submitted &&
           timeline->finish_us[timeline->completed] <= timeline->host_us)
        timeline->completed++;
    return timeline->completed;
}

double timeline_end_us(const timeline_t *timeline)
{
    return fmax(timeline->host_us, gpu_end_us(timeline));
}

double timeline_ideal_us(const timeline_conf_t *conf, const trace_t *trace)
{
    timeline_t timeline;
    timeline_init(&timeline, conf, trace);
    for (size_t i = 0; i < trace->count; i++)
        timeline_step(&timeline);
    double end_us = timeline_end_us(&timeline);
    timeline_fini(&timeline);
    return end_us;
}
