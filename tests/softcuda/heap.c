/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap - device memory: one reservation a device, nothing readable but what is live. Taken in slots of 2
 * MiB. An allocation of 2 MiB or more has slots of its own; a smaller one is cut from a shared slot on 512
 * bytes, as the driver does. Fresh slots are zero; freed small ranges keep their mapping and are filled with
 * POISON; freed slots are unreadable again.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0xF5

/* A slot cut into small allocations of one context and kind. */
typedef struct shared {
    struct shared *next; /* in its device */
    uint64_t base;
    uint64_t id; /* MEMORY_BLOCK_ID */
    sc_ctx_t *ctx;
    sc_mem_kind_t kind;
    unsigned used;    /* grains */
    unsigned run_cap; /* no free run is longer: an upper bound */
    sc_alloc_t *grain[SC_GRAINS];
} shared_t;

typedef struct {
    uint64_t base; /* of the reservation; 0 before the first allocation */
    uint64_t held_slots;
    uint64_t live;
    shared_t *shareds;
    sc_alloc_t *large[SC_SLOTS_MAX]; /* who owns the slot whole */
    shared_t *shared_at[SC_SLOTS_MAX];
} heap_t;

static heap_t heaps[SC_DEVICES_MAX];

static bool reserve(heap_t *heap)
{
    if (heap->base != 0)
        return true;
    void *at = mmap(NULL, SC_RESERVATION_BYTES + SC_SLOT_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    heap->base = ((uint64_t)(uintptr_t)at + SC_SLOT_BYTES - 1) & ~(SC_SLOT_BYTES - 1);
    return true;
}

static bool is_slot_free(const heap_t *heap, uint64_t slot)
{
    return !heap->large[slot] && !heap->shared_at[slot];
}

/* First run of count free slots. */
static bool find_slots(const heap_t *heap, uint64_t count, uint64_t *out_first)
{
    uint64_t run = 0;

    for (uint64_t slot = 0; slot < SC_SLOTS_MAX; slot++) {
        run = is_slot_free(heap, slot) ? run + 1 : 0;
        if (run == count) {
            *out_first = slot + 1 - count;
            return true;
        }
    }
    return false;
}

static bool has_room(const heap_t *heap, uint64_t count)
{
    uint64_t limit = sc.memory / SC_SLOT_BYTES;

    return count <= limit && heap->held_slots <= limit - count;
}

bool sc_heap_charge(int device, uint64_t slots)
{
    if (!has_room(&heaps[device], slots))
        return false;
    heaps[device].held_slots += slots;
    return true;
}

void sc_heap_uncharge(int device, uint64_t slots)
{
    heaps[device].held_slots -= slots;
}

/* Maps count slots within the device's memory; the caller enters them in large or shared_at. */
static bool take_slots(heap_t *heap, uint64_t count, uint64_t *out_first)
{
    if (!reserve(heap) || !has_room(heap, count) || !find_slots(heap, count, out_first))
        return false;
    void *at = (void *)(uintptr_t)(heap->base + *out_first * SC_SLOT_BYTES);
    if (mprotect(at, count * SC_SLOT_BYTES, PROT_READ | PROT_WRITE) != 0)
        return false;
    heap->held_slots += count;
    return true;
}

/* Fresh addresses: what was there may be shared with another process (ipc.c). */
static void clear_slots(heap_t *heap, uint64_t first, uint64_t count)
{
    mmap((void *)(uintptr_t)(heap->base + first * SC_SLOT_BYTES), count * SC_SLOT_BYTES, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void give_slots(heap_t *heap, uint64_t first, uint64_t count)
{
    sc_ipc_drop_slots(heap->base + first * SC_SLOT_BYTES);
    clear_slots(heap, first, count);
    heap->held_slots -= count;
}

static sc_alloc_t *new_alloc(int device, sc_ctx_t *ctx, uint64_t base, uint64_t size, sc_mem_kind_t kind)
{
    sc_alloc_t *alloc = sc_zalloc(sizeof *alloc);

    *alloc = (sc_alloc_t){
        .base = base, .size = size, .id = sc_next_id(), .ctx = ctx, .device = device, .kind = kind};
    heaps[device].live++;
    return alloc;
}

static CUresult alloc_large(int device, sc_ctx_t *ctx, uint64_t size, sc_mem_kind_t kind, uint64_t *out_base)
{
    heap_t *heap = &heaps[device];
    uint64_t first, count = (size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES;

    if (!take_slots(heap, count, &first))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out_base = heap->base + first * SC_SLOT_BYTES;
    sc_alloc_t *alloc = new_alloc(device, ctx, *out_base, size, kind);
    for (uint64_t i = 0; i < count; i++)
        heap->large[first + i] = alloc;
    return CUDA_SUCCESS;
}

/* First run of count free grains; lowers run_cap where there is none. */
static bool find_grains(shared_t *shared, unsigned count, unsigned *out_first)
{
    unsigned run = 0;

    if (count > shared->run_cap || count > SC_GRAINS - shared->used)
        return false;
    for (unsigned i = 0; i < SC_GRAINS; i++) {
        run = shared->grain[i] ? 0 : run + 1;
        if (run == count) {
            *out_first = i + 1 - count;
            return true;
        }
    }
    shared->run_cap = count - 1;
    return false;
}

static shared_t *new_shared(int device, sc_ctx_t *ctx, sc_mem_kind_t kind)
{
    heap_t *heap = &heaps[device];
    uint64_t slot;

    if (!take_slots(heap, 1, &slot))
        return NULL;
    shared_t *shared = sc_zalloc(sizeof *shared);
    shared->base = heap->base + slot * SC_SLOT_BYTES;
    shared->id = sc_next_id();
    shared->ctx = ctx;
    shared->kind = kind;
    shared->run_cap = SC_GRAINS;
    shared->next = heap->shareds;
    heap->shareds = shared;
    heap->shared_at[slot] = shared;
    return shared;
}

static CUresult alloc_small(int device, sc_ctx_t *ctx, uint64_t size, sc_mem_kind_t kind, uint64_t *out_base)
{
    unsigned first = 0, count = (unsigned)((size + SC_GRAIN_BYTES - 1) / SC_GRAIN_BYTES);
    shared_t *shared = heaps[device].shareds;

    while (shared && !(shared->ctx == ctx && shared->kind == kind && find_grains(shared, count, &first)))
        shared = shared->next;
    if (!shared)
        shared = new_shared(device, ctx, kind);
    if (!shared)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out_base = shared->base + first * SC_GRAIN_BYTES;
    sc_alloc_t *alloc = new_alloc(device, ctx, *out_base, size, kind);
    for (unsigned i = 0; i < count; i++)
        shared->grain[first + i] = alloc;
    shared->used += count;
    return CUDA_SUCCESS;
}

CUresult sc_heap_alloc(int device, sc_ctx_t *ctx, uint64_t size, sc_mem_kind_t kind, uint64_t *out_base)
{
    uint64_t held_slots = heaps[device].held_slots;

    if (size > SC_RESERVATION_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = size >= SC_SLOT_BYTES ? alloc_large(device, ctx, size, kind, out_base)
                                            : alloc_small(device, ctx, size, kind, out_base);
    if (kind != SC_MEM_ASYNC)
        sc_time_take(heaps[device].held_slots > held_slots ? SC_TIME_ALLOC : SC_TIME_ALLOC_SMALL, size);
    return status;
}

/* Another process's memory: slots of addresses, none of memory. */
sc_alloc_t *sc_heap_map(int device, sc_ctx_t *ctx, int fd, uint64_t offset, uint64_t size)
{
    heap_t *heap = &heaps[device];
    uint64_t first, count = (offset + size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES;

    if (!reserve(heap) || !find_slots(heap, count, &first))
        return NULL;
    void *at = (void *)(uintptr_t)(heap->base + first * SC_SLOT_BYTES);
    if (mmap(at, count * SC_SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return NULL;
    sc_alloc_t *alloc = new_alloc(device, ctx, heap->base + first * SC_SLOT_BYTES + offset, size, SC_MEM_IPC);
    for (uint64_t i = 0; i < count; i++)
        heap->large[first + i] = alloc;
    return alloc;
}

bool sc_heap_place(const sc_alloc_t *alloc, uint64_t *out_base, uint64_t *out_bytes)
{
    const heap_t *heap = &heaps[alloc->device];
    uint64_t slot = (alloc->base - heap->base) / SC_SLOT_BYTES;
    uint64_t count = heap->shared_at[slot] ? 1 : (alloc->size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES;

    *out_base = heap->base + slot * SC_SLOT_BYTES;
    *out_bytes = count * SC_SLOT_BYTES;
    return alloc->kind == SC_MEM_DEVICE;
}

uint64_t sc_heap_physical_id(const sc_alloc_t *alloc)
{
    const heap_t *heap = &heaps[alloc->device];
    const shared_t *shared = heap->shared_at[(alloc->base - heap->base) / SC_SLOT_BYTES];

    return shared ? shared->id : alloc->id;
}

/* The device whose reservation holds addr, and the slot; -1. */
static int find_heap(uint64_t addr, uint64_t *out_slot)
{
    for (int device = 0; device < SC_DEVICES_MAX; device++) {
        uint64_t base = heaps[device].base;
        if (base != 0 && addr >= base && addr - base < SC_RESERVATION_BYTES) {
            *out_slot = (addr - base) / SC_SLOT_BYTES;
            return device;
        }
    }
    return -1;
}

bool sc_heap_owns(uint64_t addr)
{
    uint64_t slot;

    return find_heap(addr, &slot) >= 0;
}

sc_alloc_t *sc_heap_find(uint64_t addr)
{
    uint64_t slot;
    int device = find_heap(addr, &slot);

    if (device < 0)
        return NULL;
    sc_alloc_t *alloc = heaps[device].large[slot];
    shared_t *shared = heaps[device].shared_at[slot];
    if (shared)
        alloc = shared->grain[(addr - shared->base) / SC_GRAIN_BYTES];
    return alloc && addr - alloc->base < alloc->size ? alloc : NULL;
}

bool sc_heap_holds(uint64_t addr, uint64_t size)
{
    sc_alloc_t *alloc = sc_heap_find(addr);

    return size == 0 || (alloc && size <= alloc->size - (addr - alloc->base));
}

static void drop_shared(heap_t *heap, shared_t *shared, uint64_t slot)
{
    shared_t **at = &heap->shareds;

    while (*at != shared)
        at = &(*at)->next;
    *at = shared->next;
    heap->shared_at[slot] = NULL;
    give_slots(heap, slot, 1);
    free(shared);
}

static void free_small(heap_t *heap, shared_t *shared, const sc_alloc_t *alloc, uint64_t slot)
{
    unsigned first = (unsigned)((alloc->base - shared->base) / SC_GRAIN_BYTES);
    unsigned count = (unsigned)((alloc->size + SC_GRAIN_BYTES - 1) / SC_GRAIN_BYTES);

    memset(&shared->grain[first], 0, count * sizeof shared->grain[0]);
    shared->used -= count;
    shared->run_cap = SC_GRAINS;
    if (shared->used == 0)
        drop_shared(heap, shared, slot);
    else
        memset((void *)(uintptr_t)alloc->base, POISON, count * SC_GRAIN_BYTES);
}

void sc_heap_free(sc_alloc_t *alloc)
{
    heap_t *heap = &heaps[alloc->device];
    uint64_t slot = (alloc->base - heap->base) / SC_SLOT_BYTES;

    sc_ipc_drop(alloc);
    if (heap->shared_at[slot]) {
        free_small(heap, heap->shared_at[slot], alloc, slot);
    } else if (alloc->kind == SC_MEM_IPC) {
        uint64_t count = (alloc->base + alloc->size - 1 - heap->base) / SC_SLOT_BYTES - slot + 1;
        memset(&heap->large[slot], 0, count * sizeof heap->large[0]);
        clear_slots(heap, slot, count);
    } else {
        uint64_t count = (alloc->size + SC_SLOT_BYTES - 1) / SC_SLOT_BYTES;
        memset(&heap->large[slot], 0, count * sizeof heap->large[0]);
        give_slots(heap, slot, count);
    }
    heap->live--;
    free(alloc);
}

/* Frees what the context owns in one slot. */
static void free_slot(heap_t *heap, uint64_t slot, sc_ctx_t *ctx)
{
    if (heap->large[slot] && heap->large[slot]->ctx == ctx)
        sc_heap_free(heap->large[slot]);
    for (unsigned i = 0; i < SC_GRAINS; i++) {
        shared_t *shared = heap->shared_at[slot]; /* gone with its last allocation */
        if (!shared || shared->ctx != ctx)
            return;
        if (shared->grain[i])
            sc_heap_free(shared->grain[i]);
    }
}

void sc_heap_free_context(sc_ctx_t *ctx)
{
    heap_t *heap = &heaps[ctx->device];

    for (uint64_t slot = 0; slot < SC_SLOTS_MAX && heap->base != 0; slot++)
        free_slot(heap, slot, ctx);
}

void sc_heap_info(int device, uint64_t *out_free, uint64_t *out_total)
{
    uint64_t held = heaps[device].held_slots * SC_SLOT_BYTES;

    *out_total = sc.memory;
    *out_free = held < sc.memory ? sc.memory - held : 0;
}

SC_EXPORT uint64_t softcuda_held_bytes(void)
{
    uint64_t slots = 0;

    pthread_mutex_lock(&sc.lock);
    for (int device = 0; device < SC_DEVICES_MAX; device++)
        slots += heaps[device].held_slots;
    pthread_mutex_unlock(&sc.lock);
    return slots * SC_SLOT_BYTES;
}

SC_EXPORT uint64_t softcuda_live_allocations(void)
{
    uint64_t live = 0;

    pthread_mutex_lock(&sc.lock);
    for (int device = 0; device < SC_DEVICES_MAX; device++)
        live += heaps[device].live;
    pthread_mutex_unlock(&sc.lock);
    return live;
}
