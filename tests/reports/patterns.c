/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns - what libraries were reported to ask of cudaMalloc, over and over: temporaries of sorts and
 *            reductions, levels of a solver, steps of a model.
 * What:       patterns CASE. After a warm-up nothing is asked of the driver; what is held stays near what
 *             was live.
 */
#include "tests/reports/report.h"

/* Temporaries of CUB and Thrust, as counted in programs. */
static const uint64_t g_cub[] = {255,   1023,  2559,    3583,    5635,    11007,
                                 26899, 43263, 1865471, 8562175, 69472767};
#define CUB_COUNT (sizeof g_cub / sizeof g_cub[0])

/* One temporary at a time, small ones more often. */
static void temporaries(void)
{
    const int rounds = REPORT_ROUNDS(20000);
    cup_rng_t rng = {cup_rng_seed(1)};
    CUstream stream;
    uint64_t sum = 0;

    report_open();
    stream = report_stream();
    for (size_t i = 0; i < CUB_COUNT; i++)
        sum += g_cub[i];
    for (int i = 0; i < rounds; i++) {
        uint64_t bytes = g_cub[cup_rng_below(&rng, 1 + cup_rng_below(&rng, CUB_COUNT))];

        if (i % 10 == 0)
            report_use(bytes, (unsigned)i, stream);
        else
            report_free(report_alloc(bytes));
    }
    report_close((uint64_t)rounds, sum + sum / 4, 45);
}

/* An embedding: thirty arrays that stay, then a thousand rounds of three temporaries. */
static void embedding(void)
{
    enum { ARRAYS = 30 };
    const int rounds = REPORT_ROUNDS(1000);
    CUdeviceptr array[ARRAYS];
    uint64_t bytes[ARRAYS], sum = 0;

    report_open();
    for (int i = 0; i < ARRAYS; i++) {
        bytes[i] = 12 + (uint64_t)i * i * i * 800;
        sum += bytes[i];
        array[i] = report_alloc(bytes[i]);
        report_tag(array[i], bytes[i], (unsigned)i, NULL);
    }
    for (int i = 0; i < rounds; i++) {
        report_free(report_alloc(43263));
        report_free(report_alloc(5635));
        report_use(5635, (unsigned)i, NULL);
    }
    for (int i = 0; i < ARRAYS; i++) {
        report_look(array[i], bytes[i], (unsigned)i, NULL);
        report_free(array[i]);
    }
    report_close(ARRAYS + 3 * (uint64_t)rounds, sum + sum / 4 + 8 * MIB, report_calls_for(sum + sum / 4));
}

/* Twelve blocks an iteration, nested like a stack. */
static void nested(void)
{
    enum { DEPTH = 12 };
    static const uint64_t bytes[DEPTH] = {4000000, 4000000, 2559,    8166399, 4000000, 4000000,
                                          4000000, 2559,    8166399, 4000000, 4000000, 4000000};
    const int rounds = REPORT_ROUNDS(1000);
    uint64_t sum = 0;

    report_open();
    for (int i = 0; i < DEPTH; i++)
        sum += bytes[i];
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr block[DEPTH];

        for (int i = 0; i < DEPTH; i++)
            block[i] = report_alloc(bytes[i]);
        report_tag(block[round % DEPTH], bytes[round % DEPTH], (unsigned)round, NULL);
        for (int i = DEPTH - 1; i >= 0; i--)
            report_free(block[i]);
    }
    report_close(DEPTH * (uint64_t)rounds, sum + sum / 5, 45);
}

/* 500 blocks of each size from 64 B to 2 MiB, freed in the order they came, backwards, and shuffled. */
static void orders(void)
{
    enum { BLOCKS = REPORT_ROUNDS(500), LEAST = 6, MOST = 21 };
    static CUdeviceptr block[BLOCKS], turned;
    cup_rng_t rng = {cup_rng_seed(4)};
    uint64_t count = 0;

    report_open();
    for (int k = LEAST; k <= MOST; k++)
        for (int order = 0; order < 3; order++) {
            for (int i = 0; i < BLOCKS; i++)
                block[i] = report_alloc((uint64_t)1 << k);
            for (int i = 0; order == 1 && i < BLOCKS / 2; i++) {
                turned = block[i];
                block[i] = block[BLOCKS - 1 - i];
                block[BLOCKS - 1 - i] = turned;
            }
            if (order == 2)
                report_shuffle(block, BLOCKS, &rng);
            for (int i = 0; i < BLOCKS; i++)
                report_free(block[i]);
            count += BLOCKS;
        }
    /* all of the largest size, and in raw what 1 MiB had shared */
    report_close(count, (report_is_vmm() ? 1200 : 1800) * MIB, 1100);
}

