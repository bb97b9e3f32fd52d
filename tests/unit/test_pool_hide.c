/* SPDX-License-Identifier: Apache-2.0 */
/* pool_hide - a pool whose context may be about to end: hidden, then shown again, or taken apart. */
#include <stdlib.h>

#include "allocator/pool.h"
#include "tests/support/fake_provider.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

#define BLOCKS 400

typedef struct {
    cup_pool_t *pool;
    cup_addr_t block[BLOCKS]; /* 0: none */
    uint64_t bytes[BLOCKS];
} tenant_t;

static cup_fake_provider_t fake;

static void open_tenant(tenant_t *tenant)
{
    const cup_pool_conf_t conf = {.dedicated_bytes = 2 * CUP_MIB};
    cup_provider_t ops = cup_fake_ops(&fake);

    *tenant = (tenant_t){.pool = NULL};
    CHECK_EQ(cup_pool_create(&conf, &ops, &tenant->pool), CUP_OK);
}

static void alloc(tenant_t *tenant, size_t i, uint64_t bytes)
{
    if (cup_pool_alloc(tenant->pool, bytes, &tenant->block[i]) != CUP_OK)
        CHECK_EQ(cup_pool_grow(tenant->pool, bytes, false, &tenant->block[i]), CUP_OK);
    tenant->bytes[i] = bytes;
}

/* Blocks of every kind, some of them freed again, some in limbo. */
static void work(tenant_t *tenant, cup_rng_t *rng, int steps)
{
    for (int step = 0; step < steps; step++) {
        size_t i = (size_t)cup_rng_below(rng, BLOCKS);

        if (!tenant->block[i]) {
            alloc(tenant, i, cup_rng_size(rng, 22));
        } else {
            CHECK_EQ(cup_pool_free(tenant->pool, tenant->block[i], cup_rng_below(rng, 3), NULL), CUP_OK);
            tenant->block[i] = 0;
        }
    }
    CHECK_SOUND(cup_pool_check(tenant->pool));
}

static void check_blocks(tenant_t *tenant)
{
    cup_block_info_t info;

    for (size_t i = 0; i < BLOCKS; i++)
        if (tenant->block[i]) {
            CHECK(cup_pool_find(tenant->block[i], &info) && info.pool == tenant->pool);
            CHECK_EQ(info.base, tenant->block[i]);
            CHECK_EQ(info.size_bytes, tenant->bytes[i]);
        }
}

static void check_hidden(tenant_t *tenant)
{
    cup_block_info_t info;

    for (size_t i = 0; i < BLOCKS; i++)
        if (tenant->block[i]) {
            CHECK(!cup_pool_owner(tenant->block[i]) && !cup_pool_find(tenant->block[i], &info));
            CHECK(cup_pool_hides(tenant->pool, tenant->block[i]));
        }
}

TEST(pool_hide, nobody_answers_until_it_is_shown)
{
    tenant_t tenant;

    cup_fake_init(&fake, CUP_GIB);
    open_tenant(&tenant);
    alloc(&tenant, 0, 4096);
    alloc(&tenant, 1, 300 * CUP_KIB);
    alloc(&tenant, 2, 4 * CUP_MIB);
    CHECK(!cup_pool_hides(tenant.pool, tenant.block[0]));
    cup_pool_hide(tenant.pool);
    cup_pool_hide(tenant.pool);
    check_hidden(&tenant);
    cup_pool_show(tenant.pool);
    cup_pool_show(tenant.pool);
    check_blocks(&tenant);
    CHECK(!cup_pool_hides(tenant.pool, tenant.block[0]));
    CHECK_SOUND(cup_pool_check(tenant.pool));
    cup_pool_destroy(tenant.pool);
}

/* What the driver has given to another pool meanwhile stays that one's. */
TEST(pool_hide, another_pool_has_the_addresses)
{
    tenant_t gone, next;
    cup_rng_t rng = {cup_rng_seed(1)};
    int shared = 0;

    for (int round = 0; round < 20; round++) {
        cup_fake_init(&fake, CUP_GIB);
        open_tenant(&gone);
        work(&gone, &rng, 600);
        cup_pool_hide(gone.pool);
        cup_fake_release_all(&fake);
        open_tenant(&next);
        work(&next, &rng, 600);
        for (size_t i = 0; i < BLOCKS; i++)
            shared += next.block[i] && cup_pool_hides(gone.pool, next.block[i]);
        cup_pool_destroy(gone.pool);
        CHECK_SOUND(cup_pool_check(next.pool));
        check_blocks(&next);
        work(&next, &rng, 600);
        cup_pool_destroy(next.pool);
    }
    CHECK(shared > 0);
}

/* Whatever it holds, it is the same afterwards. */
TEST(pool_hide, law_of_coming_back)
{
    cup_rng_t rng = {cup_rng_seed(2)};
    cup_pool_stat_t before, after;
    tenant_t tenant;

    cup_fake_init(&fake, CUP_GIB);
    open_tenant(&tenant);
    for (int round = 0; round < 60; round++) {
        work(&tenant, &rng, 200);
        cup_pool_stat(tenant.pool, &before);
        cup_pool_hide(tenant.pool);
        check_hidden(&tenant);
        cup_pool_show(tenant.pool);
        cup_pool_stat(tenant.pool, &after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
        CHECK_EQ(after.footprint_bytes, before.footprint_bytes);
        CHECK_SOUND(cup_pool_check(tenant.pool));
        check_blocks(&tenant);
        cup_pool_complete(tenant.pool, cup_rng_below(&rng, 3));
        if (round % 7 == 0)
            cup_pool_trim(tenant.pool, 8 * CUP_MIB);
    }
    cup_pool_destroy(tenant.pool);
}
