/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck - a program that leans on luck: it reads memory that it has not written, and writes past its blocks.
 * What:       one line for each of these, NAME and what was seen; luck.sh says what it should be under
 *             which option. fresh          words that are not zero in blocks that were filled, freed and
 *             allocated again in-flight      likewise, freed under a kernel that fills them late, read on
 *             another stream in-capture     likewise, allocated while a capture is in progress, read by its
 *             graph partner        whether work behind an allocation ends while a kernel in flight goes on
 *             neighbours     blocks that are damaged when 512 bytes behind each block are set luck top
 *             [BYTES]: a kernel fills that many bytes from the start of a block of 4 MiB on; prints the
 *             code with which the context answers, 0 or 700.
 * Not here:   the pool: this program knows nothing of it.
 * Invariants: what decides is bytes and codes, but for `partner`, which looks whether a kernel of 2 s still
 *             runs.
 * Threads:    one.
 */
#include "bench/dev.h"
#include "tests/softcuda/pattern.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES     65536
#define BYTES_MAX (3 << 20)
#define COUNT     16
#define LATE_US   20000

static const uint64_t g_sizes[] = {512, 4096, 40960, 1 << 20, BYTES_MAX};
static CUstream g_busy, g_another;
static unsigned char *g_seen; /* pinned */

static uint64_t dirty_bytes(uint64_t bytes)
{
    uint64_t dirty = 0;

    for (uint64_t i = 0; i < bytes; i++)
        dirty += g_seen[i] != 0;
    return dirty;
}

static uint64_t look(CUstream stream, CUdeviceptr block, uint64_t bytes)
{
    memset(g_seen, 0xAB, bytes);
    dev_read_async(g_seen, block, bytes, stream);
    dev_stream_sync(stream);
    return dirty_bytes(bytes);
}

static uint64_t fresh(void)
{
    uint64_t dirty = 0;

    for (size_t i = 0; i < sizeof(g_sizes) / sizeof(g_sizes[0]); i++) {
        for (int round = 0; round < 3; round++) {
            CUdeviceptr block = dev_alloc(g_sizes[i]);

            dirty += look(g_another, block, g_sizes[i]);
            dev_fill(block, g_sizes[i], 3, g_busy);
            dev_free(block);
        }
    }
    return dirty;
}

static void free_late(uint64_t bytes)
{
    CUdeviceptr block = dev_alloc(bytes);

    dev_late_fill(block, bytes, 7, LATE_US, g_busy);
    dev_free(block);
}

static uint64_t in_flight(void)
{
    CUdeviceptr block;
    uint64_t dirty;

    free_late(BYTES);
    block = dev_alloc(BYTES);
    dirty = look(g_another, block, BYTES);
    dev_free(block);
    return dirty;
}

/* Natively an allocation is refused here; the pool serves it. */
static uint64_t in_capture(void)
{
    CUstream stream = dev_stream();
    CUdeviceptr block;
    CUgraph graph;
    CUgraphExec exec;

    free_late(BYTES);
    memset(g_seen, 0xAB, BYTES);
    dev_check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    block = dev_alloc(BYTES);
    dev_read_async(g_seen, block, BYTES, stream);
    dev_check(cuStreamEndCapture(stream, &graph), "end");
    dev_check(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
    dev_check(cuGraphLaunch(exec, g_another), "launch");
    dev_stream_sync(g_another);
    dev_free(block);
    return dirty_bytes(BYTES);
}

static uint64_t partner(void)
{
    CUdeviceptr block = dev_alloc(BYTES);
    uint64_t is_running;

    dev_fill(block, BYTES, 7, g_another);
    dev_free(block);
    dev_spin(2000000, g_busy);
    block = dev_alloc(BYTES);
    (void)look(g_another, block, BYTES);
    is_running = cuStreamQuery(g_busy) == CUDA_ERROR_NOT_READY;
    dev_free(block);
    dev_sync();
    return is_running;
}

static bool is_intact(uint64_t bytes, uint64_t seed)
{
    bool is_same = true;

    for (uint64_t i = 0; i < bytes; i++)
        is_same &= g_seen[i] == (unsigned char)(softcuda_fill_word(seed, i / 8) >> i % 8 * 8);
    return is_same;
}

/* Where the next block of the same kind would be: what is nobody's is left alone. */
static bool has_neighbour(const CUdeviceptr *block, CUdeviceptr end, uint64_t bytes)
{
    bool is_found = false;

    for (int i = 0; i < COUNT; i++)
        is_found |= end + 512 <= block[i] + bytes && block[i] < end + BYTES;
    return is_found;
}

static uint64_t damaged_of(uint64_t bytes)
{
    CUdeviceptr block[COUNT];
    uint64_t damaged = 0;

    for (int i = 0; i < COUNT; i++)
        block[i] = dev_alloc(bytes);
    for (int i = 0; i < COUNT; i++)
        dev_fill(block[i], bytes, (uint64_t)i, g_busy);
    for (int i = 0; i < COUNT; i++)
        if (has_neighbour(block, block[i] + bytes, bytes))
            dev_check(cuMemsetD8Async(block[i] + bytes, 0xEE, 512, g_busy), "set");
    for (int i = 0; i < COUNT; i++) {
        dev_read_async(g_seen, block[i], bytes, g_busy);
        dev_stream_sync(g_busy);
        damaged += !is_intact(bytes, (uint64_t)i);
    }
    for (int i = 0; i < COUNT; i++)
        dev_free(block[i]);
    return damaged;
}

static uint64_t neighbours(void)
{
    uint64_t damaged = 0;

    for (size_t i = 0; i < sizeof(g_sizes) / sizeof(g_sizes[0]); i++)
        damaged += damaged_of(g_sizes[i]);
    return damaged;
}

/* The context may be broken afterwards, on purpose. */
static int top(uint64_t bytes)
{
    CUdeviceptr block = dev_alloc(4 << 20);

    dev_fill(block, bytes, 1, g_busy);
    printf("top %d\n", (int)cuStreamSynchronize(g_busy));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t (*run)(void);
    } list[] = {{"fresh", fresh},
                {"in-flight", in_flight},
                {"in-capture", in_capture},
                {"partner", partner},
                {"neighbours", neighbours}};

    dev_open();
    g_busy = dev_stream();
    g_another = dev_stream();
    g_seen = dev_host_alloc(BYTES_MAX);
    if (argc > 2 && strcmp(argv[1], "top") == 0)
        return top(strtoull(argv[2], NULL, 10));
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        printf("%s %llu\n", list[i].name, (unsigned long long)list[i].run());
        fflush(stdout);
    }
    return dev_violations() > 0;
}
