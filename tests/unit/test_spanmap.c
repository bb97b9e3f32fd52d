/* SPDX-License-Identifier: Apache-2.0 */
/* spanmap - addresses to chunks and spans, interior look-up, limits. */
#include <string.h>

#include "allocator/provider.h"
#include "allocator/spanmap.h"
#include "tests/support/unit.h"

static const cup_addr_t base = UINT64_C(0x654000000000);
static const uint64_t bytes = 8 * CUP_MIB;

TEST(spanmap, chunk_is_known_for_exactly_its_range)
{
    cup_chunk_t chunk;
    cup_chunk_init(&chunk, base, bytes, false);
    CHECK_EQ(cup_spanmap_cover(base, bytes, false), CUP_OK);
    CHECK(!cup_spanmap_chunk(base));
    cup_spanmap_publish(&chunk);
    CHECK(cup_spanmap_chunk(base) == &chunk);
    CHECK(cup_spanmap_chunk(base + 5 * CUP_MIB + 3) == &chunk);
    CHECK(cup_spanmap_chunk(base + bytes - 1) == &chunk);
    CHECK(!cup_spanmap_chunk(base - 1));
    CHECK(!cup_spanmap_chunk(base + bytes));
    cup_spanmap_withdraw(&chunk);
    CHECK(!cup_spanmap_chunk(base));
    CHECK(!cup_spanmap_chunk(base + bytes - 1));
}

TEST(spanmap, nobody_lives_at_the_edges)
{
    CHECK(!cup_spanmap_chunk(0));
    CHECK(!cup_spanmap_chunk(CUP_SPANMAP_LIMIT - 1));
    CHECK(!cup_spanmap_chunk(CUP_SPANMAP_LIMIT));
    CHECK(!cup_spanmap_chunk(UINT64_MAX));
    CHECK(!cup_spanmap_at(UINT64_MAX));
    CHECK(!cup_spanmap_below(0, 0));
    CHECK_EQ(cup_spanmap_cover(CUP_SPANMAP_LIMIT, CUP_CHUNK_ALIGN, true), CUP_ERR_INVALID);
    CHECK_EQ(cup_spanmap_cover(CUP_SPANMAP_LIMIT - CUP_CHUNK_ALIGN, 2 * CUP_CHUNK_ALIGN, true),
             CUP_ERR_INVALID);
    CHECK_EQ(cup_spanmap_cover(CUP_SPANMAP_LIMIT - CUP_CHUNK_ALIGN, CUP_CHUNK_ALIGN, true), CUP_OK);
}

TEST(spanmap, interior_addresses_lead_to_the_span_below)
{
    cup_span_t low = {0}, high = {0};
    cup_addr_t start = base + 16 * CUP_GIB, second = start + 5 * CUP_MIB + 3 * CUP_SIZE_GRANULE;
    uint32_t kept, counted;
    CHECK_EQ(cup_spanmap_cover(start, bytes, true), CUP_OK);
    cup_spanmap_set(start + CUP_SIZE_GRANULE, CUP_SIZE_GRANULE, &low);
    cup_spanmap_set(second, 2 * CUP_SIZE_GRANULE, &high);
    CHECK(!cup_spanmap_below(start + CUP_SIZE_GRANULE - 1, start));
    CHECK(cup_spanmap_below(start + CUP_SIZE_GRANULE, start) == &low);
    CHECK(cup_spanmap_below(second - 1, start) == &low);
    CHECK(cup_spanmap_at(second - 1) == NULL);
    CHECK(cup_spanmap_at(second + 4097) == &high);
    CHECK(!cup_spanmap_at(second + CUP_SPANMAP_LIMIT)); /* the bits above must not be ignored */
    CHECK(cup_spanmap_below(start + bytes - 1, start) == &high);
    CHECK(!cup_spanmap_below(start + bytes - 1, second + 4 * CUP_MIB));
    cup_spanmap_count(second, &kept, &counted);
    CHECK(kept == 2 && counted == 2);
    cup_spanmap_set(second, CUP_SIZE_GRANULE, &low);
    cup_spanmap_set(second, 2 * CUP_SIZE_GRANULE, NULL);
    cup_spanmap_count(second, &kept, &counted);
    CHECK(kept == 0 && counted == 0);
    CHECK(cup_spanmap_below(start + bytes - 1, start) == &low);
    cup_spanmap_set(start + CUP_SIZE_GRANULE, CUP_SIZE_GRANULE, NULL);
}
