/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_peer - access to the memory of other devices: the driver's own call, and what the program has
 * thereby said of memory that the driver does not count as the context's (peer.h).
 * How:        the driver decides and answers. What it granted is noted, then followed by every heap that it
 *             concerns: a heap that does not exist yet reads the ledger when it is made, under the
 *             registry's lock. A grant that can't be followed is taken back, with the code of what failed.
 */
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/green.h"
#include "shim/ipc_import.h"
#include "shim/peer.h"
#include "shim/registry.h"
#include "shim/route.h"
#include "shim/submit.h"

/* Of the current context to the peer's memory. */
static CUresult enable(CUcontext peer)
{
    CUcontext ctx = NULL;
    CUdevice device;
    CUresult result = cup_drv.cuCtxGetCurrent(&ctx);

    if (result == CUDA_SUCCESS)
        result = cup_drv.cuCtxGetDevice(&device);
    if (result != CUDA_SUCCESS)
        return result;
    peer = cup_green_primary(peer);
    if (!cup_peer_add(ctx, device, peer))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cup_registry_follow_peers(peer);
    cup_ipc_follow_peers(peer);
    if (result != CUDA_SUCCESS) {
        cup_peer_remove(ctx, peer);
        cup_registry_follow_peers(peer);
    }
    return result;
}

/* The pool may be born here: what is enabled before the first allocation counts for it. */
CUresult cup_route_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUresult result;

    cup_submit_collect();
    result = cup_drv.cuCtxEnablePeerAccess(peer, flags);
    if (result != CUDA_SUCCESS || !cup_gate_enter(true))
        return result;
    result = enable(peer);
    if (result != CUDA_SUCCESS)
        cup_drv.cuCtxDisablePeerAccess(peer);
    cup_gate_leave();
    return result;
}

/*
 * Work in flight may still use what is about to be out of reach, and taking it away would not wait. Waiting
 * would spoil a capture in progress: then it stays in reach until the next change, which no right program
 * notices.
 */
static void disable(CUcontext peer)
{
    CUcontext ctx = NULL;

    peer = cup_green_primary(peer);
    if (cup_drv.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !cup_peer_remove(ctx, peer) ||
        cup_capture_is_active())
        return;
    cup_drv.cuCtxSynchronize();
    cup_registry_follow_peers(peer);
}

CUresult cup_route_cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult result;

    cup_submit_collect();
    result = cup_drv.cuCtxDisablePeerAccess(peer);
    if (result == CUDA_SUCCESS && cup_gate_enter(false)) {
        disable(peer);
        cup_gate_leave();
    }
    return result;
}
