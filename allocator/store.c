/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - how: one list of free items under the lock, refilled a batch at a time. A steady program works
 * from the stocks of its pools and does not come here.
 */
#include "allocator/store.h"

#include "allocator/meta.h"

static void refill_locked(cup_store_t *store)
{
    CUP_ASSERT(store->item_bytes % _Alignof(max_align_t) == 0);
    char *batch = cup_meta_alloc(store->item_bytes * store->batch_items);
    if (!batch)
        return;
    for (size_t i = store->batch_items; i-- > 0;) {
        cup_item_t *item = (cup_item_t *)(void *)(batch + i * store->item_bytes);
        item->next = store->free;
        store->free = item;
    }
}

void *cup_store_take(cup_store_t *store)
{
    cup_lock_acquire(&store->lock);
    if (!store->free)
        refill_locked(store);
    cup_item_t *item = store->free;
    if (item)
        store->free = item->next;
    cup_lock_release(&store->lock);
    return item;
}

void cup_store_put(cup_store_t *store, void *item)
{
    cup_item_t *link = item;
    cup_lock_acquire(&store->lock);
    link->next = store->free;
    store->free = link;
    cup_lock_release(&store->lock);
}

cup_status_t cup_stock_reserve_slow(cup_stock_t *stock, size_t items)
{
    while (stock->count < items) {
        void *item = cup_store_take(stock->store);
        if (!item)
            return CUP_ERR_NOMEM;
        cup_stock_put(stock, item);
    }
    return CUP_OK;
}

void cup_stock_drain(cup_stock_t *stock)
{
    while (stock->count > 0)
        cup_store_put(stock->store, cup_stock_take(stock));
    CUP_ASSERT(!stock->free);
}
