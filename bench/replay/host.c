/* SPDX-License-Identifier: Apache-2.0 */
/* How: see host.h. */
#include "bench/replay/host.h"

/* The driver's: memory is about to be unmapped whose work may still run. */
static void wait_to_unmap(void *self, cup_point_t point)
{
    host_t *host = self;
    host->waits++;
    host_wait(host, point);
}

void host_init(host_t *host, const replay_conf_t *conf, timeline_t *timeline, driver_t *driver)
{
    *host = (host_t){.conf = conf, .timeline = timeline, .driver = driver};
    driver->wait = wait_to_unmap;
    driver->host = host;
}

static cup_point_t complete_by(const host_t *host, const replay_lag_t *lag)
{
    if (lag->is_time)
        return timeline_completed(host->timeline);
    return host->now > lag->events ? host->now - lag->events : 0;
}

static void raise_to(host_t *host, cup_point_t usable, cup_point_t movable)
{
    if (host->usable < usable)
        host->usable = usable;
    if (movable > host->usable)
        movable = host->usable;
    if (host->movable < movable)
        host->movable = movable;
    host->driver->usable = host->usable;
    if (host->driver->movable < host->movable)
        host->driver->movable = host->movable;
}

void host_poll(host_t *host)
{
    raise_to(host, complete_by(host, &host->conf->lag), complete_by(host, &host->conf->movable));
}

void host_step(host_t *host)
{
    timeline_step(host->timeline);
    host->now++;
    host_poll(host);
}

void host_wait(host_t *host, cup_point_t point)
{
    if (point > host->now)
        point = host->now;
    timeline_wait(host->timeline, point);
    raise_to(host, point, point);
    host_poll(host);
}
