/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_copy - copies that name memory which the copying device can't reach.
 * What:       natively a copy between two devices needs no peer access: the driver sees whose memory an
 *             address is, and stages. Memory of cuMemCreate has no context by which it could (measured,
 *             driver 580: INVALID_VALUE), but the Peer forms of the same copies name the contexts
 *             (measured: they work). A row of submit_list.h whose copy may need that asks here in place of
 *             the real call.
 * Not here:   memsets, kernels, linear memory to and from arrays, cuMemcpy3DBatchAsync, nodes of graphs made by
 *             hand: they go as they are. Copies of the 32-bit ABI, whose addresses are never ours.
 * Manners:    what is not ours, or in reach, or does not look like a copy that the driver would take, is
 *             left to the driver with the program's own arguments: the answer is false then, and nothing
 *             was done.
 * Threads:    any thread; between cup_submit_begin and cup_submit_end, outside the gate.
 */
#ifndef CUP_SHIM_PEER_COPY_H
#define CUP_SHIM_PEER_COPY_H
#include "shim/peer.h"
#include "shim/submit.h"
#include <stddef.h>

/* Where the copy runs: a row's place; a call with Async in its name, or not. */
typedef struct cup_peer_way {
    cup_place_t place;
    bool is_async;
} cup_peer_way_t;

#define CUP_PEER_SYNC(place)  ((cup_peer_way_t){(place), false})
#define CUP_PEER_ASYNC(place) ((cup_peer_way_t){(place), true})

/* Each: true, the copy was made or refused, with its code. */
bool cup_peer_copy_linear(cup_peer_way_t way, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                          CUresult *out_result);
bool cup_peer_copy_2d(cup_peer_way_t way, const CUDA_MEMCPY2D *copy, CUresult *out_result);
bool cup_peer_copy_3d(cup_peer_way_t way, const CUDA_MEMCPY3D *copy, CUresult *out_result);

/* The program's own Peer form, with a context that is not the memory's: the driver takes any for its own memory
 * (measured), but not for memory of cuMemCreate. */
bool cup_peer_copy_named(cup_peer_way_t way, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                         CUcontext src_ctx, size_t bytes, CUresult *out_result);

/* The program's own Peer form, with a unified address in it. */
bool cup_peer_copy_peer(cup_peer_way_t way, const CUDA_MEMCPY3D_PEER *copy, CUresult *out_result);

/* failed: NULL, or where the index of a copy that fails goes. */
bool cup_peer_copy_batch(cup_peer_way_t way, CUdeviceptr *dsts, CUdeviceptr *srcs, const size_t *sizes,
                         size_t count, CUmemcpyAttributes *attrs, const size_t *firsts, size_t attr_count,
                         size_t *failed, CUresult *out_result);

#endif /* CUP_SHIM_PEER_COPY_H */
