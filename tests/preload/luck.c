/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck - CUPOLA_ZERO: what the pool hands out reads as zeros, whoever had it before, wherever it is used
 * next.
 * What:       luck CASE runs one case on the software driver under the preload and prints the counters that
 *             must hold (counted.sh). luck dirty is the same program without the option: it must see what
 *             others left.
 * Not here:   CUPOLA_REDZONE (luck_redzone.c), failing calls (luck_faults.c).
 * Invariants: exit 0 only when every REQUIRE held and the overlap detector saw nothing.
 */
#define _GNU_SOURCE
#include "preload/cupola.h"
#include "tests/preload/client.h"
#include "tests/softcuda/pattern.h"
#include "tests/support/rng.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BYTES     65536
#define BYTES_MAX (5 << 20)

extern int cudaMalloc(void **ptr, size_t size);
extern int cudaFree(void *ptr);

static const size_t g_sizes[] = {1, 512, 700, 4096, 40000, 1 << 20, BYTES_MAX};
static CUfunction g_copy, g_late_fill, g_spin_until, g_hash;
static unsigned char *g_seen;      /* pinned */
static uint32_t *g_flag;           /* likewise */
static uint64_t g_least, g_most;   /* what the counter of sets must say */
static CUstream g_busy, g_another; /* neither waits for the legacy stream */

static void open_luck(void)
{
    static const char *const name[] = {"copy", "late_fill", "spin_until", "hash"};
    CUfunction *const kernel[] = {&g_copy, &g_late_fill, &g_spin_until, &g_hash};
    CUmodule module;

    alarm(100);
    client_open();
    REQUIRE(cuModuleLoadData(&module, "softcuda\n") == CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++)
        REQUIRE(cuModuleGetFunction(kernel[i], module, name[i]) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocHost((void **)&g_seen, BYTES_MAX) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocHost((void **)&g_flag, 4096) == CUDA_SUCCESS);
    g_busy = client_stream(CU_STREAM_NON_BLOCKING);
    g_another = client_stream(CU_STREAM_NON_BLOCKING);
}

