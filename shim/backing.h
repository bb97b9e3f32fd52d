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

#endif /* CUP_SHIM_BACKING_H */