/*
 * Levels of a grid: each sets up matrices, with temporaries that go at its end; a hundred setups of sizes
 * that vary by 5 %.
 */
static void levels(void)
{
    enum { LEVELS = 8, KEPT = 6, N = 100000 };
    const int setups = REPORT_ROUNDS(100);
    cup_rng_t rng = {cup_rng_seed(5)};
    static CUdeviceptr kept[LEVELS][KEPT];
    uint64_t sum = 0;

    report_open();
    for (int setup = 0; setup < setups; setup++) {
        uint64_t n = N - N / 20 + cup_rng_below(&rng, N / 10);

        for (int level = 0; level < LEVELS; level++, n = n / 4 + 1) {
            CUdeviceptr first = report_alloc(n * 72 * 2), second = report_alloc(n * 36 * 3);

            for (uint64_t i = 0; i < KEPT; i++)
                kept[level][i] = report_alloc(n * (i % 3 == 0 ? 4 : i % 3 == 1 ? 72 : 36));
            report_tag(kept[level][1], n, (unsigned)level, NULL);
            report_free(second);
            report_free(first);
        }
        for (int level = 0; level < LEVELS; level++) {
            for (int i = 0; i < KEPT; i++)
                report_free(kept[level][i]);
        }
    }
    sum = (uint64_t)N * 21 / 20 * (224 + 252) * 4 / 3;
    report_close((uint64_t)setups * LEVELS * (KEPT + 2), (report_is_vmm() ? 5 : 15) * sum / 4, 400);
}

/*
 * 64 KiB and 16 MiB in turn; the large ones go; then blocks that no hole holds, but all of them together
 * do.
 */
static void comb(void)
{
    enum { TEETH = 60 };
    static CUdeviceptr tooth[TEETH], gap[TEETH];
    uint64_t large = TEETH * 16 * MIB / 2;

    report_open();
    for (int i = 0; i < TEETH; i++) {
        tooth[i] = report_alloc(64 * KIB);
        gap[i] = report_alloc(16 * MIB);
        report_tag(tooth[i], 64 * KIB, (unsigned)i, NULL);
    }
    for (int i = 0; i < TEETH; i++)
        report_free(gap[i]);
    MUST(cuCtxSynchronize());
    report_use(large, 1, NULL);
    report_use(2 * large, 2, NULL);
    for (int i = 0; i < TEETH; i++) {
        report_look(tooth[i], 64 * KIB, (unsigned)i, NULL);
        report_free(tooth[i]);
    }
    /* vmm: the memory of the gaps moves */
    report_close(2 * TEETH + 2, report_is_vmm() ? 2 * large + large / 4 : 6 * large,
                 report_calls_for(2 * large + large / 4));
}

/* Blocks of a step go backwards, as a training step's do, and a transient beside each. */
static void steps(void)
{
    enum { LAYERS = 32, SAVED = 8, UNIT = 96 * 1024 };
    const int rounds = REPORT_ROUNDS(20);
    static CUdeviceptr saved[LAYERS][SAVED];
    uint64_t live = (uint64_t)LAYERS * SAVED * UNIT * 9 / 2, count = 0;

    report_open();
    for (int round = 0; round < rounds; round++) {
        for (int layer = 0; layer < LAYERS; layer++)
            for (uint64_t i = 0; i < SAVED; i++, count += 2) {
                CUdeviceptr transient = report_alloc(UNIT * (i + 1) / 2);

                saved[layer][i] = report_alloc(UNIT * (i + 1));
                report_free(transient);
            }
        for (int layer = LAYERS - 1; layer >= 0; layer--)
            for (uint64_t i = 0; i < SAVED; i++, count++) {
                CUdeviceptr gradient = report_alloc(UNIT * (i + 1));

                report_free(saved[layer][SAVED - 1 - i]);
                report_free(gradient);
            }
    }
    report_close(count, live + live / 5, report_calls_for(live + live / 5));
}

#define PATTERNS_LIST(X) X(temporaries) X(embedding) X(nested) X(orders) X(levels) X(comb) X(steps)

CASES_MAIN(PATTERNS_LIST)
