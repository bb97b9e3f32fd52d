/* SPDX-License-Identifier: Apache-2.0 */
/* pool - examples of each promise in pool.h, over chunks, over ranges, or over both in turn. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "allocator/pool.h"
#include "allocator/size.h"
#include "tests/support/fake_provider.h"
#include "tests/support/unit.h"

static cup_fake_provider_t fake;

static bool is_over_ranges; /* of the test that runs; false for those that are about chunks */

/* A body that holds over both backings: pool/name and pool_ranges/name. */
#define TEST_BOTH(name_)        \
    static void name_(void);    \
    TEST(pool, name_)           \
    {                           \
        name_();                \
    }                           \
    TEST(pool_ranges, name_)    \
    {                           \
        is_over_ranges = true;  \
        name_();                \
        is_over_ranges = false; \
    }                           \
    static void name_(void)

static const cup_pool_conf_t conf_both = {.dedicated_bytes = 2 * CUP_MIB,
                                          .range_bytes = 4 * CUP_GIB,
                                          .slack_percent = 105,
                                          .slack_floor_bytes = 64 * CUP_MIB};

static cup_pool_t *create(uint64_t limit_bytes)
{
    cup_pool_t *pool = NULL;
    cup_fake_init(&fake, limit_bytes);
    cup_provider_t ops = is_over_ranges ? cup_fake_range_ops(&fake) : cup_fake_ops(&fake);
    CHECK_EQ(cup_pool_create(&conf_both, &ops, &pool), CUP_OK);
    return pool;
}

/* Everything is free: the law of the empty pool, and the provider gets all back. */
static void destroy(cup_pool_t *pool)
{
    cup_pool_complete(pool, CUP_POINT_MAX);
    CHECK_SOUND(cup_pool_check_empty(pool));
    cup_pool_trim(pool, UINT64_MAX);
    CHECK_EQ(fake.held_bytes, 0);
    cup_pool_destroy(pool);
    CHECK_EQ(fake.held_addresses, 0);
    CHECK_EQ(fake.faults, 0);
}

static cup_addr_t must_alloc(cup_pool_t *pool, uint64_t size_bytes)
{
    cup_addr_t addr = 0;
    cup_status_t status = cup_pool_alloc(pool, size_bytes, &addr);
    if (status == CUP_ERR_MISS)
        status = cup_pool_grow(pool, size_bytes, false, &addr);
    CHECK_EQ(status, CUP_OK);
    return addr;
}

static cup_pool_stat_t stat_of(cup_pool_t *pool)
{
    cup_pool_stat_t stat;
    cup_pool_stat(pool, &stat);
    return stat;
}

TEST_BOTH(starts_empty_and_misses)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t addr = 77;
    CHECK_EQ(cup_pool_alloc(pool, 1, &addr), CUP_ERR_MISS);
    CHECK_EQ(cup_pool_alloc(pool, CUP_MIB, &addr), CUP_ERR_MISS);
    CHECK_EQ(cup_pool_alloc(pool, 8 * CUP_MIB, &addr), CUP_ERR_MISS);
    CHECK_EQ(cup_pool_alloc(pool, UINT64_MAX, &addr), CUP_ERR_MISS);
    CHECK_EQ(cup_pool_alloc(pool, 0, &addr), CUP_ERR_INVALID);
    CHECK_EQ(cup_pool_grow(pool, 0, false, &addr), CUP_ERR_INVALID);
    CHECK_EQ(cup_pool_grow(pool, UINT64_MAX, false, &addr), CUP_ERR_INVALID);
    CHECK_EQ(cup_pool_grow(pool, UINT64_MAX - CUP_CHUNK_ALIGN, true, &addr), CUP_ERR_INVALID);
    CHECK_EQ(cup_pool_grow(pool, UINT64_MAX / 2, true, &addr), CUP_ERR_OOM);
    CHECK_EQ(cup_pool_free(pool, CUP_GIB, 1, NULL), CUP_ERR_NOT_FOUND);
    CHECK_EQ(addr, 77);
    CHECK_EQ(fake.reserves, 1);
    destroy(pool);
}