static void launch(CUfunction kernel, CUstream stream, void **params)
{
    REQUIRE(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

static void late_fill(CUstream stream, CUdeviceptr block, uint64_t bytes, uint64_t us)
{
    uint64_t seed = 7;
    void *params[] = {&block, &bytes, &seed, &us};

    launch(g_late_fill, stream, params);
}

/* What a kernel on the stream sees there goes to pinned memory. */
static void look(CUstream stream, CUdeviceptr block, uint64_t bytes)
{
    void *params[] = {&g_seen, &block, &bytes};

    memset(g_seen, 0xAB, bytes);
    launch(g_copy, stream, params);
}

static size_t seen_dirty(uint64_t bytes)
{
    size_t dirty = 0;

    for (uint64_t i = 0; i < bytes; i++)
        dirty += g_seen[i] != 0;
    return dirty;
}

static void require_zeros(CUstream stream, uint64_t bytes)
{
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    REQUIRE(seen_dirty(bytes) == 0);
}

static CUdeviceptr alloc_set(uint64_t bytes)
{
    g_least = ++g_most;
    return client_alloc(bytes);
}

/* Freed under work that writes it, and handed out again: that work is certainly not done. */
static CUdeviceptr reuse_late(uint64_t bytes, uint64_t us)
{
    CUdeviceptr block = alloc_set(bytes);

    late_fill(g_busy, block, bytes, us);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(alloc_set(bytes) == block);
    return block;
}

/* Every size, new and used before. */
static size_t use_each_size(void)
{
    size_t dirty = 0;

    for (size_t i = 0; i < sizeof(g_sizes) / sizeof(g_sizes[0]); i++) {
        for (int round = 0; round < 3; round++) {
            CUdeviceptr block = alloc_set(g_sizes[i]);

            look(g_another, block, g_sizes[i]);
            REQUIRE(cuStreamSynchronize(g_another) == CUDA_SUCCESS);
            dirty += seen_dirty(g_sizes[i]);
            client_fill(g_busy, block, g_sizes[i], 3);
            REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
        }
    }
    return dirty;
}

static void reuse(void)
{
    REQUIRE(use_each_size() == 0);
}

/* The shared runtime's short way makes no driver call, so it can't set. */
static void runtime(void)
{
    for (int round = 0; round < 20; round++) {
        void *block;

        g_least = ++g_most;
        REQUIRE(cudaMalloc(&block, BYTES) == 0);
        look(g_another, (CUdeviceptr)(uintptr_t)block, BYTES);
        require_zeros(g_another, BYTES);
        client_fill(g_busy, (CUdeviceptr)(uintptr_t)block, BYTES, 3);
        REQUIRE(cudaFree(block) == 0);
    }
}

static void dirty(void)
{
    REQUIRE(use_each_size() > 0);
    g_least = g_most = 0;
}

/* Neither the allocation nor the next launch waits on the host; the set comes after the last owner's. */
static void in_flight(void)
{
    CUdeviceptr block = alloc_set(BYTES);

    REQUIRE(softcuda_hold(g_busy) == 0);
    client_fill(g_busy, block, BYTES, 7);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(alloc_set(BYTES) == block);
    look(g_another, block, BYTES);
    REQUIRE(softcuda_unfinished() >= 3); /* the fill, the set, the look */
    REQUIRE(g_seen[0] == 0xAB);
    REQUIRE(softcuda_calls("cuStreamSynchronize") + softcuda_calls("cuEventSynchronize") == 0);
    usleep(20000); /* a set that does not wait for the fill is done by now */
    softcuda_release(g_busy);
    require_zeros(g_another, BYTES);
}

/* Wherever the next owner's work goes. */
static void places(void)
{
    CUstream streams[] = {g_busy, g_another,        client_stream(CU_STREAM_DEFAULT),
                          NULL,   CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    CUdeviceptr block;

    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        block = reuse_late(BYTES, 20000);
        look(streams[i], block, BYTES);
        require_zeros(streams[i], BYTES);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    }
    block = reuse_late(BYTES, 20000);
    REQUIRE(cuMemcpyDtoH(g_seen, block, BYTES) == CUDA_SUCCESS && seen_dirty(BYTES) == 0);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/*
 * A kernel in flight may wait for what the program launches after the allocation: nothing of it may be
 * waited for, by the host or by the stream of the next launch.
 */
static void partner(void)
{
    uint32_t value = 1;
    CUdeviceptr block = alloc_set(BYTES);
    void *params[] = {&g_flag, &value};

    client_fill(g_another, block, BYTES, 7);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    __atomic_store_n(g_flag, 0, __ATOMIC_RELEASE);
    launch(g_spin_until, g_busy, params);
    REQUIRE(alloc_set(BYTES) == block);
    look(g_another, block, BYTES);
    require_zeros(g_another, BYTES);
    REQUIRE(softcuda_unfinished() > 0); /* it still waits */
    __atomic_store_n(g_flag, value, __ATOMIC_RELEASE);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Handed out while a capture is in progress, used by its graph. */
static void in_capture(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = alloc_set(BYTES), more;
    CUgraph graph;
    CUgraphExec exec;

    late_fill(g_busy, block, BYTES, 20000);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    block = alloc_set(BYTES);
    more = alloc_set(BYTES_MAX); /* a growth */
    look(stream, block, BYTES);
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph);
    REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, g_another) == CUDA_SUCCESS);
    require_zeros(g_another, BYTES);
    look(stream, more, BYTES_MAX);
    require_zeros(stream, BYTES_MAX);
}

/* Once the sets are done nobody is made to wait for them, nor asks. */
static void settled(void)
{
    CUdeviceptr block = reuse_late(BYTES, 1000);

    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    client_spin(g_another, 0); /* both pass the free that went before */
    client_spin(g_busy, 0);
    softcuda_reset_counters();
    for (int i = 0; i < 50; i++)
        client_spin(i % 2 ? g_busy : g_another, 0);
    REQUIRE(softcuda_calls("cuStreamWaitEvent") == 0 && softcuda_calls("cuEventQuery") == 0);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
}

/* Others look without a stream of ours: when the handle is there, so are the zeros. (vmm) */
static void exported(void)
{
    CUdeviceptr block = reuse_late(BYTES, 50000);
    CUipcMemHandle handle;

    REQUIRE(cuIpcGetMemHandle(&handle, block) == CUDA_SUCCESS);
    memcpy(g_seen, (const void *)(uintptr_t)block, BYTES); /* memory of this device is memory of the host */
    REQUIRE(seen_dirty(BYTES) == 0);
}

static void published(void)
{
    CUdeviceptr block = reuse_late(BYTES, 50000);
    char name[32];

    snprintf(name, sizeof name, "luck-%d", getpid());
    REQUIRE(cupola_publish(name, block, 0, CUPOLA_NO_GROUP) == CUPOLA_OK);
    memcpy(g_seen, (const void *)(uintptr_t)block, BYTES);
    REQUIRE(seen_dirty(BYTES) == 0);
}

/* A primary context that ends takes its stream along; the next one has its own. */
static void after_reset(void)
{
    CUcontext context;

    alloc_set(BYTES);
    REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    client_open();
    open_luck();
    reuse();
}

/* ---- a law: every block that is handed out hashes as zeros ---- */

#define LAW_BLOCKS  48
#define LAW_STREAMS 4
#ifdef __SANITIZE_THREAD__
#define LAW_STEPS 400
#else
#define LAW_STEPS 3000
#endif

typedef struct law {
    cup_rng_t rng;
    CUcontext context;
    CUstream stream[LAW_STREAMS];
    struct {
        CUdeviceptr addr;
        uint64_t bytes;
    } block[LAW_BLOCKS];
    CUdeviceptr hash;
    uint64_t expected, allocs;
} law_t;

static uint64_t hash_of_zeros(uint64_t bytes)
{
    uint64_t hash = 0;

    for (uint64_t i = 0; i < (bytes + 7) / 8; i++)
        hash += softcuda_hash_word(0, i);
    return hash;
}

/* The new owner looks and writes on one stream, which need not be the one of its last. */
static void law_step(law_t *law)
{
    size_t i = cup_rng_below(&law->rng, LAW_BLOCKS);
    CUstream stream = law->stream[cup_rng_below(&law->rng, LAW_STREAMS)];

    if (law->block[i].bytes > 0) {
        REQUIRE(cuMemFree(law->block[i].addr) == CUDA_SUCCESS);
        law->block[i].bytes = 0;
        return;
    }
    law->block[i].bytes = 8 * cup_rng_size(&law->rng, 14);
    law->block[i].addr = client_alloc(law->block[i].bytes);
    law->allocs++;
    law->expected += hash_of_zeros(law->block[i].bytes);
    void *params[] = {&law->block[i].addr, &law->block[i].bytes, &law->hash};
    launch(g_hash, stream, params);
    client_fill(stream, law->block[i].addr, law->block[i].bytes, cup_rng_next(&law->rng));
}

static void *law_run(void *arg)
{
    law_t *law = arg;
    uint64_t hash;

    REQUIRE(cuCtxSetCurrent(law->context) == CUDA_SUCCESS);
    for (size_t i = 0; i < LAW_STREAMS; i++)
        law->stream[i] = client_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    law->hash = client_alloc(8); /* zero, as it comes */
    law->allocs++;
    for (int step = 0; step < LAW_STEPS; step++)
        law_step(law);
    for (size_t i = 0; i < LAW_STREAMS; i++)
        REQUIRE(cuStreamSynchronize(law->stream[i]) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH(&hash, law->hash, 8) == CUDA_SUCCESS);
    REQUIRE(hash == law->expected);
    for (size_t i = 0; i < LAW_BLOCKS; i++)
        REQUIRE(law->block[i].bytes == 0 || cuMemFree(law->block[i].addr) == CUDA_SUCCESS);
    return NULL;
}

static void run_laws(int threads)
{
    uint64_t seed = cup_rng_seed(20261130);
    law_t *law = calloc((size_t)threads, sizeof(*law));
    pthread_t thread[4];

    REQUIRE(law);
    fprintf(stderr, "luck: CUP_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < threads; i++) {
        law[i].rng.state = seed + (uint64_t)i;
        REQUIRE(cuCtxGetCurrent(&law[i].context) == CUDA_SUCCESS);
        REQUIRE(pthread_create(&thread[i], NULL, law_run, &law[i]) == 0);
    }
    for (int i = 0; i < threads; i++) {
        REQUIRE(pthread_join(thread[i], NULL) == 0);
        g_least = g_most += law[i].allocs;
    }
    free(law);
}

static void law(void)
{
    run_laws(1);
}

static void threads(void)
{
    run_laws(4);
}

/* clang-format off */
#define CASE_LIST(X)                                                                       \
    X(reuse) X(runtime) X(dirty) X(in_flight) X(places) X(partner) X(in_capture) X(settled) \
    X(exported) X(published) X(after_reset) X(law) X(threads)
/* clang-format on */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } list[] = {
#define X(name) {#name, name},
        CASE_LIST(X)
#undef X
    };

    for (size_t i = 0; argc > 1 && i < sizeof(list) / sizeof(list[0]); i++) {
        if (strcmp(argv[1], list[i].name) != 0)
            continue;
        open_luck();
        list[i].run();
        REQUIRE(softcuda_violations() == 0);
        printf("zeroed %llu %llu\n", (unsigned long long)g_least, (unsigned long long)g_most);
        return 0;
    }
    return 2;
}
