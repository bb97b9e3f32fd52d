/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context - contexts, primary ones, what green ones (green.c) are made of, and the stack of current ones
 * that each thread has. Context objects are never freed, so that a stale handle answers
 * CONTEXT_IS_DESTROYED; a primary context comes back under the same handle with a new id.
 */
#include "driver.h"
#include <stdatomic.h>
#include <time.h>

sc_ctx_t *sc_ctx_current(void)
{
    sc_thread_t *thread = sc_thread();

    return thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

sc_ctx_t *sc_ctx_root(sc_ctx_t *ctx)
{
    return ctx->root ? ctx->root : ctx;
}

CUresult sc_ctx_find(CUcontext handle, sc_ctx_t **out_ctx)
{
    sc_ctx_t *ctx = handle ? handle : sc_ctx_current();

    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out_ctx = ctx;
    return CUDA_SUCCESS;
}

static sc_ctx_t *new_context(int device)
{
    sc_ctx_t *ctx = sc_zalloc(sizeof *ctx);

    ctx->device = device;
    ctx->next = sc.contexts;
    sc.contexts = ctx;
    return ctx;
}

static void open_context(sc_ctx_t *ctx, unsigned flags)
{
    ctx->is_alive = true;
    ctx->flags = flags;
    ctx->id = sc_next_id();
    ctx->sticky = CUDA_SUCCESS;
    ctx->uses = 1;
    ctx->legacy = sc_stream_create(ctx, CU_STREAM_DEFAULT, 0);
}

static bool has_work(const sc_ctx_t *ctx)
{
    for (const sc_queue_t *queue = ctx->queues; queue; queue = queue->next)
        if (!sc_queue_is_idle(queue))
            return true;
    return false;
}

static void drop_streams(sc_ctx_t *ctx)
{
    while (ctx->streams)
        sc_stream_destroy(ctx->streams);
    ctx->legacy = NULL;
}

/* Its green contexts end with a primary one. */
static void end_parts(const sc_ctx_t *ctx)
{
    for (sc_ctx_t *part = sc.contexts; part; part = part->next)
        if (part->root == ctx && part->is_alive) {
            part->is_alive = false;
            drop_streams(part);
        }
}

static _Atomic uint64_t linger_us;

SC_EXPORT void softcuda_linger(uint64_t us)
{
    atomic_store(&linger_us, us);
}

static void linger(void)
{
    uint64_t us = atomic_load(&linger_us);
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    if (us == 0)
        return;
    pthread_mutex_unlock(&sc.lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&sc.lock);
}

/* Waits for its work, what other threads submit meanwhile too; its streams and memory go with it. */
static CUresult close_context(sc_ctx_t *ctx)
{
    CUresult status;

    do {
        status = sc_ctx_drain(ctx);
    } while (status != CUDA_ERROR_LAUNCH_TIMEOUT && has_work(ctx));
    if (status == CUDA_ERROR_LAUNCH_TIMEOUT || !ctx->is_alive) /* another thread was faster */
        return status;
    ctx->is_alive = false;
    sc_ctx_drop_peers(ctx, NULL);
    end_parts(ctx);
    drop_streams(ctx);
    sc_marks_clear(&ctx->barrier);
    sc_host_free_context(ctx);
    sc_heap_free_context(ctx);
    linger();
    return CUDA_SUCCESS;
}

static CUresult push(sc_ctx_t *ctx)
{
    sc_thread_t *thread = sc_thread();

    if (thread->depth == SC_CTX_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    thread->stack[thread->depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out_ctx, unsigned flags, CUdevice device)
{
    if (!out_ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    sc_ctx_t *ctx = new_context(device);
    open_context(ctx, flags);
    *out_ctx = ctx;
    return push(ctx);
}

SC_EXPORT CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    SC_ENTER(cuCtxCreate);
    return create(ctx, flags, device);
}

SC_EXPORT CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int count, unsigned int flags,
                                  CUdevice device)
{
    SC_ENTER(cuCtxCreate_v3);
    if (params || count != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(ctx, flags, device);
}

SC_EXPORT CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    SC_ENTER(cuCtxCreate_v2);
    return create(ctx, flags, device);
}

SC_EXPORT CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
                                  CUdevice device)
{
    SC_ENTER(cuCtxCreate_v4);
    if (params && (params->numExecAffinityParams != 0 || params->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(ctx, flags, device);
}

static CUresult destroy(CUcontext ctx)
{
    sc_thread_t *thread = sc_thread();

    if (!ctx || ctx->is_primary || ctx->root)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (thread->depth && thread->stack[thread->depth - 1] == ctx)
        thread->depth--;
    return close_context(ctx);
}

SC_EXPORT CUresult cuCtxDestroy(CUcontext ctx)
{
    if (!ctx && !sc_has_ended()) /* measured, also before cuInit */
        return CUDA_ERROR_INVALID_VALUE;
    SC_ENTER(cuCtxDestroy);
    return destroy(ctx);
}

SC_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    if (!ctx && !sc_has_ended()) /* measured, also before cuInit */
        return CUDA_ERROR_INVALID_VALUE;
    SC_ENTER(cuCtxDestroy_v2);
    return destroy(ctx);
}

SC_EXPORT CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
    SC_ENTER(cuCtxAttach);
    if (!ctx || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = sc_ctx_current();
    (*ctx)->uses++;
    return CUDA_SUCCESS;
}

/* By documentation: of the current context only, and the last use ends it. */
SC_EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
    SC_ENTER(cuCtxDetach);
    if (!ctx || ctx != sc_ctx_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    return --ctx->uses == 0 ? destroy(ctx) : CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    SC_ENTER(cuCtxPushCurrent_v2);
    return ctx ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

SC_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    SC_ENTER(cuCtxPopCurrent_v2);
    sc_thread_t *thread = sc_thread();

    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (ctx)
        *ctx = thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
    SC_ENTER(cuCtxSetCurrent);
    sc_thread_t *thread = sc_thread();

    if (thread->depth)
        thread->depth--;
    return ctx ? push(ctx) : CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    SC_ENTER(cuCtxGetCurrent);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = sc_ctx_current();
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device, CUcontext handle)
{
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *device = ctx->device;
    return status;
}

SC_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    SC_ENTER(cuCtxGetDevice);
    return get_device(device, NULL);
}

SC_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    SC_ENTER(cuCtxGetDevice_v2);
    return get_device(device, ctx);
}

