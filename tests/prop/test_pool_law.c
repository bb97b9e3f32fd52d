/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool law - random histories against a model that knows every block.
 * What:       no two blocks that are live or incomplete overlap; alignment; exact answers to double,
 *             interior and foreign frees and to look-ups; nothing is handed out before its stamp is
 *             complete; in the end each chunk is one free span. Over ranges also: the handles behind a
 *             block stay the same until it is complete. The same with four threads on one pool, each
 *             proving that its blocks are its own.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/pool.h"
#include "allocator/size.h"
#include "tests/support/fake_provider.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#if defined(__SANITIZE_THREAD__) /* these histories have one thread: other builds run them at length */
enum { STEPS = 4000 };
#elif defined(__SANITIZE_ADDRESS__)
enum { STEPS = 10000 };
#else
enum { STEPS = 30000 };
#endif
enum { BLOCKS_MAX = 1500, CHECK_EVERY = 1000, DEPTH_MAX = 4 };

#define DEDICATED_BYTES (2 * CUP_MIB)
#define LIMIT_BYTES     (512 * CUP_MIB) /* small enough that histories run out of memory now and then */

#define QUARANTINE CUP_POINT_MAX /* no point completes it */

typedef struct block {
    cup_addr_t addr;
    uint64_t size_bytes;
    cup_point_t stamp; /* 0: live; QUARANTINE: freed and held */
    uint64_t mark;     /* of the handles behind it; 0 over chunks */
    uint64_t serial;   /* of the allocation */
    unsigned marks;    /* set so far: cup_mark_t */
} block_t;

typedef struct law {
    cup_rng_t rng;
    cup_pool_t *pool;
    cup_fake_provider_t fake;
    block_t block[BLOCKS_MAX]; /* live or not complete */
    size_t blocks;
    uint64_t live_bytes, live_blocks, newest_serial;
    cup_point_t open, completed;
    cup_pool_conf_t conf;
    unsigned size_log2; /* sizes of this history are 1 .. 2^this */
    int depth;          /* steps inside provider calls of steps */
} law_t;

static bool has_ranges(const law_t *law)
{
    return law->conf.range_bytes > 0;
}

static bool is_dedicated(const law_t *law, uint64_t size_bytes)
{
    return !has_ranges(law) && size_bytes >= DEDICATED_BYTES;
}

/* What belongs to a block: with the bytes behind it that are nobody's. */
static uint64_t with_redzone(const law_t *law, uint64_t size_bytes)
{
    return size_bytes + law->conf.redzone_bytes;
}

/* Nothing was moved or replaced under a block that is live or not complete. */
static void check_mark(law_t *law, const block_t *block)
{
    if (has_ranges(law))
        CHECK_EQ(cup_fake_mark(&law->fake, block->addr, block->size_bytes), block->mark);
}

static const block_t *overlapping(const law_t *law, cup_addr_t addr, uint64_t size_bytes)
{
    for (size_t i = 0; i < law->blocks; i++) {
        const block_t *block = &law->block[i];
        if (addr < block->addr + with_redzone(law, block->size_bytes) &&
            block->addr < addr + with_redzone(law, size_bytes))
            return block;
    }
    return NULL;
}

/* A redzone shifts small blocks among the classes: what is promised of them is of both together. */
static uint64_t alignment_of(const law_t *law, uint64_t size_bytes)
{
    if (is_dedicated(law, size_bytes))
        return CUP_CHUNK_ALIGN;
    size_bytes = with_redzone(law, size_bytes);
    if (size_bytes >= 64 * CUP_KIB)
        return 64 * CUP_KIB;
    return size_bytes > 32 * CUP_KIB || size_bytes % (4 * CUP_KIB) == 0 ? 4 * CUP_KIB : 512;
}

/* The model takes note of a completed point: what waited for it may be handed out now. */
static void complete(law_t *law, cup_point_t completed)
{
    size_t kept = 0;
    cup_pool_complete(law->pool, completed);
    law->completed = completed > law->completed ? completed : law->completed;
    for (size_t i = 0; i < law->blocks; i++)
        if (law->block[i].stamp == 0 || law->block[i].stamp > law->completed)
            law->block[kept++] = law->block[i];
    law->blocks = kept;
}

