/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: each operation draws a block and a place, and puts the block's order right first.
 */
#include "tests/preload/storm.h"
#include "tests/softcuda/pattern.h"

/* ---- operations: false when there was nothing to do ---- */

/* Mostly written at once, by a launch that may begin before what is in front of it has ended: that is not the block's. */
bool storm_op_alloc(worker_t *w)
{
    block_t *block;
    uint64_t size;

    if (w->count == LIVE_MAX)
        return false;
    block = calloc(1, sizeof(*block));
    REQUIRE(block);
    size = cup_rng_size(&w->rng, one_in(w, 12) ? HUGE_LOG2 : SIZE_LOG2);
    block->memory = storm_get_memory(w, size);
    block->bytes = size < (1u << SIZE_LOG2) ? size : 1u << SIZE_LOG2;
    block->base = block->memory + below(w, (size - block->bytes) / 256 + 1) * 256;
    block->at = NOWHERE;
    CU(cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING));
    w->live[w->count++] = block;
    if (!one_in(w, 4))
        storm_fill_block(w, block, one_in(w, 2));
    return true;
}

/* Often looked at just before. */
bool storm_op_free(worker_t *w)
{
    int index = w->count > 0 ? (int)below(w, (uint64_t)w->count) : 0;
    block_t *block = w->live[index];

    if (w->count == 0 || block->pins > 0)
        return false;
    if (block->at != DOOMED && one_in(w, 2)) {
        int place = storm_pick_place(w);

        storm_order(w, block, place);
        storm_verify(w->place[place], block->base, block->valid, block->seed, w->wrong);
    }
    storm_drop_block(w, index);
    return true;
}

bool storm_op_fill(worker_t *w)
{
    block_t *block = storm_pick_block(w);

    if (block)
        storm_fill_block(w, block, false);
    return block != NULL;
}

bool storm_op_verify(worker_t *w)
{
    block_t *block = storm_pick_block(w);
    int place = storm_pick_place(w);

    if (!block)
        return false;
    storm_order(w, block, place);
    storm_verify(w->place[place], block->base, block->valid, block->seed, w->wrong);
    return block->valid > 0;
}

bool storm_op_set(worker_t *w)
{
    block_t *block = storm_pick_block(w);
    int place = storm_pick_place(w);

    if (!block)
        return false;
    storm_order(w, block, place);
    CU(cuMemsetD8Async(block->base, 0x5A, block->bytes, w->place[place]));
    block->valid = 0;
    return true;
}

bool storm_op_copy(worker_t *w)
{
    block_t *from = storm_pick_block(w), *to = from ? storm_pick_block(w) : NULL;
    int place = storm_pick_place(w);
    uint64_t bytes;

    if (!to || from == to || from->valid == 0)
        return false;
    storm_order(w, from, place);
    storm_order(w, to, place);
    bytes = from->valid < to->bytes ? from->valid : to->bytes;
    if (one_in(w, 2)) {
        void *params[] = {&to->base, &from->base, &bytes};
        storm_launch(g_storm.copy, w->place[place], params, false);
    } else {
        CU(cuMemcpyDtoDAsync(to->base, from->base, bytes, w->place[place]));
    }
    to->valid = bytes;
    to->seed = from->seed;
    return true;
}

bool storm_op_to_host(worker_t *w)
{
    block_t *block = storm_pick_block(w);
    slot_t *slot = block ? storm_find_slot(w, block->valid) : NULL;
    int place = storm_pick_place(w);

    if (!slot)
        return false;
    storm_order(w, block, place);
    slot->seed = block->seed;
    slot->state = ARRIVING;
    CU(cuMemcpyDtoHAsync(slot->host, block->base, slot->bytes, w->place[place]));
    if (one_in(w, 3)) {
        slot->state = LOOKED_AT;
        atomic_store(&slot->is_looked_at, false);
        CU(cuLaunchHostFunc(w->place[place], storm_look_at_slot, slot));
    }
    storm_mark_slot(w, slot, place);
    return true;
}