TEST_BOTH(a_freed_block_waits_for_its_stamp)
{
    static const uint64_t sizes[] = {700, 100 * 1024, 3 << 20};
    for (int i = 0; i < 3; i++) {
        cup_pool_t *pool = create(CUP_GIB);
        cup_addr_t addr = must_alloc(pool, sizes[i]);
        CHECK_EQ(cup_pool_free(pool, addr, 5, NULL), CUP_OK);
        CHECK_EQ(cup_pool_oldest_stamp(pool), 5);
        CHECK_EQ(stat_of(pool).limbo_blocks, 1);
        CHECK(stat_of(pool).limbo_bytes >= sizes[i]);
        CHECK_EQ(stat_of(pool).live_bytes, 0);
        cup_addr_t other = must_alloc(pool, sizes[i]);
        CHECK(other != addr);
        CHECK_EQ(cup_pool_complete(pool, 4), 0);
        CHECK_EQ(cup_pool_complete(pool, 5), 1);
        CHECK_EQ(cup_pool_oldest_stamp(pool), 0);
        CHECK_EQ(must_alloc(pool, sizes[i]), addr);
        CHECK_EQ(cup_pool_free(pool, addr, 0, NULL), CUP_OK);
        CHECK_EQ(stat_of(pool).limbo_blocks, 0);
        CHECK_EQ(must_alloc(pool, sizes[i]), addr);
        CHECK_SOUND(cup_pool_check(pool));
        cup_pool_free(pool, addr, 0, NULL);
        cup_pool_free(pool, other, 0, NULL);
        destroy(pool);
    }
}

TEST_BOTH(wrong_frees_change_nothing)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t block[3] = {must_alloc(pool, 5000), must_alloc(pool, 200 * 1024), must_alloc(pool, 4 << 20)};
    cup_addr_t guard = is_over_ranges ? block[0] + 512 : block[0] & ~(CUP_CHUNK_ALIGN - 1);
    cup_pool_stat_t before = stat_of(pool);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(cup_pool_free(pool, block[i] + 512, 1, NULL), CUP_ERR_NOT_FOUND);
        CHECK_EQ(cup_pool_free(pool, block[i] + 4096, 1, NULL), CUP_ERR_NOT_FOUND);
        CHECK_EQ(cup_pool_free(pool, block[i] - 1, 1, NULL), CUP_ERR_NOT_FOUND);
    }
    CHECK_EQ(cup_pool_free(pool, guard, 1, NULL), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_free(pool, block[0] + 5120, 1, NULL),
             CUP_ERR_NOT_FOUND); /* the next block of the slab, free */
    CHECK_EQ(stat_of(pool).live_blocks, before.live_blocks);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(cup_pool_free(pool, block[i], 1, NULL), CUP_OK);
        CHECK_EQ(cup_pool_free(pool, block[i], 1, NULL), CUP_ERR_NOT_FOUND);
    }
    CHECK_EQ(cup_pool_complete(pool, 1), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(cup_pool_free(pool, block[i], 2, NULL), CUP_ERR_NOT_FOUND);
    CHECK_SOUND(cup_pool_check(pool));
    destroy(pool);
}

TEST_BOTH(foreign_blocks_are_not_ours)
{
    cup_fake_provider_t *other_fake = calloc(1, sizeof *other_fake);
    cup_pool_t *pool = create(CUP_GIB), *other = NULL;
    cup_addr_t addr = 0;
    CHECK(other_fake);
    cup_fake_init(other_fake, CUP_GIB);
    cup_provider_t ops = is_over_ranges ? cup_fake_range_ops(other_fake) : cup_fake_ops(other_fake);
    CHECK_EQ(cup_pool_create(&conf_both, &ops, &other), CUP_OK);
    CHECK_EQ(cup_pool_grow(other, 900, false, &addr), CUP_OK);
    CHECK_EQ(cup_pool_free(pool, addr, 1, NULL), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_surrender(pool, addr), CUP_ERR_NOT_FOUND);
    CHECK(cup_pool_owner(addr) == other);
    CHECK(cup_pool_self(other) == other_fake);
    CHECK(!cup_pool_owner(12345));
    cup_pool_destroy(other);
    CHECK_EQ(other_fake->releases,
             is_over_ranges ? 1 : 0); /* chunks died with their context, ranges did not */
    CHECK(!cup_pool_owner(addr));
    destroy(pool);
    free(other_fake);
}

