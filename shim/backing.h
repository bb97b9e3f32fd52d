/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing - the providers on offer.
 * What:       raw: cuMemAlloc and cuMemFree. Natively right for peers, attributes, GPUDirect, and for legacy
 *             IPC of chunks that hold one block; giving back waits for the GPU, as cuMemFree does.
 * Not here:   which one a heap takes (heap.c).
 */
#ifndef CUP_SHIM_BACKING_H
#define CUP_SHIM_BACKING_H
#include "allocator/provider.h"
#include "shim/cuda_abi.h"

/*
 * cuMemAlloc_v2 in the current context, which must be ctx. Errors: CUP_ERR_OOM; CUP_ERR_DRIVER;
 * CUP_ERR_INVALID when the memory turns out to belong to another context (a green context's is its device's
 * primary's): whose work must be over before it may be reused is not known then, so the caller stands aside.
 */
cup_status_t cup_backing_raw_reserve(CUcontext ctx, uint64_t size_bytes, cup_addr_t *out_base);

/* cuMemFree_v2: waits for the GPU. */
void cup_backing_raw_release(cup_addr_t base);

/*
 * vmm: one reserved range, backed by handles as it grows: no chunk borders to fragment on, and memory that can be moved and
 * given back while the GPU is busy. Not part of a context: it outlives one, so its heap gives it back at the end. Legacy
 * IPC, peer access and some attributes are not as natively yet (README, limits).
 */
typedef struct cup_backing_vmm {
    int device;
    CUmemAllocationProp prop; /* what a trial worked with */
} cup_backing_vmm_t;

/* Tries the whole way once. False: not on this device or driver. */
bool cup_backing_vmm_probe(int device, cup_backing_vmm_t *out_vmm);

/*
 * The provider's range functions (allocator/provider.h says what each promises). None waits for the GPU. A move that
 * could neither be made nor undone is CUP_ERR_INVALID.
 */
cup_status_t cup_backing_vmm_reserve(uint64_t size_bytes, cup_addr_t *out_base);
void cup_backing_vmm_release(cup_addr_t base, uint64_t size_bytes);
cup_status_t cup_backing_vmm_commit(const cup_backing_vmm_t *vmm, cup_addr_t addr, uint64_t size_bytes,
                                    uint64_t *out_handle);
void cup_backing_vmm_decommit(cup_addr_t addr, uint64_t size_bytes, uint64_t handle);
cup_status_t cup_backing_vmm_move(const cup_backing_vmm_t *vmm, cup_addr_t from, cup_addr_t to,
                                  uint64_t size_bytes, uint64_t handle);

#endif /* CUP_SHIM_BACKING_H */
