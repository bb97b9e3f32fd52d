/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_driver - what the parts of the driver's golden program share.
 * What:       the LISTs of golden.h, a file each; what a state has made for the calls.
 * Invariants: written when a state is opened or entered, by its main thread alone.
 * Threads:    read by any.
 */
#ifndef CUP_TESTS_GOLDEN_DRIVER_H
#define CUP_TESTS_GOLDEN_DRIVER_H
#include <cuda.h>
#include "golden.h"

#define SMALL_BYTES    4096
#define LARGE_BYTES    ((size_t)8 << 20)
#define HANDLE_BYTES   ((size_t)2 << 20)
#define INTERIOR_BYTES 512
#define SENTINEL       ((CUdeviceptr)0x5e5e5e5e) /* what an output holds before the call */

extern const golden_kind_t golden_kinds[]; /* golden_kinds.c */
extern const size_t golden_kind_count;
extern const golden_call_t golden_pointer_calls[]; /* golden_pointers.c: calls that take one */
extern const size_t golden_pointer_call_count;
extern const golden_call_t golden_other_calls[]; /* golden_calls.c: those that don't */
extern const size_t golden_other_call_count;

extern CUcontext golden_first, golden_second;      /* the primary context; one more, or NULL */
extern CUstream golden_stream, golden_capturing;   /* that calls use; that captures around them */
extern CUdeviceptr golden_other;                   /* a block to copy to */
extern CUmemGenericAllocationHandle golden_handle; /* to try to map somewhere */
extern const CUmemAllocationProp golden_prop;
extern const CUmemAccessDesc golden_access;

const char *golden_context_name(CUcontext context);

#endif /* CUP_TESTS_GOLDEN_DRIVER_H */
