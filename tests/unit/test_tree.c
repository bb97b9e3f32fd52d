/* SPDX-License-Identifier: Apache-2.0 */
/* tree - against a sorted array. */
#include <string.h>

#include "allocator/tree.h"
#include "tests/support/rng.h"
#include "tests/support/unit.h"

enum { SPANS = 400 };

static bool is_less(const cup_span_t *a, uint64_t size_bytes, cup_addr_t base)
{
    return a->size_bytes < size_bytes || (a->size_bytes == size_bytes && a->base < base);
}

/* The smallest member not below the key, by looking at all. */
static cup_span_t *slow_find(cup_span_t *span, const bool *is_in, uint64_t size_bytes, cup_addr_t base)
{
    cup_span_t *best = NULL;
    for (int i = 0; i < SPANS; i++)
        if (is_in[i] && !is_less(&span[i], size_bytes, base))
            if (!best || is_less(&span[i], best->size_bytes, best->base))
                best = &span[i];
    return best;
}

TEST(tree, finds_what_a_search_through_all_finds)
{
    static cup_span_t span[SPANS];
    static bool is_in[SPANS];
    cup_rng_t rng = {cup_rng_seed(3)};
    cup_tree_t tree = {0};
    uint64_t members = 0;
    for (int i = 0; i < SPANS; i++)
        span[i].base = (uint64_t)(i + 1) * 4096;
    for (int i = 0; i < 20000; i++) {
        uint64_t pick = cup_rng_below(&rng, SPANS);
        if (is_in[pick]) {
            cup_tree_remove(&tree, &span[pick]);
        } else {
            span[pick].size_bytes = (1 + cup_rng_below(&rng, 20)) * 4096;
            cup_tree_insert(&tree, &span[pick]);
        }
        is_in[pick] = !is_in[pick];
        members += is_in[pick] ? 1 : -UINT64_C(1);
        CHECK_EQ(tree.count, members);
        uint64_t size_bytes = cup_rng_below(&rng, 22) * 4096;
        cup_addr_t base = cup_rng_below(&rng, SPANS + 2) * 4096;
        CHECK(cup_tree_find(&tree, size_bytes, base) == slow_find(span, is_in, size_bytes, base));
    }
}

static int depth_of(const cup_span_t *node)
{
    int smaller = node ? depth_of(node->tree[0]) : 0, larger = node ? depth_of(node->tree[1]) : 0;
    return node ? 1 + (smaller > larger ? smaller : larger) : 0;
}

/* Consecutive addresses are the usual case and must not degrade it: 2^14 spans, a depth of 14 at best. */
TEST(tree, stays_shallow_for_consecutive_addresses)
{
    enum { MANY = 1 << 14 };
    static cup_span_t span[MANY];
    cup_tree_t tree = {0};
    for (int i = 0; i < MANY; i++) {
        span[i].base = CUP_GIB + (uint64_t)i * 65536;
        span[i].size_bytes = 65536;
        cup_tree_insert(&tree, &span[i]);
    }
    CHECK_MSG(depth_of(tree.root) < 60, "depth %d", depth_of(tree.root));
}
