/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture_matrix - which call disturbs which capture: a line for each call, mode and beginning thread.
 * What:       a line is: call, mode, "own" (begun by the thread that calls) or "other", the call's code,
 *             the code of the capture's end. /relaxed: the call comes under an exchange of the mode. Where
 *             the capturing stream is destroyed there is no end: the last code is that of a record on the
 *             context, which fails as long as one of its streams captures.
 *             With the argument "freed" each call comes after work on two streams and a free, all in the
 *             capture, and before more work: then it meets what a pool has left to do after a free. Natively
 *             that free already spoils the capture.
 * Not here:   the pool; which cells differ under it (capture_matrix.sh).
 * Invariants: nothing of the program's is in flight when a call is made, so nothing here is about time.
 * Threads:    one makes the calls; for "other" a second one begins a capture, stands still, and ends it.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL_BYTES   4096
#define LARGE_BYTES   ((size_t)40 << 20) /* more than a pool takes at once: it has to grow for each */
#define SECONDS_MAX   100
#define POLLS_MAX     1000
#define POLL_US       100
#define COUNT(values) (sizeof(values) / sizeof((values)[0]))

/* What calls find, and what they leave behind for settle(). */
typedef struct bed {
    CUstream capturing, beside, busy; /* the last: only where frees come first */
    CUevent done, spare;              /* recorded and complete; never recorded before the call */
    CUdeviceptr block;                /* 0: freed */
    CUdeviceptr range;                /* reserved addresses for one handle */
    CUmemGenericAllocationHandle handle;
    bool is_mapped;
    CUevent made_event;
    CUstream made_stream;
} bed_t;

/* A call: under an exchange to relaxed mode; while a blocking stream captures; with the handle mapped. */
enum { RELAXED = 1, BLOCKING = 2, MAPPED = 4 };

typedef struct row {
    const char *name;
    CUresult (*call)(bed_t *bed);
    unsigned how;
    size_t bytes; /* of the block that is there to be freed */
} row_t;

static CUmemAllocationProp g_prop;
static size_t g_granularity;
static bool g_is_freed_first;

/* ---- the calls ---- */

static CUresult alloc_small(bed_t *bed)
{
    CUdeviceptr kept; /* to the end of the program: a pool that has it back would not have to grow again */

    (void)bed;
    return cuMemAlloc(&kept, SMALL_BYTES);
}

static CUresult alloc_large(bed_t *bed)
{
    CUdeviceptr kept;

    (void)bed;
    return cuMemAlloc(&kept, LARGE_BYTES);
}

static CUresult free_block(bed_t *bed)
{
    CUresult result = cuMemFree(bed->block);

    if (result == CUDA_SUCCESS)
        bed->block = 0;
    return result;
}

static CUresult free_null(bed_t *bed)
{
    (void)bed;
    return cuMemFree(0);
}

static CUresult get_info(bed_t *bed)
{
    size_t available, total;

    (void)bed;
    return cuMemGetInfo(&available, &total);
}

static CUresult get_range(bed_t *bed)
{
    CUdeviceptr base;
    size_t size;

    return cuMemGetAddressRange(&base, &size, bed->block);
}

static CUresult get_attribute(bed_t *bed)
{
    unsigned long long id;

    return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, bed->block);
}

