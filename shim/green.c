/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a list that only grows; an entry that is free has no ctx. A look-up that races with the end of its
 * green context is one of a program that uses it then.
 */
#include "shim/green.h"
#include "allocator/meta.h"
#include <stdatomic.h>
#include <stddef.h>

typedef struct entry {
    struct entry *next;
    _Atomic(CUcontext) ctx; /* written last */
    _Atomic(CUcontext) primary;
    _Atomic(CUgreenCtx) green; /* NULL: free; taken by exchange */
    _Atomic int device;
} entry_t;

static _Atomic(entry_t *) g_entries;

static entry_t *take_entry(CUgreenCtx green)
{
    entry_t *entry;

    for (entry = atomic_load(&g_entries); entry; entry = entry->next) {
        CUgreenCtx none = NULL;

        if (atomic_compare_exchange_strong(&entry->green, &none, green))
            return entry;
    }
    entry = cup_meta_alloc(sizeof(*entry));
    if (!entry)
        return NULL;
    atomic_store(&entry->green, green);
    entry->next = atomic_load(&g_entries);
    while (!atomic_compare_exchange_weak(&g_entries, &entry->next, entry))
        ;
    return entry;
}

bool cup_green_add(CUgreenCtx green, CUcontext ctx, CUcontext primary, int device)
{
    entry_t *entry = take_entry(green);

    if (!entry)
        return false;
    atomic_store(&entry->device, device);
    atomic_store(&entry->primary, primary);
    atomic_store(&entry->ctx, ctx);
    return true;
}

static entry_t *find_green(CUgreenCtx green)
{
    entry_t *entry = atomic_load(&g_entries);

    while (entry && atomic_load(&entry->green) != green)
        entry = entry->next;
    return entry;
}

void cup_green_remove(CUgreenCtx green)
{
    entry_t *entry = green ? find_green(green) : NULL;

    if (!entry)
        return;
    atomic_store(&entry->ctx, NULL);
    atomic_store(&entry->green, NULL);
}

int cup_green_device(CUgreenCtx green)
{
    entry_t *entry = green ? find_green(green) : NULL;

    return entry ? atomic_load(&entry->device) : -1;
}

CUcontext cup_green_primary(CUcontext ctx)
{
    for (entry_t *entry = atomic_load_explicit(&g_entries, memory_order_acquire); entry; entry = entry->next)
        if (atomic_load_explicit(&entry->ctx, memory_order_acquire) == ctx)
            return ctx ? atomic_load(&entry->primary) : ctx;
    return ctx;
}
