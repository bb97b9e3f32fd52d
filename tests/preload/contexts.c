/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts - contexts that begin, end and come back, and what their blocks are worth then.
 * Usage:      contexts NAME [native]: one case. With `native` nothing is expected of the pool: the codes
 *             are the driver's.
 * What:       each case asserts what the program sees and, by the driver's own counts, that the pool served
 *             it. Where a context ends while another thread works, softcuda_linger keeps the ending call
 *             from returning after the memory is gone.
 * Not here:   everything at once (contexts_law.c), failing calls (contexts_faults.c), order (order.c).
 * Invariants: exit 0 only when every REQUIRE held and the overlap detector saw nothing.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define SMALL  4096
#define BLOCKS 64
#define TRIES  20000 /* of a millisecond: bounded, and never met */

static bool g_is_native;

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

static CUcontext current(void)
{
    CUcontext ctx = NULL;

    OK(cuCtxGetCurrent(&ctx));
    return ctx;
}

static bool is_vmm(void)
{
    const char *backing = getenv("CUPOLA_BACKING");

    return backing && strcmp(backing, "vmm") == 0;
}

/* An entry point that the header hides behind a newer one. */
static void *symbol(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);

    REQUIRE(address);
    return address;
}

typedef CUresult (*on_ctx_t)(CUcontext);
typedef CUresult (*on_device_t)(CUdevice);

static CUcontext create(void)
{
    CUcontext ctx;

    OK(cuCtxCreate_v4(&ctx, NULL, 0, 0));
    return ctx;
}

static void pause_ms(void)
{
    const struct timespec pause = {0, 1000000};

    nanosleep(&pause, NULL);
}

/* Frees and allocations that the driver made for the pool, or got from the program. */
static uint64_t calls(void)
{
    return driver_calls() + softcuda_calls("cuMemFree_v2") + softcuda_calls("cuMemRelease");
}

/* Pairs that a warm pool serves without the driver. */
static void require_served(void)
{
    uint64_t before;

    OK(cuMemFree(client_alloc(SMALL)));
    before = calls();
    for (int i = 0; i < 50; i++)
        OK(cuMemFree(client_alloc(SMALL)));
    REQUIRE(g_is_native || calls() == before);
}

static void get_blocks(CUdeviceptr *block, int count, size_t bytes)
{
    for (int i = 0; i < count; i++)
        block[i] = client_alloc(bytes);
}

/* ---- ends beside other threads ---- */

/* Until the driver has ended the context: softcuda_linger keeps the call that ended it from returning. */
static void await_end(CUcontext ctx)
{
    unsigned long long id;

    for (int tries = 0; cuCtxGetId(ctx, &id) == CUDA_SUCCESS; tries++) {
        REQUIRE(tries < TRIES);
        pause_ms();
    }
}

typedef struct rival {
    CUcontext ctx;    /* of its own */
    CUcontext doomed; /* that another thread ends */
    CUdeviceptr block[BLOCKS];
} rival_t;

/* Allocates in a second context as soon as the first one's memory is gone, before its destroy returns. */
static void *take_addresses(void *arg)
{
    rival_t *rival = arg;

    OK(cuCtxSetCurrent(rival->ctx));
    await_end(rival->doomed);
    get_blocks(rival->block, BLOCKS, 65536);
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemsetD8(rival->block[i], 7, 65536));
    OK(cuCtxSynchronize());
    return NULL;
}

static bool is_in(CUdeviceptr addr, const CUdeviceptr *block, int count)
{
    for (int i = 0; i < count; i++)
        if (addr >= block[i] && addr < block[i] + 65536)
            return true;
    return false;
}

static int count_shared(const rival_t *rival, const CUdeviceptr *block, int count)
{
    int shared = 0;

    for (int i = 0; i < count; i++)
        shared += is_in(block[i], rival->block, BLOCKS);
    return shared;
}

static void end_beside(void *(*routine)(void *), rival_t *rival, CUresult (*end)(void))
{
    pthread_t thread;

    softcuda_linger(200000);
    REQUIRE(pthread_create(&thread, NULL, routine, rival) == 0);
    OK(end());
    REQUIRE(pthread_join(thread, NULL) == 0);
    softcuda_linger(0);
}

static CUcontext g_doomed;

static CUresult end_doomed(void)
{
    return cuCtxDestroy(g_doomed);
}

static CUresult end_primary(void)
{
    return cuDevicePrimaryCtxRelease(0);
}

