/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_trail - copies that touch memory of another context than their stream's are work of that context, too.
 * What:       natively a free waits for them (measured without access between the two: driver 580.159.04, two H200s),
 *             so whatever a later owner of the memory does must run after them. A context's points can't tell of a stream
 *             of another context, and an event behind all of the one may leave out the copy (measured). So behind such a
 *             copy a stream of ours, in each context that it touched, waits for it: the trail, work there like any other.
 * Not here:   which addresses a call names (submit_rule.h). Kernels and sets that use a peer's memory: natively no free
 *             of the peer's waits for them (measured, kernels). Graph launches (submit.h).
 * Invariants: a process that sees one device never gets past the first load.
 * Threads:    any thread; takes CUP_LOCK_PEER, not over driver calls. Noting is the thread's own, until it leaves.
 */
#ifndef CUP_SHIM_PEER_TRAIL_H
#define CUP_SHIM_PEER_TRAIL_H
#include "shim/peer.h"
#include "shim/submit.h"

/* The call that is about to be made copies from or to this address. */
void cup_peer_trail_note_slow(CUdeviceptr addr);

static inline void cup_peer_trail_note(CUdeviceptr addr)
{
    if (cup_peer_is_several())
        cup_peer_trail_note_slow(addr);
}

/*
 * The call has been made: trails in the contexts that were noted since the last one. Waits for the stream on the host where
 * none can be left. Outside the gate, after cup_submit_end.
 */
void cup_peer_trail_leave_slow(cup_place_t place, CUresult result);

static inline void cup_peer_trail_leave(cup_place_t place, CUresult result)
{
    if (cup_peer_is_several())
        cup_peer_trail_leave_slow(place, result);
}

#endif /* CUP_SHIM_PEER_TRAIL_H */
