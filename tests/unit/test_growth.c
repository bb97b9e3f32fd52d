/* SPDX-License-Identifier: Apache-2.0 */
/* growth - where a pool over ranges grows and with what, seen through pool.h and what the provider holds. */
#include "allocator/pool.h"
#include "allocator/size.h"
#include "tests/support/fake_provider.h"
#include "tests/support/unit.h"

static cup_fake_provider_t fake;

#define HANDLE (2 * CUP_MIB)

static cup_pool_t *create(cup_pool_conf_t conf, uint64_t limit_bytes)
{
    cup_pool_t *pool = NULL;
    conf.range_bytes = conf.range_bytes ? conf.range_bytes : 4 * CUP_GIB;
    cup_fake_init(&fake, limit_bytes);
    cup_provider_t ops = cup_fake_range_ops(&fake);
    CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
    return pool;
}

/* Up to the slack, which is so large that nothing is moved. */
static cup_pool_t *create_loose(void)
{
    return create((cup_pool_conf_t){.slack_floor_bytes = CUP_GIB}, CUP_GIB);
}

static cup_addr_t must_alloc(cup_pool_t *pool, uint64_t size_bytes)
{
    cup_addr_t addr = 0;
    cup_status_t status = cup_pool_alloc(pool, size_bytes, &addr);
    if (status == CUP_ERR_MISS)
        status = cup_pool_grow(pool, size_bytes, false, &addr);
    CHECK_EQ(status, CUP_OK);
    CHECK(cup_fake_mark(&fake, addr, size_bytes));
    CHECK_SOUND(cup_pool_check(pool));
    return addr;
}

static void must_free(cup_pool_t *pool, cup_addr_t addr)
{
    CHECK_EQ(cup_pool_free(pool, addr, 0, NULL), CUP_OK);
    CHECK_SOUND(cup_pool_check(pool));
}

static cup_pool_stat_t stat_of(cup_pool_t *pool)
{
    cup_pool_stat_t stat;
    cup_pool_stat(pool, &stat);
    CHECK_EQ(stat.footprint_bytes, fake.held_bytes);
    CHECK_EQ(fake.faults, 0);
    return stat;
}

TEST(growth, needs_a_size_and_whole_handles)
{
    cup_pool_conf_t conf[] = {{.range_bytes = 0},
                              {.range_bytes = 16 * CUP_MIB}, /* less than the largest handle */
                              {.range_bytes = CUP_GIB, .handle_bytes = 3 * CUP_MIB}};
    cup_provider_t ops = cup_fake_range_ops(&fake);
    cup_pool_t *pool = NULL;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(cup_pool_create(&conf[i], &ops, &pool), CUP_ERR_INVALID);
    CHECK(!pool);
}

TEST(growth, at_the_top_in_address_order_with_what_the_last_handle_has_left)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t a = must_alloc(pool, 3 * CUP_MIB);
    CHECK_EQ(fake.held_bytes, 2 * HANDLE);
    cup_addr_t b = must_alloc(pool, 3 * CUP_MIB); /* one MiB was left: one handle is enough */
    CHECK_EQ(b, a + 3 * CUP_MIB);
    CHECK_EQ(fake.held_bytes, 3 * HANDLE);
    CHECK_EQ(must_alloc(pool, 100 * CUP_MIB), b + 3 * CUP_MIB); /* no size is too large to be split */
    CHECK_EQ(stat_of(pool).idle_bytes, 0);
    CHECK(fake.moves == 0 && fake.reserves == 1);
    cup_pool_destroy(pool);
}

TEST(growth, small_and_large_spans_have_a_range_each)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t slab = must_alloc(pool, 512), block = must_alloc(pool, CUP_SIZE_SMALL_SPAN_MAX);
    cup_addr_t large = must_alloc(pool, CUP_SIZE_SMALL_SPAN_MAX + 1);
    CHECK_EQ(block & ~(HANDLE - 1), slab & ~(HANDLE - 1));
    CHECK(large & ~(HANDLE - 1) && (large & ~(HANDLE - 1)) != (slab & ~(HANDLE - 1)));
    CHECK(fake.reserves == 2 && fake.commits == 2);
    cup_pool_destroy(pool);
}