TEST_BOTH(alignments)
{
    cup_pool_t *pool = create(CUP_GIB);
    for (uint64_t size = 1; size < 6 * CUP_MIB; size += 1 + size / 7) {
        bool is_dedicated = !is_over_ranges && size >= 2 * CUP_MIB;
        uint64_t want = is_dedicated                              ? CUP_CHUNK_ALIGN
                        : size >= 64 * CUP_KIB                    ? 64 * CUP_KIB
                        : size > 32 * CUP_KIB || size % 4096 == 0 ? 4096
                                                                  : 512;
        CHECK_EQ(must_alloc(pool, size) % want, 0);
    }
    for (uint64_t size = 4096; size <= 64 * CUP_KIB; size += 4096) {
        (void)must_alloc(pool, size - 1);
        CHECK_EQ(must_alloc(pool, size) % 4096, 0);
    }
    CHECK_SOUND(cup_pool_check(pool));
    cup_pool_destroy(pool);
}

TEST_BOTH(find_knows_bases_interiors_and_ends)
{
    static const uint64_t sizes[] = {1, 5000, 700 * 1024, 5 << 20};
    cup_pool_t *pool = create(CUP_GIB);
    for (int i = 0; i < 4; i++) {
        cup_addr_t addr = must_alloc(pool, sizes[i]);
        cup_block_info_t info = {0};
        CHECK(cup_pool_find(addr + sizes[i] - 1, &info));
        CHECK(info.pool == pool && info.base == addr && info.size_bytes == sizes[i]);
        CHECK_EQ(info.is_dedicated, i == 3 && !is_over_ranges);
        CHECK(!cup_pool_find(addr + sizes[i], &info));
        CHECK(cup_pool_owner(addr + sizes[i]) == pool);
        CHECK_EQ(cup_pool_free(pool, addr, 1, NULL), CUP_OK);
        CHECK(!cup_pool_find(addr, &info));
        CHECK(cup_pool_owner(addr) == pool);
        CHECK(!cup_pool_find(addr & ~(CUP_CHUNK_ALIGN - 1), &info));
    }
    destroy(pool);
}

TEST(pool, chunks_by_footprint_or_tight)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t addr;
    CHECK_EQ(cup_pool_grow(pool, 100, false, &addr), CUP_OK);
    CHECK_EQ(fake.held_bytes, 2 * CUP_MIB);
    cup_pool_destroy(pool);
    pool = create(CUP_GIB);
    CHECK_EQ(cup_pool_grow(pool, 300 * CUP_MIB, false, &addr), CUP_OK);
    uint64_t before = fake.held_bytes;
    CHECK_EQ(cup_pool_grow(pool, 100 * 1024, false, &addr), CUP_OK);
    CHECK_EQ(fake.held_bytes - before, 32 * CUP_MIB);
    before = fake.held_bytes;
    CHECK_EQ(cup_pool_grow(pool, 2 * CUP_MIB - 4096, true, &addr), CUP_OK);
    CHECK_EQ(fake.held_bytes - before,
             4 * CUP_MIB); /* the guard does not leave 64 KiB-aligned room in 2 MiB */
    before = fake.held_bytes;
    CHECK_EQ(cup_pool_grow(pool, CUP_MIB, true, &addr), CUP_OK);
    CHECK_EQ(fake.held_bytes - before, 2 * CUP_MIB);
    CHECK_SOUND(cup_pool_check(pool));
    cup_pool_destroy(pool);
}