/* The addresses of a context that ends go to another one before its end has returned: those stay right. */
static void handed_on(void)
{
    rival_t rival = {.doomed = g_doomed = create()};
    CUdeviceptr old[4 * BLOCKS];
    int shared;

    get_blocks(old, 4 * BLOCKS, 65536);
    rival.ctx = create();
    client_alloc(SMALL);
    end_beside(take_addresses, &rival, end_doomed);
    shared = count_shared(&rival, old, 4 * BLOCKS);
    printf("%d of %d blocks lie where the other context's were\n", shared, BLOCKS);
    REQUIRE(shared > 0 || is_vmm()); /* there they stay ours until they are unmapped */
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(rival.block[i]));
    require_served();
    OK(cuCtxDestroy(rival.ctx));
}

/* The same, where the primary context ends with its last reference. It comes back without them. */
static void handed_on_primary(void)
{
    rival_t rival = {.doomed = current()};
    CUdeviceptr old[4 * BLOCKS], fresh[BLOCKS];
    CUcontext again;

    get_blocks(old, 4 * BLOCKS, 65536);
    for (int i = 0; i < 4 * BLOCKS; i += 2)
        OK(cuMemFree(old[i]));
    rival.ctx = create();
    client_alloc(SMALL);
    end_beside(take_addresses, &rival, end_primary);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuCtxSetCurrent(again));
    get_blocks(fresh, BLOCKS, 65536);
    REQUIRE(count_shared(&rival, fresh, BLOCKS) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemFree(rival.block[i]));
        OK(cuMemFree(fresh[i]));
    }
    require_served();
}

static void *free_late(void *arg)
{
    rival_t *rival = arg;

    OK(cuCtxSetCurrent(rival->ctx));
    await_end(rival->doomed);
    REQUIRE(cuMemFree(rival->block[BLOCKS / 2]) == CUDA_ERROR_INVALID_VALUE);
    return NULL;
}

/* A block that is freed while its context is ending: too late, as natively. */
static void freed_meanwhile(void)
{
    CUcontext kept = current();
    rival_t rival = {.ctx = kept, .doomed = g_doomed = create()};

    get_blocks(rival.block, BLOCKS, 65536);
    end_beside(free_late, &rival, end_doomed);
    OK(cuCtxSetCurrent(kept));
    require_served();
}

static void *alloc_late(void *arg)
{
    rival_t *rival = arg;
    CUdeviceptr none = 0;

    OK(cuCtxSetCurrent(rival->doomed));
    await_end(rival->doomed);
    for (size_t bytes = 512; bytes <= (size_t)16 << 20; bytes *= 8)
        REQUIRE(cuMemAlloc(&none, bytes) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return NULL;
}

/* Nothing is handed out of a context that is ending, although its pool has free memory. */
static void asked_meanwhile(void)
{
    CUcontext kept = current();
    rival_t rival = {.doomed = g_doomed = create()};

    get_blocks(rival.block, BLOCKS, 65536);
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(rival.block[i]));
    require_served();
    end_beside(alloc_late, &rival, end_doomed);
    OK(cuCtxSetCurrent(kept));
    require_served();
}

static void *ask_too_much(void *arg)
{
    CUdeviceptr none;

    OK(cuCtxSetCurrent(arg));
    REQUIRE(cuMemAlloc(&none, (size_t)60 << 20) != CUDA_SUCCESS);
    return NULL;
}

static void *destroy(void *arg)
{
    OK(cuCtxDestroy(arg));
    return NULL;
}

/*
 * An allocation that gives memory back is waiting for the GPU when its context is ended: the end waits for
 * it, or a chunk could go back when somebody else has it.
 */
static void waits_for_users(void)
{
    CUcontext kept = current(), doomed = create();
    CUdeviceptr block = client_alloc(SMALL), idle = client_alloc((size_t)40 << 20);
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    pthread_t user, ender;

    REQUIRE(softcuda_hold(stream) == 0);
    OK(cuMemsetD8Async(block, 1, SMALL, stream));
    OK(cuMemFree(idle));
    OK(cuMemsetD8Async(block, 2, SMALL, stream)); /* runs after the free, and has its order point in front */
    softcuda_set_memory(softcuda_held_bytes());
    softcuda_reset_counters();
    REQUIRE(pthread_create(&user, NULL, ask_too_much, doomed) == 0);
    for (int i = 0; softcuda_calls("cuMemFree_v2") + softcuda_calls("cuEventSynchronize") == 0; i++) {
        REQUIRE(i < TRIES);
        pause_ms();
    }
    REQUIRE(pthread_create(&ender, NULL, destroy, doomed) == 0);
    for (int i = 0; i < 60; i++) {
        REQUIRE(softcuda_calls("cuCtxDestroy_v2") == 0);
        pause_ms();
    }
    softcuda_release(stream);
    REQUIRE(pthread_join(user, NULL) == 0 && pthread_join(ender, NULL) == 0);
    softcuda_set_memory((uint64_t)1 << 30);
    OK(cuCtxSetCurrent(kept));
    require_served();
}

