/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm - what the parts of the storm share: workers, their streams and blocks, what they do.
 * What:       the types; storm_block.c has order between streams, memory and what comes to the host, storm_work.c the
 *             operations, storm_capture.c those on captures and graphs, storm.c the threads and the phases.
 * Not here:   anything of cupola's.
 * Threads:    a worker's state belongs to the one thread that runs it. Workers share the market and the offered capture,
 *             under g_storm.lock, and the stream SHARED.
 */
#ifndef CUP_TESTS_PRELOAD_STORM_H
#define CUP_TESTS_PRELOAD_STORM_H
#include "tests/preload/client.h"
#include "tests/support/rng.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define THREADS_MAX  16
#define PHASE_OPS    600 /* of one thread */
#define LIVE_MAX     24
#define MARKET_MAX   32
#define SLOTS        6
#define SLOT_BYTES   4096
#define GRAPHS       3
#define GRAPH_BLOCKS 3
#define SIZE_LOG2    17
#define HUGE_LOG2    24

#define CU(call) storm_must((call), #call, __FILE__, __LINE__)

/* Streams of a worker. */
enum { LEGACY, PER_THREAD, SHARED, OWN, PLACES = OWN + 4 };

/* Or where a block was used last: */
enum {
    NOWHERE = -1,  /* by nobody, or all of it is done */
    BY_EVENT = -2, /* before its event */
    DOOMED = -3,   /* on a stream that is gone: all that can be done with it is to free it */
};

typedef struct block {
    CUdeviceptr memory;
    CUdeviceptr base;      /* of the part that is worked on: small, for the sake of time */
    uint64_t bytes, valid; /* the first `valid` bytes hold the pattern of `seed` */
    uint64_t seed;
    CUevent event;
    int at;
    uint64_t freed; /* the owner's frees that order, when it was used last */
    int pins;       /* graphs that use it */
} block_t;

/* Pinned memory, and the copy that is under way there. */
typedef struct slot {
    enum { IDLE, ARRIVING, LEAVING, LOOKED_AT } state;
    void *host;
    uint64_t bytes, seed;
    CUevent event;
    atomic_bool is_looked_at; /* by a host function, behind the copy */
} slot_t;

typedef struct capture {
    CUstream stream; /* NULL: none */
    CUstreamCaptureMode mode;
    int place; /* or -1: the stream is the capture's own */
    block_t *block[GRAPH_BLOCKS];
    uint64_t seed[GRAPH_BLOCKS]; /* what it will hold; 0: nothing yet */
    int count, steps;
} capture_t;

typedef struct graph {
    CUgraphExec exec; /* NULL: none */
    block_t *block[GRAPH_BLOCKS];
    uint64_t seed[GRAPH_BLOCKS];
    int count, launches;
} graph_t;

typedef struct phase {
    enum { ONE, OWN_ONE, ALL } streams;
    int one;         /* the place, for ONE */
    bool has_legacy; /* then blocking streams don't capture */
    bool has_captures;
    bool has_globals; /* then no thread is in the global mode */
} phase_t;

typedef struct worker {
    cup_rng_t rng;
    pthread_t thread;
    const phase_t *phase;
    CUstream place[PLACES];
    CUstream branch; /* only ever joins captures */
    CUevent fork, join;
    block_t *live[LIVE_MAX];
    int count;
    slot_t slot[SLOTS];
    capture_t capture;
    graph_t graph[GRAPHS];
    CUdeviceptr wrong; /* a device word */
    uint64_t freed;    /* frees after which what came before is in order */
    uint64_t quota, done;
} worker_t;

/* Of the whole program. */
typedef struct storm {
    uint64_t seed;
    bool is_kept; /* CUPOLA_FREE: a free orders other blocks' work, and pays for copies to the host */
    CUcontext primary;
    CUfunction fill, verify, copy;
    CUstream shared;
    _Atomic uint64_t host_wrong, operations;
    pthread_mutex_t lock; /* guards what follows */
    block_t *market[MARKET_MAX];
    int market_count;
    capture_t offer; /* a capture that anybody may end */
} storm_t;

extern storm_t g_storm;

/* A call that has to succeed. */
void storm_must(CUresult got, const char *call, const char *file, int line);

static inline uint64_t below(worker_t *w, uint64_t n)
{
    return cup_rng_below(&w->rng, n);
}

static inline bool one_in(worker_t *w, uint64_t n)
{
    return below(w, n) == 0;
}

/* Around calls that would disturb this thread's own capture. */
static inline CUstreamCaptureMode relax(const worker_t *w)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (w->capture.stream)
        CU(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static inline void unrelax(const worker_t *w, CUstreamCaptureMode mode)
{
    if (w->capture.stream)
        CU(cuThreadExchangeStreamCaptureMode(&mode));
}

/* ---- storm_block.c ---- */

void storm_launch(CUfunction kernel, CUstream stream, void **params, bool is_programmatic);
void storm_fill(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, bool is_programmatic);
void storm_verify(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, CUdeviceptr wrong);

int storm_pick_place(worker_t *w);
void storm_create_own(worker_t *w, int place);

/* What comes after the block's last work has its event to wait for. */
void storm_fence(worker_t *w, block_t *block);

/* What comes next on the place runs after the block's last work. */
void storm_order(worker_t *w, block_t *block, int place);

/* Fences the blocks of a stream that is about to go, or to be left alone; with may_doom some are given up instead. */
void storm_leave_place(worker_t *w, int place, bool may_doom);

/* A pinned buffer for a copy of up to `bytes`; NULL when the dice name one that is in use. */
slot_t *storm_find_slot(worker_t *w, uint64_t bytes);

/* Behind the copy, which went to the place. */
void storm_mark_slot(worker_t *w, slot_t *slot, int place);

/* Looks at what came, and overwrites what was read: all, after a free that promises it; else where the copy is over. */
void storm_settle_slots(worker_t *w);

CUdeviceptr storm_get_memory(worker_t *w, uint64_t bytes);
void storm_free_memory(worker_t *w, CUdeviceptr base);
void storm_free_block(worker_t *w, block_t *block);
void storm_drop_block(worker_t *w, int index);

/* A block to work on, or NULL. One that can only be freed is. */
block_t *storm_pick_block(worker_t *w);

void storm_fill_block(worker_t *w, block_t *block, bool is_programmatic);

/* A host function: arg is a slot. */
void storm_look_at_slot(void *arg);

/* ---- storm_capture.c ---- */

void storm_drop_graph(graph_t *graph);

/* ---- operations: false when there was nothing to do ---- */

/* X(operation, weight): what is drawn. */
#define STORM_OPS(X)      \
    X(alloc, 16)          \
    X(free, 14)           \
    X(fill, 12)           \
    X(verify, 12)         \
    X(set, 5)             \
    X(copy, 8)            \
    X(to_host, 5)         \
    X(from_host, 5)       \
    X(sync_copy, 1)       \
    X(wait, 4)            \
    X(settle, 2)          \
    X(query, 1)           \
    X(destroy_stream, 1)  \
    X(give, 4)            \
    X(take, 5)            \
    X(capture, 1)         \
    X(capture_busy, 1)    \
    X(go_on_capturing, 8) \
    X(end_offered, 2)     \
    X(launch_graph, 6)    \
    X(visit, 1)

#define X(name, weight) bool storm_op_##name(worker_t *w);
STORM_OPS(X)
#undef X

#endif /* CUP_TESTS_PRELOAD_STORM_H */
