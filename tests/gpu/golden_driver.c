/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_driver - what the driver answers to odd calls around memory, by state of the process: the states.
 * What:       golden.h; docs/golden.md says how to read the lines.
 * Not here:   who disturbs which capture otherwise (capture_matrix), waits (quirks).
 * Invariants: golden.h's.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "golden_driver.h"

CUcontext golden_first, golden_second;
CUstream golden_stream, golden_capturing;
CUdeviceptr golden_other;
CUmemGenericAllocationHandle golden_handle;
const CUmemAllocationProp golden_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
const CUmemAccessDesc golden_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

const char *golden_context_name(CUcontext context)
{
    if (!context)
        return "none";
    return context == golden_first ? "first" : context == golden_second ? "second" : "other";
}

/* ---- states ---- */

static void open_driver(void)
{
    golden_need(cuInit(0), "cuInit");
}

/* One context, current: the primary one. */
static void open_one(void)
{
    dev_open();
    golden_need(cuCtxGetCurrent(&golden_first), "cuCtxGetCurrent");
    golden_need(cuStreamCreate(&golden_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    golden_need(cuStreamCreate(&golden_capturing, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    golden_need(cuMemAlloc(&golden_other, SMALL_BYTES), "cuMemAlloc");
    golden_need(cuMemCreate(&golden_handle, HANDLE_BYTES, &golden_prop, 0), "cuMemCreate");
}

/* The memory belongs to a second context. */
static void open_second(void)
{
    open_one();
    golden_need(cuCtxCreate_v4(&golden_second, NULL, 0, 0), "cuCtxCreate");
    golden_need(cuStreamCreate(&golden_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* A second context is current, the memory is of the first. */
static void enter_second(void)
{
    golden_need(cuCtxCreate_v4(&golden_second, NULL, 0, 0), "cuCtxCreate");
}

/* A context of a second device is current. */
static void enter_other_device(void)
{
    int count = 0;

    golden_need(cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count < 2)
        golden_not_here();
    golden_need(cuDevicePrimaryCtxRetain(&golden_second, 1), "cuDevicePrimaryCtxRetain");
    golden_need(cuCtxSetCurrent(golden_second), "cuCtxSetCurrent");
    golden_need(cuStreamCreate(&golden_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    golden_need(cuMemAlloc(&golden_other, SMALL_BYTES), "cuMemAlloc");
}

static void enter_peer(void)
{
    enter_other_device();
    golden_need(cuCtxEnablePeerAccess(golden_first, 0), "cuCtxEnablePeerAccess");
}

static void enter_destroyed(void)
{
    golden_need(cuCtxDestroy(golden_second), "cuCtxDestroy");
    golden_stream = NULL;
}

static void enter_reset(void)
{
    golden_need(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
    golden_stream = NULL;
}

static void enter_released(void)
{
    golden_need(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
    golden_stream = NULL;
}

/* After the reset the program begins anew. */
static void enter_again(void)
{
    enter_reset();
    golden_need(cuDevicePrimaryCtxRetain(&golden_second, 0), "cuDevicePrimaryCtxRetain");
    golden_need(cuCtxSetCurrent(golden_second), "cuCtxSetCurrent");
}

/* A kernel has touched addresses without memory. */
static void enter_sticky(void)
{
    CUdeviceptr nothing = 0;

    golden_need(cuMemAddressReserve(&nothing, HANDLE_BYTES, 0, 0, 0), "cuMemAddressReserve");
    dev_fill(nothing, SMALL_BYTES, 1, NULL);
    golden_need(cuCtxSynchronize() == CUDA_SUCCESS, "an illegal address");
}

#define BEGIN(name, mode)                                                                  \
    static void name(void)                                                                 \
    {                                                                                      \
        golden_need(cuStreamBeginCapture(golden_capturing, CU_STREAM_CAPTURE_MODE_##mode), \
                    "cuStreamBeginCapture");                                               \
    }
BEGIN(begin_global, GLOBAL)
BEGIN(begin_thread_local, THREAD_LOCAL)
BEGIN(begin_relaxed, RELAXED)
#undef BEGIN

static void end_capture(golden_answer_t *answer)
{
    CUgraph graph = NULL;

    golden_say(answer, " end %d", cuStreamEndCapture(golden_capturing, &graph));
    if (graph)
        cuGraphDestroy(graph);
}

static const golden_state_t g_states[] = {
    /* is_full, is_literal, is_checked */
    {"no-init", GOLDEN_HERE, false, true, false, NULL, NULL, NULL, NULL},
    {"no-context", GOLDEN_HERE, false, true, false, open_driver, NULL, NULL, NULL},
    {"one", GOLDEN_HERE, true, false, true, open_one, NULL, NULL, NULL},
    {"second-current", GOLDEN_HERE, false, false, true, open_one, enter_second, NULL, NULL},
    {"other-device", GOLDEN_HERE, false, false, true, open_one, enter_other_device, NULL, NULL},
    {"peer", GOLDEN_HERE, false, false, true, open_one, enter_peer, NULL, NULL},
    {"thread-without", GOLDEN_THREAD, false, false, true, open_one, NULL, NULL, NULL},
    {"destroyed", GOLDEN_HERE, false, false, true, open_second, enter_destroyed, NULL, NULL},
    {"reset", GOLDEN_HERE, false, false, false, open_one, enter_reset, NULL, NULL},
    {"released", GOLDEN_HERE, false, false, false, open_one, enter_released, NULL, NULL},
    {"reset-and-retained", GOLDEN_HERE, false, false, true, open_one, enter_again, NULL, NULL},
    {"capture-global", GOLDEN_HERE, false, false, true, open_one, NULL, begin_global, end_capture},
    {"capture-thread-local", GOLDEN_HERE, false, false, true, open_one, NULL, begin_thread_local,
     end_capture},
    {"capture-relaxed", GOLDEN_HERE, false, false, true, open_one, NULL, begin_relaxed, end_capture},
    {"forked", GOLDEN_FORK, false, false, false, open_one, NULL, NULL, NULL},
    {"sticky", GOLDEN_HERE, false, false, false, open_one, enter_sticky, NULL, NULL},
    {"exit-early", GOLDEN_EXIT_EARLY, false, false, false, open_one, NULL, NULL, NULL},
    {"exit-late", GOLDEN_EXIT_LATE, false, false, false, open_one, NULL, NULL, NULL},
    {"destructor", GOLDEN_DESTRUCTOR, false, false, false, open_one, NULL, NULL, NULL},
};

static void settle(golden_bed_t *bed)
{
    if (bed->kept)
        cuMemFree(bed->kept);
    bed->kept = 0;
}

static bool is_sound(void)
{
    return cuCtxSynchronize() == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
    const golden_program_t program = {
        .tables = {{golden_other_calls, golden_other_call_count, false}, /* some crash: golden.h */
                   {golden_pointer_calls, golden_pointer_call_count, true}},
        .kinds = golden_kinds,
        .kind_count = golden_kind_count,
        .states = g_states,
        .state_count = GOLDEN_COUNT(g_states),
        .settle = settle,
        .is_sound = is_sound,
    };

    return golden_main(argc, argv, &program);
}