static void do_alloc(law_t *law)
{
    uint64_t size_bytes = cup_rng_size(&law->rng, law->size_log2);
    cup_addr_t addr = 0;
    cup_status_t status = cup_pool_alloc(law->pool, size_bytes, &addr);
    if (status == CUP_ERR_MISS)
        status = cup_pool_grow(law->pool, size_bytes, cup_rng_below(&law->rng, 4) == 0, &addr);
    if (status == CUP_ERR_OOM) {
        cup_pool_trim(law->pool, size_bytes);
        return;
    }
    CHECK_EQ(status, CUP_OK);
    const block_t *other = overlapping(law, addr, size_bytes);
    CHECK_MSG(!other, "%#" PRIx64 "+%#" PRIx64 " overlaps %#" PRIx64 " stamp %" PRIu64, addr, size_bytes,
              other->addr, other->stamp);
    CHECK_EQ(addr % alignment_of(law, size_bytes), 0);
    uint64_t mark = has_ranges(law) ? cup_fake_mark(&law->fake, addr, size_bytes) : 0;
    CHECK(mark || !has_ranges(law));
    cup_block_info_t info;
    CHECK(cup_pool_find(addr, &info) && info.marks == 0);
    CHECK(info.serial > law->newest_serial);
    law->newest_serial = info.serial;
    law->block[law->blocks++] = (block_t){addr, size_bytes, 0, mark, info.serial, 0};
    law->live_bytes += size_bytes;
    law->live_blocks++;
}

static void forget(law_t *law, size_t i)
{
    law->block[i] = law->block[--law->blocks];
}

static void do_free(law_t *law, size_t i)
{
    block_t *block = &law->block[i];
    bool is_live = block->stamp == 0;
    cup_point_t stamp = cup_rng_below(&law->rng, 8) ? law->open : cup_rng_below(&law->rng, law->open + 1);
    law->open += cup_rng_below(&law->rng, 4) == 0;
    CHECK_EQ(cup_pool_free(law->pool, block->addr, stamp, NULL), is_live ? CUP_OK : CUP_ERR_NOT_FOUND);
    if (!is_live)
        return;
    law->live_bytes -= block->size_bytes;
    law->live_blocks--;
    block->stamp = block->marks & CUP_MARK_HOLDS ? QUARANTINE : stamp;
    if (block->stamp <= law->completed)
        forget(law, i); /* may be handed out, now or when the queue before it has moved */
}

/* Only what is live can be marked. */
static void do_mark(law_t *law, block_t *block)
{
    unsigned marks = 1u << cup_rng_below(&law->rng, 3);
    cup_status_t status = cup_pool_mark(law->pool, block->addr, marks);
    CHECK_EQ(status, block->stamp == 0 ? CUP_OK : CUP_ERR_NOT_FOUND);
    if (status == CUP_OK)
        block->marks |= marks;
}

/* In quarantine the last hold that goes is the free. */
static void do_unmark(law_t *law, size_t i)
{
    block_t *block = &law->block[i];
    unsigned marks = 1u << cup_rng_below(&law->rng, 3);
    bool is_known = block->stamp == 0 || block->stamp == QUARANTINE;
    CHECK_EQ(cup_pool_unmark(law->pool, block->addr, marks, law->open),
             is_known ? CUP_OK : CUP_ERR_NOT_FOUND);
    if (!is_known)
        return;
    block->marks &= ~marks;
    if (block->stamp == QUARANTINE && !(block->marks & CUP_MARK_HOLDS))
        block->stamp = law->open;
    if (block->stamp != 0 && block->stamp <= law->completed)
        forget(law, i);
}

static void do_wrong_free(law_t *law, const block_t *block)
{
    uint64_t off = 1 + cup_rng_below(&law->rng, block->size_bytes + 4096);
    for (size_t i = 0; i < law->blocks; i++)
        if (law->block[i].addr == block->addr + off)
            return;
    CHECK_EQ(cup_pool_free(law->pool, block->addr + off, law->open, NULL), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_surrender(law->pool, block->addr + off), CUP_ERR_NOT_FOUND);
}

static void do_find(law_t *law, const block_t *block)
{
    cup_addr_t addr = block->addr + cup_rng_below(&law->rng, block->size_bytes);
    cup_block_info_t info;
    check_mark(law, block);
    CHECK(cup_pool_owner(addr) == law->pool);
    CHECK_EQ(cup_pool_find(addr, &info), block->stamp == 0);
    if (block->stamp != 0)
        return;
    CHECK(info.pool == law->pool && info.base == block->addr && info.size_bytes == block->size_bytes);
    CHECK_EQ(info.is_dedicated, is_dedicated(law, block->size_bytes));
    CHECK(info.serial == block->serial && info.marks == block->marks);
}