static CUresult map_handle(bed_t *bed)
{
    const CUmemAccessDesc access = {.location = g_prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemCreate(&bed->handle, g_granularity, &g_prop, 0);

    if (result == CUDA_SUCCESS) {
        result = cuMemMap(bed->range, g_granularity, 0, bed->handle, 0);
        bed->is_mapped = result == CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? cuMemSetAccess(bed->range, g_granularity, &access, 1) : result;
}

static CUresult unmap_handle(bed_t *bed)
{
    CUresult result = bed->is_mapped ? cuMemUnmap(bed->range, g_granularity) : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS) {
        bed->is_mapped = false;
        result = cuMemRelease(bed->handle);
    }
    if (result == CUDA_SUCCESS)
        bed->handle = 0;
    return result;
}

static CUresult reserve_range(bed_t *bed)
{
    CUdeviceptr range;
    CUresult result = cuMemAddressReserve(&range, g_granularity, 0, 0, 0);

    (void)bed;
    return result == CUDA_SUCCESS ? cuMemAddressFree(range, g_granularity) : result;
}

static CUresult record_context(bed_t *bed)
{
    return cuCtxRecordEvent(dev_context(0), bed->spare);
}

static CUresult synchronize_context(bed_t *bed)
{
    (void)bed;
    return cuCtxSynchronize();
}

static CUresult create_event(bed_t *bed)
{
    return cuEventCreate(&bed->made_event, CU_EVENT_DISABLE_TIMING);
}

static CUresult query_event(bed_t *bed)
{
    return cuEventQuery(bed->done);
}

static CUresult synchronize_event(bed_t *bed)
{
    return cuEventSynchronize(bed->done);
}

static CUresult record_beside(bed_t *bed)
{
    return cuEventRecord(bed->spare, bed->beside);
}

static CUresult record_legacy(bed_t *bed)
{
    return cuEventRecord(bed->spare, CU_STREAM_LEGACY);
}

static CUresult create_stream(bed_t *bed)
{
    return cuStreamCreate(&bed->made_stream, CU_STREAM_NON_BLOCKING);
}

static CUresult get_context(bed_t *bed)
{
    CUcontext context;

    return cuStreamGetCtx(bed->beside, &context);
}

static CUresult is_beside_capturing(bed_t *bed)
{
    CUstreamCaptureStatus status;

    return cuStreamIsCapturing(bed->beside, &status);
}

static CUresult is_legacy_capturing(bed_t *bed)
{
    CUstreamCaptureStatus status;

    (void)bed;
    return cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}

/* Nothing of the program's is in flight; a shim may have recorded an event, which is soon done. */
static CUresult query_beside(bed_t *bed)
{
    CUresult result = cuStreamQuery(bed->beside);

    for (int i = 0; i < POLLS_MAX && result == CUDA_ERROR_NOT_READY; i++) {
        usleep(POLL_US);
        result = cuStreamQuery(bed->beside);
    }
    return result;
}

static CUresult synchronize_beside(bed_t *bed)
{
    return cuStreamSynchronize(bed->beside);
}

static CUresult wait_beside(bed_t *bed)
{
    return cuStreamWaitEvent(bed->beside, bed->done, 0);
}

static CUresult wait_legacy(bed_t *bed)
{
    return cuStreamWaitEvent(CU_STREAM_LEGACY, bed->done, 0);
}

static CUresult destroy_capturing(bed_t *bed)
{
    CUresult result = cuStreamDestroy(bed->capturing);

    if (result == CUDA_SUCCESS)
        bed->capturing = NULL;
    return result;
}

/*
 * "beside" is a non-blocking stream that does not capture. A non-blocking stream captures, too, but for the
 * rows named /blocking.
 */
static const row_t g_rows[] = {
    {"cuMemAlloc", alloc_small, 0, SMALL_BYTES},
    {"cuMemAlloc/relaxed", alloc_small, RELAXED, SMALL_BYTES},
    {"cuMemAlloc/large", alloc_large, 0, SMALL_BYTES},
    {"cuMemFree", free_block, 0, SMALL_BYTES},
    {"cuMemFree/relaxed", free_block, RELAXED, SMALL_BYTES},
    {"cuMemFree/large", free_block, 0, LARGE_BYTES},
    {"cuMemFree(0)", free_null, 0, SMALL_BYTES},
    {"cuMemGetInfo", get_info, 0, SMALL_BYTES},
    {"cuMemGetAddressRange", get_range, 0, SMALL_BYTES},
    {"cuPointerGetAttribute", get_attribute, 0, SMALL_BYTES},
    {"cuMemCreate+Map+SetAccess", map_handle, 0, SMALL_BYTES},
    {"cuMemUnmap+Release", unmap_handle, MAPPED, SMALL_BYTES},
    {"cuMemAddressReserve+Free", reserve_range, 0, SMALL_BYTES},
    {"cuCtxRecordEvent", record_context, 0, SMALL_BYTES},
    {"cuCtxRecordEvent/relaxed", record_context, RELAXED, SMALL_BYTES},
    {"cuCtxSynchronize", synchronize_context, 0, SMALL_BYTES},
    {"cuEventCreate", create_event, 0, SMALL_BYTES},
    {"cuEventQuery", query_event, 0, SMALL_BYTES},
    {"cuEventQuery/relaxed", query_event, RELAXED, SMALL_BYTES},
    {"cuEventSynchronize", synchronize_event, 0, SMALL_BYTES},
    {"cuEventSynchronize/relaxed", synchronize_event, RELAXED, SMALL_BYTES},
    {"cuEventRecord(beside)", record_beside, 0, SMALL_BYTES},
    {"cuEventRecord(legacy)", record_legacy, 0, SMALL_BYTES},
    {"cuEventRecord(legacy)/blocking", record_legacy, BLOCKING, SMALL_BYTES},
    {"cuStreamCreate", create_stream, 0, SMALL_BYTES},
    {"cuStreamGetCtx(beside)", get_context, 0, SMALL_BYTES},
    {"cuStreamIsCapturing(beside)", is_beside_capturing, 0, SMALL_BYTES},
    {"cuStreamIsCapturing(legacy)", is_legacy_capturing, 0, SMALL_BYTES},
    {"cuStreamIsCapturing(legacy)/blocking", is_legacy_capturing, BLOCKING, SMALL_BYTES},
    {"cuStreamQuery(beside)", query_beside, 0, SMALL_BYTES},
    {"cuStreamQuery(beside)/relaxed", query_beside, RELAXED, SMALL_BYTES},
    {"cuStreamSynchronize(beside)", synchronize_beside, 0, SMALL_BYTES},
    {"cuStreamSynchronize(beside)/relaxed", synchronize_beside, RELAXED, SMALL_BYTES},
    {"cuStreamWaitEvent(beside)", wait_beside, 0, SMALL_BYTES},
    {"cuStreamWaitEvent(legacy)", wait_legacy, 0, SMALL_BYTES},
    {"cuStreamWaitEvent(legacy)/blocking", wait_legacy, BLOCKING, SMALL_BYTES},
    {"cuStreamDestroy(capturing)", destroy_capturing, 0, SMALL_BYTES},
};

static const struct {
    const char *name;
    CUstreamCaptureMode mode;
} g_modes[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED},
};

