/* SPDX-License-Identifier: Apache-2.0 */
/* size - laws over every small size and over sampled large ones, up to SIZE_MAX. */
#include <inttypes.h>

#include "allocator/provider.h"
#include "allocator/size.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

TEST(size, every_small_size_gets_the_smallest_class_that_holds_it)
{
    for (uint64_t size = 1; size <= CUP_SIZE_SMALL_MAX; size++) {
        uint32_t class = cup_size_class_of(size);
        CHECK(class < CUP_SIZE_CLASS_COUNT);
        CHECK(cup_size_classes[class].block_bytes >= size);
        CHECK(class == 0 || cup_size_classes[class - 1].block_bytes < size);
    }
}

TEST(size, internal_waste_is_at_most_an_eighth_above_4k)
{
    for (uint64_t size = 4 * CUP_KIB + 1; size <= 64 * CUP_MIB; size += size < CUP_MIB ? 1 : 509) {
        uint64_t got = 0;
        if (size <= CUP_SIZE_SMALL_MAX)
            got = cup_size_classes[cup_size_class_of(size)].block_bytes;
        else
            CHECK(cup_size_round_up(size, CUP_SIZE_GRANULE, &got));
        CHECK_MSG(got >= size && (got - size) * 8 <= got, "%" PRIu64 " became %" PRIu64, size, got);
    }
}

TEST(size, multiples_of_4k_are_classes_of_their_own)
{
    for (uint64_t size = 4 * CUP_KIB; size <= CUP_SIZE_SMALL_MAX; size += 4 * CUP_KIB)
        CHECK_EQ(cup_size_classes[cup_size_class_of(size)].block_bytes, size);
}

TEST(size, rounding_up_is_exact_or_refuses)
{
    cup_rng_t rng = {cup_rng_seed(1)};
    for (int i = 0; i < 100000; i++) {
        uint64_t align = UINT64_C(1) << cup_rng_below(&rng, 24),
                 size = cup_rng_next(&rng) >> cup_rng_below(&rng, 64);
        uint64_t got = 0;
        if (cup_size_round_up(size, align, &got))
            CHECK(got % align == 0 && got >= size && got - size < align);
        else
            CHECK(size > UINT64_MAX - align + 1);
    }
    uint64_t untouched = 5;
    CHECK(!cup_size_round_up(SIZE_MAX, CUP_CHUNK_ALIGN, &untouched));
    CHECK_EQ(untouched, 5);
    CHECK(cup_size_round_up(UINT64_MAX - CUP_CHUNK_ALIGN + 1, CUP_CHUNK_ALIGN, &untouched));
    CHECK_EQ(untouched, UINT64_MAX - CUP_CHUNK_ALIGN + 1);
}

TEST(size, spans_from_64k_on_suit_nics)
{
    CHECK_EQ(cup_size_span_align(CUP_SIZE_SMALL_MAX + 1), 4 * CUP_KIB);
    CHECK_EQ(cup_size_span_align(64 * CUP_KIB - 1), 4 * CUP_KIB);
    CHECK_EQ(cup_size_span_align(64 * CUP_KIB), 64 * CUP_KIB);
}

TEST(size, chunks_grow_with_the_footprint)
{
    uint64_t last = 0;
    for (uint64_t footprint = 0; footprint < CUP_GIB; footprint += CUP_CHUNK_ALIGN) {
        uint64_t chunk = cup_size_chunk_bytes(footprint);
        CHECK(chunk % CUP_CHUNK_ALIGN == 0 && chunk >= last);
        CHECK(chunk == 2 * CUP_MIB || chunk * 4 <= footprint);
        last = chunk;
    }
    CHECK_EQ(cup_size_chunk_bytes(0), 2 * CUP_MIB);
    CHECK_EQ(cup_size_chunk_bytes(64 * CUP_MIB), 8 * CUP_MIB);
    CHECK_EQ(last, 32 * CUP_MIB);
    CHECK_EQ(cup_size_chunk_bytes(UINT64_MAX), 32 * CUP_MIB);
}
