/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - type-stable storage: an item is recycled as the same type and its memory never goes back.
 * What:       a process-wide store per type, and a stock that one pool fills ahead of need. A reader without
 *             a lock may hold a stale pointer: it still points to an item of that type, never to unmapped or
 *             foreign memory.
 * Not here:   what a stale reader must check to see that the item was recycled (spanmap.h, pool.c).
 * Invariants: a fresh item is zero; a recycled one keeps what its last owner left in it, its link apart.
 * Threads:    a store: any thread, takes CUP_LOCK_STORE. A stock: its owner's lock.
 */
#ifndef CUP_ALLOCATOR_STORE_H
#define CUP_ALLOCATOR_STORE_H
#include "allocator/assert.h"
#include "allocator/lock.h"
#include "allocator/types.h"

/* First member of every type that is kept in a store. */
typedef struct cup_item {
    struct cup_item *next;
} cup_item_t;

typedef struct cup_store {
    cup_lock_t lock;
    cup_item_t *free;
    size_t item_bytes;
    size_t batch_items; /* fresh memory is asked for this many items at a time */
} cup_store_t;

/* clang-format off */
#define CUP_STORE_INIT(type, batch) { CUP_LOCK_INIT(CUP_LOCK_STORE), NULL, sizeof(type), (batch) }
/* clang-format on */

/* Returns NULL when there is no memory. */
void *cup_store_take(cup_store_t *store);
void cup_store_put(cup_store_t *store, void *item);

/* Items set aside, so that a commit cannot fail. */
typedef struct cup_stock {
    cup_store_t *store;
    cup_item_t *free;
    size_t count;
} cup_stock_t;

cup_status_t cup_stock_reserve_slow(cup_stock_t *stock, size_t items);

/* Makes the next `items` takes succeed. Errors: CUP_ERR_NOMEM; what was gathered stays in the stock. */
static inline cup_status_t cup_stock_reserve(cup_stock_t *stock, size_t items)
{
    return stock->count >= items ? CUP_OK : cup_stock_reserve_slow(stock, items);
}

/* Never fails: the caller has reserved. */
static inline void *cup_stock_take(cup_stock_t *stock)
{
    cup_item_t *item = stock->free;
    CUP_ASSERT(item && stock->count > 0);
    stock->free = item->next;
    stock->count--;
    return item;
}

static inline void cup_stock_put(cup_stock_t *stock, void *item)
{
    cup_item_t *link = item;
    link->next = stock->free;
    stock->free = link;
    stock->count++;
}

/* Everything back into the store. */
void cup_stock_drain(cup_stock_t *stock);

#endif /* CUP_ALLOCATOR_STORE_H */
