/* SPDX-License-Identifier: Apache-2.0 */
/* limbo - first in, first out, through growth and wrap-around. */
#include "allocator/limbo.h"
#include "allocator/meta.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

TEST(limbo, leaves_in_order_when_complete)
{
    cup_limbo_t limbo = {0};
    cup_addr_t addr = 0;
    CHECK_EQ(cup_limbo_reserve(&limbo, 3), CUP_OK);
    CHECK_EQ(cup_limbo_oldest(&limbo), 0);
    CHECK(!cup_limbo_try_pop(&limbo, CUP_POINT_MAX, &addr));
    cup_limbo_push(&limbo, 100, 5);
    cup_limbo_push(&limbo, 200, 4); /* queued late: waits for the one before it, no shorter */
    cup_limbo_push(&limbo, 300, 9);
    CHECK_EQ(cup_limbo_oldest(&limbo), 5);
    CHECK(!cup_limbo_try_pop(&limbo, 4, &addr));
    CHECK(cup_limbo_try_pop(&limbo, 5, &addr) && addr == 100);
    CHECK(cup_limbo_try_pop(&limbo, 5, &addr) && addr == 200);
    CHECK(!cup_limbo_try_pop(&limbo, 5, &addr));
    CHECK_EQ(cup_limbo_oldest(&limbo), 9);
    CHECK(cup_limbo_try_pop(&limbo, CUP_POINT_MAX, &addr) && addr == 300);
    CHECK_EQ(cup_limbo_oldest(&limbo), 0);
    cup_limbo_fini(&limbo);
}

TEST(limbo, keeps_its_order_through_growth)
{
    cup_rng_t rng = {cup_rng_seed(5)};
    cup_limbo_t limbo = {0};
    uint64_t pushed = 0, popped = 0;
    for (int i = 0; i < 20000; i++) {
        cup_addr_t addr = 0;
        if (cup_rng_below(&rng, 5) < 3) {
            CHECK_EQ(cup_limbo_reserve(&limbo, pushed - popped + 1), CUP_OK);
            pushed++;
            cup_limbo_push(&limbo, pushed * 512, pushed);
        } else if (popped < pushed) {
            CHECK(!cup_limbo_try_pop(&limbo, popped, &addr));
            CHECK(cup_limbo_try_pop(&limbo, popped + 1, &addr));
            popped++;
            CHECK_EQ(addr, popped * 512);
        }
    }
    CHECK(limbo.capacity > 256);
    cup_limbo_fini(&limbo);
}

TEST(limbo, no_memory_changes_nothing)
{
    cup_limbo_t limbo = {0};
    cup_addr_t addr = 0;
    CHECK_EQ(cup_limbo_reserve(&limbo, 1), CUP_OK);
    cup_limbo_push(&limbo, 512, 1);
    uint64_t capacity = limbo.capacity;
    cup_meta_fail_nth(1);
    CHECK_EQ(cup_limbo_reserve(&limbo, capacity + 1), CUP_ERR_NOMEM);
    CHECK_EQ(limbo.capacity, capacity);
    CHECK(cup_limbo_try_pop(&limbo, 1, &addr) && addr == 512);
    cup_limbo_fini(&limbo);
}
