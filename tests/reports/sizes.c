/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes - sizes that pools were reported to choke on: creeping, odd, tiny, all different, huge beside
 *         small.
 * What:       sizes CASE. What a pool may hold is bounded in terms of what the program held; the bounds
 *             stand at the end of each case, and natively only its bytes and codes are looked at.
 */
#include "tests/reports/report.h"

/*
 * One block at a time, each a little larger than the one before: no cached block ever fits again. Returns
 * the largest.
 */
static uint64_t creep(int steps, uint64_t step_bytes)
{
    uint64_t bytes = 0;

    for (int i = 0; i < steps; i++) {
        CUdeviceptr block;

        bytes = MIB + step_bytes * (uint64_t)i;
        block = report_alloc(bytes);
        if (i % 100 == 0) {
            report_tag(block, bytes, (unsigned)i, NULL);
            report_look(block, bytes, (unsigned)i, NULL);
        }
        report_free(block);
    }
    return bytes;
}

/* A cache that grows by a token a step. */
static void creeping(void)
{
    const int steps = REPORT_ROUNDS(10000);
    uint64_t largest;

    report_open();
    largest = creep(steps, 256);
    report_close((uint64_t)steps, 3 * largest + 8 * MIB, 20);
}

/*
 * The same beyond what shares driver allocations (CUPOLA_DEDICATED): vmm grows at the end. raw keeps each
 * block whole, and up to CUPOLA_CACHE of them, a quarter of the memory: a bound, but not one by what the
 * program held.
 */
static void creeping_far(void)
{
    const int steps = 300;
    uint64_t largest, most;

    report_open();
    largest = creep(steps, MIB / 2);
    most = report_is_vmm() ? largest + largest / 4 : report_total() / 4 + 2 * largest;
    report_close((uint64_t)steps, most, (uint64_t)steps * 3 / 4);
}

/* Minibatches of 40 different lengths in random order, six temporaries each: odd sizes, few alike. */
static void odd(void)
{
    enum { LENGTHS = 40, PARTS = 6 };
    const int batches = REPORT_ROUNDS(3000);
    cup_rng_t rng = {cup_rng_seed(39)};
    uint64_t length[LENGTHS];

    report_open();
    for (int i = 0; i < LENGTHS; i++)
        length[i] = 3001 + cup_rng_below(&rng, 40000) * 2 + 1;
    for (int batch = 0; batch < batches; batch++) {
        uint64_t n = length[cup_rng_below(&rng, LENGTHS)];
        CUdeviceptr block[PARTS];

        for (uint64_t i = 0; i < PARTS; i++)
            block[i] = report_alloc(n * (4 + 52 * i) + 256 * i - i % 2);
        if (batch % 30 == 0) {
            report_tag(block[PARTS - 1], n, (unsigned)batch, NULL);
            report_look(block[PARTS - 1], n, (unsigned)batch, NULL);
        }
        report_shuffle(block, PARTS, &rng);
        for (int i = 0; i < PARTS; i++)
            report_free(block[i]);
    }
    report_close((uint64_t)batches * PARTS, (report_is_vmm() ? 75 : 200) * MIB, 60);
}

/* 100,000 blocks of 1 to 4 KiB live at once. What they cost beside their own bytes is rounding to 512. */
static void small(void)
{
    enum { COUNT = REPORT_ROUNDS(100000) };
    static CUdeviceptr block[COUNT];
    cup_rng_t rng = {cup_rng_seed(10)};
    uint64_t sum = 0;

    report_open();
    for (int i = 0; i < COUNT; i++) {
        uint64_t bytes = KIB + cup_rng_below(&rng, 3 * KIB + 1);

        block[i] = report_alloc(bytes);
        sum += bytes;
        REQUIRE(block[i] % 512 == 0);
    }
    report_shuffle(block, COUNT, &rng);
    for (int i = 0; i < COUNT; i++)
        report_free(block[i]);
    report_close(COUNT, sum + sum / 5 + 8 * MIB, report_calls_for(sum + sum / 5));
    report_counter("live_peak_bytes", sum, sum);
}