static void do_surrender(law_t *law, size_t i)
{
    const block_t block = law->block[i];
    bool is_own = is_dedicated(law, block.size_bytes);
    cup_pool_stat_t before, after;
    cup_pool_stat(law->pool, &before);
    CHECK_EQ(cup_pool_surrender(law->pool, block.addr), block.stamp ? CUP_ERR_NOT_FOUND
                                                        : is_own    ? CUP_OK
                                                                    : CUP_ERR_INVALID);
    cup_pool_stat(law->pool, &after);
    if (block.stamp || !is_own)
        return;
    cup_fake_release(&law->fake, block.addr, before.footprint_bytes - after.footprint_bytes);
    law->live_bytes -= block.size_bytes;
    law->live_blocks--;
    forget(law, i);
}

static void step(law_t *law)
{
    uint64_t dice = cup_rng_below(&law->rng, 100);
    size_t i = law->blocks ? cup_rng_below(&law->rng, law->blocks) : 0;
    if (law->blocks == 0 || (dice < 48 && law->blocks < BLOCKS_MAX - DEPTH_MAX))
        do_alloc(law);
    else if (dice < 85)
        do_free(law, i);
    else if (dice < 88)
        complete(law, cup_rng_below(&law->rng, law->open + 1));
    else if (dice < 91)
        do_wrong_free(law, &law->block[i]);
    else if (dice < 92)
        do_mark(law, &law->block[i]);
    else if (dice < 95)
        do_unmark(law, i);
    else if (dice < 98)
        do_find(law, &law->block[i]);
    else if (dice < 99)
        do_surrender(law, i);
    else
        cup_pool_trim(law->pool, cup_rng_size(&law->rng, 28));
}

/* As if another thread came in the middle of a provider call: the pool is sound and can do everything. */
static void step_inside(void *argument)
{
    law_t *law = argument;
    if (law->depth == DEPTH_MAX || cup_rng_below(&law->rng, 2))
        return;
    law->depth++;
    if (cup_rng_below(&law->rng, 16) == 0)
        CHECK_SOUND(cup_pool_check(law->pool));
    step(law);
    law->depth--;
}

static void compare(law_t *law)
{
    cup_pool_stat_t stat;
    uint64_t limbo_blocks = 0, quarantined_blocks = 0;
    cup_pool_stat(law->pool, &stat);
    for (size_t i = 0; i < law->blocks; i++) {
        quarantined_blocks += law->block[i].stamp == QUARANTINE;
        limbo_blocks += law->block[i].stamp != 0 && law->block[i].stamp != QUARANTINE;
        check_mark(law, &law->block[i]);
    }
    CHECK_EQ(stat.live_bytes, law->live_bytes);
    CHECK_EQ(stat.live_blocks, law->live_blocks);
    CHECK(stat.limbo_blocks >= limbo_blocks);
    CHECK_EQ(stat.quarantined_blocks, quarantined_blocks);
    CHECK_EQ(stat.footprint_bytes, law->fake.held_bytes);
    CHECK_EQ(stat.reserves, law->fake.reserves);
    CHECK_EQ(stat.releases, law->fake.releases);
    CHECK_EQ(stat.commits, law->fake.commits);
    CHECK_EQ(stat.decommits, law->fake.decommits);
    CHECK_EQ(stat.moves, law->fake.moves);
    CHECK(stat.footprint_bytes >=
          stat.idle_bytes + stat.live_bytes + stat.limbo_bytes + stat.quarantined_bytes);
    CHECK_EQ(law->fake.faults, 0);
    CHECK_SOUND(cup_pool_check(law->pool));
}