/* | a | b | c | with b gone and given back: its addresses are filled again, before the top is. */
TEST(growth, into_the_hole_that_needs_the_fewest_new_bytes)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t block[5];
    for (int i = 0; i < 5; i++)
        block[i] = must_alloc(pool, (i == 1 ? 4 : 3) * HANDLE);
    must_free(pool, block[1]);
    must_free(pool, block[3]);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 7 * HANDLE);
    CHECK_EQ(stat_of(pool).holes_bytes, 7 * HANDLE);
    CHECK(cup_pool_owner(block[1]) == pool);
    CHECK_EQ(must_alloc(pool, 3 * HANDLE), block[1]);    /* equal in cost: the lowest address */
    CHECK_EQ(must_alloc(pool, HANDLE + 4096), block[3]); /* two handles: the rest of the first hole has one */
    CHECK_EQ(must_alloc(pool, HANDLE), block[1] + 3 * HANDLE);
    CHECK_EQ(stat_of(pool).holes_bytes, HANDLE);
    cup_pool_destroy(pool);
}

/* A free span next to a hole counts: 1.5 handles are there, one is missing. */
TEST(growth, across_a_free_span_and_a_hole)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t a = must_alloc(pool, HANDLE / 2), b = must_alloc(pool, HANDLE + HANDLE / 2);
    cup_addr_t c = must_alloc(pool, 2 * HANDLE), d = must_alloc(pool, HANDLE);
    must_free(pool, c);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 2 * HANDLE);
    must_free(pool, b);
    uint64_t commits = fake.commits;
    CHECK_EQ(must_alloc(pool, 2 * HANDLE + HANDLE / 2), b);
    CHECK_EQ(fake.commits, commits + 1);
    CHECK(a < b && c < d);
    cup_pool_destroy(pool);
}

TEST(growth, past_the_slack_moves_what_is_free_then_commits_the_rest)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, CUP_GIB);
    cup_addr_t block[6];
    for (int i = 0; i < 6; i++)
        block[i] = must_alloc(pool, 4 * HANDLE);
    CHECK_EQ(fake.moves, 0);
    must_free(pool, block[1]);
    must_free(pool, block[3]);
    cup_addr_t big = must_alloc(pool, 10 * HANDLE);
    CHECK_EQ(big, block[5] + 4 * HANDLE);
    CHECK(fake.moves == 8 && fake.held_bytes == 26 * HANDLE);
    CHECK_EQ(stat_of(pool).holes_bytes, 8 * HANDLE);
    CHECK(cup_pool_owner(block[1]) == pool && cup_pool_free(pool, block[1], 0, NULL) == CUP_ERR_NOT_FOUND);
    cup_pool_destroy(pool);
}

TEST(growth, under_the_slack_commits)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 200}, CUP_GIB);
    cup_addr_t a = must_alloc(pool, 4 * HANDLE), b = must_alloc(pool, HANDLE);
    must_free(pool, a);
    cup_addr_t c = must_alloc(pool, 5 * HANDLE); /* 10 <= 200 % of the peak of 6 */
    CHECK(fake.moves == 0 && fake.held_bytes == 10 * HANDLE);
    must_free(pool, c);
    cup_addr_t d = must_alloc(pool, 6 * HANDLE); /* 11 would be, too */
    CHECK(fake.moves == 0 && fake.held_bytes == 11 * HANDLE);
    must_free(pool, d);
    must_alloc(pool, 20 * HANDLE);
    CHECK(fake.moves == 0 && fake.held_bytes == 25 * HANDLE); /* the peak will be 21: the request counts */
    CHECK(b);
    cup_pool_destroy(pool);
}

TEST(growth, limbo_is_never_moved)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, CUP_GIB);
    cup_addr_t a = must_alloc(pool, 4 * HANDLE);
    uint64_t mark = cup_fake_mark(&fake, a, 4 * HANDLE);
    CHECK_EQ(cup_pool_free(pool, a, 9, NULL), CUP_OK);
    must_alloc(pool, 5 * HANDLE);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 0);
    CHECK(fake.moves == 0 && cup_fake_mark(&fake, a, 4 * HANDLE) == mark);
    CHECK_EQ(cup_pool_complete(pool, 9), 1);
    must_alloc(pool, 6 * HANDLE);
    CHECK_EQ(fake.moves, 4);
    cup_pool_destroy(pool);
}