static void *churn_in(void *arg)
{
    OK(cuCtxSetCurrent(arg));
    for (int i = 0; i < 3000; i++) {
        CUdeviceptr block = client_alloc(SMALL + (size_t)(i % 7) * 65536);

        OK(cuMemFree(block));
    }
    return NULL;
}

/* The driver refuses to end a context, again and again, while a thread works there: nothing is lost. */
static void refused(void)
{
    CUcontext primary = current(), second = create();
    CUdeviceptr kept[BLOCKS];
    pthread_t thread[2];

    get_blocks(kept, BLOCKS, 65536);
    OK(cuCtxSetCurrent(primary));
    REQUIRE(pthread_create(&thread[0], NULL, churn_in, primary) == 0);
    REQUIRE(pthread_create(&thread[1], NULL, churn_in, second) == 0);
    for (int i = 0; i < 100; i++) {
        REQUIRE(cuCtxDestroy(primary) == CUDA_ERROR_INVALID_CONTEXT);
        softcuda_fail_nth("cuCtxDestroy_v2", 1, CUDA_ERROR_UNKNOWN);
        REQUIRE(cuCtxDestroy(second) == CUDA_ERROR_UNKNOWN);
        softcuda_fail_nth("cuDevicePrimaryCtxReset_v2", 1, CUDA_ERROR_UNKNOWN);
        REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_ERROR_UNKNOWN);
        softcuda_fail_nth("cuDevicePrimaryCtxRelease_v2", 1, CUDA_ERROR_UNKNOWN);
        REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_UNKNOWN);
    }
    REQUIRE(pthread_join(thread[0], NULL) == 0 && pthread_join(thread[1], NULL) == 0);
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(kept[i]));
    REQUIRE(cuMemFree(kept[0]) == CUDA_ERROR_INVALID_VALUE);
    require_served();
    OK(cuCtxSetCurrent(second));
    require_served();
}

/* ---- primary contexts ---- */

static void require_state(int wanted)
{
    unsigned flags;
    int active;

    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    REQUIRE(active == wanted);
}

/* The last of several references ends it; then it comes back at the same address, as another one. */
static void references(void)
{
    CUcontext primary = current(), again;
    CUdeviceptr block[BLOCKS];
    unsigned long long id, new_id;
    uint64_t before;

    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    get_blocks(block, BLOCKS, SMALL);
    OK(cuCtxGetId(primary, &id));
    before = calls();
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRelease(0));
    require_state(1);
    OK(cuMemFree(block[0]));
    REQUIRE(g_is_native || calls() == before);
    require_served();
    OK(cuDevicePrimaryCtxRelease(0));
    require_state(0);
    REQUIRE(cuMemFree(block[1]) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuMemAlloc(&block[0], SMALL) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    require_state(0);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    REQUIRE(again == primary);
    OK(cuCtxSetCurrent(again));
    OK(cuCtxGetId(again, &new_id));
    REQUIRE(new_id != id);
    REQUIRE(cuMemFree(block[1]) == CUDA_ERROR_INVALID_VALUE);
    require_served();
    require_state(1);
}

static void *use_primary(void *arg)
{
    OK(cuCtxSetCurrent(arg));
    require_served();
    return NULL;
}