static void finish(law_t *law)
{
    for (size_t i = 0; i < law->blocks; i++)
        if (law->block[i].stamp == 0)
            CHECK_EQ(cup_pool_free(law->pool, law->block[i].addr, law->open, NULL), CUP_OK);
    for (size_t i = 0; i < law->blocks; i++)
        if (law->block[i].marks & CUP_MARK_HOLDS)
            CHECK_EQ(cup_pool_unmark(law->pool, law->block[i].addr, CUP_MARK_HOLDS, i % 2), CUP_OK);
    cup_pool_complete(law->pool, CUP_POINT_MAX);
    CHECK_EQ(cup_pool_oldest_stamp(law->pool), 0);
    CHECK_SOUND(cup_pool_check_empty(law->pool));
    cup_pool_trim(law->pool, UINT64_MAX);
    CHECK_SOUND(cup_pool_check_empty(law->pool));
    CHECK_EQ(law->fake.held_ranges, 0);
    CHECK(law->fake.held_bytes == 0 || law->fake.is_pinned);
    cup_pool_destroy(law->pool);
    CHECK(law->fake.held_bytes == 0 && law->fake.held_addresses == 0);
    CHECK_EQ(law->fake.faults, 0);
}

typedef struct outcome {
    uint64_t commits, moves, decommits;
} outcome_t;

static outcome_t run_history(uint64_t seed, unsigned size_log2, uint64_t limit_bytes, cup_pool_conf_t conf,
                             void (*on_call)(void *law))
{
    law_t *law = calloc(1, sizeof *law);
    CHECK(law);
    fprintf(stderr, "pool_law: CUP_SEED=%" PRIu64 " sizes to 2^%u, ranges of %" PRIu64 " bytes\n", seed,
            size_log2, conf.range_bytes);
    law->rng.state = seed;
    law->open = 1;
    law->size_log2 = size_log2;
    law->conf = conf;
    cup_fake_init(&law->fake, limit_bytes);
    law->fake.on_call = on_call;
    law->fake.on_call_argument = law;
    cup_provider_t ops = has_ranges(law) ? cup_fake_range_ops(&law->fake) : cup_fake_ops(&law->fake);
    CHECK_EQ(cup_pool_create(&law->conf, &ops, &law->pool), CUP_OK);
    for (int i = 1; i <= STEPS; i++) {
        step(law);
        if (i % CHECK_EVERY == 0)
            compare(law);
    }
    law->fake.on_call = NULL;
    finish(law);
    outcome_t outcome = {law->fake.commits, law->fake.moves, law->fake.decommits};
    free(law);
    return outcome;
}

static const cup_pool_conf_t conf_chunks = {.dedicated_bytes = DEDICATED_BYTES};
static const cup_pool_conf_t conf_ranges = {.range_bytes = 4 * CUP_GIB, .slack_percent = 105};

TEST(pool_law, random_histories)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_history(seed, 14, LIMIT_BYTES, conf_chunks, NULL);
        run_history(seed, 20, LIMIT_BYTES, conf_chunks, NULL);
        run_history(seed, 25, LIMIT_BYTES, conf_chunks, NULL);
    }
}

TEST(pool_law, random_histories_over_ranges)
{
    outcome_t sum = {0};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        for (unsigned size_log2 = 14; size_log2 <= 26; size_log2 += 6) {
            cup_pool_conf_t conf = conf_ranges;
            conf.slack_percent = seed % 2 ? 100 : 150;
            conf.slack_floor_bytes = seed == 3 ? LIMIT_BYTES : 0; /* then only the limit makes it move */
            outcome_t outcome = run_history(seed, size_log2, LIMIT_BYTES, conf, NULL);
            sum.moves += outcome.moves;
            sum.decommits += outcome.decommits;
        }
    }
    CHECK(sum.moves > 100 && sum.decommits > 100);
}

/* Steps of 512 bytes, as heap.c gives them. */
TEST(pool_law, random_histories_with_redzones)
{
    static const uint64_t redzones[] = {512, 4096, 3 * CUP_MIB};
    for (size_t i = 0; i < sizeof redzones / sizeof redzones[0]; i++) {
        cup_pool_conf_t chunks = conf_chunks, ranges = conf_ranges;
        chunks.redzone_bytes = ranges.redzone_bytes = redzones[i];
        run_history(20 + i, 18, LIMIT_BYTES, chunks, NULL);
        run_history(20 + i, 22, LIMIT_BYTES, chunks, step_inside);
        run_history(20 + i, 18, LIMIT_BYTES, ranges, NULL);
        run_history(20 + i, 22, LIMIT_BYTES, ranges, step_inside);
    }
}