/* ---- one cell ---- */

typedef struct cell {
    const row_t *row;
    CUstreamCaptureMode mode;
    bed_t bed;
    pthread_barrier_t step; /* begun; called */
    CUresult code, end;
} cell_t;

static CUevent event(void)
{
    CUevent made;

    dev_check(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return made;
}

static void prepare(bed_t *bed, const row_t *row)
{
    unsigned flags = row->how & BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;

    *bed = (bed_t){.beside = dev_stream(), .busy = dev_stream(), .done = event(), .spare = event()};
    dev_check(cuStreamCreate(&bed->capturing, flags), "cuStreamCreate");
    dev_check(cuMemAlloc(&bed->block, row->bytes), "cuMemAlloc");
    dev_check(cuMemAddressReserve(&bed->range, g_granularity, 0, 0, 0), "cuMemAddressReserve");
    if (row->how & MAPPED)
        dev_check(map_handle(bed), "cuMemCreate, cuMemMap, cuMemSetAccess");
    dev_spin(1, bed->beside);
    dev_check(cuEventRecord(bed->done, bed->beside), "cuEventRecord");
    dev_sync();
}

static void settle(bed_t *bed)
{
    if (bed->block)
        dev_check(cuMemFree(bed->block), "cuMemFree");
    if (bed->handle)
        dev_check(unmap_handle(bed), "cuMemUnmap, cuMemRelease");
    dev_check(cuMemAddressFree(bed->range, g_granularity), "cuMemAddressFree");
    cuEventDestroy(bed->done);
    cuEventDestroy(bed->spare);
    if (bed->made_event)
        cuEventDestroy(bed->made_event);
    if (bed->made_stream)
        cuStreamDestroy(bed->made_stream);
    if (bed->capturing)
        cuStreamDestroy(bed->capturing);
    cuStreamDestroy(bed->beside);
    cuStreamDestroy(bed->busy);
}

/* A capture that is worth something: it has a node. */
static void begin(cell_t *cell)
{
    dev_check(cuStreamBeginCapture(cell->bed.capturing, cell->mode), "cuStreamBeginCapture");
    dev_spin(1, cell->bed.capturing);
}

static void end(cell_t *cell)
{
    CUgraph graph = NULL;
    size_t nodes = 0;

    if (!cell->bed.capturing) {
        cell->end = record_context(&cell->bed);
        return;
    }
    cell->end = cuStreamEndCapture(cell->bed.capturing, &graph);
    if (cell->end == CUDA_SUCCESS && (cuGraphGetNodes(graph, NULL, &nodes) || nodes != 1))
        cell->end = CUDA_ERROR_UNKNOWN; /* not the graph that was captured */
    if (graph)
        cuGraphDestroy(graph);
}

static void work_and_free(const bed_t *bed)
{
    CUdeviceptr block;

    dev_check(cuMemAlloc(&block, SMALL_BYTES), "cuMemAlloc in the capture");
    dev_spin(1, bed->busy);
    dev_spin(1, bed->beside);
    dev_check(cuMemFree(block), "cuMemFree in the capture");
}

static void call(cell_t *cell)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (g_is_freed_first)
        work_and_free(&cell->bed);
    if (cell->row->how & RELAXED)
        dev_check(cuThreadExchangeStreamCaptureMode(&relaxed), "cuThreadExchangeStreamCaptureMode");
    cell->code = cell->row->call(&cell->bed);
    if (cell->row->how & RELAXED)
        dev_check(cuThreadExchangeStreamCaptureMode(&relaxed), "cuThreadExchangeStreamCaptureMode");
    if (g_is_freed_first)
        dev_spin(1, cell->bed.beside);
}

