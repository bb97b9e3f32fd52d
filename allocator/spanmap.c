/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spanmap - how: the root is 32 KiB of zero pages that a process without device memory never touches; every
 * node below is made once and published by a release store. A slot is the only level with two pointers.
 * Costs 96 KiB for each 8 GiB of address space in use and 4 KiB for each 2 MiB of shared chunks (0.2 %).
 */
#include "allocator/spanmap.h"

#include "allocator/meta.h"
#include "allocator/provider.h"

#define NODE_LOG2    12
#define NODE_ENTRIES ((size_t)1 << NODE_LOG2)
#define SLOT_LOG2    21
#define LEAF_LOG2    12
#define LEAF_ENTRIES ((size_t)1 << (SLOT_LOG2 - LEAF_LOG2))
#define SLOT_BYTES   ((uint64_t)1 << SLOT_LOG2)

_Static_assert(SLOT_BYTES == CUP_CHUNK_ALIGN, "no two chunks share a slot");
_Static_assert((uint64_t)1 << LEAF_LOG2 == CUP_SIZE_GRANULE,
               "an entry for each place where a span can start");
_Static_assert(CUP_SPANMAP_LIMIT == (uint64_t)1 << (SLOT_LOG2 + 3 * NODE_LOG2),
               "three levels above the slots");

typedef struct leaf {
    _Atomic(cup_span_t *) span[LEAF_ENTRIES];
} leaf_t;

typedef struct slot {
    _Atomic(cup_chunk_t *) chunk;
    _Atomic(leaf_t *) leaf;
    _Atomic(uint32_t) entries; /* of the leaf, not NULL; one writer: the pool of the chunk */
} slot_t;

typedef struct slots {
    slot_t slot[NODE_ENTRIES];
} slots_t;

typedef struct middle {
    _Atomic(slots_t *) slots[NODE_ENTRIES];
} middle_t;

static _Atomic(middle_t *) root[NODE_ENTRIES];
static cup_lock_t grow_lock = CUP_LOCK_INIT(CUP_LOCK_SPANMAP);

static size_t root_index(cup_addr_t addr)
{
    return addr >> (SLOT_LOG2 + 2 * NODE_LOG2) & (NODE_ENTRIES - 1);
}

static size_t middle_index(cup_addr_t addr)
{
    return addr >> (SLOT_LOG2 + NODE_LOG2) & (NODE_ENTRIES - 1);
}

static size_t slot_index(cup_addr_t addr)
{
    return addr >> SLOT_LOG2 & (NODE_ENTRIES - 1);
}

static size_t leaf_index(cup_addr_t addr)
{
    return addr >> LEAF_LOG2 & (LEAF_ENTRIES - 1);
}

static slot_t *find_slot(cup_addr_t addr)
{
    if (addr >= CUP_SPANMAP_LIMIT)
        return NULL;
    middle_t *middle = atomic_load_explicit(&root[root_index(addr)], memory_order_acquire);
    if (!middle)
        return NULL;
    slots_t *slots = atomic_load_explicit(&middle->slots[middle_index(addr)], memory_order_acquire);
    return slots ? &slots->slot[slot_index(addr)] : NULL;
}

cup_chunk_t *cup_spanmap_chunk(cup_addr_t addr)
{
    slot_t *slot = find_slot(addr);
    cup_chunk_t *chunk = slot ? atomic_load_explicit(&slot->chunk, memory_order_acquire) : NULL;
    /* Recycled meanwhile: then its range is another one, or it is as good as published a moment later. */
    return chunk && addr - cup_chunk_base(chunk) < cup_chunk_bytes(chunk) ? chunk : NULL;
}

cup_span_t *cup_spanmap_at(cup_addr_t addr)
{
    slot_t *slot = find_slot(addr);
    leaf_t *leaf = slot ? atomic_load_explicit(&slot->leaf, memory_order_acquire) : NULL;
    return leaf ? atomic_load_explicit(&leaf->span[leaf_index(addr)], memory_order_acquire) : NULL;
}

static cup_span_t *leaf_below(slot_t *slot, size_t index)
{
    leaf_t *leaf = atomic_load_explicit(&slot->leaf, memory_order_acquire);
    if (!leaf || atomic_load_explicit(&slot->entries, memory_order_relaxed) == 0)
        return NULL;
    for (size_t i = index + 1; i-- > 0;) {
        cup_span_t *span = atomic_load_explicit(&leaf->span[i], memory_order_acquire);
        if (span)
            return span;
    }
    return NULL;
}

cup_span_t *cup_spanmap_below(cup_addr_t addr, cup_addr_t floor)
{
    size_t index = leaf_index(addr);
    for (cup_addr_t at = addr; at >= floor; at -= SLOT_BYTES, index = LEAF_ENTRIES - 1) {
        slot_t *slot = find_slot(at);
        cup_span_t *span = slot ? leaf_below(slot, index) : NULL;
        if (span || at < SLOT_BYTES)
            return span;
    }
    return NULL;
}

