/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap - a loop over streams that allocates, launches and frees: natively each free waits for its
 *           kernel, and the streams take turns.
 * What:       overlap CASE STREAMS BYTES. The first stream is held while the loop runs (natively it is
 *             not: the first free would never return).
 *             host:   the loop comes to its end all the same. What runs on the device is in order, as
 *                     after native frees.
 *             device: CUPOLA_FREE=overlap or deferred. The other streams come to their end, too.
 * Invariants: a held stream has work that can't end: on the software driver because its thread is held;
 *             on a GPU there are as many sets of a large block as take a hundred milliseconds.
 */
#include "tests/reports/report.h"

enum { MOST_STREAMS = 32, HOLD_SETS = 400 };

static CUstream g_stream[MOST_STREAMS];
static CUdeviceptr g_weight;

static void hold(CUstream stream)
{
    int (*held)(void *) = (int (*)(void *))(uintptr_t)report_soft("softcuda_hold");

    if (held != NULL)
        REQUIRE(held(stream) == 0);
    for (int i = 0; held == NULL && i < HOLD_SETS; i++)
        MUST(cuMemsetD8Async(g_weight, 1, 1024 * MIB, stream));
}

static void release(CUstream stream)
{
    void (*released)(void *) = (void (*)(void *))(uintptr_t)report_soft("softcuda_release");

    if (released != NULL)
        released(stream);
}

/* The streams, and a first use of everything that may wait by itself. */
static void prepare(int streams, uint64_t bytes)
{
    report_open();
    g_weight = report_alloc(1024 * MIB);
    for (int i = 0; i < streams; i++) {
        g_stream[i] = report_stream();
        report_use(bytes, 0, g_stream[i]);
    }
    MUST(cuCtxSynchronize());
}

static void loop(int streams, uint64_t bytes)
{
    for (int i = 0; i < streams; i++)
        report_use(bytes, (unsigned)i, g_stream[i]);
}

static void end(int streams, uint64_t bytes)
{
    report_free(g_weight);
    report_close(1 + 2 * (uint64_t)streams, 1100 * MIB + (uint64_t)streams * (bytes + 2 * MIB),
                 report_calls_for(1024 * MIB + 2 * (uint64_t)streams * bytes));
    report_counter("host_waits", 0, 0);
    report_counter("waits", 0, 0);
}

static void host(int streams, uint64_t bytes)
{
    uint64_t (*unfinished)(void) = (uint64_t(*)(void))(uintptr_t)report_soft("softcuda_unfinished");

    prepare(streams, bytes);
    if (!report_is_native())
        hold(g_stream[0]);
    loop(streams, bytes);
    /* nobody to ask on a GPU: a query waits for what the free would have waited for */
    if (unfinished != NULL)
        REQUIRE((unfinished() > 0) == !report_is_native());
    release(g_stream[0]);
    end(streams, bytes);
}

static void device(int streams, uint64_t bytes)
{
    prepare(streams, bytes);
    if (!report_is_native())
        hold(g_stream[0]);
    loop(streams, bytes);
    for (int i = 1; i < streams; i++)
        MUST(cuStreamSynchronize(g_stream[i]));
    REQUIRE(cuStreamQuery(g_stream[0]) == (report_is_native() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY));
    release(g_stream[0]);
    end(streams, bytes);
}

int main(int argc, char **argv)
{
    int streams = argc == 4 ? atoi(argv[2]) : 0;
    uint64_t bytes = argc == 4 ? strtoull(argv[3], NULL, 0) : 0;

    if (streams < 2 || streams > MOST_STREAMS || bytes == 0)
        return 2;
    if (strcmp(argv[1], "host") == 0)
        host(streams, bytes);
    else if (strcmp(argv[1], "device") == 0)
        device(streams, bytes);
    else
        return 2;
    return 0;
}
