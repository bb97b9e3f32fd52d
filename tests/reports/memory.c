/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - programs that go by how much memory is free, or use nearly all of it: what a pool keeps must
 *          not show.
 * What:       memory CASE.
 */
#include "tests/reports/report.h"

/* Free memory falls by an allocation and rises by a free; after ten rounds it is what it was. */
static void monotone(void)
{
    enum { BLOCKS = 8, ROUNDS = 10 };
    CUdeviceptr block[BLOCKS];
    uint64_t first, before, now;

    report_open();
    report_use(64 * KIB, 1, NULL); /* what the context itself takes at its first use is there */
    MUST(cuCtxSynchronize());
    first = before = report_free_memory();
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t bytes = (uint64_t)(round + 1) * 16 * MIB;

        for (int i = 0; i < BLOCKS; i++, before = now) {
            block[i] = report_alloc(bytes);
            now = report_free_memory();
            REQUIRE(now <= before && before - now >= bytes / 2);
        }
        for (int i = 0; i < BLOCKS; i++, before = now) {
            report_free(block[i]);
            now = report_free_memory();
            REQUIRE(now >= before && now <= first + 2 * MIB);
        }
        REQUIRE(now + 4 * MIB >= first);
    }
    report_say("free as before", 1);
    report_close(BLOCKS * ROUNDS + 1, (report_is_vmm() ? 1320 : 7200) * MIB, 900);
}

/* After a good deal of churn: asks what is free, and takes all of it but a reserve, at once. */
static void nearly_all(void)
{
    enum { ROUNDS = 100, LIVE = 20 };
    CUdeviceptr block[LIVE] = {0};
    cup_rng_t rng = {cup_rng_seed(19)};
    uint64_t total, count = 0, rest;

    report_open();
    total = report_total();
    for (int i = 0; i < ROUNDS; i++, count++) {
        int at = (int)cup_rng_below(&rng, LIVE);

        if (block[at])
            report_free(block[at]);
        block[at] = report_alloc(1 + cup_rng_below(&rng, total / 50));
    }
    for (int i = 0; i < LIVE; i++)
        if (block[i])
            report_free(block[i]);
    rest = (report_free_memory() - total / 20) & -(2 * MIB);
    REQUIRE(rest > total / 2);
    report_use(rest, 7, NULL);
    report_close(count + 1, total, 4 * report_calls_for(total));
}

/*
 * Sixty per cent of the memory, freed, and again in other sizes: never out of memory, whatever is kept
 * for later.
 */
static void rotating(void)
{
    enum { ROUNDS = 60 };
    cup_rng_t rng = {cup_rng_seed(40)};
    uint64_t total;

    report_open();
    total = report_total();
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t bytes = total / 100 * (20 + cup_rng_below(&rng, 41));

        report_use(bytes, (unsigned)i, NULL);
    }
    report_close(ROUNDS, total, 4 * report_calls_for(total));
}

/*
 * Blocks until the memory is full: as many as there is room for, but for what a driver allocation may
 * leave over; the code is the driver's. Every other one is freed and had again; at last all are freed,
 * and nine tenths are had at once.
 */
static void brim(void)
{
    enum { PARTS = 1024, LEAST = PARTS / 100 * 93 };
    static CUdeviceptr block[PARTS];
    uint64_t total, bytes;
    int count = 0;
    CUresult result;

    report_open();
    total = report_total();
    bytes = report_free_memory() / PARTS & -(64 * KIB);
    while (count < PARTS && (result = cuMemAlloc(&block[count], bytes)) == CUDA_SUCCESS)
        softcuda_claim_block(block[count++], bytes);
    REQUIRE(count >= LEAST && (count == PARTS || result == CUDA_ERROR_OUT_OF_MEMORY));
    for (int i = 0; i < count; i += 2)
        report_free(block[i]);
    for (int i = 0; i < count; i += 2)
        block[i] = report_alloc(bytes);
    for (int i = 0; i < count; i++)
        report_free(block[i]);
    report_use(total / 10 * 9, 9, NULL);
    MUST(cuCtxSynchronize());
    report_say("full", 1);
    report_counter("footprint_peak_bytes", LEAST * bytes, total);
    report_counter("pool_allocs", LEAST + LEAST / 2, 2 * PARTS);
    report_counter("ooms", 0, 1);
}

/* The same large block twenty times: the driver is asked once. */
static void large(void)
{
    enum { ROUNDS = 20 };
    uint64_t bytes;

    report_open();
    bytes = report_total() / 100 * 11 & -(2 * MIB);
    for (int i = 0; i < ROUNDS; i++)
        report_use(bytes, (unsigned)i, NULL);
    report_close(ROUNDS, bytes + 64 * MIB, report_is_vmm() ? report_calls_for(bytes) : 2);
}

/* ---- the law: random allocations and frees against what the program knows ---- */

enum { BLOCKS = 200 };
static struct {
    CUdeviceptr at;
    uint64_t bytes;
    unsigned tag;
} g_block[BLOCKS];

static void require_alone(int mine)
{
    for (int i = 0; i < BLOCKS; i++)
        REQUIRE(i == mine || !g_block[i].at || g_block[i].at >= g_block[mine].at + g_block[mine].bytes ||
                g_block[mine].at >= g_block[i].at + g_block[i].bytes);
}

static void require_known(int i)
{
    CUdeviceptr base = 0;
    size_t size = 0;

    MUST(cuMemGetAddressRange(&base, &size, g_block[i].at + g_block[i].bytes / 2));
    REQUIRE(base == g_block[i].at && size == g_block[i].bytes);
}

static uint64_t let_go(int i)
{
    uint64_t bytes = g_block[i].bytes;

    if (!g_block[i].at)
        return 0;
    report_look(g_block[i].at, bytes, g_block[i].tag, NULL);
    report_free(g_block[i].at);
    MUST(cuMemFree(0));
    REQUIRE(cuMemFree(g_block[i].at) == CUDA_ERROR_INVALID_VALUE);
    g_block[i].at = 0;
    return bytes;
}

/*
 * What lives is where it was told to be, nobody else is there, its bytes stay, and free memory never
 * tells more.
 */
static void accounts(void)
{
    const int steps = REPORT_ROUNDS(6000);
    cup_rng_t rng = {cup_rng_seed(140)};
    uint64_t live = 0, most = 0, first;

    report_open();
    first = report_free_memory();
    for (int step = 0; step < steps; step++) {
        int i = (int)cup_rng_below(&rng, BLOCKS);

        live -= let_go(i);
        g_block[i].bytes = cup_rng_size(&rng, 22);
        g_block[i].at = report_alloc(g_block[i].bytes);
        g_block[i].tag = (unsigned)step;
        require_alone(i);
        report_tag(g_block[i].at, g_block[i].bytes, g_block[i].tag, NULL);
        require_known(i);
        live += g_block[i].bytes;
        most = live > most ? live : most;
        if (step % 64 == 0)
            REQUIRE(report_free_memory() + live <= first);
    }
    for (int i = 0; i < BLOCKS; i++)
        live -= let_go(i);
    REQUIRE(live == 0);
    report_counter("live_peak_bytes", most, most);
    report_counter("live_bytes", 0, 0);
    report_counter("live_blocks", 0, 0);
    report_counter("bad_frees", (uint64_t)steps, (uint64_t)steps);
    report_close((uint64_t)steps, (report_is_vmm() ? 5 : 10) * most / 4 + 16 * MIB, 400);
}

#define MEMORY_LIST(X) X(monotone) X(nearly_all) X(rotating) X(brim) X(large) X(accounts)

CASES_MAIN(MEMORY_LIST)
