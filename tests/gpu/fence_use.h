/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence_use - what a thread of the fence check does with a group of blocks, up to the last use before their
 * free.
 * What:       groups, streams, the kinds of last users. A kind leaves work that is late on purpose: whoever
 *             is given the blocks early has its words seen by the late reader, or overwritten by the late
 *             writer.
 * Not here:   allocating, freeing, counting (fence.c).
 * Invariants: all work on a group is ordered by the program itself: on one stream, or by an event when it
 *             moves to another. A stream is destroyed only after the other live groups on it have moved.
 * Threads:    a worker belongs to one thread; a group that was used for the last time may be freed by
 *             another one.
 */
#ifndef CUP_TESTS_FENCE_USE_H
#define CUP_TESTS_FENCE_USE_H
#include "bench/dev.h"
#include "tests/gpu/fence_shares.h"
#include "tests/support/rng.h"

/* Last users. Every block is verified by a kernel on the stream of its last user before it is freed. */
#define FENCE_KIND_LIST(X)                                                                                   \
    X(verify)       /* a kernel that waits, then reads */                                                    \
    X(copy)         /* an asynchronous copy into memory that is verified later */                            \
    X(set)          /* memory sets, late */                                                                  \
    X(fill)         /* a kernel that writes, late */                                                         \
    X(graph)        /* the launch of a captured graph, destroyed at once */                                  \
    X(programmatic) /* lets a programmatic launch start early: half of the time that one fills new blocks */ \
    X(destroyed)    /* the stream is destroyed right after the launch and another one made */                \
    X(exited)       /* the per-thread stream of a thread that has exited, or a stream that it destroyed */   \
    X(peer)         /* a copy to the other device; with --devices */                                         \
    X(cublas)       /* cublasDcopy; with --blas and where libcublas is found */

#define FENCE_KIND_ENUM(kind) FENCE_##kind,
typedef enum fence_kind { FENCE_KIND_LIST(FENCE_KIND_ENUM) FENCE_KIND_COUNT } fence_kind_t;

#define FENCE_STREAMS_MAX 16
#define FENCE_LIVE        4 /* groups of a thread */

/* One stream of a worker: legacy, per-thread, or made by it. The id tells lives of one handle apart. */
typedef struct fence_stream {
    CUstream handle;
    uint32_t id;
    bool is_made;
    uint64_t used_at; /* the worker's step of its newest use */
} fence_stream_t;

typedef struct fence_group {
    dev_batch_t batch;
    unsigned stream;    /* of its newest work: index into the worker's streams */
    uint32_t stream_id; /* of its newest work, for the shares */
} fence_group_t;

typedef struct fence_worker {
    cup_rng_t rng;
    unsigned device, other_device;
    uint64_t delay_us;
    uint64_t step;
    fence_stream_t streams[FENCE_STREAMS_MAX];
    unsigned stream_count;
    CUstream capture;       /* only captures */
    CUevent moved;          /* for moves between streams */
    CUevent shadow_read;    /* what was copied has been verified */
    CUdeviceptr shadow;     /* DEV_BATCH_MAX slots, for the copies */
    CUdeviceptr far_shadow; /* the same on other_device */
    uint64_t slot_bytes;
    CUdeviceptr wrong; /* a word for each kind */
    void *blas;
    dev_batch_t pending; /* copies to verify after the free; count 0: none */
    CUstream pending_stream;
    bool is_cutting;  /* the newest group was of many parts of what was freed; else of few, joint blocks */
    int fill_at_once; /* the stream on which the next fill is programmatic; -1: none */
    fence_group_t *live[FENCE_LIVE];
    uint64_t recent[DEV_BATCH_MAX];   /* sizes of the group freed last */
    uint64_t kinds[FENCE_KIND_COUNT]; /* blocks, by their last user */
    uint64_t lifetimes, wanted;
    fence_log_t log;
} fence_worker_t;

extern const char *const fence_kind_names[FENCE_KIND_COUNT];

/* The streams and memory of a worker; the device is joined. streams: how many it makes beside legacy and
 * per-thread. */
void fence_worker_open(fence_worker_t *worker, unsigned streams, uint64_t slot_bytes);

/* cuBLAS by name, if it is there: false otherwise. */
bool fence_blas_open(fence_worker_t *worker);

/* A new thread has taken the worker over: its per-thread stream is another one. */
void fence_worker_resume(fence_worker_t *worker);

/* Waits for all streams of the worker. */
void fence_worker_sync(fence_worker_t *worker);

/* Later work of the group goes to that stream, behind the work so far. */
void fence_move(fence_worker_t *worker, fence_group_t *group, unsigned stream);

void fence_verify(fence_worker_t *worker, fence_group_t *group, fence_kind_t kind, uint64_t delay_us);

/* The last use; the group may be freed at once. fence_use_after() submits what does not touch its
 * blocks. */
void fence_use(fence_worker_t *worker, fence_group_t *group, fence_kind_t kind);
void fence_use_after(fence_worker_t *worker);

uint32_t fence_new_stream_id(void);

#endif /* CUP_TESTS_FENCE_USE_H */