SC_EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    SC_ENTER(cuCtxGetFlags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = sc_ctx_current()->flags;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
    SC_ENTER(cuCtxSetFlags);
    sc_ctx_current()->flags = flags;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    SC_ENTER(cuCtxGetId);
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *id = ctx->id;
    return status;
}

SC_EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    SC_ENTER(cuCtxGetApiVersion);
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *version = 3020;
    return status;
}

static CUresult synchronize(CUcontext handle)
{
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (status == CUDA_SUCCESS)
        status = sc_capture_check_context(ctx);
    if (status == CUDA_SUCCESS)
        status = sc_ctx_drain(ctx);
    sc_time_waited();
    sc_time_take(SC_TIME_SYNCHRONIZE, 0);
    return status;
}

SC_EXPORT CUresult cuCtxSynchronize(void)
{
    SC_ENTER(cuCtxSynchronize);
    return synchronize(NULL);
}

SC_EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    SC_ENTER(cuCtxSynchronize_v2);
    return synchronize(ctx);
}

SC_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SC_ENTER(cuCtxGetStreamPriorityRange);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

static sc_ctx_t *retain(int device)
{
    sc_ctx_t *primary = sc.primaries[device];

    if (!primary) {
        primary = sc.primaries[device] = new_context(device);
        primary->is_primary = true;
    }
    if (!primary->is_alive)
        open_context(primary, primary->flags);
    primary->retains++;
    return primary;
}

SC_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    SC_ENTER(cuDevicePrimaryCtxRetain);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *ctx = retain(device);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    sc_ctx_t *primary = sc.primaries[device];
    if (!primary || primary->retains == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --primary->retains == 0 && primary->is_alive ? close_context(primary) : CUDA_SUCCESS;
}

/* The references stay: who has one gives it back afterwards, and the next one does not end it (measured). */
static CUresult reset(CUdevice device)
{
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    sc_ctx_t *primary = sc.primaries[device];
    if (!primary || !primary->is_alive)
        return CUDA_SUCCESS;
    return close_context(primary);
}

sc_ctx_t *sc_ctx_make_green(int device)
{
    sc_ctx_t *primary = retain(device), *ctx = new_context(device);

    ctx->root = primary;
    open_context(ctx, primary->flags);
    return ctx;
}

CUresult sc_ctx_end_green(sc_ctx_t *ctx)
{
    if (!ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult status = sc_ctx_drain(ctx);
    if (status != CUDA_SUCCESS)
        return status;
    ctx->is_alive = false;
    drop_streams(ctx);
    return release(ctx->device);
}

/* A reset that no entry point tells of, as a library could make it with tables of its own. */
SC_EXPORT void softcuda_reset_unseen(int device)
{
    pthread_mutex_lock(&sc.lock);
    reset(device);
    pthread_mutex_unlock(&sc.lock);
}

SC_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    SC_ENTER(cuDevicePrimaryCtxRelease);
    return release(device);
}

SC_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SC_ENTER(cuDevicePrimaryCtxRelease_v2);
    return release(device);
}

SC_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    SC_ENTER(cuDevicePrimaryCtxReset);
    return reset(device);
}

SC_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SC_ENTER(cuDevicePrimaryCtxReset_v2);
    return reset(device);
}

SC_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SC_ENTER(cuDevicePrimaryCtxGetState);
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    sc_ctx_t *primary = sc.primaries[device];
    *flags = primary ? primary->flags : 0;
    *active = primary && primary->is_alive;
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice device, unsigned flags)
{
    if (device < 0 || device >= sc.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sc.primaries[device]) {
        sc.primaries[device] = new_context(device);
        sc.primaries[device]->is_primary = true;
    }
    sc.primaries[device]->flags = flags;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    SC_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_flags(device, flags);
}

SC_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SC_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    return set_flags(device, flags);
}
