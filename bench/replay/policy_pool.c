/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: allocator/pool.h over the driver of numbers, asked in the order in which shim/heap.c asks: what is
 * held; past slack x live peak (and the floor) wait for frees, if the replay may; grow; out of memory: wait,
 * give back, grow tightly.
 *
 * Two meanings of "free" meet one here. A replay knows usable (may be handed out: N events after the free)
 * and movable (its memory may be unmapped: 200 events after it); pool.h has complete, which means both. It is
 * told usable. When it then unmaps memory that is not movable yet, the driver makes it wait until that is so,
 * and counts a wait (driver.h): as a shim must that hands out memory in order before it is complete.
 */
#include "allocator/pool.h"

#include <stdlib.h>
#include <string.h>

#include "bench/replay/policy.h"

typedef struct real_pool {
    host_t *host;
    cup_pool_t *pool;
} real_pool_t;

/* Addresses are cheap: 4 x the device, in whole GiB, as the shim reserves them. */
static uint64_t range_bytes(const replay_conf_t *conf)
{
    return (4 * conf->limit_bytes / CUP_GIB + 1) * CUP_GIB;
}

static void *create(host_t *host)
{
    real_pool_t *self = replay_alloc(1, sizeof *self);
    cup_pool_conf_t conf = {.dedicated_bytes = host->conf->dedicated_bytes,
                            .range_bytes = range_bytes(host->conf),
                            .handle_bytes = host->conf->handle_bytes,
                            .slack_floor_bytes = host->conf->floor_bytes,
                            .slack_percent = (uint32_t)host->conf->slack_percent};
    cup_provider_t provider = driver_ops(host->driver, !strcmp(host->conf->backing, "raw"));
    self->host = host;
    if (cup_pool_create(&conf, &provider, &self->pool) != CUP_OK)
        replay_die("the pool cannot be created");
    return self;
}

static void complete(void *policy)
{
    real_pool_t *self = policy;
    (void)cup_pool_complete(self->pool, self->host->usable);
}

static bool is_over_budget(const real_pool_t *self, uint64_t bytes)
{
    const replay_conf_t *conf = self->host->conf;
    cup_pool_stat_t stat;
    cup_pool_stat(self->pool, &stat);
    uint64_t live_bytes = stat.live_bytes + bytes; /* with this request it may be a new peak */
    uint64_t peak_bytes = live_bytes > stat.live_peak_bytes ? live_bytes : stat.live_peak_bytes;
    uint64_t budget = peak_bytes / 100 * conf->slack_percent;
    if (budget < conf->floor_bytes)
        budget = conf->floor_bytes;
    return stat.footprint_bytes + bytes > budget;
}

/* Free by free, until one leaves a hole that fits. */
static bool alloc_by_waiting(real_pool_t *self, uint64_t bytes, cup_addr_t *out_addr)
{
    cup_point_t oldest = cup_pool_oldest_stamp(self->pool);
    if (oldest)
        self->host->waits++;
    for (; oldest; oldest = cup_pool_oldest_stamp(self->pool)) {
        host_wait(self->host, oldest);
        complete(self);
        if (cup_pool_alloc(self->pool, bytes, out_addr) == CUP_OK)
            return true;
    }
    return false;
}

static bool alloc_short(real_pool_t *self, uint64_t bytes, cup_addr_t *out_addr)
{
    if (alloc_by_waiting(self, bytes, out_addr))
        return true;
    (void)cup_pool_trim(self->pool, UINT64_MAX);
    return cup_pool_grow(self->pool, bytes, true, out_addr) == CUP_OK;
}

static bool alloc(void *policy, uint64_t bytes, cup_addr_t *out_addr)
{
    real_pool_t *self = policy;
    if (cup_pool_alloc(self->pool, bytes, out_addr) == CUP_OK)
        return true;
    if (self->host->conf->may_wait && is_over_budget(self, bytes) && alloc_by_waiting(self, bytes, out_addr))
        return true;
    return cup_pool_grow(self->pool, bytes, false, out_addr) == CUP_OK || alloc_short(self, bytes, out_addr);
}

static void free_block(void *policy, cup_addr_t addr, cup_point_t point)
{
    real_pool_t *self = policy;
    if (cup_pool_free(self->pool, addr, point, NULL) != CUP_OK)
        replay_die("the pool does not know a block that it gave");
}

static const char *check(void *policy)
{
    real_pool_t *self = policy;
    cup_pool_stat_t stat;
    const char *broken = cup_pool_check(self->pool);
    if (broken)
        return broken;
    cup_pool_stat(self->pool, &stat);
    return stat.footprint_bytes == self->host->driver->held_bytes ? NULL : "pool: not what the driver holds";
}

static const char *check_empty(void *policy)
{
    real_pool_t *self = policy;
    return cup_pool_check_empty(self->pool);
}

static void destroy(void *policy)
{
    real_pool_t *self = policy;
    (void)cup_pool_trim(self->pool, UINT64_MAX);
    cup_pool_destroy(self->pool);
    free(self);
}

const policy_ops_t policy_pool = {"pool", create, alloc, free_block, complete, check, check_empty, destroy};