/* Grows the tree down to the slot of addr, and its leaf if asked for. grow_lock is held. */
static cup_status_t cover_slot_locked(cup_addr_t addr, bool has_leaf)
{
    _Atomic(middle_t *) *middle_at = &root[root_index(addr)];
    if (!atomic_load_explicit(middle_at, memory_order_relaxed))
        atomic_store_explicit(middle_at, cup_meta_alloc(sizeof(middle_t)), memory_order_release);
    middle_t *middle = atomic_load_explicit(middle_at, memory_order_relaxed);
    if (!middle)
        return CUP_ERR_NOMEM;
    _Atomic(slots_t *) *slots_at = &middle->slots[middle_index(addr)];
    if (!atomic_load_explicit(slots_at, memory_order_relaxed))
        atomic_store_explicit(slots_at, cup_meta_alloc(sizeof(slots_t)), memory_order_release);
    slots_t *slots = atomic_load_explicit(slots_at, memory_order_relaxed);
    if (!slots)
        return CUP_ERR_NOMEM;
    _Atomic(leaf_t *) *leaf_at = &slots->slot[slot_index(addr)].leaf;
    if (has_leaf && !atomic_load_explicit(leaf_at, memory_order_relaxed))
        atomic_store_explicit(leaf_at, cup_meta_alloc(sizeof(leaf_t)), memory_order_release);
    return has_leaf && !atomic_load_explicit(leaf_at, memory_order_relaxed) ? CUP_ERR_NOMEM : CUP_OK;
}

cup_status_t cup_spanmap_cover(cup_addr_t base, uint64_t size_bytes, bool has_spans)
{
    CUP_ASSERT(base % SLOT_BYTES == 0 && size_bytes % SLOT_BYTES == 0);
    if (base >= CUP_SPANMAP_LIMIT || size_bytes > CUP_SPANMAP_LIMIT - base)
        return CUP_ERR_INVALID;
    cup_status_t status = CUP_OK;
    cup_lock_acquire(&grow_lock);
    for (uint64_t done = 0; done < size_bytes && status == CUP_OK; done += SLOT_BYTES)
        status = cover_slot_locked(base + done, has_spans);
    cup_lock_release(&grow_lock);
    return status;
}

void cup_spanmap_publish_part(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes)
{
    for (uint64_t done = 0; done < size_bytes; done += SLOT_BYTES) {
        slot_t *slot = find_slot(base + done);
        CUP_ASSERT(slot && (!atomic_load(&slot->chunk) || atomic_load(&slot->chunk) == chunk));
        atomic_store_explicit(&slot->chunk, chunk, memory_order_release);
    }
}

void cup_spanmap_withdraw_part(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes)
{
    for (uint64_t done = 0; done < size_bytes; done += SLOT_BYTES) {
        slot_t *slot = find_slot(base + done);
        if (!slot || atomic_load_explicit(&slot->chunk, memory_order_relaxed) != chunk)
            continue;
        CUP_ASSERT(atomic_load(&slot->entries) == 0);
        atomic_store_explicit(&slot->chunk, NULL, memory_order_release);
    }
}

void cup_spanmap_publish(cup_chunk_t *chunk)
{
    cup_spanmap_publish_part(chunk, cup_chunk_base(chunk), cup_chunk_bytes(chunk));
}

void cup_spanmap_withdraw(cup_chunk_t *chunk)
{
    cup_spanmap_withdraw_part(chunk, cup_chunk_base(chunk), cup_chunk_bytes(chunk));
}

/* Entries first .. last - 1 of one leaf. */
static void set_in_slot(slot_t *slot, size_t first, size_t last, cup_span_t *span)
{
    CUP_ASSERT(slot && atomic_load(&slot->leaf));
    leaf_t *leaf = atomic_load_explicit(&slot->leaf, memory_order_acquire);
    uint32_t entries = atomic_load_explicit(&slot->entries, memory_order_relaxed);
    for (size_t i = first; i < last; i++) {
        entries -= atomic_load_explicit(&leaf->span[i], memory_order_relaxed) != NULL;
        entries += span != NULL;
        atomic_store_explicit(&leaf->span[i], span, memory_order_release);
    }
    atomic_store_explicit(&slot->entries, entries, memory_order_relaxed);
}

void cup_spanmap_set(cup_addr_t base, uint64_t size_bytes, cup_span_t *span)
{
    CUP_ASSERT(base % CUP_SIZE_GRANULE == 0 && size_bytes % CUP_SIZE_GRANULE == 0);
    for (uint64_t left = size_bytes / CUP_SIZE_GRANULE; left > 0;) {
        size_t first = leaf_index(base), count = LEAF_ENTRIES - first;
        count = left < count ? left : count;
        set_in_slot(find_slot(base), first, first + count, span);
        base += count * CUP_SIZE_GRANULE;
        left -= count;
    }
}

void cup_spanmap_count(cup_addr_t addr, uint32_t *out_kept, uint32_t *out_counted)
{
    slot_t *slot = find_slot(addr);
    leaf_t *leaf = slot ? atomic_load_explicit(&slot->leaf, memory_order_acquire) : NULL;
    uint32_t counted = 0;
    for (size_t i = 0; leaf && i < LEAF_ENTRIES; i++)
        counted += atomic_load_explicit(&leaf->span[i], memory_order_relaxed) != NULL;
    *out_kept = slot ? atomic_load_explicit(&slot->entries, memory_order_relaxed) : 0;
    *out_counted = counted;
}
