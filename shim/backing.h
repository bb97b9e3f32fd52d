/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing - the providers on offer.
 * What:       raw: cuMemAlloc and cuMemFree. Natively right for peers, attributes, GPUDirect, and for
 *             legacy IPC of chunks that hold one block; giving back waits for the GPU, as cuMemFree does.
 *             vmm: see below.
 * Not here:   which one a heap takes (heap.c).
 * Threads:    any thread. vmm takes CUP_LOCK_BACKING, over driver calls none of which waits for the GPU.
 */
#ifndef CUP_SHIM_BACKING_H
#define CUP_SHIM_BACKING_H
#include "allocator/lock.h"
#include "allocator/provider.h"
#include "shim/cuda_abi.h"

/*
 * cuMemAlloc_v2 in the current context, which must be ctx. Errors: CUP_ERR_OOM; CUP_ERR_DRIVER;
 * CUP_ERR_INVALID when the memory turns out to belong to another context (a green context's is its device's
 * primary's): whose work must be over before it may be reused is not known then, so the caller stands
 * aside.
 */
cup_status_t cup_backing_raw_reserve(CUcontext ctx, uint64_t size_bytes, cup_addr_t *out_base);

/* cuMemFree_v2: waits for the GPU. */
void cup_backing_raw_release(cup_addr_t base);

/*
 * vmm: one reserved range, backed by handles as it grows: no chunk borders to fragment on, and memory that
 * can be moved and given back while the GPU is busy. Not part of a context: it outlives one, so its heap
 * gives it back at the end. The driver gives no peer access to such memory by itself; here every mapping
 * has it, whenever it was made, as the ledger says (peer.h). Legacy IPC and some attributes are not as
 * natively yet (README, limits).
 */
#define CUP_BACKING_RANGES_MAX 4

/* One reservation, and which of its slots of CUP_CHUNK_ALIGN bytes are mapped: a bit each. */
typedef struct cup_backing_range {
    cup_addr_t base; /* 0: none here */
    uint64_t slots;
    uint64_t top; /* no slot from here on was ever mapped */
    uint64_t *mapped;
} cup_backing_range_t;

typedef struct cup_backing_vmm {
    CUcontext ctx; /* whose memory it is: peers are given access to a context's memory */
    int device;
    CUmemAllocationProp prop; /* what a trial worked with */
    cup_lock_t lock;
    cup_backing_range_t range[CUP_BACKING_RANGES_MAX]; /* guarded by lock */
    _Atomic uint64_t peers; /* written under lock: bit i, device i can reach all that is mapped */
} cup_backing_vmm_t;

/* Tries the whole way once, access of the peers that there are by now included. False: not on this device
 * or driver. */
bool cup_backing_vmm_probe(CUcontext ctx, int device, cup_backing_vmm_t *out_vmm);

/*
 * The provider's range functions (allocator/provider.h says what each promises). None waits for the GPU. A
 * move that could neither be made nor undone is CUP_ERR_INVALID.
 */
cup_status_t cup_backing_vmm_reserve(cup_backing_vmm_t *vmm, uint64_t size_bytes, cup_addr_t *out_base);
void cup_backing_vmm_release(cup_backing_vmm_t *vmm, cup_addr_t base, uint64_t size_bytes);
cup_status_t cup_backing_vmm_commit(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes,
                                    uint64_t *out_handle);
void cup_backing_vmm_decommit(cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes, uint64_t handle);
cup_status_t cup_backing_vmm_move(cup_backing_vmm_t *vmm, cup_addr_t from, cup_addr_t to, uint64_t size_bytes,
                                  uint64_t handle);

/*
 * The devices that the ledger names can reach what is mapped now and what will be; no others. What is taken
 * away may be in use: the caller has seen to it that it is not. Errors: the driver's, of a device that
 * could not be given access; it has none then. What could not be taken away stays reachable, which no right
 * program notices.
 */
CUresult cup_backing_vmm_follow_peers(cup_backing_vmm_t *vmm);

/* Whether work of the device can reach it. No lock. */
bool cup_backing_vmm_is_reachable(const cup_backing_vmm_t *vmm, int device);

#endif /* CUP_SHIM_BACKING_H */
