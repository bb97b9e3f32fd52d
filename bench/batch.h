/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch - several blocks that one launch fills or verifies: what the kernels and the programs share.
 * What:       the parameter of batch_fill and batch_verify, passed by value, so that nothing of it need
 *             outlive the launch.
 * Not here:   launching (dev.h), the kernels (kernels.cu).
 * Invariants: count <= DEV_BATCH_MAX; bytes are multiples of 8; the layout is the same for both compilers.
 */
#ifndef CUP_BENCH_BATCH_H
#define CUP_BENCH_BATCH_H
#include <stdint.h>

#define DEV_BATCH_MAX 16

typedef struct dev_block {
    uint64_t base, bytes, seed;
} dev_block_t;

typedef struct dev_batch {
    uint64_t count;
    uint64_t delay_us; /* every thread that has words to touch waits so long first */
    uint64_t wrong;    /* batch_verify adds the number of wrong words to the word at this address */
    dev_block_t blocks[DEV_BATCH_MAX];
} dev_batch_t;

#endif /* CUP_BENCH_BATCH_H */