/* Ordered memory is handed out again at once; it does not move, and is not given back, until it is complete. */
TEST(growth, what_is_only_ordered_is_handed_out_but_stays_where_it_is)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, CUP_GIB);
    cup_addr_t a = must_alloc(pool, 4 * HANDLE), b = must_alloc(pool, HANDLE), again = 0;
    CHECK_EQ(cup_pool_free_ordered(pool, a, 7, NULL), CUP_OK);
    CHECK_SOUND(cup_pool_check(pool));
    CHECK(stat_of(pool).limbo_blocks == 0 && stat_of(pool).idle_bytes == 4 * HANDLE);
    CHECK_EQ(cup_pool_alloc(pool, HANDLE, &again), CUP_OK);
    CHECK_EQ(again, a);
    CHECK_EQ(cup_pool_free_ordered(pool, again, 9, NULL), CUP_OK);
    CHECK(cup_pool_movable(pool, 6) == 0 && cup_pool_movable(pool, 7) == 3 * HANDLE);
    CHECK_EQ(cup_pool_movable(pool, 9), 4 * HANDLE);
    (void)must_alloc(pool, 5 * HANDLE); /* past the slack */
    CHECK_EQ(fake.moves, 0);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 0);
    CHECK_EQ(cup_pool_complete(pool, 7),
             0); /* no block waits, memory does: three of its handles may go now */
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 3 * HANDLE);
    cup_pool_complete(pool, 9);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), HANDLE);
    must_free(pool, b);
    cup_pool_destroy(pool);
}

/* Limbo that is handed out early is ordered memory, too. */
TEST(growth, limbo_that_is_ordered_stays_where_it_is)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, CUP_GIB);
    cup_addr_t a = must_alloc(pool, 2 * HANDLE), c = must_alloc(pool, 2 * HANDLE);
    CHECK_EQ(cup_pool_free(pool, a, 3, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(pool, c, 4, NULL), CUP_OK);
    CHECK_EQ(cup_pool_order_limbo(pool, 3), 1);
    CHECK_EQ(stat_of(pool).limbo_blocks, 1);
    CHECK_EQ(must_alloc(pool, 2 * HANDLE), a);
    CHECK_EQ(cup_pool_free_ordered(pool, a, 5, NULL), CUP_OK);
    CHECK_EQ(cup_pool_complete(pool, 4), 1);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 2 * HANDLE); /* c's */
    CHECK_EQ(cup_pool_complete(pool, 5), 0);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 2 * HANDLE);
    cup_pool_destroy(pool);
}

/* Under the slack, but the device has no more: what is free elsewhere serves, if it is enough. */
TEST(growth, out_of_memory_moves_or_leaves_everything)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_floor_bytes = CUP_GIB}, 10 * HANDLE);
    cup_addr_t a = must_alloc(pool, 4 * HANDLE), b = must_alloc(pool, 2 * HANDLE), addr = 7;
    must_free(pool, a);
    cup_pool_stat_t before = stat_of(pool);
    CHECK_EQ(cup_pool_grow(pool, 9 * HANDLE, true, &addr),
             CUP_ERR_OOM); /* 4 free and 4 more is all there is */
    CHECK_SOUND(cup_pool_check(pool));
    cup_pool_stat_t after = stat_of(pool);
    CHECK(addr == 7 && after.moves == 0 && after.footprint_bytes == before.footprint_bytes);
    CHECK(after.idle_bytes == before.idle_bytes && after.holes_bytes == before.holes_bytes);
    CHECK_EQ(after.decommits, 4);
    CHECK_EQ(must_alloc(pool, 8 * HANDLE), b + 2 * HANDLE);
    CHECK(fake.moves == 4 && fake.held_bytes == 10 * HANDLE);
    CHECK_EQ(cup_pool_grow(pool, 8 * CUP_GIB, true, &addr), CUP_ERR_OOM); /* the range ends */
    cup_pool_destroy(pool);
}

/* The answer is asked for each time: it may change while the program runs. */
TEST(growth, what_may_be_pinned_stays)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, 12 * HANDLE);
    fake.is_pinned = true;
    cup_addr_t a = must_alloc(pool, 4 * HANDLE), b = must_alloc(pool, HANDLE), addr = 7;
    must_free(pool, a);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 0);
    must_alloc(pool, 6 * HANDLE);
    CHECK_EQ(cup_pool_grow(pool, 5 * HANDLE, true, &addr), CUP_ERR_OOM);
    CHECK(fake.moves == 0 && fake.held_bytes == 11 * HANDLE && b);
    CHECK_EQ(stat_of(pool).decommits, 1); /* but what a failed growth had committed was never handed out */
    fake.is_pinned = false;
    must_alloc(pool, 5 * HANDLE);
    CHECK(fake.moves == 4 && fake.held_bytes == 12 * HANDLE);
    cup_pool_destroy(pool);
}

