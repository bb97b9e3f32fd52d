/* SPDX-License-Identifier: Apache-2.0 */
/* store - recycled storage stays of its type; a stock never fails after its reserve. */
#include "allocator/meta.h"
#include "allocator/store.h"
#include "tests/support/unit.h"

typedef struct thing {
    cup_item_t item;
    uint64_t value;
} __attribute__((aligned(16))) thing_t;

TEST(store, fresh_is_zero_and_recycled_is_kept)
{
    static cup_store_t store = CUP_STORE_INIT(thing_t, 4);
    thing_t *thing = cup_store_take(&store);
    CHECK(thing && thing->value == 0);
    thing->value = 7;
    cup_store_put(&store, thing);
    CHECK(cup_store_take(&store) == thing);
    CHECK_EQ(thing->value, 7);
    cup_store_put(&store, thing);
}

TEST(store, asks_once_per_batch)
{
    static cup_store_t store = CUP_STORE_INIT(thing_t, 4);
    thing_t *thing[9];
    uint64_t before = cup_meta_live_bytes();
    for (int i = 0; i < 9; i++)
        CHECK((thing[i] = cup_store_take(&store)));
    CHECK_EQ(cup_meta_live_bytes() - before, 3 * 4 * sizeof(thing_t));
    for (int i = 0; i < 9; i++)
        cup_store_put(&store, thing[i]);
}

TEST(store, stock_fills_ahead_or_says_so)
{
    static cup_store_t store = CUP_STORE_INIT(thing_t, 2);
    cup_stock_t stock = {.store = &store};
    cup_meta_fail_nth(2);
    CHECK_EQ(cup_stock_reserve(&stock, 3), CUP_ERR_NOMEM);
    CHECK_EQ(stock.count, 2);
    CHECK_EQ(cup_stock_reserve(&stock, 3), CUP_OK);
    thing_t *thing = cup_stock_take(&stock);
    CHECK_EQ(stock.count, 2);
    cup_stock_put(&stock, thing);
    cup_stock_drain(&stock);
    CHECK_EQ(stock.count, 0);
    CHECK(cup_store_take(&store) != NULL);
}
