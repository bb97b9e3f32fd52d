/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_runtime - what the two parts of the runtime's golden program share.
 * What:       the LISTs of calls of golden.h; what a state has made for them.
 * Invariants: written when a state is opened or entered, by its main thread alone.
 * Threads:    read by any.
 */
#ifndef CUP_TESTS_GOLDEN_RUNTIME_H
#define CUP_TESTS_GOLDEN_RUNTIME_H
#include <cuda_runtime_api.h>
#include "golden.h"

#define SMALL_BYTES 4096
#define LARGE_BYTES ((size_t)8 << 20)
#define WILD        0x1000

extern const golden_call_t golden_pointer_calls[]; /* calls that take a pointer */
extern const size_t golden_pointer_call_count;
extern const golden_call_t golden_other_calls[];
extern const size_t golden_other_call_count;

extern cudaStream_t golden_stream;
extern void *golden_other; /* a block to copy to */

#endif /* CUP_TESTS_GOLDEN_RUNTIME_H */
