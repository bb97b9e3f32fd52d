/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_runtime - what the runtime library answers to odd calls around memory, by state of the process;
 * after each call, what cudaPeekAtLastError and two cudaGetLastError say.
 * What:       golden.h; here the kinds of pointers and the states, for a shared runtime. docs/golden.md says
 *             how to read the lines.
 * Not here:   what the runtime passes on unchanged and golden_driver asks: attributes one by one, mappings.
 * Invariants: golden.h's.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "golden_runtime.h"
#include <stdlib.h>

#define RESERVED_BYTES ((size_t)2 << 20)
#define INTERIOR_BYTES 512
#define WILD_HIGH      0x600000000000 /* where nobody maps anything */

cudaStream_t golden_stream;
void *golden_other;
static cudaStream_t g_capturing;

/* ---- kinds of pointers ---- */

static int point(golden_bed_t *bed, const void *base, size_t bytes, size_t offset)
{
    bed->base = (uint64_t)(uintptr_t)base;
    bed->bytes = bytes;
    bed->addr = bed->base + offset;
    return 0;
}

static int make_null(golden_bed_t *bed)
{
    return point(bed, NULL, 0, 0);
}

static int make_wild(golden_bed_t *bed)
{
    return point(bed, (void *)WILD, 0, 0);
}

static int make_wild_high(golden_bed_t *bed)
{
    return point(bed, (void *)WILD_HIGH, 0, 0);
}

static int make_stack(golden_bed_t *bed)
{
    return point(bed, (void *)(uintptr_t)golden_stack(), 0, 0);
}

static int make_heap(golden_bed_t *bed)
{
    static char page[SMALL_BYTES] __attribute__((aligned(SMALL_BYTES)));

    return point(bed, page, 0, 0);
}

static int allocate(golden_bed_t *bed, size_t bytes, size_t offset)
{
    void *base = NULL;
    cudaError_t error = cudaMalloc(&base, bytes);

    return error ? (int)error : point(bed, base, bytes, offset);
}

static int make_live(golden_bed_t *bed)
{
    return allocate(bed, SMALL_BYTES, 0);
}

static int make_interior(golden_bed_t *bed)
{
    return allocate(bed, SMALL_BYTES, INTERIOR_BYTES);
}

static int make_large(golden_bed_t *bed)
{
    return allocate(bed, LARGE_BYTES, 0);
}

static void spoil_free(golden_bed_t *bed)
{
    golden_need(cudaFree((void *)(uintptr_t)bed->base), "cudaFree");
}

static int make_pitch(golden_bed_t *bed)
{
    void *base = NULL;
    size_t pitch = 0;
    cudaError_t error = cudaMallocPitch(&base, &pitch, 100, 10);

    return error ? (int)error : point(bed, base, pitch * 10, 0);
}

static int make_managed(golden_bed_t *bed)
{
    void *base = NULL;
    cudaError_t error = cudaMallocManaged(&base, SMALL_BYTES, cudaMemAttachGlobal);

    return error ? (int)error : point(bed, base, SMALL_BYTES, 0);
}

static int make_async(golden_bed_t *bed)
{
    void *base = NULL;
    cudaError_t error = cudaMallocAsync(&base, SMALL_BYTES, golden_stream);

    if (!error)
        error = cudaStreamSynchronize(golden_stream);
    return error ? (int)error : point(bed, base, SMALL_BYTES, 0);
}

static void spoil_async(golden_bed_t *bed)
{
    golden_need(cudaFreeAsync((void *)(uintptr_t)bed->base, golden_stream), "cudaFreeAsync");
    golden_need(cudaStreamSynchronize(golden_stream), "cudaStreamSynchronize");
}

static int make_array(golden_bed_t *bed)
{
    struct cudaChannelFormatDesc format = {.x = 32, .f = cudaChannelFormatKindUnsigned};
    cudaArray_t array = NULL;
    cudaError_t error = cudaMallocArray(&array, &format, 16, 16, 0);

    cudaGetLastError();
    return error ? (int)error : point(bed, array, 0, 0);
}

static int make_host(golden_bed_t *bed)
{
    void *base = NULL;
    cudaError_t error = cudaHostAlloc(&base, SMALL_BYTES, cudaHostAllocDefault);

    return error ? (int)error : point(bed, base, SMALL_BYTES, 0);
}

static int make_registered(golden_bed_t *bed)
{
    void *base = NULL;
    cudaError_t error;

    golden_need(posix_memalign(&base, SMALL_BYTES, SMALL_BYTES), "posix_memalign");
    error = cudaHostRegister(base, SMALL_BYTES, cudaHostRegisterDefault);
    return error ? (int)error : point(bed, base, SMALL_BYTES, 0);
}

