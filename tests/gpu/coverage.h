/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage - what the files of the program coverage share.
 * What:       a row: a kind of work that takes its time; the bed that it is submitted on.
 * Not here:   what is asked of each row (coverage.c).
 * Threads:    one, but for the threads that a row starts and ends itself.
 */
#ifndef CUP_GPU_COVERAGE_H
#define CUP_GPU_COVERAGE_H
#include "bench/dev.h"

#define COVERAGE_US    60000 /* of the work in flight */
#define COVERAGE_BYTES ((uint64_t)256 << 10)
#define COVERAGE_TAIL  ((uint64_t)8 << 20) /* more than a driver stages at once */

/* Made for each question, but for the memory. */
typedef struct coverage_bed {
    CUcontext ctx;
    CUstream stream; /* non-blocking; what a row submits to, unless it says otherwise by the next two */
    CUstream own;    /* a record on this one must cover the work; NULL: it can't be asked for that */
    CUstream asked;  /* whose query tells whether the work is done; NULL: the effect does */
    CUdeviceptr from, to;
    uint64_t *pinned, *pageable; /* COVERAGE_TAIL each */
    uint64_t *effect;            /* pinned; 0 until the work is done */
    uint32_t *gate;              /* pinned; 1 lets go what waits for it */
} coverage_bed_t;

/* Submits; the first code that is none of success. */
typedef CUresult (*coverage_submit_t)(coverage_bed_t *bed);

/* With no end before the gate is opened: a free would wait for ever. */
enum { COVERAGE_GATED = 1 };

/* X("name", function, flags) */
/* clang-format off */
#define COVERAGE_LIST(X)                             \
    /* streams */                                    \
    X("kernel", kernel, 0)                           \
    X("legacy", legacy, 0)                           \
    X("per-thread", per_thread, 0)                   \
    X("blocking", blocking, 0)                       \
    X("priority", priority, 0)                       \
    X("thread-alive", thread_alive, 0)               \
    X("thread-exited", thread_exited, 0)             \
    X("stream-destroyed", stream_destroyed, 0)       \
    X("programmatic", programmatic, 0)               \
    X("event-chain", event_chain, 0)                 \
    X("event-record", event_record, 0)               \
    X("host-function", host_function, 0)             \
    X("callback", callback, 0)                       \
    X("write-value", write_value, 0)                 \
    X("wait-value", wait_value, COVERAGE_GATED)      \
    X("batch-memop", batch_memop, 0)                 \
    X("alloc-async", alloc_async, 0)                 \
    X("free-async", free_async, 0)                   \
    X("prefetch", prefetch, 0)                       \
    /* copies, sets */                               \
    X("h2d-pinned", h2d_pinned, 0)                   \
    X("d2h-pinned", d2h_pinned, 0)                   \
    X("d2d", d2d, 0)                                 \
    X("unified", unified, 0)                         \
    X("h2d-pageable", h2d_pageable, 0)               \
    X("h2d-pageable-tail", h2d_pageable_tail, 0)     \
    X("d2h-pageable", d2h_pageable, 0)               \
    X("d2h-pageable-tail", d2h_pageable_tail, 0)     \
    X("copy-2d", copy_2d, 0)                         \
    X("copy-3d", copy_3d, 0)                         \
    X("copy-batch", copy_batch, 0)                   \
    X("copy-3d-batch", copy_3d_batch, 0)             \
    X("copy-peer-form", copy_peer_form, 0)           \
    X("set", set, 0)                                 \
    X("set-2d", set_2d, 0)                           \
    X("set-pinned", set_pinned, 0)                   \
    /* graphs */                                     \
    X("graph-kernel", graph_kernel, 0)               \
    X("graph-copy", graph_copy, 0)                   \
    X("graph-host", graph_host, 0)                   \
    X("graph-child", graph_child, 0)                 \
    X("graph-destroyed", graph_destroyed, 0)         \
    X("graph-conditional", graph_conditional, 0)     \
    X("graph-memory", graph_memory, 0)               \
    /* libraries that bring streams of their own */  \
    X("cublas", cublas, 0)                           \
    X("cufft", cufft, 0)                             \
    X("cudnn", cudnn, 0)
/* clang-format on */

#define COVERAGE_DECLARE(name, run, flags) CUresult coverage_##run(coverage_bed_t *bed);
COVERAGE_LIST(COVERAGE_DECLARE)
#undef COVERAGE_DECLARE

/* COVERAGE_US of a kernel on the stream, in front of what is asked about. */
void coverage_late(CUstream stream);

/* What a kernel, or whoever, does last: the effect is there. */
CUresult coverage_leave_effect(coverage_bed_t *bed, CUstream stream);

/* The row is not for this machine: no question is asked. */
#define COVERAGE_ABSENT CUDA_ERROR_NOT_SUPPORTED

/* What nodes of captured work say of themselves; what is so between devices and between contexts. */
void coverage_print_nodes(coverage_bed_t *bed);
void coverage_print_devices(coverage_bed_t *bed);

#endif /* CUP_GPU_COVERAGE_H */
