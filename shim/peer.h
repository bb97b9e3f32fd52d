/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - which contexts the program has given access to the memory of other contexts.
 * What:       a ledger of the pairs for which cuCtxEnablePeerAccess succeeded, until it is disabled or one
 *             of the two ends; from it, the devices that may reach a context's memory. The driver keeps to
 *             it by itself for memory of cuMemAlloc, and knows nothing of it for memory of cuMemCreate:
 *             backing_vmm.c sets access by this ledger.
 * Not here:   setting access (backing_vmm.c), the entry points (route_peer.c), copies (peer_copy.c).
 * Invariants: a pair is there once. A device counts as long as one context of it is there.
 * Threads:    any thread; takes CUP_LOCK_PEER.
 */
#ifndef CUP_SHIM_PEER_H
#define CUP_SHIM_PEER_H
#include "shim/cuda_abi.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CUP_PEER_DEVICES_MAX 64 /* what the driver can see */

/* Work of `from`, whose device this is, may use the memory of `to` from now on. False: no memory for the
 * entry. */
bool cup_peer_add(CUcontext from, int device, CUcontext to);

/* The same, until one of them ends: a graph may hold copies that need it. */
bool cup_peer_keep(CUcontext from, int device, CUcontext to);

/* Not any more. False: it was not there, or is kept. */
bool cup_peer_remove(CUcontext from, CUcontext to);

/* Drops the pairs of contexts that have ended: this one (NULL: of none in particular), and whatever the
 * driver does not know by its number any more. True: there were some. */
bool cup_peer_forget_ended(CUcontext ended);

/* The devices whose work may use the memory of `to`: bit i is device i. */
uint64_t cup_peer_devices(CUcontext to);

/* There is memory of ours; is_vmm: that the driver treats as nobody's, of cuMemCreate. */
void cup_peer_note_heap(bool is_vmm);

/* Whether there is such memory, and more than one device. One load. */
static inline bool cup_peer_is_several(void)
{
    extern _Atomic bool cup_peer_several;

    return atomic_load_explicit(&cup_peer_several, memory_order_relaxed);
}

/* Whether a copy may have to be put in the Peer form: some of it is of cuMemCreate. One load. */
static inline bool cup_peer_is_apart(void)
{
    extern _Atomic bool cup_peer_apart;

    return atomic_load_explicit(&cup_peer_apart, memory_order_relaxed);
}

#endif /* CUP_SHIM_PEER_H */