TEST(pool, cached_dedicated_chunks_serve_up_to_an_eighth)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t big = must_alloc(pool, 36 * CUP_MIB), mid = must_alloc(pool, 34 * CUP_MIB), addr = 0;
    cup_pool_free(pool, big, 0, NULL);
    cup_pool_free(pool, mid, 0, NULL);
    CHECK_EQ(stat_of(pool).cached_dedicated_bytes, 70 * CUP_MIB);
    CHECK_EQ(cup_pool_alloc(pool, 32 * CUP_MIB, &addr), CUP_OK);
    CHECK_EQ(addr, mid);
    CHECK_EQ(cup_pool_alloc(pool, 32 * CUP_MIB, &addr), CUP_OK);
    CHECK_EQ(addr, big);
    cup_pool_free(pool, big, 0, NULL);
    CHECK_EQ(cup_pool_alloc(pool, 30 * CUP_MIB, &addr), CUP_ERR_MISS); /* 36 > 30 + 30/8 */
    CHECK_EQ(cup_pool_alloc(pool, 38 * CUP_MIB, &addr), CUP_ERR_MISS);
    cup_pool_free(pool, mid, 0, NULL);
    destroy(pool);
}

TEST(pool, trim_takes_the_least_recently_freed_and_only_enough)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t block[4];
    for (int i = 0; i < 4; i++)
        block[i] = must_alloc(pool, (4 + 2 * (uint64_t)i) * CUP_MIB); /* 4, 6, 8, 10 */
    cup_pool_free(pool, block[2], 0, NULL);
    cup_pool_free(pool, block[0], 7, NULL);
    cup_pool_free(pool, block[1], 0, NULL);
    CHECK_EQ(cup_pool_trim(pool, 0), 0);
    CHECK_EQ(cup_pool_trim(pool, 1), 8 * CUP_MIB);
    CHECK(!cup_pool_owner(block[2]));
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 6 * CUP_MIB); /* one live, one not complete */
    CHECK_EQ(cup_pool_complete(pool, 7), 1);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 4 * CUP_MIB);
    CHECK_EQ(fake.held_bytes, 10 * CUP_MIB);
    cup_pool_free(pool, block[3], 0, NULL);
    CHECK_EQ(stat_of(pool).releases, 3);
    destroy(pool);
}

TEST(pool, surrender_takes_the_chunk_along)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t small = must_alloc(pool, 512), big = must_alloc(pool, 3 * CUP_MIB),
               freed = must_alloc(pool, 2 * CUP_MIB);
    cup_pool_free(pool, freed, 3, NULL);
    CHECK_EQ(cup_pool_surrender(pool, small), CUP_ERR_INVALID);
    CHECK_EQ(cup_pool_surrender(pool, big + 1), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_surrender(pool, freed), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_surrender(pool, big), CUP_OK);
    CHECK(!cup_pool_owner(big));
    CHECK_EQ(cup_pool_surrender(pool, big), CUP_ERR_NOT_FOUND);
    CHECK_EQ(stat_of(pool).footprint_bytes, 4 * CUP_MIB);
    CHECK_EQ(stat_of(pool).live_bytes, 512);
    CHECK_EQ(fake.releases, 0);
    CHECK_SOUND(cup_pool_check(pool));
    cup_fake_release(&fake, big, 4 * CUP_MIB);
    cup_pool_free(pool, small, 0, NULL);
    destroy(pool);
}

