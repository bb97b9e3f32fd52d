/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a short list. A context is told from a later one at the same address by its number (cuCtxGetId);
 * where the driver has none, every pair counts as ended when any primary context of the process may have,
 * as heaps do (heap.c).
 */
#include "shim/peer.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/drv.h"
#include <stddef.h>

typedef struct party {
    CUcontext ctx;
    unsigned long long id; /* 0: unknown */
} party_t;

typedef struct pair {
    struct pair *next;
    party_t from, to;
    int device;   /* of from */
    bool is_kept; /* whatever the program gives and takes */
} pair_t;

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_PEER);
static pair_t *g_pairs; /* guarded by g_lock */

static party_t meet(CUcontext ctx)
{
    party_t party = {.ctx = ctx};

    if (cup_drv.cuCtxGetId(ctx, &party.id) != CUDA_SUCCESS)
        party.id = 0;
    return party;
}

static bool has_ended(const party_t *party, CUcontext ended)
{
    unsigned long long id;

    return party->ctx == ended || cup_drv.cuCtxGetId(party->ctx, &id) != CUDA_SUCCESS || id != party->id;
}

/* Where the pair hangs, or would. */
static pair_t **find_locked(CUcontext from, CUcontext to)
{
    pair_t **at = &g_pairs;

    while (*at && ((*at)->from.ctx != from || (*at)->to.ctx != to))
        at = &(*at)->next;
    return at;
}

static void drop_locked(pair_t **at)
{
    pair_t *pair = *at;

    *at = pair->next;
    cup_meta_free(pair, sizeof(*pair));
}

_Atomic bool cup_peer_apart, cup_peer_several;

void cup_peer_note_heap(bool is_vmm)
{
    int count = 0;

    if (cup_drv.cuDeviceGetCount(&count) == CUDA_SUCCESS && count <= 1)
        return;
    atomic_store_explicit(&cup_peer_several, true, memory_order_relaxed);
    if (is_vmm)
        atomic_store_explicit(&cup_peer_apart, true, memory_order_relaxed);
}

/* By the same two contexts, not others at their addresses. */
static bool is_still_kept(const pair_t *pair, const party_t *from, const party_t *to)
{
    return pair->is_kept && pair->from.id == from->id && pair->to.id == to->id;
}

static bool add(CUcontext from, int device, CUcontext to, bool is_kept)
{
    const party_t from_now = meet(from), to_now = meet(to);
    pair_t **at, *pair;

    cup_lock_acquire(&g_lock);
    at = find_locked(from, to);
    pair = *at ? *at : cup_meta_alloc(sizeof(*pair));
    if (pair) {
        *pair = (pair_t){.next = *at ? pair->next : NULL,
                         .from = from_now,
                         .to = to_now,
                         .device = device,
                         .is_kept = is_kept || (*at && is_still_kept(pair, &from_now, &to_now))};
        *at = pair;
    }
    cup_lock_release(&g_lock);
    return pair != NULL;
}

bool cup_peer_add(CUcontext from, int device, CUcontext to)
{
    return add(from, device, to, false);
}

bool cup_peer_keep(CUcontext from, int device, CUcontext to)
{
    return add(from, device, to, true);
}

bool cup_peer_remove(CUcontext from, CUcontext to)
{
    bool is_there;
    pair_t **at;

    cup_lock_acquire(&g_lock);
    at = find_locked(from, to);
    is_there = *at != NULL && !(*at)->is_kept;
    if (is_there)
        drop_locked(at);
    cup_lock_release(&g_lock);
    return is_there;
}

bool cup_peer_forget_ended(CUcontext ended)
{
    bool has_dropped = false;

    cup_lock_acquire(&g_lock);
    for (pair_t **at = &g_pairs; *at;) {
        if (has_ended(&(*at)->from, ended) || has_ended(&(*at)->to, ended)) {
            drop_locked(at);
            has_dropped = true;
        } else {
            at = &(*at)->next;
        }
    }
    cup_lock_release(&g_lock);
    return has_dropped;
}

uint64_t cup_peer_devices(CUcontext to)
{
    uint64_t devices = 0;

    cup_lock_acquire(&g_lock);
    for (const pair_t *pair = g_pairs; pair; pair = pair->next)
        if (pair->to.ctx == to && pair->device < CUP_PEER_DEVICES_MAX)
            devices |= (uint64_t)1 << pair->device;
    cup_lock_release(&g_lock);
    return devices;
}
