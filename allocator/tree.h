/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree - spans ordered by (size, address).
 * What:       an intrusive treap, out of band. Free spans of an arena, cached dedicated blocks, the slabs of
 *             one class (equal sizes: ordered by address).
 * Invariants: search order by (size, base); heap order by a priority mixed from the base, so equal contents
 *             give equal shapes. A span is in at most one tree, and neither its base nor its size changes
 *             while it is.
 * Threads:    the pool's lock.
 */
#ifndef CUP_ALLOCATOR_TREE_H
#define CUP_ALLOCATOR_TREE_H
#include "allocator/span.h"

typedef struct cup_tree {
    cup_span_t *root;
    uint64_t count;
} cup_tree_t;

void cup_tree_insert(cup_tree_t *tree, cup_span_t *span);
void cup_tree_remove(cup_tree_t *tree, cup_span_t *span);

/* The smallest span whose (size, base) is not below this one; NULL when there is none. */
cup_span_t *cup_tree_find(const cup_tree_t *tree, uint64_t size_bytes, cup_addr_t base);

/* The span after this one; NULL at the end. */
cup_span_t *cup_tree_next(const cup_tree_t *tree, const cup_span_t *span);

#endif /* CUP_ALLOCATOR_TREE_H */