/* Freed and held: dead to everyone, and nobody's next block. */
static void check_quarantine(uint64_t size_bytes)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t neighbour = must_alloc(pool, size_bytes), held = must_alloc(pool, size_bytes);
    cup_block_info_t info;
    CHECK_EQ(cup_pool_mark(pool, held + 1, CUP_MARK_PINNED), CUP_ERR_NOT_FOUND);
    CHECK_EQ(cup_pool_mark(pool, held, CUP_MARK_PINNED | CUP_MARK_NOTE), CUP_OK);
    CHECK(cup_pool_find(held + size_bytes - 1, &info) && info.marks == (CUP_MARK_PINNED | CUP_MARK_NOTE));
    CHECK(cup_pool_find(neighbour, &info) && info.marks == 0);
    CHECK_EQ(cup_pool_free(pool, held, 0, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(pool, held, 0, NULL), CUP_ERR_NOT_FOUND);
    CHECK(!cup_pool_find(held, &info) && cup_pool_owner(held) == pool);
    CHECK_EQ(cup_pool_mark(pool, held, CUP_MARK_LENT), CUP_ERR_NOT_FOUND);
    CHECK_EQ(stat_of(pool).quarantined_blocks, 1);
    CHECK(stat_of(pool).quarantined_bytes >= size_bytes);
    CHECK_SOUND(cup_pool_check(pool));
    cup_pool_free(pool, neighbour, 0, NULL);
    cup_pool_complete(pool, CUP_POINT_MAX);
    cup_pool_trim(pool, UINT64_MAX);
    CHECK_SOUND(cup_pool_check(pool));
    for (int i = 0; i < 3; i++) {
        cup_addr_t next = must_alloc(pool, size_bytes);
        CHECK(next >= held + size_bytes || next + size_bytes <= held);
    }
    CHECK_EQ(stat_of(pool).quarantined_blocks, 1);
    CHECK_SOUND(cup_pool_check(pool));
    cup_pool_destroy(pool); /* the end of a context takes it along */
}

TEST_BOTH(a_held_block_goes_into_quarantine)
{
    check_quarantine(512);
    check_quarantine(100 * CUP_KIB);
    check_quarantine(3 * CUP_MIB);
}

TEST_BOTH(quarantine_ends_when_nobody_holds_it)
{
    static const uint64_t sizes[] = {512, 100 * CUP_KIB, 3 * CUP_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cup_pool_t *pool = create(CUP_GIB);
        cup_addr_t lent = must_alloc(pool, sizes[i]);
        CHECK_EQ(cup_pool_mark(pool, lent, CUP_MARK_HOLDS), CUP_OK);
        CHECK_EQ(cup_pool_free_ordered(pool, lent, 3, NULL), CUP_OK);
        CHECK_EQ(cup_pool_unmark(pool, lent, CUP_MARK_LENT, 5), CUP_OK);
        CHECK_EQ(stat_of(pool).quarantined_blocks, 1);
        CHECK_EQ(cup_pool_unmark(pool, lent, CUP_MARK_PINNED, 5), CUP_OK);
        CHECK(stat_of(pool).quarantined_blocks == 0 && stat_of(pool).quarantined_bytes == 0);
        CHECK_EQ(stat_of(pool).limbo_blocks, 1);
        CHECK_EQ(cup_pool_unmark(pool, lent, CUP_MARK_PINNED, 5), CUP_ERR_NOT_FOUND);
        CHECK_SOUND(cup_pool_check(pool));
        CHECK_EQ(cup_pool_complete(pool, 4), 0);
        CHECK_EQ(cup_pool_complete(pool, 5), 1);
        CHECK_EQ(must_alloc(pool, sizes[i]), lent);
        CHECK_EQ(cup_pool_mark(pool, lent, CUP_MARK_LENT), CUP_OK);
        CHECK_EQ(cup_pool_unmark(pool, lent, CUP_MARK_LENT, 9), CUP_OK); /* live: it stays so */
        CHECK_EQ(cup_pool_free(pool, lent, 0, NULL), CUP_OK);
        destroy(pool);
    }
}