/* After a reset all starts afresh, also for other threads; nothing of before is handed out or freed. */
static void reset_afresh(void)
{
    CUcontext primary = current(), again;
    CUdeviceptr block[BLOCKS], fresh[BLOCKS];
    pthread_t thread;

    for (int round = 0; round < 5; round++) {
        get_blocks(block, BLOCKS, 65536);
        client_spin(NULL, 2000);
        OK(((on_device_t)symbol(round % 2 ? "cuDevicePrimaryCtxReset" : "cuDevicePrimaryCtxReset_v2"))(0));
        REQUIRE(softcuda_held_bytes() == 0);
        require_state(0);
        REQUIRE(cuMemFree(block[0]) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
        OK(cuDevicePrimaryCtxRetain(&again, 0));
        OK(cuCtxSetCurrent(again));
        get_blocks(fresh, BLOCKS, 65536);
        for (int i = 0; i < BLOCKS; i++)
            OK(cuMemsetD8(fresh[i], 1, 65536)); /* memory that is there */
        for (int i = 0; i < BLOCKS; i++)
            OK(cuMemFree(fresh[i]));
        for (int i = 0; i < BLOCKS; i++)
            REQUIRE(cuMemFree(block[i]) == CUDA_ERROR_INVALID_VALUE);
        require_served();
        REQUIRE(pthread_create(&thread, NULL, use_primary, again) == 0 && pthread_join(thread, NULL) == 0);
    }
    REQUIRE(again == primary);
}

/* A reset out of sight is noticed when the context comes back. */
static void reset_unseen(void)
{
    CUcontext again;
    CUdeviceptr block = client_alloc(SMALL);

    softcuda_reset_unseen(0);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuCtxSetCurrent(again));
    REQUIRE(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
    block = client_alloc(SMALL);
    OK(cuMemsetD8(block, 1, SMALL)); /* memory that is there */
    OK(cuMemFree(block));
    require_served();
}

/* Neither the pool's start nor its work retains, activates or releases a primary context. */
static void state(void)
{
    CUcontext ctx;

    OK(cuDevicePrimaryCtxRelease(0));
    require_state(0);
    ctx = create();
    require_served();
    require_state(0);
    OK(cuCtxDestroy(ctx));
    require_state(0);
}

/* ---- contexts of the program's own ---- */

static CUcontext create_by(int version)
{
    CUcontext ctx;

    switch (version) {
    case 1:
        OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))symbol("cuCtxCreate"))(&ctx, 0, 0));
        break;
    case 2:
        OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))symbol("cuCtxCreate_v2"))(&ctx, 0, 0));
        break;
    case 3:
        OK(((CUresult(*)(CUcontext *, void *, int, unsigned, CUdevice))symbol("cuCtxCreate_v3"))(&ctx, NULL,
                                                                                                 0, 0, 0));
        break;
    default:
        OK(cuCtxCreate_v4(&ctx, NULL, 0, 0));
    }
    return ctx;
}

static void destroy_by(int version, CUcontext ctx)
{
    if (version == 1)
        OK(((on_ctx_t)symbol("cuCtxDestroy"))(ctx));
    else if (version == 2)
        OK(cuCtxDestroy(ctx));
    else
        OK(((on_ctx_t)symbol("cuCtxDetach"))(ctx));
}