/* Ranges so large that all sizes of handles are there, and so small that they end. */
TEST(pool_law, random_histories_over_all_handle_sizes)
{
    cup_pool_conf_t conf = conf_ranges;
    conf.range_bytes = 12 * CUP_GIB;
    CHECK(run_history(5, 31, 64 * CUP_GIB, conf, NULL).moves > 0);
    conf.handle_bytes = 10 * CUP_MIB;
    CHECK(run_history(6, 25, LIMIT_BYTES, conf, NULL).moves > 0);
}

TEST(pool_law, random_histories_inside_provider_calls)
{
    for (uint64_t seed = 11; seed <= 14; seed++) {
        cup_pool_conf_t conf = conf_ranges;
        conf.slack_floor_bytes = seed % 2 ? LIMIT_BYTES : 0;
        CHECK(run_history(seed, 24, LIMIT_BYTES, conf, step_inside).moves > 0);
        run_history(seed, 20, LIMIT_BYTES, conf, step_inside);
        run_history(seed, 22, LIMIT_BYTES, conf_chunks, step_inside);
    }
}

/* From the first provider call on. */
static void pin(void *law)
{
    ((law_t *)law)->fake.is_pinned = true;
}

TEST(pool_law, pinned_memory_stays_where_it_is)
{
    outcome_t outcome = run_history(8, 22, CUP_GIB, conf_ranges, pin);
    CHECK_EQ(outcome.moves, 0);
    CHECK(outcome.commits > 0);
}

TEST(pool_law, history_of_the_given_seed)
{
    run_history(cup_rng_seed(20261130), 22, LIMIT_BYTES, conf_chunks, NULL);
    run_history(cup_rng_seed(20261130), 24, LIMIT_BYTES, conf_ranges, NULL);
    run_history(cup_rng_seed(20261130), 23, LIMIT_BYTES, conf_ranges, step_inside);
}

/* ---- threads ---- */

enum { THREADS = 4, THREAD_BLOCKS = 64, THREAD_STEPS = 4000 };

#define SHADOW_BYTES (4 * CUP_GIB)       /* of address space above the first reservation */
#define CELL_LIVE    (UINT32_C(1) << 31) /* a cell: CELL_LIVE | owner, or the stamp that freed it last */

/* What the threads share: a cell for each 512 bytes of the fake device. */
typedef struct shadow {
    cup_pool_t *pool;
    cup_fake_provider_t *fake;
    bool has_ranges;
    cup_addr_t base;
    _Atomic(uint32_t) *cell;
    _Atomic(uint32_t) open,
        completed; /* completed is raised before the pool is told: an upper bound of what it knows */
} shadow_t;

typedef struct worker {
    pthread_t thread;
    shadow_t *shadow;
    cup_rng_t rng;
    uint32_t id;
    block_t block[THREAD_BLOCKS];
    const char *broken; /* what this thread found; NULL is good */
} worker_t;

static _Atomic(uint32_t) *cells_of(const shadow_t *shadow, const block_t *block)
{
    return &shadow->cell[(block->addr - shadow->base) / 512];
}

static uint64_t cells_in(const block_t *block)
{
    return (block->size_bytes + 511) / 512;
}

static uint64_t mark_of(worker_t *worker, const block_t *block)
{
    return worker->shadow->has_ranges ? cup_fake_mark(worker->shadow->fake, block->addr, block->size_bytes)
                                      : 0;
}

/* All its cells must be dead, and their stamps complete. */
static const char *claim(worker_t *worker, block_t *block)
{
    _Atomic(uint32_t) *cell = cells_of(worker->shadow, block);
    if (block->addr < worker->shadow->base ||
        block->addr + block->size_bytes > worker->shadow->base + SHADOW_BYTES)
        return "a block outside the fake device";
    for (uint64_t i = 0; i < cells_in(block); i++) {
        uint32_t old = atomic_exchange(&cell[i], CELL_LIVE | worker->id);
        if (old & CELL_LIVE)
            return "handed out twice";
        if (old > atomic_load(&worker->shadow->completed))
            return "handed out before its stamp was complete";
    }
    block->mark = mark_of(worker, block);
    return block->mark || !worker->shadow->has_ranges ? NULL : "handed out without memory";
}

