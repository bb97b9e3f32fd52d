/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts_law - a law: whatever contexts begin and end meanwhile, the blocks of those that live are right.
 * Usage:      contexts_law STEPS [THREADS]: 0 threads: as many as the dice say. CUP_SEED draws the program.
 *             On a real driver, too: there a context takes its time, and 2,000 steps are many; exit 77
 *             without a device.
 * What:       threads make contexts, allocate, write, verify and free in them and in the primary one, and
 *             end them with blocks and work left over, while all hold and release references on the primary
 *             context. One thread alone also resets the primary context, and frees what died. The model is
 *             each block's pattern, and who owns it. Visits are calls in a context that another thread may
 *             be ending: they may fail, and harm nobody.
 * Invariants: exit 0 only when every call of the model gave the code that it says, no byte was wrong, no
 *             two live blocks met, and, on the software driver, the overlap detector saw nothing and all
 *             memory went. Natively it must pass as well.
 * Threads:    a worker's contexts and blocks are its own; g_open is shared, under g_lock.
 */
#define _GNU_SOURCE
#include "tests/softcuda/claim.h"
#include "tests/support/require.h"
#include "tests/support/rng.h"
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREADS_MAX 8
#define OWN_MAX     3
#define BLOCKS_MAX  24
#define DEAD_MAX    64
#define VERIFIED    64 /* bytes of a block that are looked at */

#define OK(call) law_must((call), #call, __LINE__)

typedef struct block {
    CUdeviceptr base;
    uint64_t bytes;
    unsigned char value; /* of its first VERIFIED bytes */
} block_t;

typedef struct house {
    CUcontext ctx; /* NULL: none */
    CUstream stream;
    block_t block[BLOCKS_MAX];
    int count;
} house_t;

typedef struct worker {
    pthread_t thread;
    cup_rng_t rng;
    house_t own[OWN_MAX];
    house_t primary; /* the blocks that it has there */
    CUdeviceptr dead[DEAD_MAX];
    int dead_count;
    int references; /* on the primary context, beside the program's first */
    uint64_t steps;
} worker_t;

static uint64_t g_seed;
static bool g_is_tight;           /* LAW_TIGHT: an allocation may find no memory */
static _Atomic uint64_t g_allocs; /* of the model */
static bool g_is_alone;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext g_open[THREADS_MAX * OWN_MAX]; /* guarded by g_lock: contexts that may be visited */
static worker_t g_worker[THREADS_MAX];

static void law_must(CUresult got, const char *call, int line)
{
    if (got == CUDA_SUCCESS)
        return;
    fprintf(stderr, "contexts_law.c:%d: seed %llu: %s: %d\n", line, (unsigned long long)g_seed, call,
            (int)got);
    _Exit(1);
}

/* Driver calls that allocate, as the software driver counts them; 0 on a real one. */
static uint64_t driver_calls(void)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "softcuda_calls");

    return calls ? calls("cuMemAlloc_v2") + calls("cuMemCreate") : 0;
}

/* A counter of the software driver; 0 on a real one. */
static uint64_t soft(const char *name)
{
    uint64_t (*counter)(void) = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, name);

    return counter ? counter() : 0;
}

static uint64_t below(worker_t *w, uint64_t n)
{
    return cup_rng_below(&w->rng, n);
}

/* ---- a house and its blocks ---- */

static void enter(const house_t *house)
{
    OK(cuCtxSetCurrent(house->ctx));
}

static bool is_apart(const house_t *house, CUdeviceptr base, uint64_t bytes)
{
    for (int i = 0; i < house->count; i++)
        if (base < house->block[i].base + house->block[i].bytes && house->block[i].base < base + bytes)
            return false;
    return true;
}