/* Ordered: the next one out, and its handle stays until the free is complete. */
TEST_BOTH(quarantine_ends_in_order)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t lent = must_alloc(pool, 3 * CUP_MIB);
    CHECK_EQ(cup_pool_mark(pool, lent, CUP_MARK_LENT), CUP_OK);
    CHECK_EQ(cup_pool_free_ordered(pool, lent, 3, NULL), CUP_OK);
    CHECK_EQ(cup_pool_unmark_ordered(pool, lent, CUP_MARK_LENT, 3), CUP_OK);
    CHECK(stat_of(pool).quarantined_blocks == 0 && stat_of(pool).limbo_blocks == 0);
    CHECK_SOUND(cup_pool_check(pool));
    CHECK_EQ(must_alloc(pool, 3 * CUP_MIB), lent);
    CHECK_EQ(cup_pool_free(pool, lent, 0, NULL), CUP_OK);
    destroy(pool);
}

TEST(pool_ranges, what_backs_an_address)
{
    cup_backed_t first, last, none;
    is_over_ranges = true;
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t block = must_alloc(pool, 5 * CUP_MIB), end = block + 5 * CUP_MIB;
    CHECK(cup_pool_find_backed(pool, block, &first) && cup_pool_find_backed(pool, end - 1, &last));
    CHECK(first.base <= block && end <= last.base + last.size_bytes && first.handle != last.handle);
    CHECK_EQ(first.size_bytes, 2 * CUP_MIB);
    CHECK(first.range_base == last.range_base && first.range_bytes == conf_both.range_bytes);
    CHECK(!cup_pool_find_backed(pool, first.range_base + CUP_GIB, &none));
    CHECK(!cup_pool_find_backed(pool, first.range_base - 1, &none));
    CHECK_EQ(cup_pool_free(pool, block, 0, NULL), CUP_OK);
    destroy(pool);
    is_over_ranges = false;
}

TEST(pool_ranges, isolated_blocks_share_no_handle)
{
    static const uint64_t sizes[] = {512, 100 * CUP_KIB, 3 * CUP_MIB, 2 * CUP_MIB};
    cup_pool_conf_t conf = conf_both;
    cup_pool_t *pool = NULL;
    cup_addr_t block[4];
    conf.is_isolating = true;
    conf.handle_bytes = CUP_CHUNK_ALIGN;
    cup_fake_init(&fake, CUP_GIB);
    cup_provider_t ops = cup_fake_range_ops(&fake);
    CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
    for (int i = 0; i < 4; i++) {
        block[i] = must_alloc(pool, sizes[i]);
        CHECK_EQ(block[i] % CUP_CHUNK_ALIGN, 0);
        for (int k = 0; k < i; k++) {
            uint64_t handles = (sizes[k] + CUP_CHUNK_ALIGN - 1) / CUP_CHUNK_ALIGN;
            CHECK(block[i] < block[k] || block[i] >= block[k] + handles * CUP_CHUNK_ALIGN);
        }
    }
    CHECK_SOUND(cup_pool_check(pool));
    for (int i = 0; i < 4; i++)
        CHECK_EQ(cup_pool_free(pool, block[i], 0, NULL), CUP_OK);
    destroy(pool);
}

/* Also where the address, the size or the pool is another's before. */
TEST_BOTH(a_serial_is_of_one_allocation)
{
    static const uint64_t sizes[] = {512, 100 * CUP_KIB, 3 * CUP_MIB};
    uint64_t newest = 0;
    for (int pools = 0; pools < 2; pools++) {
        cup_pool_t *pool = create(CUP_GIB);
        for (int i = 0; i < 9; i++) {
            cup_addr_t addr = must_alloc(pool, sizes[i % 3]);
            cup_block_info_t first, inner;
            CHECK(cup_pool_find(addr, &first) && cup_pool_find(addr + sizes[i % 3] - 1, &inner));
            CHECK(first.serial == inner.serial && first.serial > newest);
            newest = first.serial;
            CHECK_EQ(cup_pool_free(pool, addr, 0, NULL), CUP_OK);
        }
        destroy(pool);
    }
}

