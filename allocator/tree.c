/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree - how: a treap without parent links; insert splits the subtree that it displaces, remove merges the
 * two below. Chosen over a red-black tree for its size: about 2 log2(n) steps, no rotations, no colours.
 */
#include "allocator/tree.h"

enum { SMALLER, LARGER };

static bool is_below(const cup_span_t *span, uint64_t size_bytes, cup_addr_t base)
{
    return span->size_bytes != size_bytes ? span->size_bytes < size_bytes : span->base < base;
}

/* Bases are multiples of 4 KiB and often consecutive: a multiplicative hash spreads them. */
static uint32_t mix_priority(cup_addr_t base)
{
    uint64_t x = (base >> 12) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)((x ^ (x >> 29)) * UINT64_C(0xBF58476D1CE4E5B9) >> 32);
}

/* Hangs what is below (size, base) in the subtree on one slot and the rest on another. */
static void split(cup_span_t *node, uint64_t size_bytes, cup_addr_t base, cup_span_t **slots)
{
    cup_span_t **smaller = &slots[SMALLER], **larger = &slots[LARGER];
    while (node) {
        if (is_below(node, size_bytes, base)) {
            *smaller = node;
            smaller = &node->tree[LARGER];
            node = *smaller;
        } else {
            *larger = node;
            larger = &node->tree[SMALLER];
            node = *larger;
        }
    }
    *smaller = *larger = NULL;
}

void cup_tree_insert(cup_tree_t *tree, cup_span_t *span)
{
    cup_span_t **slot = &tree->root;
    span->tree_priority = mix_priority(span->base);
    while (*slot && (*slot)->tree_priority >= span->tree_priority)
        slot = &(*slot)->tree[is_below(*slot, span->size_bytes, span->base) ? LARGER : SMALLER];
    split(*slot, span->size_bytes, span->base, span->tree);
    *slot = span;
    tree->count++;
}

void cup_tree_remove(cup_tree_t *tree, cup_span_t *span)
{
    cup_span_t **slot = &tree->root;
    while (*slot && *slot != span)
        slot = &(*slot)->tree[is_below(*slot, span->size_bytes, span->base) ? LARGER : SMALLER];
    CUP_ASSERT(*slot == span && tree->count > 0);
    cup_span_t *smaller = span->tree[SMALLER], *larger = span->tree[LARGER];
    while (smaller && larger) {
        if (smaller->tree_priority >= larger->tree_priority) {
            *slot = smaller;
            slot = &smaller->tree[LARGER];
            smaller = *slot;
        } else {
            *slot = larger;
            slot = &larger->tree[SMALLER];
            larger = *slot;
        }
    }
    *slot = smaller ? smaller : larger;
    tree->count--;
}

cup_span_t *cup_tree_find(const cup_tree_t *tree, uint64_t size_bytes, cup_addr_t base)
{
    cup_span_t *best = NULL, *node = tree->root;
    while (node) {
        bool below = is_below(node, size_bytes, base);
        best = below ? best : node;
        node = node->tree[below ? LARGER : SMALLER];
    }
    return best;
}

cup_span_t *cup_tree_next(const cup_tree_t *tree, const cup_span_t *span)
{
    return cup_tree_find(tree, span->size_bytes, span->base + 1);
}