static const char *disclaim(worker_t *worker, const block_t *block, uint32_t stamp)
{
    _Atomic(uint32_t) *cell = cells_of(worker->shadow, block);
    if (mark_of(worker, block) != block->mark)
        return "a live block's memory was moved";
    for (uint64_t i = 0; i < cells_in(block); i++)
        if (atomic_exchange(&cell[i], stamp) != (CELL_LIVE | worker->id))
            return "somebody else was in a live block";
    return NULL;
}

static const char *worker_alloc(worker_t *worker, block_t *block)
{
    cup_pool_t *pool = worker->shadow->pool;
    block->size_bytes = cup_rng_size(&worker->rng, 22);
    cup_status_t status = cup_pool_alloc(pool, block->size_bytes, &block->addr);
    if (status == CUP_ERR_MISS)
        status = cup_pool_grow(pool, block->size_bytes, cup_rng_below(&worker->rng, 2) == 0, &block->addr);
    if (status == CUP_ERR_OOM) {
        block->size_bytes = 0;
        return NULL;
    }
    return status == CUP_OK ? claim(worker, block) : "an alloc failed oddly";
}

static const char *worker_free(worker_t *worker, block_t *block)
{
    uint32_t stamp = atomic_load(&worker->shadow->open);
    const char *broken = disclaim(worker, block, stamp);
    block->size_bytes = 0;
    if (broken)
        return broken;
    return cup_pool_free(worker->shadow->pool, block->addr, stamp, NULL) == CUP_OK ? NULL : "a free failed";
}

static const char *worker_look(worker_t *worker, const block_t *block)
{
    cup_block_info_t info;
    uint64_t off = cup_rng_below(&worker->rng, block->size_bytes);
    (void)cup_pool_find(worker->shadow->base + cup_rng_below(&worker->rng, SHADOW_BYTES), &info);
    if (!cup_pool_find(block->addr + off, &info) || info.base != block->addr ||
        info.size_bytes != block->size_bytes)
        return "a live block was not found";
    return NULL;
}

static void worker_complete(shadow_t *shadow)
{
    uint32_t closed = atomic_fetch_add(&shadow->open, 1), seen = atomic_load(&shadow->completed);
    while (seen < closed && !atomic_compare_exchange_weak(&shadow->completed, &seen, closed))
        ;
    cup_pool_complete(shadow->pool, closed);
}

static void *work(void *argument)
{
    worker_t *worker = argument;
    for (int i = 0; i < THREAD_STEPS && !worker->broken; i++) {
        block_t *block = &worker->block[cup_rng_below(&worker->rng, THREAD_BLOCKS)];
        uint64_t dice = cup_rng_below(&worker->rng, 64);
        if (dice == 0)
            worker_complete(worker->shadow);
        else if (dice == 1)
            cup_pool_trim(worker->shadow->pool, cup_rng_size(&worker->rng, 26));
        else if (block->size_bytes == 0)
            worker->broken = worker_alloc(worker, block);
        else
            worker->broken = dice < 16 ? worker_look(worker, block) : worker_free(worker, block);
    }
    for (int i = 0; i < THREAD_BLOCKS && !worker->broken; i++)
        if (worker->block[i].size_bytes)
            worker->broken = worker_free(worker, &worker->block[i]);
    return NULL;
}

/* A first reservation tells where the fake device begins. */
static void shadow_init(shadow_t *shadow, cup_fake_provider_t *fake, bool over_ranges)
{
    cup_pool_conf_t conf = {.dedicated_bytes = DEDICATED_BYTES, .slack_percent = 100};
    cup_provider_t ops = over_ranges ? cup_fake_range_ops(fake) : cup_fake_ops(fake);
    CHECK_EQ(ops.reserve(fake, CUP_CHUNK_ALIGN, &shadow->base), CUP_OK);
    cup_fake_release(fake, shadow->base, CUP_CHUNK_ALIGN);
    conf.range_bytes = over_ranges ? CUP_GIB : 0;
    CHECK_EQ(cup_pool_create(&conf, &ops, &shadow->pool), CUP_OK);
    shadow->fake = fake;
    shadow->has_ranges = over_ranges;
    atomic_store(&shadow->completed, 0);
    atomic_store(&shadow->open, 1);
    CHECK((shadow->cell = calloc(SHADOW_BYTES / 512, sizeof *shadow->cell)));
}

