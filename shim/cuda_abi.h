/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_abi - cuda.h with every entry point under its own name. The header maps names to their newest version
 * by macros (cuMemAlloc is cuMemAlloc_v2); we wrap each version as it is exported, so the macros must be
 * off. Included in place of <cuda.h>, first.
 */
#ifndef CUP_SHIM_CUDA_ABI_H
#define CUP_SHIM_CUDA_ABI_H
#ifdef __cuda_cuda_h__
#error "include shim/cuda_abi.h before <cuda.h>"
#endif
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#endif /* CUP_SHIM_CUDA_ABI_H */