TEST(pool, stat_tells_peaks_and_idle)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t a = must_alloc(pool, 1000), b = must_alloc(pool, 100 * 1024), any = 0;
    cup_pool_stat_t stat = stat_of(pool);
    CHECK_EQ(stat.live_bytes, 1000 + 100 * 1024);
    CHECK_EQ(stat.live_blocks, 2);
    CHECK_EQ(stat.footprint_bytes, 2 * CUP_MIB);
    CHECK_EQ(stat.idle_bytes, 2 * CUP_MIB - 4096 - 1024 - 100 * 1024);
    CHECK(cup_pool_any_chunk(pool, &any) && any == (a & ~(CUP_CHUNK_ALIGN - 1)));
    cup_pool_free(pool, a, 0, NULL);
    cup_pool_free(pool, b, 0, NULL);
    cup_pool_trim(pool, UINT64_MAX);
    stat = stat_of(pool);
    CHECK_EQ(stat.live_peak_bytes, 1000 + 100 * 1024);
    CHECK_EQ(stat.footprint_peak_bytes, 2 * CUP_MIB);
    CHECK(stat.footprint_bytes == 0 && stat.idle_bytes == 0 && stat.chunks == 0);
    CHECK(stat.reserves == 1 && stat.releases == 1);
    CHECK(!cup_pool_any_chunk(pool, &any));
    destroy(pool);
}

/* The last slab of a class is kept, but never in the way of a request, a trim, an empty pool. */
TEST(pool, a_kept_slab_is_in_nobodys_way)
{
    cup_pool_t *pool = create(2 * CUP_MIB);
    cup_addr_t big = must_alloc(pool, 1900 * 1024), small = must_alloc(pool, 512), addr = 0;
    uint64_t idle_bytes = stat_of(pool).idle_bytes;
    cup_pool_free(pool, small, 0, NULL);
    CHECK_EQ(stat_of(pool).idle_bytes, idle_bytes + 512);
    CHECK_SOUND(cup_pool_check(pool));
    CHECK_EQ(cup_pool_alloc(pool, 4096, &addr), CUP_OK); /* only if the kept slab gave way */
    CHECK_EQ(addr & ~(uint64_t)65535, small & ~(uint64_t)65535);
    CHECK_EQ(cup_pool_alloc(pool, 512, &small), CUP_ERR_MISS);
    cup_pool_free(pool, addr, 0, NULL);
    cup_pool_free(pool, big, 0, NULL);
    CHECK_SOUND(cup_pool_check_empty(pool));
    small = must_alloc(pool, 512);
    big = must_alloc(pool, 1024 * 1024);
    cup_pool_free(pool, small, 0, NULL);
    cup_pool_free(pool, big, 1, NULL);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 0);
    CHECK_EQ(cup_pool_complete(pool, 1), 1);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 2 * CUP_MIB);
    destroy(pool);
}

TEST_BOTH(trim_gets_what_holds_only_kept_slabs)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t big = must_alloc(pool, 4 * CUP_MIB), small = must_alloc(pool, 512);
    cup_pool_free(pool, small, 0, NULL);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 2 * CUP_MIB);
    cup_pool_free(pool, big, 0, NULL);
    destroy(pool);
}

/* Equal histories give equal addresses, whatever was freed in between. */
TEST_BOTH(placement_is_reproducible)
{
    cup_pool_t *pool = create(CUP_GIB);
    cup_addr_t first[50], again;
    cup_addr_t anchor = must_alloc(pool, 300 * 1024);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 50; i++) {
            again = must_alloc(pool, 500 + (uint64_t)i * i * 100);
            first[i] = round ? first[i] : again;
            CHECK_EQ(again, first[i]);
        }
        for (int i = 0; i < 50; i++)
            CHECK_EQ(cup_pool_free(pool, first[(i * 7 + round) % 50], 0, NULL), CUP_OK);
    }
    cup_pool_free(pool, anchor, 0, NULL);
    destroy(pool);
}