/* Returns how many handles were moved. */
static uint64_t run_threads(bool over_ranges, uint64_t seed)
{
    static cup_fake_provider_t fake;
    static worker_t worker[THREADS];
    static shadow_t shadow;
    fprintf(stderr, "pool_law: threads, CUP_SEED=%" PRIu64 "\n", seed);
    cup_fake_init(&fake, 256 * CUP_MIB);
    shadow_init(&shadow, &fake, over_ranges);
    for (uint32_t i = 0; i < THREADS; i++) {
        worker[i] = (worker_t){.shadow = &shadow, .rng = {seed + i}, .id = i + 1};
        CHECK_EQ(pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(worker[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK_SOUND(worker[i].broken);
    cup_pool_complete(shadow.pool, CUP_POINT_MAX);
    CHECK_SOUND(cup_pool_check_empty(shadow.pool));
    cup_pool_trim(shadow.pool, UINT64_MAX);
    CHECK_EQ(fake.held_bytes, 0);
    cup_pool_destroy(shadow.pool);
    CHECK(fake.held_addresses == 0 && fake.faults == 0);
    free(shadow.cell);
    return fake.moves;
}

TEST(pool_law, four_threads_own_their_blocks)
{
    run_threads(false, cup_rng_seed(7));
}

/* Whether anything must be moved is up to how the threads meet: mostly at once. */
TEST(pool_law, four_threads_own_their_blocks_over_ranges)
{
    uint64_t moves = 0;
    for (uint64_t i = 0; i < 50 && moves == 0; i++)
        moves = run_threads(true, cup_rng_seed(7) + 1000 * i);
    CHECK(moves > 0);
}

/* ---- look-ups while pools come and go ---- */

typedef struct watcher {
    pthread_t thread;
    _Atomic(cup_addr_t) addr; /* a block's, now or a while ago; 0 ends it */
    _Atomic(uint64_t) owned;
    uint64_t found;
} watcher_t;

/* Whatever it finds must be whole; mostly it asks for what has just gone. */
static void *watch(void *argument)
{
    watcher_t *watcher = argument;
    cup_addr_t addr;
    while ((addr = atomic_load(&watcher->addr)) != 0) {
        cup_block_info_t info = {0};
        cup_pool_t *owner = cup_pool_owner(addr);
        watcher->owned += owner && cup_pool_self(owner);
        watcher->found += cup_pool_find(addr, &info) && info.base == addr;
    }
    return NULL;
}

static void look_up_while_pools_end(bool over_ranges)
{
    static cup_fake_provider_t fake;
    static watcher_t watcher;
    cup_rng_t rng = {cup_rng_seed(9)};
    cup_pool_conf_t conf = over_ranges ? conf_ranges : conf_chunks;
    cup_fake_init(&fake, CUP_GIB);
    cup_provider_t ops = over_ranges ? cup_fake_range_ops(&fake) : cup_fake_ops(&fake);
    memset(&watcher, 0, sizeof watcher);
    atomic_store(&watcher.addr, CUP_MIB);
    CHECK_EQ(pthread_create(&watcher.thread, NULL, watch, &watcher), 0);
    /* 500 rounds; more only while the watcher has not been given the CPU yet. */
    for (int i = 0; i < 500 || (i < 50000 && atomic_load(&watcher.owned) == 0); i++) {
        cup_pool_t *pool = NULL;
        CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
        for (int j = 0; j < 8; j++) {
            cup_addr_t addr = 0;
            CHECK_EQ(cup_pool_grow(pool, cup_rng_size(&rng, 23), true, &addr), CUP_OK);
            atomic_store(&watcher.addr, addr);
            if (cup_rng_below(&rng, 2))
                CHECK_EQ(cup_pool_free(pool, addr, 0, NULL), CUP_OK);
            cup_pool_trim(pool, cup_rng_below(&rng, 2) * CUP_MIB);
        }
        CHECK_SOUND(cup_pool_check(pool));
        cup_pool_destroy(pool);
        cup_fake_release_all(&fake); /* the memory died with its context */
    }
    atomic_store(&watcher.addr, 0);
    pthread_join(watcher.thread, NULL);
    CHECK_EQ(fake.faults, 0);
    CHECK_MSG(watcher.owned > 0, "the watcher saw nothing: found %" PRIu64, watcher.found);
}

TEST(pool_law, look_ups_survive_the_end_of_pools)
{
    look_up_while_pools_end(false);
}

TEST(pool_law, look_ups_survive_the_end_of_pools_of_ranges)
{
    look_up_while_pools_end(true);
}
