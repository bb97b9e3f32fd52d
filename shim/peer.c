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
    int device; /* of from */
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

_Atomic bool cup_peer_apart;

void cup_peer_note_vmm(void)
{
    int count = 0;

    if (cup_drv.cuDeviceGetCount(&count) != CUDA_SUCCESS || count > 1)
        atomic_store_explicit(&cup_peer_apart, true, memory_order_relaxed);
}

bool cup_peer_add(CUcontext from, int device, CUcontext to)
{
    const party_t from_now = meet(from), to_now = meet(to);
    pair_t **at, *pair;

    cup_lock_acquire(&g_lock);
    at = find_locked(from, to);
    pair = *at ? *at : cup_meta_alloc(sizeof(*pair));
    if (pair) {
        *pair = (pair_t){.next = *at ? pair->next : NULL, .from = from_now, .to = to_now, .device = device};
        *at = pair;
    }
    cup_lock_release(&g_lock);
    return pair != NULL;
}

bool cup_peer_remove(CUcontext from, CUcontext to)
{
    bool is_there;
    pair_t **at;

    cup_lock_acquire(&g_lock);
    at = find_locked(from, to);
    is_there = *at != NULL;
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