/* Awarded by counts: chunks of 2, 8, then 32 MiB, or handles of 2 MiB, are for many. */
TEST_BOTH(a_hundred_thousand_blocks_of_4k_cost_few_provider_calls)
{
    enum { BLOCKS = 100000 };
    cup_addr_t *block = calloc(BLOCKS, sizeof *block);
    cup_pool_t *pool = create(CUP_GIB);
    CHECK(block);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = must_alloc(pool, 4096);
    CHECK_MSG(fake.reserves < 100, "%llu reserves", (unsigned long long)fake.reserves);
    CHECK(fake.commits <= BLOCKS / 512 + 1 && fake.moves == 0); /* 512 in a handle */
    CHECK(stat_of(pool).footprint_bytes * 10 < stat_of(pool).live_bytes * 11);
    CHECK_SOUND(cup_pool_check(pool));
    for (int i = 0; i < BLOCKS; i++)
        cup_pool_free(pool, block[i], 1, NULL);
    CHECK_EQ(cup_pool_complete(pool, 1), BLOCKS);
    free(block);
    destroy(pool);
}

TEST(pool, a_base_that_cannot_be_mapped_goes_straight_back)
{
    static const cup_addr_t bases[] = {(cup_addr_t)1 << 57, UINT64_MAX & ~(CUP_CHUNK_ALIGN - 1),
                                       CUP_GIB + 4096};
    for (int i = 0; i < 3; i++) {
        cup_odd_provider_t odd = {.base = bases[i]};
        cup_provider_t ops = {.reserve = cup_odd_reserve, .release = cup_odd_release, .self = &odd};
        cup_pool_conf_t conf = {.dedicated_bytes = 2 * CUP_MIB};
        cup_pool_t *pool = NULL;
        cup_addr_t addr = 3;
        CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
        CHECK_EQ(cup_pool_grow(pool, 100, false, &addr), CUP_ERR_DRIVER);
        CHECK_EQ(cup_pool_grow(pool, 4 * CUP_MIB, false, &addr), CUP_ERR_DRIVER);
        CHECK(odd.releases == 2 && addr == 3);
        CHECK(stat_of(pool).footprint_bytes == 0 && !cup_pool_owner(bases[i]));
        cup_pool_destroy(pool);
    }
}

static void *call_stat(void *pool)
{
    cup_pool_stat_t stat;
    cup_pool_stat(pool, &stat);
    return NULL;
}

static int stuck_calls;

/* Another thread uses the pool while the provider works; were a lock held, it would not come back in time. */
static void use_pool_meanwhile(void *pool)
{
    pthread_t thread;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    if (pthread_create(&thread, NULL, call_stat, pool) || pthread_timedjoin_np(thread, NULL, &until))
        stuck_calls++;
}

TEST_BOTH(no_lock_is_held_in_a_provider_call)
{
    cup_pool_t *pool = create(CUP_GIB);
    fake.on_call = use_pool_meanwhile;
    fake.on_call_argument = pool;
    cup_addr_t small = must_alloc(pool, 512), big = must_alloc(pool, 4 * CUP_MIB);
    cup_pool_free(pool, small, 0, NULL);
    cup_pool_free(pool, big, 0, NULL);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 6 * CUP_MIB);
    CHECK_EQ(stuck_calls, 0);
    destroy(pool);
}

TEST(pool, everything_or_nothing_may_be_dedicated)
{
    for (int all = 0; all < 2; all++) {
        cup_pool_conf_t conf = {.dedicated_bytes = all ? 1 : UINT64_MAX};
        cup_pool_t *pool = NULL;
        cup_block_info_t info = {0};
        cup_fake_init(&fake, CUP_GIB);
        cup_provider_t ops = cup_fake_ops(&fake);
        CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
        cup_addr_t small = must_alloc(pool, 1), big = must_alloc(pool, 100 * CUP_MIB);
        CHECK(cup_pool_find(small, &info) && info.is_dedicated == (all == 1));
        CHECK(cup_pool_find(big + CUP_MIB, &info) && info.is_dedicated == (all == 1));
        cup_pool_free(pool, small, 1, NULL);
        cup_pool_free(pool, big, 1, NULL);
        destroy(pool);
    }
}