bool storm_op_from_host(worker_t *w)
{
    block_t *block = storm_pick_block(w);
    slot_t *slot = block ? storm_find_slot(w, block->bytes) : NULL;
    int place = storm_pick_place(w);

    if (!slot)
        return false;
    storm_order(w, block, place);
    block->seed = cup_rng_next(&w->rng) | 1;
    block->valid = slot->bytes;
    for (uint64_t i = 0; i < (slot->bytes + 7) / 8; i++)
        ((uint64_t *)slot->host)[i] = softcuda_fill_word(block->seed, i);
    slot->state = LEAVING;
    CU(cuMemcpyHtoDAsync(block->base, slot->host, slot->bytes, w->place[place]));
    storm_mark_slot(w, slot, place);
    return true;
}

/* Natively a synchronous copy is one on the legacy stream. */
bool storm_op_sync_copy(worker_t *w)
{
    block_t *block = w->phase->has_legacy ? storm_pick_block(w) : NULL;
    unsigned char host[256];
    uint64_t bytes;
    CUstreamCaptureMode mode;

    if (!block || block->valid == 0)
        return false;
    storm_order(w, block, LEGACY);
    bytes = block->valid < sizeof(host) ? block->valid : sizeof(host);
    mode = relax(w);
    CU(cuMemcpyDtoH(host, block->base, bytes));
    unrelax(w, mode);
    block->at = NOWHERE;
    atomic_fetch_add(&g_storm.host_wrong, softcuda_verify_region(host, bytes, block->seed));
    return true;
}

/* Now and then everybody waits: a host that runs ahead without end would only fill launch queues. */
bool storm_op_wait(worker_t *w)
{
    CUstreamCaptureMode mode;

    if (softcuda_unfinished() < 20 + below(w, 400))
        return false;
    mode = relax(w);
    CU(cuStreamSynchronize(w->place[storm_pick_place(w)]));
    unrelax(w, mode);
    return true;
}

bool storm_op_settle(worker_t *w)
{
    if (!g_storm.is_kept)
        storm_settle_slots(w);
    return !g_storm.is_kept;
}

bool storm_op_query(worker_t *w)
{
    block_t *block = storm_pick_block(w);
    CUstreamCaptureMode mode = relax(w);
    CUresult got = block && block->at == BY_EVENT ? cuEventQuery(block->event)
                                                  : cuStreamQuery(w->place[storm_pick_place(w)]);

    unrelax(w, mode);
    if (got != CUDA_ERROR_NOT_READY)
        CU(got);
    return true;
}

/* With work in flight. */
bool storm_op_destroy_stream(worker_t *w)
{
    int place = OWN + (int)below(w, PLACES - OWN);

    if (w->capture.stream && w->capture.place == place)
        return false;
    storm_leave_place(w, place, true);
    CU(cuStreamDestroy(w->place[place]));
    storm_create_own(w, place);
    return true;
}

bool storm_op_give(worker_t *w)
{
    block_t *block = storm_pick_block(w);

    if (!block || block->pins > 0)
        return false;
    storm_fence(w, block);
    pthread_mutex_lock(&g_storm.lock);
    for (int i = 0; g_storm.market_count < MARKET_MAX && i < w->count; i++)
        if (w->live[i] == block) {
            g_storm.market[g_storm.market_count++] = block;
            w->live[i] = w->live[--w->count];
            break;
        }
    pthread_mutex_unlock(&g_storm.lock);
    return true;
}

/* The frees of others are no help here: what is in order for the new owner is what its own frees order. */
bool storm_op_take(worker_t *w)
{
    block_t *block = NULL;

    pthread_mutex_lock(&g_storm.lock);
    if (g_storm.market_count > 0 && w->count < LIVE_MAX)
        block = g_storm.market[--g_storm.market_count];
    pthread_mutex_unlock(&g_storm.lock);
    if (!block)
        return false;
    block->freed = w->freed;
    w->live[w->count++] = block;
    if (one_in(w, 2))
        storm_drop_block(w, w->count - 1);
    return true;
}

/* ---- a second context ---- */

/* A block of the first context, just allocated there, is written by a stream of the second. */
static void borrow(worker_t *w, CUstream stream)
{
    CUdeviceptr block;

    CU(cuCtxPushCurrent(g_storm.primary));
    block = client_alloc(4096);
    CU(cuCtxPopCurrent(NULL));
    CU(cuMemsetD8Async(block, 1, 4096, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuCtxPushCurrent(g_storm.primary));
    storm_free_memory(w, block);
    CU(cuCtxPopCurrent(NULL));
}

bool storm_op_visit(worker_t *w)
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
