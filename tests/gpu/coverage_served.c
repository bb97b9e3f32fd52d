/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage_served - whether the pool can tell what a captured graph does, on this driver.
 * What:       under the preload: "plain" launches a graph of kernels, copies and sets between blocks of the
 *             device and a graph within, "host" one that copies to the host as well, each with a free
 *             after it. The last line is what CUPOLA_STATS must say (counted.sh).
 * Not here:   what the free waits for natively (coverage.c).
 */
#include "tests/gpu/coverage.h"
#include <stdio.h>
#include <string.h>

#define ROUNDS  20
#define SPIN_US 5000

static CUdeviceptr g_from, g_to;
static uint64_t *g_pinned;

static CUgraphExec capture(CUstream stream, CUgraphExec within, bool has_host)
{
    CUgraphExec exec;
    CUgraph graph;

    dev_check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    dev_spin(SPIN_US, stream);
    dev_fill(g_from, COVERAGE_BYTES, 1, stream);
    dev_check(cuMemcpyDtoDAsync(g_to, g_from, COVERAGE_BYTES, stream), "cuMemcpyDtoDAsync");
    dev_check(cuMemcpyAsync(g_to, g_from, COVERAGE_BYTES, stream), "cuMemcpyAsync");
    dev_zero(g_to, 4096, stream);
    dev_check(cuMemsetD2D32Async(g_to, 1024, 1, 64, 4, stream), "cuMemsetD2D32Async");
    if (within)
        dev_check(cuGraphLaunch(within, stream), "cuGraphLaunch");
    if (has_host)
        dev_read_async(g_pinned, g_from, 4096, stream);
    dev_check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    dev_check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    dev_check(cuGraphDestroy(graph), "cuGraphDestroy");
    return exec;
}

int main(int argc, char **argv)
{
    bool has_host = argc == 2 && strcmp(argv[1], "host") == 0;
    CUgraphExec exec;
    CUstream stream;

    if (!has_host && (argc != 2 || strcmp(argv[1], "plain") != 0))
        return 2;
    dev_open();
    stream = dev_stream();
    g_from = dev_alloc(COVERAGE_BYTES);
    g_to = dev_alloc(COVERAGE_BYTES);
    g_pinned = dev_host_alloc(4096);
    exec = capture(stream, capture(stream, NULL, has_host), false);
    for (int i = 0; i < ROUNDS; i++) {
        dev_check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
        dev_free(dev_alloc(4096));
    }
    dev_sync();
    printf("host_waits %d %d\n", has_host, has_host ? ROUNDS : 0);
    return 0;
}