TEST(growth, trim_gives_whole_handles_back_from_the_top)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t a = must_alloc(pool, 4 * HANDLE + HANDLE / 2), b = must_alloc(pool, HANDLE / 2);
    cup_addr_t c = must_alloc(pool, 4 * HANDLE);
    must_free(pool, a);
    must_free(pool, c);
    CHECK_EQ(cup_pool_trim(pool, 1), HANDLE);
    CHECK(!cup_fake_mark(&fake, c + 3 * HANDLE, 1) && cup_fake_mark(&fake, c, 3 * HANDLE));
    CHECK_EQ(cup_pool_trim(pool, 4 * HANDLE), 4 * HANDLE);
    CHECK(cup_fake_mark(&fake, a, 3 * HANDLE) && !cup_fake_mark(&fake, a + 3 * HANDLE, 1));
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 3 * HANDLE); /* half of the last one is in use */
    CHECK_EQ(fake.held_bytes, HANDLE);
    cup_addr_t any = 0;
    CHECK(cup_pool_any_chunk(pool, &any) && cup_fake_mark(&fake, any, 1));
    must_free(pool, b);
    CHECK_SOUND(cup_pool_check_empty(pool));
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), HANDLE);
    CHECK(!cup_pool_any_chunk(pool, &any));
    CHECK_EQ(stat_of(pool).holes_bytes, 9 * HANDLE);
    cup_pool_destroy(pool);
}

/* Sizes by position: the window that crosses 1 GiB takes both, and only equals are moved. */
TEST(growth, handles_grow_with_the_range)
{
    cup_pool_t *pool =
        create((cup_pool_conf_t){.slack_percent = 100, .range_bytes = 64 * CUP_GIB}, 64 * CUP_GIB);
    cup_addr_t a = must_alloc(pool, CUP_GIB - 4 * HANDLE), b = must_alloc(pool, 4 * HANDLE + 16 * CUP_MIB);
    CHECK_EQ(fake.commits, 512 + 2);
    must_free(pool, b);
    cup_addr_t c = must_alloc(pool, 20 * CUP_MIB);
    CHECK_EQ(c, b);
    must_alloc(pool, 8 * CUP_GIB);
    CHECK_EQ(fake.commits, 512 + 2 + 894 + 33); /* from 1 GiB + 12 MiB to 9 GiB + 12 MiB */
    CHECK(a);
    cup_pool_destroy(pool);
}

/* Only equals are moved; others go back, as far as they cover what is made in their place. */
TEST(growth, handles_of_another_size_are_traded)
{
    cup_pool_t *pool =
        create((cup_pool_conf_t){.slack_percent = 100, .range_bytes = 64 * CUP_GIB}, 64 * CUP_GIB);
    cup_addr_t low = must_alloc(pool, 24 * CUP_MIB);
    must_alloc(pool, CUP_GIB - 24 * CUP_MIB);
    cup_addr_t high = must_alloc(pool, 16 * CUP_MIB), last = must_alloc(pool, 8 * CUP_MIB);
    must_free(pool, low);
    CHECK_EQ(cup_pool_trim(pool, UINT64_MAX), 24 * CUP_MIB);
    must_free(pool, high);
    uint64_t decommits = fake.decommits;
    CHECK_EQ(must_alloc(pool, 24 * CUP_MIB), low); /* 12 small handles, for two large ones */
    CHECK(fake.moves == 0 && fake.decommits == decommits + 2);
    CHECK_EQ(stat_of(pool).footprint_bytes, CUP_GIB - 24 * CUP_MIB + 8 * CUP_MIB + 24 * CUP_MIB);
    must_free(pool, low);
    CHECK_EQ(must_alloc(pool, 32 * CUP_MIB), last + 8 * CUP_MIB); /* four large ones, for 12 small ones */
    CHECK(fake.moves == 0 && fake.decommits == decommits + 2 + 12);
    CHECK_EQ(stat_of(pool).footprint_bytes, CUP_GIB - 24 * CUP_MIB + 8 * CUP_MIB + 32 * CUP_MIB);
    cup_pool_destroy(pool);
}

