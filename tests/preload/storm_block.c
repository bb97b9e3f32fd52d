/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a block remembers where it was used last. Its next work goes to the same stream, or waits for an event behind
 * the last one, or comes after a free that promised as much.
 */
#include "tests/preload/storm.h"
#include "tests/softcuda/pattern.h"

/* ---- kernels ---- */

void storm_launch(CUfunction kernel, CUstream stream, void **params, bool is_programmatic)
{
    CUlaunchAttribute attr = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                              .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attr, 1};

    if (is_programmatic)
        CU(cuLaunchKernelEx(&config, kernel, params, NULL));
    else
        CU(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void storm_fill(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, bool is_programmatic)
{
    void *params[] = {&base, &bytes, &seed};

    storm_launch(g_storm.fill, stream, params, is_programmatic);
}

void storm_verify(CUstream stream, CUdeviceptr base, uint64_t bytes, uint64_t seed, CUdeviceptr wrong)
{
    void *params[] = {&base, &bytes, &seed, &wrong};

    if (bytes > 0)
        storm_launch(g_storm.verify, stream, params, false);
}

/* ---- streams and order ---- */

int storm_pick_place(worker_t *w)
{
    int place;

    if (w->phase->streams != ALL)
        return w->phase->streams == ONE ? w->phase->one : OWN;
    do {
        place = (int)below(w, PLACES);
    } while ((place == LEGACY && !w->phase->has_legacy) || (w->capture.stream && place == w->capture.place));
    return place;
}

void storm_fence(worker_t *w, block_t *block)
{
    if (block->at < 0)
        return;
    CU(cuEventRecord(block->event, w->place[block->at]));
    block->at = BY_EVENT;
}

/* What comes next on the place runs after the block's last work. */
void storm_order(worker_t *w, block_t *block, int place)
{
    bool is_ordered =
        block->at == place || block->at == NOWHERE || (g_storm.is_kept && block->freed < w->freed);

    if (!is_ordered) {
        storm_fence(w, block);
        CU(cuStreamWaitEvent(w->place[place], block->event, 0));
    }
    block->at = place;
    block->freed = w->freed;
}

/* Behind the last work of its blocks: those of a stream that is about to go, or to be left alone. */
void storm_leave_place(worker_t *w, int place, bool may_doom)
{
    for (int i = 0; i < w->count; i++) {
        block_t *block = w->live[i];

        if (block->at != place)
            continue;
        if (may_doom && block->pins == 0 && one_in(w, 2))
            block->at = DOOMED;
        else
            storm_fence(w, block);
    }
}

void storm_create_own(worker_t *w, int place)
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
        atomic_fetch_add(&g_storm.host_wrong, softcuda_verify_region(slot->host, slot->bytes, slot->seed));
    else if (slot->state == LEAVING)
        memset(slot->host, 0xEE, SLOT_BYTES);
    else if (slot->state == LOOKED_AT)
        REQUIRE(atomic_load(&slot->is_looked_at));
    slot->state = IDLE;
}

/* Whether the copy is known to be over. */
static bool is_over(worker_t *w, const slot_t *slot)
{
    CUstreamCaptureMode mode;
    CUresult got;

    if (g_storm.is_kept)
        return true;
    mode = relax(w);
    got = cuEventQuery(slot->event);
    unrelax(w, mode);
    REQUIRE(got == CUDA_SUCCESS || got == CUDA_ERROR_NOT_READY);
    return got == CUDA_SUCCESS;
}

void storm_settle_slots(worker_t *w)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->slot[i].state != IDLE && is_over(w, &w->slot[i]))
            settle_slot(&w->slot[i]);
}

slot_t *storm_find_slot(worker_t *w, uint64_t valid)
{
    slot_t *slot = &w->slot[below(w, SLOTS)];

    if (slot->state != IDLE || valid == 0)
        return NULL;
    slot->bytes = valid < SLOT_BYTES ? valid : SLOT_BYTES;
    return slot;
}

/* A free comes before anybody looks; where that does not do, an event. */
void storm_mark_slot(worker_t *w, slot_t *slot, int place)
{
    if (!g_storm.is_kept)
        CU(cuEventRecord(slot->event, w->place[place]));
}

void storm_look_at_slot(void *arg)
{
    slot_t *slot = arg;

    atomic_fetch_add(&g_storm.host_wrong, softcuda_verify_region(slot->host, slot->bytes, slot->seed));
    atomic_store(&slot->is_looked_at, true);
}

/* ---- blocks ---- */

CUdeviceptr storm_get_memory(worker_t *w, uint64_t bytes)
{
    CUstreamCaptureMode mode = relax(w);
    CUdeviceptr base = client_alloc(bytes);

    unrelax(w, mode);
    return base;
}

/* Everything that this thread submitted before is in order now, and what it copied has come. */
void storm_free_memory(worker_t *w, CUdeviceptr base)
{
    CUstreamCaptureMode mode = relax(w);

    CU(cuMemFree(base));
    unrelax(w, mode);
    w->freed++;
    if (g_storm.is_kept)
        storm_settle_slots(w);
}

void storm_free_block(worker_t *w, block_t *block)
{
    storm_free_memory(w, block->memory);
    CU(cuEventDestroy(block->event));
    free(block);
}

void storm_drop_block(worker_t *w, int index)
{
    block_t *block = w->live[index];

    w->live[index] = w->live[--w->count];
    storm_free_block(w, block);
}

/* A block to work on; NULL. What can only be freed is. */
block_t *storm_pick_block(worker_t *w)
{
    int index;

    if (w->count == 0)
        return NULL;
    index = (int)below(w, (uint64_t)w->count);
    if (w->live[index]->at != DOOMED)
        return w->live[index];
    storm_drop_block(w, index);
    return NULL;
}

void storm_fill_block(worker_t *w, block_t *block, bool is_programmatic)
{
    int place = storm_pick_place(w);

    storm_order(w, block, place);
    block->seed = cup_rng_next(&w->rng) | 1;
    block->valid = block->bytes;
    storm_fill(w->place[place], block->base, block->bytes, block->seed, is_programmatic);
}
