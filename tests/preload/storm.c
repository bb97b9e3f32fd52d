/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm - a law: whatever threads, streams, captures and contexts do, nobody meets the work of a block's last owner.
 * Usage:      storm OPERATIONS [THREADS [OPERATION...]]: those named are left out. CUP_SEED draws the program, SOFTCUDA_SEED the delays, CUPOLA_FREE says what
 *             may be expected of a free (unset: exact, as the driver's own).
 * What:       threads with streams of every kind fill, verify, copy, set and hand over blocks that they own, and free them
 *             with work in flight. It is a right program: work on a block is ordered by its stream, by events, or, where
 *             frees promise it, by a free in between. Natively it must pass as well.
 * Not here:   one behaviour at a time (order.c), what the host and other calls may expect of a free (gpu/debts.h).
 * Invariants: exit 0 only when every call succeeded, every capture came out, no word was wrong on the device or the host,
 *             and the overlap detector saw nothing.
 * Threads:    a worker's state belongs to the one thread that runs it; workers share the market, under its lock, and
 *             the stream SHARED. A thread ends with its phase, its worker goes on in another.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/softcuda/pattern.h"
#include "tests/support/rng.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX  16
#define PHASE_OPS    600 /* of one thread */
#define LIVE_MAX     24
#define MARKET_MAX   32
#define SLOTS        6
#define SLOT_BYTES   4096
#define GRAPHS       3
#define GRAPH_BLOCKS 3
#define SIZE_LOG2    17
#define HUGE_LOG2    22

#define CU(call) must((call), #call, __LINE__)

/* Streams of a worker. */
enum { LEGACY, PER_THREAD, SHARED, OWN, PLACES = OWN + 4 };

/* Or where a block was used last: */
enum {
    NOWHERE = -1,  /* by nobody, or all of it is done */
    BY_EVENT = -2, /* before its event */
    DOOMED = -3,   /* on a stream that is gone: all that can be done with it is to free it */
};

typedef struct block {
    CUdeviceptr base;
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

static uint64_t g_seed;
static bool g_is_kept; /* CUPOLA_FREE: a free orders other blocks' work, and pays for copies to the host */
static CUcontext g_primary;
static CUfunction g_fill, g_verify, g_copy;
static CUstream g_shared;
static _Atomic uint64_t g_host_wrong, g_operations;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the market */
static block_t *g_market[MARKET_MAX];
static int g_market_count;
static capture_t g_offer; /* a capture that anybody may end */

static void must(CUresult got, const char *call, int line)
{
    if (got == CUDA_SUCCESS)
        return;
    fprintf(stderr, "storm.c:%d: seed %llu: %s: %d\n", line, (unsigned long long)g_seed, call, (int)got);
    _Exit(1);
}

static uint64_t below(worker_t *w, uint64_t n)
{
    return cup_rng_below(&w->rng, n);
}

static bool one_in(worker_t *w, uint64_t n)
{
    return below(w, n) == 0;
}

/* ---- captures and calls that they refuse ---- */

/* Around calls that would disturb this thread's own capture. */
static CUstreamCaptureMode relax(const worker_t *w)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (w->capture.stream)
        CU(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static void unrelax(const worker_t *w, CUstreamCaptureMode mode)
{
    if (w->capture.stream)
        CU(cuThreadExchangeStreamCaptureMode(&mode));
}

/* ---- kernels ---- */

static void launch(CUfunction kernel, CUstream stream, void **params, bool is_programmatic)
{
    CUlaunchAttribute attr = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                              .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attr, 1};

    if (is_programmatic)
        CU(cuLaunchKernelEx(&config, kernel, params, NULL));
    else
        CU(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, bool is_programmatic)
{
    void *params[] = {&base, &bytes, &seed};

    launch(g_fill, stream, params, is_programmatic);
}

static void verify(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, CUdeviceptr wrong)
{
    void *params[] = {&base, &bytes, &seed, &wrong};

    if (bytes > 0)
        launch(g_verify, stream, params, false);
}

/* ---- streams and order ---- */

static int pick_place(worker_t *w)
{
    int place;

    if (w->phase->streams != ALL)
        return w->phase->streams == ONE ? w->phase->one : OWN;
    do {
        place = (int)below(w, PLACES);
    } while ((place == LEGACY && !w->phase->has_legacy) || (w->capture.stream && place == w->capture.place));
    return place;
}

static void fence(worker_t *w, block_t *block)
{
    if (block->at < 0)
        return;
    CU(cuEventRecord(block->event, w->place[block->at]));
    block->at = BY_EVENT;
}

/* What comes next on the place runs after the block's last work. */
static void order(worker_t *w, block_t *block, int place)
{
    bool is_ordered = block->at == place || block->at == NOWHERE || (g_is_kept && block->freed < w->freed);

    if (!is_ordered) {
        fence(w, block);
        CU(cuStreamWaitEvent(w->place[place], block->event, 0));
    }
    block->at = place;
    block->freed = w->freed;
}

/* Behind the last work of its blocks: those of a stream that is about to go, or to be left alone. */
static void leave_place(worker_t *w, int place, bool may_doom)
{
    for (int i = 0; i < w->count; i++) {
        block_t *block = w->live[i];

        if (block->at != place)
            continue;
        if (may_doom && block->pins == 0 && one_in(w, 2))
            block->at = DOOMED;
        else
            fence(w, block);
    }
}

static void create_own(worker_t *w, int place)
{
    if (place == OWN + 3)
        CU(cuStreamCreateWithPriority(&w->place[place], CU_STREAM_DEFAULT, -3));
    else if (place == OWN + 2)
        CU(cuStreamCreateWithPriority(&w->place[place], CU_STREAM_NON_BLOCKING, -1));
    else
        CU(cuStreamCreate(&w->place[place], place == OWN + 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

/* ---- pinned memory ---- */

/* The copy is over, or a free has promised so: the host looks at what came, and writes over what was read. */
static void settle_slot(slot_t *slot)
{
    if (slot->state == ARRIVING)
        atomic_fetch_add(&g_host_wrong, softcuda_verify_region(slot->host, slot->bytes, slot->seed));
    else if (slot->state == LEAVING)
        memset(slot->host, 0xEE, SLOT_BYTES);
    else if (slot->state == LOOKED_AT)
        REQUIRE(atomic_load(&slot->is_looked_at));
    slot->state = IDLE;
}

static void settle_slots(worker_t *w)
{
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &w->slot[i];

        if (slot->state != IDLE && !g_is_kept) {
            CUstreamCaptureMode mode = relax(w);
            CU(cuEventSynchronize(slot->event));
            unrelax(w, mode);
        }
        settle_slot(slot);
    }
}

static slot_t *find_slot(worker_t *w, uint64_t valid)
{
    slot_t *slot = &w->slot[below(w, SLOTS)];

    if (slot->state != IDLE || valid == 0)
        return NULL;
    slot->bytes = valid < SLOT_BYTES ? valid : SLOT_BYTES;
    return slot;
}

/* A free comes before anybody looks; where that does not do, an event. */
static void mark_slot(worker_t *w, slot_t *slot, int place)
{
    if (!g_is_kept)
        CU(cuEventRecord(slot->event, w->place[place]));
}

static void look_at_slot(void *arg)
{
    slot_t *slot = arg;

    atomic_fetch_add(&g_host_wrong, softcuda_verify_region(slot->host, slot->bytes, slot->seed));
    atomic_store(&slot->is_looked_at, true);
}

/* ---- blocks ---- */

static CUdeviceptr get_memory(worker_t *w, uint64_t bytes)
{
    CUstreamCaptureMode mode = relax(w);
    CUdeviceptr base = client_alloc(bytes);

    unrelax(w, mode);
    return base;
}

/* Everything that this thread submitted before is in order now, and what it copied has come. */
static void free_memory(worker_t *w, CUdeviceptr base)
{
    CUstreamCaptureMode mode = relax(w);

    CU(cuMemFree(base));
    unrelax(w, mode);
    w->freed += !w->phase || !w->phase->has_captures; /* beside captures no order is promised */
    if (g_is_kept)
        settle_slots(w);
}

static void free_block(worker_t *w, block_t *block)
{
    free_memory(w, block->base);
    CU(cuEventDestroy(block->event));
    free(block);
}

static void drop_block(worker_t *w, int index)
{
    block_t *block = w->live[index];

    w->live[index] = w->live[--w->count];
    free_block(w, block);
}

/* A block to work on; NULL. What can only be freed is. */
static block_t *pick_block(worker_t *w)
{
    int index;

    if (w->count == 0)
        return NULL;
    index = (int)below(w, (uint64_t)w->count);
    if (w->live[index]->at != DOOMED)
        return w->live[index];
    drop_block(w, index);
    return NULL;
}

static void fill_block(worker_t *w, block_t *block, bool is_programmatic)
{
    int place = pick_place(w);

    order(w, block, place);
    block->seed = cup_rng_next(&w->rng) | 1;
    block->valid = block->bytes;
    fill(w->place[place], block->base, block->bytes, block->seed, is_programmatic);
}

/* ---- operations: false when there was nothing to do ---- */

/* Mostly written at once, by a launch that may begin before what is in front of it has ended: that is not the block's. */
static bool op_alloc(worker_t *w)
{
    block_t *block;

    if (w->count == LIVE_MAX)
        return false;
    block = calloc(1, sizeof(*block));
    REQUIRE(block);
    block->bytes = cup_rng_size(&w->rng, one_in(w, 200) ? HUGE_LOG2 : SIZE_LOG2);
    block->base = get_memory(w, block->bytes);
    block->at = NOWHERE;
    CU(cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING));
    w->live[w->count++] = block;
    if (!one_in(w, 4))
        fill_block(w, block, one_in(w, 2));
    return true;
}

/* Often looked at just before. */
static bool op_free(worker_t *w)
{
    int index = w->count > 0 ? (int)below(w, (uint64_t)w->count) : 0;
    block_t *block = w->live[index];

    if (w->count == 0 || block->pins > 0)
        return false;
    if (block->at != DOOMED && one_in(w, 2)) {
        int place = pick_place(w);

        order(w, block, place);
        verify(w->place[place], block->base, block->valid, block->seed, w->wrong);
    }
    drop_block(w, index);
    return true;
}

static bool op_fill(worker_t *w)
{
    block_t *block = pick_block(w);

    if (block)
        fill_block(w, block, false);
    return block != NULL;
}

static bool op_verify(worker_t *w)
{
    block_t *block = pick_block(w);
    int place = pick_place(w);

    if (!block)
        return false;
    order(w, block, place);
    verify(w->place[place], block->base, block->valid, block->seed, w->wrong);
    return block->valid > 0;
}

static bool op_set(worker_t *w)
{
    block_t *block = pick_block(w);
    int place = pick_place(w);

    if (!block)
        return false;
    order(w, block, place);
    CU(cuMemsetD8Async(block->base, 0x5A, block->bytes, w->place[place]));
    block->valid = 0;
    return true;
}

static bool op_copy(worker_t *w)
{
    block_t *from = pick_block(w), *to = from ? pick_block(w) : NULL;
    int place = pick_place(w);
    uint64_t bytes;

    if (!to || from == to || from->valid == 0)
        return false;
    order(w, from, place);
    order(w, to, place);
    bytes = from->valid < to->bytes ? from->valid : to->bytes;
    if (one_in(w, 2)) {
        void *params[] = {&to->base, &from->base, &bytes};
        launch(g_copy, w->place[place], params, false);
    } else {
        CU(cuMemcpyDtoDAsync(to->base, from->base, bytes, w->place[place]));
    }
    to->valid = bytes;
    to->seed = from->seed;
    return true;
}

static bool op_to_host(worker_t *w)
{
    block_t *block = pick_block(w);
    slot_t *slot = block ? find_slot(w, block->valid) : NULL;
    int place = pick_place(w);

    if (!slot)
        return false;
    order(w, block, place);
    slot->seed = block->seed;
    slot->state = ARRIVING;
    CU(cuMemcpyDtoHAsync(slot->host, block->base, slot->bytes, w->place[place]));
    if (one_in(w, 3)) {
        slot->state = LOOKED_AT;
        atomic_store(&slot->is_looked_at, false);
        CU(cuLaunchHostFunc(w->place[place], look_at_slot, slot));
    }
    mark_slot(w, slot, place);
    return true;
}

static bool op_from_host(worker_t *w)
{
    block_t *block = pick_block(w);
    slot_t *slot = block ? find_slot(w, block->bytes) : NULL;
    int place = pick_place(w);

    if (!slot)
        return false;
    order(w, block, place);
    block->seed = cup_rng_next(&w->rng) | 1;
    block->valid = slot->bytes;
    for (uint64_t i = 0; i < (slot->bytes + 7) / 8; i++)
        ((uint64_t *)slot->host)[i] = softcuda_fill_word(block->seed, i);
    slot->state = LEAVING;
    CU(cuMemcpyHtoDAsync(block->base, slot->host, slot->bytes, w->place[place]));
    mark_slot(w, slot, place);
    return true;
}

/* Natively a synchronous copy is one on the legacy stream. */
static bool op_sync_copy(worker_t *w)
{
    block_t *block = w->phase->has_legacy ? pick_block(w) : NULL;
    unsigned char host[256];
    uint64_t bytes;
    CUstreamCaptureMode mode;

    if (!block || block->valid == 0)
        return false;
    order(w, block, LEGACY);
    bytes = block->valid < sizeof(host) ? block->valid : sizeof(host);
    mode = relax(w);
    CU(cuMemcpyDtoH(host, block->base, bytes));
    unrelax(w, mode);
    block->at = NOWHERE;
    atomic_fetch_add(&g_host_wrong, softcuda_verify_region(host, bytes, block->seed));
    return true;
}

/* Now and then everybody waits: a host that runs ahead without end would only fill launch queues. */
static bool op_wait(worker_t *w)
{
    CUstreamCaptureMode mode;

    if (softcuda_unfinished() < 20 + below(w, 400))
        return false;
    mode = relax(w);
    CU(cuStreamSynchronize(w->place[pick_place(w)]));
    unrelax(w, mode);
    return true;
}

static bool op_settle(worker_t *w)
{
    if (!g_is_kept)
        settle_slots(w);
    return !g_is_kept;
}

static bool op_query(worker_t *w)
{
    block_t *block = pick_block(w);
    CUstreamCaptureMode mode = relax(w);
    CUresult got =
        block && block->at == BY_EVENT ? cuEventQuery(block->event) : cuStreamQuery(w->place[pick_place(w)]);

    unrelax(w, mode);
    if (got != CUDA_ERROR_NOT_READY)
        CU(got);
    return true;
}

/* With work in flight. */
static bool op_destroy_stream(worker_t *w)
{
    int place = OWN + (int)below(w, PLACES - OWN);

    if (w->capture.stream && w->capture.place == place)
        return false;
    leave_place(w, place, true);
    CU(cuStreamDestroy(w->place[place]));
    create_own(w, place);
    return true;
}

static bool op_give(worker_t *w)
{
    block_t *block = pick_block(w);

    if (!block || block->pins > 0)
        return false;
    fence(w, block);
    pthread_mutex_lock(&g_lock);
    for (int i = 0; g_market_count < MARKET_MAX && i < w->count; i++)
        if (w->live[i] == block) {
            g_market[g_market_count++] = block;
            w->live[i] = w->live[--w->count];
            break;
        }
    pthread_mutex_unlock(&g_lock);
    return true;
}

/* The frees of others are no help here: what is in order for the new owner is what its own frees order. */
static bool op_take(worker_t *w)
{
    block_t *block = NULL;

    pthread_mutex_lock(&g_lock);
    if (g_market_count > 0 && w->count < LIVE_MAX)
        block = g_market[--g_market_count];
    pthread_mutex_unlock(&g_lock);
    if (!block)
        return false;
    block->freed = w->freed;
    w->live[w->count++] = block;
    if (one_in(w, 2))
        drop_block(w, w->count - 1);
    return true;
}

/* ---- captures ---- */

static void fork_and_join(worker_t *w, const capture_t *capture, int index)
{
    CU(cuEventRecord(w->fork, capture->stream));
    CU(cuStreamWaitEvent(w->branch, w->fork, 0));
    verify(w->branch, capture->block[index]->base, capture->block[index]->bytes, capture->seed[index],
           w->wrong);
    CU(cuEventRecord(w->join, w->branch));
    CU(cuStreamWaitEvent(capture->stream, w->join, 0));
}

static void step_capture(worker_t *w, capture_t *capture)
{
    int index = (int)below(w, (uint64_t)capture->count);
    const block_t *block = capture->block[index];

    capture->steps--;
    if (capture->seed[index] == 0 || one_in(w, 2)) {
        capture->seed[index] = cup_rng_next(&w->rng) | 1;
        fill(capture->stream, block->base, block->bytes, capture->seed[index], false);
    } else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && one_in(w, 3)) {
        fork_and_join(
            w, capture,
            index); /* the branch belongs to the capture until it ends, so not where others end it */
    } else {
        verify(capture->stream, block->base, block->bytes, capture->seed[index], w->wrong);
    }
}

static graph_t *find_graph(worker_t *w, bool is_there)
{
    for (int i = 0; i < GRAPHS; i++)
        if ((w->graph[i].exec != NULL) == is_there)
            return &w->graph[i];
    return NULL;
}

static void drop_graph(graph_t *graph)
{
    CU(cuGraphExecDestroy(graph->exec));
    for (int i = 0; i < graph->count; i++)
        graph->block[i]->pins--;
    *graph = (graph_t){NULL};
}

static void end_capture(worker_t *w, capture_t *capture)
{
    graph_t *made = find_graph(w, false);
    CUgraph graph = NULL;

    step_capture(w, capture);
    CU(cuStreamEndCapture(capture->stream, &graph));
    REQUIRE(graph);
    if (!made)
        drop_graph(made = &w->graph[below(w, GRAPHS)]);
    CU(cuGraphInstantiateWithFlags(&made->exec, graph, 0));
    CU(cuGraphDestroy(graph));
    made->count = capture->count;
    memcpy(made->block, capture->block, sizeof(made->block));
    memcpy(made->seed, capture->seed, sizeof(made->seed));
    if (capture->place < 0)
        CU(cuStreamDestroy(capture->stream));
    *capture = (capture_t){NULL};
}

/* The stream goes, and the capture with it: nothing of it ever runs. */
static void abandon_capture(capture_t *capture)
{
    for (int i = 0; i < capture->count; i++)
        capture->block[i]->pins--;
    CU(cuStreamDestroy(capture->stream));
    *capture = (capture_t){NULL};
}

static CUstreamCaptureMode pick_mode(worker_t *w)
{
    return w->phase->has_globals ? (CUstreamCaptureMode)below(w, 3)
                                 : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL + (CUstreamCaptureMode)below(w, 2);
}

/* On a stream with work in flight, or on one that only captures. */
static void pick_capture_stream(worker_t *w, capture_t *capture)
{
    capture->place = w->phase->streams == ALL && one_in(w, 2) ? OWN + 2 + (int)below(w, 2) : -1;
    if (capture->place == OWN + 3 && w->phase->has_legacy)
        capture->place = -1;
    if (capture->place >= 0) {
        leave_place(w, capture->place, false);
        capture->stream = w->place[capture->place];
    } else {
        bool is_blocking = !w->phase->has_legacy && one_in(w, 2);
        CU(cuStreamCreate(&capture->stream, is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
}

static bool op_capture(worker_t *w)
{
    capture_t capture = {.mode = pick_mode(w), .steps = 1 + (int)below(w, 8)};

    if (!w->phase->has_captures || w->capture.stream)
        return false;
    for (int tries = 0; tries < GRAPH_BLOCKS; tries++) {
        block_t *block = pick_block(w);

        if (block && block->pins == 0 && block->bytes <= (1u << SIZE_LOG2)) {
            block->pins++;
            capture.block[capture.count++] = block;
        }
    }
    if (capture.count == 0)
        return false;
    pick_capture_stream(w, &capture);
    CU(cuStreamBeginCapture(capture.stream, capture.mode));
    w->capture = capture;
    return true;
}

/* Left for whoever comes: its blocks go with it. */
static bool offer_capture(worker_t *w)
{
    capture_t *capture = &w->capture;
    bool is_offered = false;

    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED || capture->place >= 0)
        return false;
    for (int i = 0; i < capture->count; i++)
        fence(w, capture->block[i]);
    pthread_mutex_lock(&g_lock);
    is_offered = !g_offer.stream;
    if (is_offered)
        g_offer = *capture;
    pthread_mutex_unlock(&g_lock);
    if (!is_offered)
        return false;
    for (int i = w->count - 1; i >= 0; i--)
        for (int k = 0; k < capture->count; k++)
            if (w->live[i] == capture->block[k]) {
                w->live[i] = w->live[--w->count];
                break;
            }
    *capture = (capture_t){NULL};
    return true;
}

static bool op_go_on_capturing(worker_t *w)
{
    if (!w->capture.stream)
        return false;
    if (w->capture.steps > 0)
        step_capture(w, &w->capture);
    else if (w->capture.place < 0 && one_in(w, 8))
        abandon_capture(&w->capture);
    else if (!one_in(w, 3) || !offer_capture(w))
        end_capture(w, &w->capture);
    return true;
}

static bool op_end_offered(worker_t *w)
{
    capture_t capture;

    if (w->count + GRAPH_BLOCKS > LIVE_MAX)
        return false;
    pthread_mutex_lock(&g_lock);
    capture = g_offer;
    g_offer = (capture_t){NULL};
    pthread_mutex_unlock(&g_lock);
    if (!capture.stream)
        return false;
    for (int i = 0; i < capture.count; i++) {
        w->live[w->count++] = capture.block[i];
        capture.block[i]->freed = w->freed;
    }
    end_capture(w, &capture);
    return true;
}

static bool op_launch_graph(worker_t *w)
{
    graph_t *graph = find_graph(w, true);
    int place = pick_place(w);

    if (!graph)
        return false;
    for (int i = 0; i < graph->count; i++) {
        order(w, graph->block[i], place);
        if (graph->seed[i] == 0)
            continue;
        graph->block[i]->seed = graph->seed[i];
        graph->block[i]->valid = graph->block[i]->bytes;
    }
    CU(cuGraphLaunch(graph->exec, w->place[place]));
    if (graph->launches++ == 3 || one_in(w, 3))
        drop_graph(graph); /* in flight */
    return true;
}

/* ---- a second context ---- */

/* A block of the first context, just allocated there, is written by a stream of the second. */
static void borrow(worker_t *w, CUstream stream)
{
    CUdeviceptr block;

    CU(cuCtxPushCurrent(g_primary));
    block = client_alloc(4096);
    CU(cuCtxPopCurrent(NULL));
    CU(cuMemsetD8Async(block, 1, 4096, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuCtxPushCurrent(g_primary));
    free_memory(w, block);
    CU(cuCtxPopCurrent(NULL));
}

static bool op_visit(worker_t *w)
{
    CUdeviceptr block[4] = {0};
    CUcontext context;
    CUstream stream[3] = {CU_STREAM_LEGACY};

    if (w->capture.stream || !one_in(w, 8))
        return false;
    CU(cuCtxCreate_v4(&context, NULL, 0, 0));
    CU(cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&stream[2], CU_STREAM_DEFAULT));
    for (int i = 0; i < 40; i++) {
        CUdeviceptr *at = &block[below(w, 4)];

        if (!*at) {
            *at = client_alloc(1024);
            CU(cuMemsetD8Async(*at, 2, 1024, stream[below(w, 3)]));
        } else {
            CU(cuMemFree(*at));
            *at = 0;
        }
    }
    borrow(w, stream[1]);
    CU(cuCtxDestroy(context)); /* and its memory, with work in flight */
    return true;
}

/* ---- a worker ---- */

static bool op_nothing(worker_t *w)
{
    return false;
}

/* X(operation, weight): what is drawn. */
#define OPS(X)            \
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
    X(go_on_capturing, 8) \
    X(end_offered, 2)     \
    X(launch_graph, 6)    \
    X(visit, 1)

static struct {
    const char *name;
    bool (*run)(worker_t *);
    unsigned weight;
    _Atomic uint64_t done;
} g_op[] = {
#define X(name, weight) {#name, op_##name, weight, 0},
    OPS(X)
#undef X
};

enum {
#define X(name, weight) +weight
    WEIGHTS = 0 OPS(X)
#undef X
};

/* To find out what a failure needs. */
static void leave_out(const char *name)
{
    bool is_found = false;

    for (size_t i = 0; i < sizeof(g_op) / sizeof(g_op[0]); i++)
        if (strcmp(g_op[i].name, name) == 0) {
            is_found = true;
            g_op[i].run = op_nothing;
        }
    REQUIRE(is_found);
}

static void run_one(worker_t *w)
{
    uint64_t draw = below(w, WEIGHTS);
    size_t i = 0;

    while (draw >= g_op[i].weight)
        draw -= g_op[i++].weight;
    if (!g_op[i].run(w))
        return;
    atomic_fetch_add_explicit(&g_op[i].done, 1, memory_order_relaxed);
    w->done++;
}

/* Its streams stay, but for the thread's own. */
static void *run_worker(void *arg)
{
    worker_t *w = arg;
    bool is_relaxed = one_in(w, 2), is_local = w->phase->has_globals || one_in(w, 2);
    CUstreamCaptureMode mode = is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                               : is_local ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                          : CU_STREAM_CAPTURE_MODE_GLOBAL;

    CU(cuCtxSetCurrent(g_primary));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    for (w->done = 0; w->done < w->quota && softcuda_violations() == 0;)
        run_one(w);
    while (w->capture.stream)
        op_go_on_capturing(w);
    leave_place(w, PER_THREAD, true);
    leave_place(w, LEGACY, false); /* the next phase may be one without */
    atomic_fetch_add(&g_operations, w->done);
    return NULL;
}

static void create_worker(worker_t *w, uint64_t number)
{
    w->rng.state = g_seed * 1000003 + number;
    w->place[LEGACY] = CU_STREAM_LEGACY;
    w->place[PER_THREAD] = CU_STREAM_PER_THREAD;
    w->place[SHARED] = g_shared;
    for (int place = OWN; place < PLACES; place++)
        create_own(w, place);
    CU(cuStreamCreate(&w->branch, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&w->fork, CU_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&w->join, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < SLOTS; i++) {
        CU(cuMemAllocHost(&w->slot[i].host, SLOT_BYTES));
        CU(cuEventCreate(&w->slot[i].event, CU_EVENT_DISABLE_TIMING));
    }
    w->wrong = get_memory(w, sizeof(uint64_t));
    CU(cuMemsetD32(w->wrong, 0, 2));
    CU(cuCtxSynchronize());
}

/* Frees all that it has; returns its wrong words. */
static uint64_t end_worker(worker_t *w)
{
    uint64_t wrong;

    w->phase = NULL;
    for (int i = 0; i < GRAPHS; i++)
        if (w->graph[i].exec)
            drop_graph(&w->graph[i]);
    while (w->count > 0)
        drop_block(w, w->count - 1);
    settle_slots(w);
    for (int place = OWN; place < PLACES; place++)
        CU(cuStreamDestroy(w->place[place]));
    CU(cuStreamDestroy(w->branch));
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH(&wrong, w->wrong, sizeof(wrong)));
    free_memory(w, w->wrong);
    return wrong;
}

/* ---- phases ---- */

static phase_t draw_phase(cup_rng_t *rng)
{
    uint64_t draw = cup_rng_next(rng);
    phase_t phase = {.streams = draw % 4 == 0 ? ONE : draw % 4 == 1 ? OWN_ONE : ALL};

    phase.one = draw >> 8 & 1 ? LEGACY : SHARED;
    phase.has_legacy = phase.streams == ONE ? phase.one == LEGACY : phase.streams == ALL && (draw >> 9 & 1);
    phase.has_captures = draw >> 10 & 1;
    phase.has_globals = phase.has_captures && (draw >> 11 & 1);
    return phase;
}

/* A capture that nobody has ended. */
static void end_offer(worker_t *w)
{
    while (g_offer.stream && !op_end_offered(w))
        for (int i = 0; i < w->count; i++)
            if (w->live[i]->pins == 0)
                drop_block(w, i--);
}

static void run_phase(worker_t *workers, unsigned threads, cup_rng_t *rng)
{
    phase_t phase = draw_phase(rng);

    for (unsigned i = 0; i < threads; i++) {
        workers[i].phase = &phase;
        workers[i].quota = PHASE_OPS / 4 + cup_rng_below(rng, PHASE_OPS * 3 / 2);
        REQUIRE(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++)
        REQUIRE(pthread_join(workers[i].thread, NULL) == 0);
    end_offer(&workers[0]);
    for (unsigned i = 0; i < threads; i++)
        workers[i].phase = NULL;
}

static void open_storm(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const char *kept = getenv("CUPOLA_FREE");
    CUmodule module;

    g_is_kept = !kept || strcmp(kept, "exact") == 0 || strcmp(kept, "sync") == 0;
    client_open();
    g_fill = client_fill_kernel;
    CU(cuCtxGetCurrent(&g_primary));
    CU(cuModuleLoadData(&module, "softcuda\nverify\ncopy\n"));
    CU(cuModuleGetFunction(&g_verify, module, "verify"));
    CU(cuModuleGetFunction(&g_copy, module, "copy"));
    CU(cuStreamCreate(&g_shared, g_seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(double seconds, uint64_t wrong)
{
    for (size_t i = 0; i < sizeof(g_op) / sizeof(g_op[0]); i++)
        printf("%s%s %llu", i > 0 ? ", " : "", g_op[i].name, (unsigned long long)atomic_load(&g_op[i].done));
    printf("\n%llu operations, %.0f a second; %llu claims of blocks in flight; %llu violations, %llu wrong "
           "words on the "
           "device, %llu on the host\n",
           (unsigned long long)atomic_load(&g_operations), (double)atomic_load(&g_operations) / seconds,
           (unsigned long long)softcuda_claims_in_flight(), (unsigned long long)softcuda_violations(),
           (unsigned long long)wrong, (unsigned long long)atomic_load(&g_host_wrong));
}

int main(int argc, char **argv)
{
    static worker_t workers[THREADS_MAX];
    uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, wrong = 0;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    double begun_s = now_s();
    cup_rng_t rng;

    g_seed = cup_rng_seed(1);
    rng.state = g_seed;
    if (threads == 0)
        threads = 1 + (unsigned)cup_rng_below(&rng, 8);
    REQUIRE(operations > 0 && threads <= THREADS_MAX);
    printf("seed %llu, %u threads\n", (unsigned long long)g_seed, threads);
    fflush(stdout);
    open_storm();
    for (int i = 3; i < argc; i++)
        leave_out(argv[i]);
    for (unsigned i = 0; i < threads; i++)
        create_worker(&workers[i], i);
    while (atomic_load(&g_operations) < operations && softcuda_violations() == 0)
        run_phase(workers, threads, &rng);
    while (g_market_count > 0)
        free_block(&workers[0], g_market[--g_market_count]);
    for (unsigned i = 0; i < threads; i++)
        wrong += end_worker(&workers[i]);
    report(now_s() - begun_s, wrong);
    return softcuda_violations() != 0 || wrong != 0 || atomic_load(&g_host_wrong) != 0;
}
