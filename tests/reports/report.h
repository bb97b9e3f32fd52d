/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - what the programs of this folder share: each tells in a few lines what users reported of
 *          pools, interposers or of cudaMalloc itself (docs/reports.md), and runs natively and under the
 *          preload, on either driver.
 * What:       a primary context, blocks that are tagged and looked at again, what the counters must say
 *             at exit. stdout is what the program sees, and must be the same with and without the
 *             preload; lines "counter NAME LEAST MOST" among it bound the counters of CUPOLA_STATS
 *             (tests/hosts/host.sh checks both).
 * Not here:   anything of cupola's. Times: these programs say what is done, bench/ says how fast.
 * Invariants: HOST_EXPECT=native: no preload. A tag is one byte, written to the first and the last bytes
 *             of a block.
 * Threads:    any thread that has joined.
 */
#ifndef CUP_TESTS_REPORTS_REPORT_H
#define CUP_TESTS_REPORTS_REPORT_H
#include "tests/hosts/cases.h"
#include "tests/softcuda/claim.h"
#include "tests/support/require.h"
#include "tests/support/rng.h"
#include <cuda.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

#define MUST(call) REQUIRE((call) == CUDA_SUCCESS)

/* Fewer rounds where each step costs a hundred times as much. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define REPORT_ROUNDS(n) ((n) / 10)
#else
#define REPORT_ROUNDS(n) (n)
#endif

static CUcontext report_context;

static inline bool report_is_native(void)
{
    const char *expect = getenv("HOST_EXPECT");

    return expect != NULL && strcmp(expect, "native") == 0;
}

static inline bool report_is_vmm(void)
{
    const char *backing = getenv("CUPOLA_BACKING");

    return backing != NULL && strcmp(backing, "vmm") == 0;
}

/* A function of the software driver; NULL on a real one. */
static inline void *report_soft(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static inline void report_join(void)
{
    MUST(cuCtxSetCurrent(report_context));
}

/* Exits with 77 where there is no device. */
static inline void report_open(void)
{
    CUdevice device;

    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "skipped: no CUDA device\n");
        _Exit(77);
    }
    MUST(cuDevicePrimaryCtxRetain(&report_context, device));
    report_join();
}

static inline CUstream report_stream(void)
{
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline uint64_t report_total(void)
{
    size_t free_bytes, total;

    MUST(cuMemGetInfo(&free_bytes, &total));
    return total;
}

static inline uint64_t report_free_memory(void)
{
    size_t free_bytes, total;

    MUST(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* ---- blocks ---- */

static inline CUdeviceptr report_alloc(uint64_t bytes)
{
    CUdeviceptr block = 0;

    MUST(cuMemAlloc(&block, bytes));
    softcuda_claim_block(block, bytes);
    return block;
}

static inline void report_free(CUdeviceptr block)
{
    MUST(cuMemFree(block));
}

#define REPORT_EDGE 64 /* bytes at each end of a block that a tag covers */

static inline uint64_t report_edge(uint64_t bytes)
{
    return bytes < REPORT_EDGE ? bytes : REPORT_EDGE;
}

static inline void report_tag(CUdeviceptr block, uint64_t bytes, unsigned tag, CUstream stream)
{
    uint64_t edge = report_edge(bytes);

    MUST(cuMemsetD8Async(block, (unsigned char)tag, edge, stream));
    MUST(cuMemsetD8Async(block + bytes - edge, (unsigned char)tag, edge, stream));
}

/* Everything at both ends must still be what report_tag wrote on the stream. */
static inline void report_look(CUdeviceptr block, uint64_t bytes, unsigned tag, CUstream stream)
{
    unsigned char seen[2][REPORT_EDGE];
    uint64_t edge = report_edge(bytes);

    MUST(cuMemcpyDtoHAsync(seen[0], block, edge, stream));
    MUST(cuMemcpyDtoHAsync(seen[1], block + bytes - edge, edge, stream));
    MUST(cuStreamSynchronize(stream));
    for (uint64_t i = 0; i < edge; i++)
        REQUIRE(seen[0][i] == (unsigned char)tag && seen[1][i] == (unsigned char)tag);
}

/* A temporary of a library: allocated, used, freed. */
static inline void report_use(uint64_t bytes, unsigned tag, CUstream stream)
{
    CUdeviceptr block = report_alloc(bytes);

    report_tag(block, bytes, tag, stream);
    report_free(block);
}

/* The items in a new order. */
static inline void report_shuffle(CUdeviceptr *blocks, int count, cup_rng_t *rng)
{
    for (int i = count - 1; i > 0; i--) {
        int other = (int)cup_rng_below(rng, (uint64_t)i + 1);
        CUdeviceptr moved = blocks[i];

        blocks[i] = blocks[other];
        blocks[other] = moved;
    }
}

/* ---- what was seen ---- */

static inline void report_say(const char *what, uint64_t value)
{
    printf("%s %" PRIu64 "\n", what, value);
}

static inline void report_counter(const char *name, uint64_t least, uint64_t most)
{
    printf("counter %s %" PRIu64 " %" PRIu64 "\n", name, least, most);
}

/* Calls of the driver that allocate, as the software one counts them; 0 on a real one. */
static inline uint64_t report_driver_calls(void)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))(uintptr_t)report_soft("softcuda_calls");

    return calls == NULL ? 0 : calls("cuMemAlloc_v2") + calls("cuMemCreate");
}

/*
 * Driver calls that this much memory may cost: none gives less than 2 MiB; vmm makes a trial, and a heap
 * begins.
 */
static inline uint64_t report_calls_for(uint64_t bytes)
{
    return 4 + bytes / (2 * MIB);
}

/*
 * The end of a case: all work is done, nobody met anybody's, and the pool served: from at most that much
 * memory, by at most that many calls of the driver. Natively each allocation costs one, so the count is
 * known to count.
 */
static inline void report_close(uint64_t allocations, uint64_t most_bytes, uint64_t most_calls)
{
    uint64_t (*violations)(void) = (uint64_t(*)(void))(uintptr_t)report_soft("softcuda_violations");

    MUST(cuCtxSynchronize());
    if (violations != NULL) {
        REQUIRE(violations() == 0);
        REQUIRE(report_is_native() ? report_driver_calls() >= allocations
                                   : report_driver_calls() <= most_calls);
    }
    report_say("allocations", allocations);
    report_counter("pool_allocs", allocations, allocations);
    report_counter("footprint_peak_bytes", 1, most_bytes);
    report_counter("driver_allocs", 1, most_calls);
}

#endif /* CUP_TESTS_REPORTS_REPORT_H */