static void add_block(worker_t *w, house_t *house)
{
    block_t *block = &house->block[house->count];
    CUresult result;

    if (house->count == BLOCKS_MAX)
        return;
    block->bytes = VERIFIED + cup_rng_size(&w->rng, g_is_tight ? 23 : 20);
    block->value = (unsigned char)below(w, 256);
    enter(house);
    result = cuMemAlloc(&block->base, block->bytes);
    if (g_is_tight && result == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    OK(result);
    atomic_fetch_add(&g_allocs, 1);
    softcuda_claim_block(block->base, block->bytes);
    for (int i = 0; i < OWN_MAX; i++)
        REQUIRE(!w->own[i].ctx || is_apart(&w->own[i], block->base, block->bytes));
    REQUIRE(is_apart(&w->primary, block->base, block->bytes));
    OK(cuMemsetD8Async(block->base, block->value, VERIFIED, house->stream));
    house->count++;
}

static void verify_block(const house_t *house, const block_t *block)
{
    unsigned char got[VERIFIED];

    enter(house);
    OK(cuStreamSynchronize(house->stream));
    OK(cuMemcpyDtoH(got, block->base, VERIFIED));
    for (int i = 0; i < VERIFIED; i++)
        REQUIRE(got[i] == block->value);
}

/* With whatever context current, or none, and work in flight. */
static void drop_block(worker_t *w, house_t *house)
{
    int i = (int)below(w, (uint64_t)house->count);
    block_t block = house->block[i];

    if (below(w, 3) == 0)
        OK(cuCtxSetCurrent(below(w, 2) ? w->primary.ctx : NULL));
    OK(cuMemFree(block.base));
    house->block[i] = house->block[--house->count];
}

/* ---- contexts ---- */

static void open_house(worker_t *w, house_t *house)
{
    OK(cuCtxCreate_v4(&house->ctx, NULL, 0, 0));
    OK(cuStreamCreate(&house->stream, below(w, 2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuCtxPopCurrent(NULL));
    house->count = 0;
    pthread_mutex_lock(&g_lock);
    g_open[(house - w->own) + (w - g_worker) * OWN_MAX] = house->ctx;
    pthread_mutex_unlock(&g_lock);
}

/* What it had is dead: never to be freed, nor to be met again as it was. */
static void bury(worker_t *w, house_t *house)
{
    for (int i = 0; i < house->count; i++)
        w->dead[w->dead_count++ % DEAD_MAX] = house->block[i].base;
    house->count = 0;
}

static void close_house(worker_t *w, house_t *house)
{
    pthread_mutex_lock(&g_lock);
    g_open[(house - w->own) + (w - g_worker) * OWN_MAX] = NULL; /* visitors may still be there */
    pthread_mutex_unlock(&g_lock);
    OK(cuCtxDestroy(house->ctx));
    enter(&w->primary);
    bury(w, house);
    house->ctx = NULL;
}

/* While its owner can't end it: both calls succeed. */
static void visit_safely(worker_t *w, const CUcontext *open)
{
    CUdeviceptr base;

    pthread_mutex_lock(&g_lock);
    if (*open) {
        OK(cuCtxSetCurrent(*open));
        if (cuMemAlloc(&base, 256 + below(w, 100000)) == CUDA_SUCCESS)
            OK(cuMemFree(base));
        else
            REQUIRE(g_is_tight);
    }
    pthread_mutex_unlock(&g_lock);
}

/*
 * While its owner may be ending it: errors, or blocks that die with it. They are not freed: they may be
 * others' by then.
 */
static void visit_rashly(worker_t *w, const CUcontext *open)
{
    CUdeviceptr base;
    CUcontext ctx;

    pthread_mutex_lock(&g_lock);
    ctx = *open;
    pthread_mutex_unlock(&g_lock);
    if (!ctx || cuCtxSetCurrent(ctx) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < 4; i++)
        cuMemAlloc(&base, 256 + below(w, 100000));
}

static void visit(worker_t *w)
{
    const CUcontext *open = &g_open[below(w, THREADS_MAX * OWN_MAX)];

    if (below(w, 2))
        visit_safely(w, open);
    else
        visit_rashly(w, open);
    enter(&w->primary);
}

static void refer(worker_t *w)
{
    CUcontext same;

    if (w->references == 0 || (w->references < 4 && below(w, 2))) {
        OK(cuDevicePrimaryCtxRetain(&same, 0));
        REQUIRE(same == w->primary.ctx);
        w->references++;
    } else {
        OK(cuDevicePrimaryCtxRelease(0));
        w->references--;
    }
}

/* One thread alone: everything in the primary context dies, and it comes back. */
static void reset_primary(worker_t *w)
{
    CUcontext again;

    OK(cuDevicePrimaryCtxReset(0));
    bury(w, &w->primary);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    REQUIRE(again == w->primary.ctx);
    OK(cuDevicePrimaryCtxRelease(0)); /* those from before the reset still count (measured) */
    enter(&w->primary);
    OK(cuStreamCreate(&w->primary.stream, CU_STREAM_NON_BLOCKING));
}

static bool is_base(const worker_t *w, CUdeviceptr base)
{
    for (int h = 0; h <= OWN_MAX; h++) {
        const house_t *house = h < OWN_MAX ? &w->own[h] : &w->primary;

        for (int i = 0; i < house->count; i++)
            if (house->block[i].base == base)
                return true;
    }
    return false;
}

/* One thread alone: nobody else can have the address. */
static void free_dead(worker_t *w)
{
    CUdeviceptr base = w->dead[below(w, DEAD_MAX)];

    enter(&w->primary);
    if (base && !is_base(w, base))
        REQUIRE(cuMemFree(base) == CUDA_ERROR_INVALID_VALUE);
}

/* ---- steps ---- */

static void step_alone(worker_t *w)
{
    if (below(w, 4) == 0)
        reset_primary(w);
    else
        free_dead(w);
}

static void step(worker_t *w)
{
    house_t *house = below(w, 4) == 0 ? &w->primary : &w->own[below(w, OWN_MAX)];
    uint64_t draw = below(w, 100);

    if (!house->ctx)
        open_house(w, house);
    else if (draw < 45)
        add_block(w, house);
    else if (draw < 75 && house->count > 0)
        drop_block(w, house);
    else if (draw < 85 && house->count > 0)
        verify_block(house, &house->block[below(w, (uint64_t)house->count)]);
    else if (draw < 90 && house != &w->primary)
        close_house(w, house);
    else if (draw < 93)
        refer(w);
    else if (g_is_alone)
        step_alone(w);
    else
        visit(w);
}

static void *run_worker(void *arg)
{
    worker_t *w = arg;

    enter(&w->primary);
    OK(cuStreamCreate(&w->primary.stream, CU_STREAM_NON_BLOCKING));
    for (uint64_t i = 0; i < w->steps && soft("softcuda_violations") == 0; i++)
        step(w);
    for (int h = 0; h <= OWN_MAX; h++) {
        house_t *house = h < OWN_MAX ? &w->own[h] : &w->primary;

        while (house->ctx && house->count > 0) {
            verify_block(house, &house->block[house->count - 1]);
            drop_block(w, house);
        }
        if (house->ctx && house != &w->primary)
            close_house(w, house);
    }
    while (w->references > 0) {
        OK(cuDevicePrimaryCtxRelease(0));
        w->references--;
    }
    return NULL;
}

static bool open_device(CUcontext *out_primary)
{
    int count = 0;

    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        return false;
    OK(cuDevicePrimaryCtxRetain(out_primary, 0));
    OK(cuCtxSetCurrent(*out_primary));
    return true;
}

static void run(uint64_t steps, uint64_t threads, CUcontext primary)
{
    for (uint64_t i = 0; i < threads; i++) {
        g_worker[i].rng.state = g_seed * 1000003 + i;
        g_worker[i].primary.ctx = primary;
        g_worker[i].steps = steps / threads;
        REQUIRE(pthread_create(&g_worker[i].thread, NULL, run_worker, &g_worker[i]) == 0);
    }
    for (uint64_t i = 0; i < threads; i++)
        REQUIRE(pthread_join(g_worker[i].thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t threads = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    cup_rng_t rng;
    CUcontext primary;

    g_seed = cup_rng_seed(1);
    rng.state = g_seed;
    if (threads == 0)
        threads = 2 + cup_rng_below(&rng, THREADS_MAX - 1);
    REQUIRE(steps > 0 && threads <= THREADS_MAX);
    g_is_alone = threads == 1;
    g_is_tight = getenv("LAW_TIGHT") != NULL;
    if (!open_device(&primary))
        return 77;
    run(steps, threads, primary);
    printf("seed %llu, %llu threads, %llu allocations; software driver: %llu claims in flight, %llu "
           "violations\n",
           (unsigned long long)g_seed, (unsigned long long)threads,
           (unsigned long long)atomic_load(&g_allocs), (unsigned long long)soft("softcuda_claims_in_flight"),
           (unsigned long long)soft("softcuda_violations"));
    REQUIRE(g_is_tight || !getenv("LD_PRELOAD") ||
            driver_calls() < atomic_load(&g_allocs)); /* each context begins with some */
    OK(cuDevicePrimaryCtxRelease(0));
    REQUIRE(soft("softcuda_held_bytes") ==
            0); /* everything went, also what does not die with a context by itself */
    return soft("softcuda_violations") != 0;
}