/*
 * Every size once: 512 to 4 MiB, in steps of 512, 64 live at a time. Indexes by size must not grow with
 * the sizes seen.
 */
static void distinct(void)
{
    enum { LIVE = 64, SIZES = 8192 };
    const int steps = REPORT_ROUNDS(20000);
    CUdeviceptr block[LIVE] = {0};
    cup_rng_t rng = {cup_rng_seed(16)};

    report_open();
    for (int i = 0; i < steps; i++) {
        int at = (int)cup_rng_below(&rng, LIVE);

        if (block[at])
            report_free(block[at]);
        block[at] = report_alloc(512 * (1 + (uint64_t)i * 4051 % SIZES));
    }
    for (int i = 0; i < LIVE; i++)
        report_free(block[i]);
    report_close((uint64_t)steps, LIVE * 5 * MIB, 300);
    report_counter("meta_bytes", 0, 2 * MIB);
}

/*
 * A block of 58 % of the memory is freed; forty small ones come; then the big one again. A pool that
 * carved the small ones from the big one, and keeps them, has half of the memory free and nowhere a
 * place.
 */
static void big_kept(void)
{
    enum { SMALL = 40 };
    uint64_t total, big, small_bytes;
    CUdeviceptr block[SMALL];

    report_open();
    total = report_total();
    big = total / 100 * 58 & -(2 * MIB);
    small_bytes = total / 1250 & -(64 * KIB);
    report_use(big, 1, NULL);
    for (int i = 0; i < SMALL; i++) {
        block[i] = report_alloc(small_bytes);
        report_tag(block[i], small_bytes, (unsigned)i, NULL);
    }
    report_use(big, 2, NULL);
    for (int i = 0; i < SMALL; i++) {
        report_look(block[i], small_bytes, (unsigned)i, NULL);
        report_free(block[i]);
    }
    report_use(big, 3, NULL);
    report_close(SMALL + 3, big + SMALL * (small_bytes + 2 * MIB),
                 report_calls_for(big + SMALL * small_bytes));
}

/*
 * A search falls off its scratch space each time: the second big block is the first one, whatever small
 * ones live.
 */
static void big_again(void)
{
    enum { ROUNDS = 200, SMALL = 50, BIG = 655360000 };
    CUdeviceptr block[SMALL], first = 0;

    report_open();
    for (int i = 0; i < SMALL; i++)
        block[i] = report_alloc(4096 + 512 * (uint64_t)i);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr big = report_alloc(BIG);

        report_tag(big, BIG, (unsigned)i, NULL);
        if (i > 0 && !report_is_native())
            REQUIRE(big == first);
        first = big;
        report_free(big);
        report_free(block[i % SMALL]);
        block[i % SMALL] = report_alloc(8192);
    }
    for (int i = 0; i < SMALL; i++)
        report_free(block[i]);
    report_close(SMALL + 2 * ROUNDS, BIG + 8 * MIB, report_calls_for(BIG));
}

/* Every size up to 4 KiB, and larger ones: at 512, as texture units and hand-written kernels rely on. */
static void aligned(void)
{
    enum { SMALL = 4096 };
    static CUdeviceptr block[SMALL + 1];
    uint64_t off = 0, count = SMALL;

    report_open();
    for (uint64_t bytes = 1; bytes <= SMALL; bytes++) {
        block[bytes] = report_alloc(bytes);
        off += block[bytes] % 512 != 0;
    }
    for (uint64_t bytes = 1; bytes <= SMALL; bytes++)
        report_free(block[bytes]);
    for (uint64_t bytes = 64 * KIB + 1; bytes <= 64 * MIB; bytes = bytes * 3 - 1, count++) {
        CUdeviceptr large = report_alloc(bytes);

        off += large % 512 != 0;
        report_free(large);
    }
    report_say("unaligned", off);
    report_close(count, 128 * MIB, 40);
}

#define SIZES_LIST(X) \
    X(creeping) X(creeping_far) X(odd) X(small) X(distinct) X(big_kept) X(big_again) X(aligned)

CASES_MAIN(SIZES_LIST)
