/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool fault - the Nth failure of host memory or of the provider, for every N.
 * What:       one history, replayed with its one failure a call further on each time, until a run meets
 *             none. A call that fails says so and leaves the pool as it was; what is live can still be
 *             freed; the end is an empty pool. Each run is a process of its own: bookkeeping is recycled,
 *             and only a cold process asks for all of it.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/meta.h"
#include "allocator/pool.h"
#include "tests/support/fake_provider.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

enum { BLOCKS_MAX = 700, STEPS = 250, RUNS_MAX = 1000 };
enum { MET_NONE, MET_ONE, BROKEN };

typedef struct run {
    bool has_ranges;
    cup_rng_t rng;
    cup_fake_provider_t fake;
    cup_pool_t *pool;
    cup_addr_t block[BLOCKS_MAX];
    size_t blocks;
    uint64_t failures;
} run_t;

/* The same but for the counts of provider calls, which were made, and for where free memory is. */
static const char *check_same(run_t *run, const cup_pool_stat_t *before)
{
    cup_pool_stat_t after;
    cup_pool_stat(run->pool, &after);
    after.reserves = before->reserves;
    after.releases = before->releases;
    after.commits = before->commits;
    after.decommits = before->decommits;
    after.moves = before->moves;
    after.holes_bytes = before->holes_bytes;
    if (memcmp(before, &after, sizeof after) != 0)
        return "a failed call changed the statistics";
    if (run->fake.held_bytes != after.footprint_bytes || run->fake.faults)
        return "a failed call kept or lost a reservation";
    return NULL;
}

static const char *do_alloc(run_t *run)
{
    uint64_t size_bytes = cup_rng_size(&run->rng, run->has_ranges ? 25 : 22);
    cup_addr_t addr = 1;
    cup_pool_stat_t before;
    cup_pool_stat(run->pool, &before);
    /* Now and then without asking first: a grow that finds nothing gathered can fail after its reservation.
     */
    bool asks_first = cup_rng_below(&run->rng, 4) > 0;
    cup_status_t status = asks_first ? cup_pool_alloc(run->pool, size_bytes, &addr) : CUP_ERR_MISS;
    if (status == CUP_ERR_MISS) {
        const char *broken = check_same(run, &before);
        if (broken)
            return broken;
        status = cup_pool_grow(run->pool, size_bytes, true, &addr);
    }
    if (status == CUP_OK) {
        run->block[run->blocks++] = addr;
        return NULL;
    }
    run->failures++;
    if (addr != 1 || (status != CUP_ERR_NOMEM && status != CUP_ERR_DRIVER))
        return "an odd status, or an address with a failure";
    const char *broken = check_same(run, &before);
    return broken ? broken : cup_pool_check(run->pool);
}

static const char *step(run_t *run, cup_point_t now)
{
    uint64_t dice = cup_rng_below(&run->rng, 16);
    if (run->blocks == 0 || dice < 11)
        return do_alloc(run);
    if (dice == 14)
        cup_pool_complete(run->pool, now - 1);
    if (dice == 15)
        cup_pool_trim(run->pool, 1);
    if (dice >= 14)
        return NULL;
    size_t pick = cup_rng_below(&run->rng, run->blocks);
    cup_addr_t addr = run->block[pick];
    run->block[pick] = run->block[--run->blocks];
    return cup_pool_free(run->pool, addr, now, NULL) == CUP_OK ? NULL : "a live block cannot be freed";
}

static const char *finish(run_t *run)
{
    for (size_t i = 0; i < run->blocks; i++)
        if (cup_pool_free(run->pool, run->block[i], STEPS + 1, NULL) != CUP_OK)
            return "a live block cannot be freed in the end";
    cup_pool_complete(run->pool, CUP_POINT_MAX);
    const char *broken = cup_pool_check_empty(run->pool);
    cup_meta_fail_nth(0); /* a trim without host memory for its plan gives nothing back, and says so */
    cup_pool_trim(run->pool, UINT64_MAX);
    bool is_back = run->fake.held_bytes == 0;
    cup_pool_destroy(run->pool);
    is_back = is_back && run->fake.held_addresses == 0 && run->fake.faults == 0;
    return broken || is_back ? broken : "the provider did not get everything back";
}

static int play(bool has_ranges, uint64_t meta_nth, uint64_t reserve_nth)
{
    static run_t run = {.rng.state = 11};
    cup_pool_conf_t conf = {.dedicated_bytes = 2 * CUP_MIB, .range_bytes = CUP_GIB, .slack_percent = 100};
    const char *broken = NULL;
    cup_fake_init(&run.fake, CUP_GIB);
    run.fake.fail_nth = reserve_nth;
    run.has_ranges = has_ranges;
    cup_provider_t ops = has_ranges ? cup_fake_range_ops(&run.fake) : cup_fake_ops(&run.fake);
    cup_meta_fail_nth(meta_nth);
    cup_status_t status = cup_pool_create(&conf, &ops, &run.pool);
    if (status != CUP_OK)
        return status == CUP_ERR_NOMEM && meta_nth == 1 ? MET_ONE : BROKEN;
    for (int i = 1; i <= STEPS && !broken; i++)
        broken = step(&run, (cup_point_t)i);
    broken = broken ? broken : finish(&run);
    if (broken)
        fprintf(stderr, "host memory %" PRIu64 ", provider %" PRIu64 ": %s\n", meta_nth, reserve_nth, broken);
    if (has_ranges && !broken && run.fake.moves < 10)
        broken = "a history that moves nothing shows nothing";
    return broken || run.failures > 1 ? BROKEN : (int)run.failures;
}

static int play_in_child(bool has_ranges, uint64_t meta_nth, uint64_t reserve_nth)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(play(has_ranges, meta_nth, reserve_nth));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return BROKEN;
    return WEXITSTATUS(status);
}

static uint64_t fail_each_provider_call(bool has_ranges)
{
    uint64_t nth = 1;
    while (nth < RUNS_MAX && play_in_child(has_ranges, 0, nth) == MET_ONE)
        nth++;
    CHECK_EQ(play_in_child(has_ranges, 0, nth), MET_NONE);
    return nth - 1;
}

TEST(pool_fault, every_reserve)
{
    CHECK(fail_each_provider_call(false) >= 20);
}

/* Of addresses, commits and moves. */
TEST(pool_fault, every_provider_call_over_ranges)
{
    CHECK(fail_each_provider_call(true) >= 50);
}

/* A pool, a chunk, a ring, nodes of the map, spans, slabs: a cold start alone asks eight times or more. */
TEST(pool_fault, every_host_allocation)
{
    uint64_t nth = 1;
    while (nth < RUNS_MAX && play_in_child(false, nth, 0) == MET_ONE)
        nth++;
    CHECK_EQ(play_in_child(false, nth, 0), MET_NONE);
    CHECK_MSG(nth > 8, "only %" PRIu64 " allocations", nth - 1);
}

/*
 * Here one may fail and nobody needs to be told: fewer handles are moved or given back. So a run of misses,
 * not the first one, is the end.
 */
TEST(pool_fault, every_host_allocation_over_ranges)
{
    uint64_t met = 0;
    for (uint64_t nth = 1, missed = 0; missed < 20; nth++) {
        int outcome = play_in_child(true, nth, 0);
        CHECK(outcome != BROKEN && nth < RUNS_MAX);
        met += outcome == MET_ONE;
        missed = outcome == MET_ONE ? 0 : missed + 1;
    }
    CHECK_MSG(met > 20, "only %" PRIu64 " allocations", met);
}