/* What is not complete stays, whatever its size. */
TEST(growth, nothing_incomplete_is_traded)
{
    cup_pool_t *pool =
        create((cup_pool_conf_t){.slack_percent = 100, .range_bytes = 64 * CUP_GIB}, 64 * CUP_GIB);
    cup_addr_t low = must_alloc(pool, 24 * CUP_MIB);
    must_alloc(pool, CUP_GIB - 24 * CUP_MIB);
    CHECK_EQ(cup_pool_free_ordered(pool, low, 5, NULL), CUP_OK);
    must_alloc(pool, 32 * CUP_MIB);
    CHECK(fake.decommits == 0 && fake.moves == 0);
    cup_pool_complete(pool, 5);
    must_alloc(pool, 32 * CUP_MIB);
    CHECK_EQ(fake.decommits, 12);
    cup_pool_destroy(pool);
}

TEST(growth, takes_what_was_freed_meanwhile)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t a = must_alloc(pool, 4 * HANDLE), b = must_alloc(pool, HANDLE), addr = 0;
    must_free(pool, a);
    CHECK_EQ(cup_pool_grow(pool, 3 * HANDLE, false, &addr), CUP_OK);
    CHECK(addr == a && b && fake.commits == 5);
    cup_pool_destroy(pool);
}

TEST(growth, a_base_that_cannot_be_mapped_goes_straight_back)
{
    static const cup_addr_t bases[] = {(cup_addr_t)1 << 57, ((cup_addr_t)1 << 57) - CUP_CHUNK_ALIGN,
                                       UINT64_MAX & ~(CUP_CHUNK_ALIGN - 1), CUP_GIB + 4096};
    for (int i = 0; i < 4; i++) {
        cup_odd_provider_t odd = {.base = bases[i]};
        cup_fake_init(&fake, 0); /* which holds nothing */
        cup_provider_t ops = {
            .self = &odd, .range_reserve = cup_odd_reserve, .range_release = cup_odd_release};
        cup_pool_conf_t conf = {.range_bytes = CUP_GIB};
        cup_pool_t *pool = NULL;
        cup_addr_t addr = 3;
        CHECK_EQ(cup_pool_create(&conf, &ops, &pool), CUP_OK);
        CHECK_EQ(cup_pool_grow(pool, 100, false, &addr), CUP_ERR_DRIVER);
        CHECK_EQ(cup_pool_grow(pool, 4 * CUP_MIB, false, &addr), CUP_ERR_DRIVER);
        CHECK(odd.releases == 2 && addr == 3 && stat_of(pool).footprint_bytes == 0);
        cup_pool_destroy(pool);
    }
}

/* Counts: a warm class asks the provider for nothing. */
TEST(growth, a_warm_class_costs_no_provider_call)
{
    cup_pool_t *pool = create((cup_pool_conf_t){.slack_percent = 100}, CUP_GIB);
    cup_addr_t first = must_alloc(pool, 512);
    uint64_t calls = fake.reserves + fake.commits;
    for (int i = 0; i < 1000; i++) {
        cup_addr_t addr = must_alloc(pool, 512);
        must_free(pool, i % 2 ? addr : first);
        first = i % 2 ? first : addr;
    }
    CHECK_EQ(fake.reserves + fake.commits + fake.moves + fake.decommits, calls);
    cup_pool_destroy(pool);
}

TEST(growth, the_end_of_a_context_gives_everything_back)
{
    cup_pool_t *pool = create_loose();
    cup_addr_t large = must_alloc(pool, 100 * CUP_MIB), small = must_alloc(pool, 600);
    must_alloc(pool, 5 * CUP_MIB);
    must_free(pool, large);
    CHECK_EQ(cup_pool_trim(pool, 7 * HANDLE), 7 * HANDLE);
    CHECK(fake.held_bytes > 0 && fake.held_addresses == 2);
    cup_pool_destroy(pool);
    CHECK(fake.held_bytes == 0 && fake.held_addresses == 0 && fake.faults == 0);
    CHECK(!cup_pool_owner(small) && !cup_pool_owner(large));
}
