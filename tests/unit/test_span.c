/* SPDX-License-Identifier: Apache-2.0 */
/* span - split and merge keep the chunk tiled. */
#include "allocator/span.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

enum { CHUNK_BYTES = 2 << 20, GRANULES = CHUNK_BYTES / 4096 };

static const char *check_tiling(cup_chunk_t *chunk, size_t spans)
{
    cup_addr_t at = cup_chunk_base(chunk);
    cup_span_t *prev = NULL;
    for (cup_span_t *span = chunk->first; span; prev = span, span = span->next, spans--) {
        if (span->base != at || span->prev != prev || span->chunk != chunk || spans == 0)
            return "a link or a base is wrong";
        at = cup_span_end(span);
    }
    return at == cup_chunk_base(chunk) + CHUNK_BYTES && spans == 0 ? NULL : "a gap or a count is wrong";
}

static cup_span_t *nth(cup_chunk_t *chunk, size_t n)
{
    cup_span_t *span = chunk->first;
    while (n-- > 0)
        span = span->next;
    return span;
}

TEST(span, random_splits_and_merges_tile)
{
    cup_rng_t rng = {cup_rng_seed(2)};
    cup_stock_t stock = {.store = &cup_span_store};
    cup_chunk_t chunk;
    cup_chunk_init(&chunk, CUP_GIB, CHUNK_BYTES, false);
    CHECK_EQ(cup_stock_reserve(&stock, GRANULES), CUP_OK);
    size_t all = stock.count, spans = 1;
    cup_span_cover(&chunk, &stock)->state = CUP_SPAN_FREE;
    for (int i = 0; i < 5000; i++) {
        cup_span_t *span = nth(&chunk, cup_rng_below(&rng, spans));
        uint64_t granules = span->size_bytes / 4096;
        if (cup_rng_below(&rng, 2) && granules > 1) {
            cup_span_split(span, (1 + cup_rng_below(&rng, granules - 1)) * 4096, &stock)->state =
                CUP_SPAN_FREE;
            spans++;
        } else if (span->next) {
            cup_span_merge_next(span, &stock);
            spans--;
        }
        CHECK_SOUND(check_tiling(&chunk, spans));
        CHECK_EQ(stock.count + spans, all);
    }
    while (chunk.first->next)
        cup_span_merge_next(chunk.first, &stock);
    CHECK_EQ(chunk.first->size_bytes, CHUNK_BYTES);
    cup_span_retire(chunk.first, &stock);
    CHECK_EQ(stock.count, all);
    cup_stock_drain(&stock);
}