static void *capture_elsewhere(void *argument)
{
    cell_t *cell = argument;

    dev_join();
    begin(cell);
    pthread_barrier_wait(&cell->step);
    pthread_barrier_wait(&cell->step);
    end(cell);
    return NULL;
}

static void run_elsewhere(cell_t *cell)
{
    pthread_t thread;

    pthread_barrier_init(&cell->step, NULL, 2);
    if (pthread_create(&thread, NULL, capture_elsewhere, cell))
        dev_check(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
    pthread_barrier_wait(&cell->step);
    call(cell);
    pthread_barrier_wait(&cell->step);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&cell->step);
}

static void run(const row_t *row, size_t mode, bool is_other)
{
    cell_t cell = {.row = row, .mode = g_modes[mode].mode};

    prepare(&cell.bed, row);
    if (is_other) {
        run_elsewhere(&cell);
    } else {
        begin(&cell);
        call(&cell);
        end(&cell);
    }
    printf("%-36s %-12s %-5s %d %s %d\n", row->name, g_modes[mode].name, is_other ? "other" : "own",
           cell.code, cell.bed.capturing ? "end" : "record", cell.end);
    settle(&cell.bed);
}

int main(int argc, char **argv)
{
    g_is_freed_first = argc == 2 && strcmp(argv[1], "freed") == 0;
    if (argc > 1 && !g_is_freed_first) {
        fprintf(stderr, "usage: capture_matrix [freed]\n");
        return 2;
    }
    alarm(SECONDS_MAX);
    dev_open();
    g_prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    dev_check(cuMemGetAllocationGranularity(&g_granularity, &g_prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              "cuMemGetAllocationGranularity");
    for (size_t row = 0; row < COUNT(g_rows); row++)
        for (size_t mode = 0; mode < COUNT(g_modes); mode++)
            for (int is_other = 0; is_other < 2; is_other++)
                run(&g_rows[row], mode, is_other);
    return 0;
}