/* Every way to make one and to end one, with blocks and work left over. */
static void versions(void)
{
    CUcontext kept = current();
    uint64_t held = softcuda_held_bytes();

    for (int create = 1; create <= 4; create++)
        for (int destroy = 1; destroy <= 3; destroy++) {
            CUcontext ctx = create_by(create);
            CUdeviceptr block = client_alloc(SMALL);

            REQUIRE(current() == ctx);
            require_served();
            client_alloc((size_t)3 << 20);
            OK(cuMemsetD8Async(block, 1, SMALL, NULL));
            destroy_by(destroy, ctx);
            REQUIRE(current() == kept);
            REQUIRE(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(softcuda_held_bytes() == held);
        }
}

/* Uses are counted: only the last detach ends a context. */
static void attached(void)
{
    CUcontext kept = current(), ctx = create(), same;
    CUdeviceptr block[2];

    get_blocks(block, 2, SMALL);
    OK(((CUresult(*)(CUcontext *, unsigned))symbol("cuCtxAttach"))(&same, 0));
    REQUIRE(same == ctx);
    OK(((on_ctx_t)symbol("cuCtxDetach"))(ctx));
    OK(cuMemFree(block[0]));
    require_served();
    OK(((on_ctx_t)symbol("cuCtxDetach"))(ctx));
    REQUIRE(current() == kept);
    REQUIRE(cuMemFree(block[1]) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(((on_ctx_t)symbol("cuCtxDetach"))(ctx) == CUDA_ERROR_INVALID_CONTEXT);
    require_served();
}

#define CONTEXTS 6

/* Several on one device: each has its own pool, and each end takes its own blocks alone. */
static void several(void)
{
    CUcontext ctx[CONTEXTS], kept = current();
    CUdeviceptr block[CONTEXTS][8];

    for (int i = 0; i < CONTEXTS; i++) {
        ctx[i] = create();
        get_blocks(block[i], 8, 65536);
    }
    OK(cuCtxSetCurrent(kept));
    for (int i = 0; i < CONTEXTS; i++) { /* freed with another one current */
        OK(cuMemFree(block[i][0]));
        REQUIRE(cuMemFree(block[i][0]) == CUDA_ERROR_INVALID_VALUE);
    }
    for (int i = 1; i < CONTEXTS; i += 2)
        OK(cuCtxDestroy(ctx[i]));
    for (int i = 0; i < CONTEXTS; i++)
        REQUIRE(cuMemFree(block[i][1]) == (i % 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
    for (int i = 0; i < CONTEXTS; i += 2) {
        OK(cuCtxSetCurrent(ctx[i]));
        require_served();
        OK(cuMemsetD8(block[i][2], 3, 65536));
        OK(cuCtxDestroy(ctx[i]));
    }
    OK(cuCtxSetCurrent(kept));
    require_served();
}

/* A thread whose current context has ended frees nothing, wherever the block is. */
static void gone_current(void)
{
    CUcontext kept = current(), doomed;
    CUdeviceptr block = client_alloc(SMALL);
    pthread_t thread;

    doomed = create();
    client_alloc(SMALL);
    REQUIRE(pthread_create(&thread, NULL, destroy, doomed) == 0 && pthread_join(thread, NULL) == 0);
    REQUIRE(current() == doomed);
    REQUIRE(cuMemFree(block) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemFree(block));
    OK(cuCtxSetCurrent(kept));
    require_served();
}

/* ---- green contexts ---- */

static CUgreenCtx create_green(CUcontext *out_ctx)
{
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;

    OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&desc, &resource, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(out_ctx, green));
    return green;
}

/* One pool for both: what is allocated with either is the primary's. */
static void green_shares(void)
{
    CUcontext primary = current(), ctx, owner;
    CUgreenCtx green = create_green(&ctx);
    CUdeviceptr block = client_alloc(65536), same;

    OK(cuMemFree(block));
    OK(cuCtxSetCurrent(ctx));
    same = client_alloc(65536);
    REQUIRE(g_is_native || same == block);
    require_served();
    OK(cuMemFree(same));
    same = client_alloc((size_t)40 << 20); /* grows with the green one current */
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, same));
    REQUIRE(owner == primary);
    OK(cuCtxSetCurrent(primary));
    OK(cuGreenCtxDestroy(green));
    OK(cuMemsetD8(same, 1, 4096)); /* outlives the green one */
    OK(cuMemFree(same));
    require_served();
}

/* A block that a green context's stream still uses goes to a stream of the primary one, and back. */
static void green_order(void)
{
    CUcontext ctx;
    CUgreenCtx green = create_green(&ctx);
    CUstream stream[2] = {NULL, client_stream(CU_STREAM_NON_BLOCKING)};

    OK(cuGreenCtxStreamCreate(&stream[0], green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuMemFree(client_alloc(65536)));
    for (int i = 0; i < 40; i++) {
        CUdeviceptr block = client_alloc(65536);

        client_spin(stream[i % 2], 3000);
        client_fill(stream[i % 2], block, 65536, (uint64_t)i + 1);
        OK(cuMemFree(block));
    }
    REQUIRE(g_is_native || softcuda_claims_in_flight() > 0); /* they were handed on while in use */
    OK(cuCtxSynchronize());
    REQUIRE(softcuda_violations() == 0);
}

/* The same on its null stream, which is not the primary's. */
static void green_null(void)
{
    CUcontext primary = current(), ctx;
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);

    create_green(&ctx);
    OK(cuMemFree(client_alloc(65536)));
    for (int i = 0; i < 40; i++) {
        CUdeviceptr block = client_alloc(65536);
        CUstream on = i % 2 ? stream : NULL;

        OK(cuCtxSetCurrent(i % 2 ? primary : ctx));
        client_spin(on, 3000);
        client_fill(on, block, 65536, (uint64_t)i + 1);
        OK(cuMemFree(block));
    }
    OK(cuCtxSetCurrent(primary));
    OK(cuCtxSynchronize());
    REQUIRE(softcuda_violations() == 0);
    require_served();
}

/* The last reference on the primary context may be a green one's. */
static void green_last(void)
{
    CUcontext primary = current(), ctx;
    CUgreenCtx green = create_green(&ctx);
    CUdeviceptr block = client_alloc(SMALL);

    OK(cuDevicePrimaryCtxRelease(0));
    require_state(1);
    OK(cuMemsetD8(block, 1, SMALL));
    require_served();
    OK(cuGreenCtxDestroy(green));
    require_state(0);
    REQUIRE(softcuda_held_bytes() == 0);
    REQUIRE(cuMemFree(block) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    REQUIRE(ctx == primary);
    OK(cuCtxSetCurrent(ctx));
    require_served();
}

/* ---- asynchronous errors ---- */

/* From the first pooled call that asks the driver on, all give its code, and nothing is recycled. */
static void sticky(void)
{
    CUcontext again;
    CUdeviceptr block[BLOCKS], none = 0;
    uint64_t live, freed;
    int failed = 0;

    get_blocks(block, BLOCKS, SMALL);
    OK(cuMemFree(block[0]));
    softcuda_stick(NULL, CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(cuMemAlloc(&none, (size_t)100 << 20) == CUDA_ERROR_ILLEGAL_ADDRESS); /* a miss asks */
    live = softcuda_live_allocations();
    freed = softcuda_calls("cuMemRelease") + softcuda_calls("cuMemUnmap");
    for (int i = 1; i < BLOCKS; i++) {
        REQUIRE(cuMemFree(block[i]) == CUDA_ERROR_ILLEGAL_ADDRESS);
        failed += cuMemAlloc(&none, SMALL) == CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    REQUIRE(failed == BLOCKS - 1 && none == 0);
    REQUIRE(softcuda_live_allocations() == live);
    REQUIRE(softcuda_calls("cuMemRelease") + softcuda_calls("cuMemUnmap") == freed);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuCtxSetCurrent(again));
    require_served();
}

/* One context's error is not another's. */
static void sticky_alone(void)
{
    CUcontext kept = current(), broken = create();
    CUdeviceptr block = client_alloc(SMALL), none;

    softcuda_stick(broken, CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(cuMemAlloc(&none, (size_t)100 << 20) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(cuMemFree(block) == CUDA_ERROR_LAUNCH_FAILED);
    OK(cuCtxSetCurrent(kept));
    require_served();
}

/* ---- sync beside a capture ---- */

/* CUPOLA_FREE=sync: a free waits for what was submitted, and leaves the capture alone. */
static void sync_captures(void)
{
    CUstream capturing = client_stream(CU_STREAM_NON_BLOCKING), busy = client_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr block[3], inner;
    CUgraph graph;

    get_blocks(block, 3, 65536);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
    client_fill(capturing, block[2], 65536, 5);
    for (int i = 0; i < 2; i++) {
        client_spin(busy, 30000);
        client_fill(busy, block[i], 65536, 7);
        REQUIRE(softcuda_unfinished() > 0);
        OK(cuMemFree(block[i]));
        REQUIRE(softcuda_unfinished() == 0);
    }
    inner = client_alloc(65536);
    client_fill(capturing, inner, 65536, 6);
    OK(cuStreamEndCapture(capturing, &graph));
    REQUIRE(graph);
    require_served();
}

#define CASE_LIST(X)     \
    X(handed_on)         \
    X(handed_on_primary) \
    X(freed_meanwhile)   \
    X(asked_meanwhile)   \
    X(waits_for_users)   \
    X(refused)           \
    X(references)        \
    X(reset_afresh)      \
    X(reset_unseen)      \
    X(state)             \
    X(versions)          \
    X(attached)          \
    X(several)           \
    X(gone_current)      \
    X(green_shares)      \
    X(green_order)       \
    X(green_null)        \
    X(green_last)        \
    X(sticky)            \
    X(sticky_alone)      \
    X(sync_captures)

static const struct {
    const char *name;
    void (*run)(void);
} g_case[] = {
#define X(name) {#name, name},
    CASE_LIST(X)
#undef X
};

int main(int argc, char **argv)
{
    g_is_native = argc > 2 && strcmp(argv[2], "native") == 0;
    for (size_t i = 0; i < sizeof(g_case) / sizeof(g_case[0]); i++)
        if (argc > 1 && strcmp(argv[1], g_case[i].name) == 0) {
            client_open();
            g_case[i].run();
            REQUIRE(softcuda_violations() == 0);
            return 0;
        }
    return 2;
}