static const golden_kind_t g_kinds[] = {
    /* name, is_literal, where */
    {"null", true, GOLDEN_ALWAYS, make_null, NULL},
    {"wild", true, GOLDEN_ALWAYS, make_wild, NULL},
    {"wild-high", true, GOLDEN_FULL, make_wild_high, NULL},
    {"stack", true, GOLDEN_ALWAYS, make_stack, NULL},
    {"heap", true, GOLDEN_FULL, make_heap, NULL},
    {"live", false, GOLDEN_ALWAYS, make_live, NULL},
    {"interior", false, GOLDEN_ALWAYS, make_interior, NULL},
    {"large", false, GOLDEN_FULL, make_large, NULL},
    {"freed", false, GOLDEN_ALWAYS, make_live, spoil_free},
    {"freed-interior", false, GOLDEN_FULL, make_interior, spoil_free},
    {"freed-large", false, GOLDEN_FULL, make_large, spoil_free},
    {"pitch", false, GOLDEN_FULL, make_pitch, NULL},
    {"managed", false, GOLDEN_ALWAYS, make_managed, NULL},
    {"async", false, GOLDEN_ALWAYS, make_async, NULL},
    {"async-freed", false, GOLDEN_FULL, make_async, spoil_async},
    {"array", false, GOLDEN_FULL, make_array, NULL},
    {"host", false, GOLDEN_ALWAYS, make_host, NULL},
    {"registered", false, GOLDEN_FULL, make_registered, NULL},
};

/* ---- states ---- */

static void open_one(void)
{
    dev_open();
    golden_need(cudaStreamCreateWithFlags(&golden_stream, cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
    golden_need(cudaStreamCreateWithFlags(&g_capturing, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    golden_need(cudaMalloc(&golden_other, SMALL_BYTES), "cudaMalloc");
    cudaGetLastError();
}

/* Another device is the thread's. */
static void enter_other_device(void)
{
    int count = 0;

    golden_need(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (count < 2)
        golden_not_here();
    golden_need(cudaSetDevice(1), "cudaSetDevice");
    golden_need(cudaStreamCreateWithFlags(&golden_stream, cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
    golden_need(cudaMalloc(&golden_other, SMALL_BYTES), "cudaMalloc");
}

/* A context that the program made through the driver is current. */
static void enter_foreign(void)
{
    __typeof__(cuCtxCreate_v4) *create = NULL;
    CUcontext made;

    golden_need(
        cudaGetDriverEntryPointByVersion("cuCtxCreate", (void **)&create, 12050, cudaEnableDefault, NULL) ||
            !create || create(&made, NULL, 0, 0),
        "cuCtxCreate");
    golden_stream = NULL;
}

static void enter_reset(void)
{
    golden_need(cudaDeviceReset(), "cudaDeviceReset");
    golden_stream = NULL;
}

/* A kernel has touched addresses without memory: only the driver has such. */
static void enter_sticky(void)
{
    __typeof__(cuMemAddressReserve) *reserve = NULL;
    CUdeviceptr nothing = 0;

    golden_need(cudaGetDriverEntryPointByVersion("cuMemAddressReserve", (void **)&reserve, 10020,
                                                 cudaEnableDefault, NULL) ||
                    !reserve || reserve(&nothing, RESERVED_BYTES, 0, 0, 0),
                "cuMemAddressReserve");
    dev_fill(nothing, SMALL_BYTES, 1, NULL);
    golden_need(cudaDeviceSynchronize() == cudaSuccess, "an illegal address");
    cudaGetLastError(); /* or the first call would tell it, whichever that is */
}

#define BEGIN(name, mode)                                                                                    \
    static void name(void)                                                                                   \
    {                                                                                                        \
        golden_need(cudaStreamBeginCapture(g_capturing, cudaStreamCaptureMode##mode), "begin of a capture"); \
    }
BEGIN(begin_global, Global)
BEGIN(begin_thread_local, ThreadLocal)
BEGIN(begin_relaxed, Relaxed)
#undef BEGIN

static void end_capture(golden_answer_t *answer)
{
    cudaGraph_t graph = NULL;

    golden_say(answer, " end %d", cudaStreamEndCapture(g_capturing, &graph));
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
}

static const golden_state_t g_states[] = {
    /* is_full, is_literal, is_checked */
    {"first", GOLDEN_FIRST, false, true, false, NULL, NULL, NULL, NULL},
    {"one", GOLDEN_HERE, true, false, true, open_one, NULL, NULL, NULL},
    {"foreign-context", GOLDEN_HERE, false, false, true, open_one, enter_foreign, NULL, NULL},
    {"other-device", GOLDEN_HERE, false, false, true, open_one, enter_other_device, NULL, NULL},
    {"new-thread", GOLDEN_THREAD, false, false, true, open_one, NULL, NULL, NULL},
    {"reset", GOLDEN_HERE, false, false, true, open_one, enter_reset, NULL, NULL},
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

/* ---- around each call ---- */

static void ask_last_error(golden_answer_t *answer)
{
    golden_say(answer, " peek %d", cudaPeekAtLastError());
    golden_say(answer, " last %d", cudaGetLastError());
    golden_say(answer, " then %d", cudaGetLastError());
}

static void settle(golden_bed_t *bed)
{
    if (bed->kept)
        cudaFree((void *)(uintptr_t)bed->kept);
    bed->kept = 0;
    cudaGetLastError();
}

static bool is_sound(void)
{
    return cudaDeviceSynchronize() == cudaSuccess;
}

int main(int argc, char **argv)
{
    const golden_program_t program = {
        .tables = {{golden_other_calls, golden_other_call_count, false}, /* some crash: golden.h */
                   {golden_pointer_calls, golden_pointer_call_count, true}},
        .kinds = g_kinds,
        .kind_count = GOLDEN_COUNT(g_kinds),
        .states = g_states,
        .state_count = GOLDEN_COUNT(g_states),
        .after = ask_last_error,
        .settle = settle,
        .is_sound = is_sound,
    };

    return golden_main(argc, argv, &program);
}
