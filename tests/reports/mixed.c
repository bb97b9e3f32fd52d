/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixed - programs whose memory is not all of one kind: part of the allocations are the driver's own.
 * What:       mixed CASE.
 */
#include "tests/reports/report.h"

/* Per frame two pitched images and two buffers of 64 bytes, freed in any order. */
static void frames(void)
{
    enum { PARTS = 4, WIDTH = 1920, HEIGHT = 1080 };
    const int rounds = REPORT_ROUNDS(2000);
    cup_rng_t rng = {cup_rng_seed(3)};
    size_t pitch = 0;

    report_open();
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr block[PARTS];

        MUST(cuMemAllocPitch(&block[0], &pitch, WIDTH, HEIGHT, 4));
        MUST(cuMemAllocPitch(&block[1], &pitch, WIDTH * 3 + 1, HEIGHT, 4));
        REQUIRE(block[0] % 512 == 0 && block[1] % 512 == 0 && pitch > WIDTH * 3 && pitch % 32 == 0);
        block[2] = report_alloc(64);
        block[3] = report_alloc(64);
        report_shuffle(block, PARTS, &rng);
        for (int i = 0; i < PARTS; i++)
            report_free(block[i]);
    }
    report_say("pitch", pitch);
    MUST(cuCtxSynchronize());
    report_counter("pool_allocs", PARTS * (uint64_t)rounds - 2, PARTS * (uint64_t)rounds);
    report_counter("footprint_peak_bytes", 1, 16 * MIB);
    report_counter("driver_allocs", 1, 12);
}

/* Stream-ordered memory beside plain memory, each freed by either call. */
static void orders(void)
{
    const int rounds = REPORT_ROUNDS(500);
    CUstream stream;

    report_open();
    stream = report_stream();
    for (int i = 0; i < rounds; i++) {
        uint64_t bytes = 1000 + 4096 * ((uint64_t)i % 50);
        CUdeviceptr plain = report_alloc(bytes), ordered = 0;

        MUST(cuMemAllocAsync(&ordered, bytes, stream));
        softcuda_claim_block(ordered, bytes);
        report_tag(ordered, bytes, (unsigned)i, stream);
        report_tag(plain, bytes, (unsigned)i + 1, stream);
        report_look(ordered, bytes, (unsigned)i, stream);
        report_look(plain, bytes, (unsigned)i + 1, stream);
        if (i % 2) {
            report_free(ordered);
            MUST(cuMemFreeAsync(plain, stream));
        } else {
            report_free(plain);
            MUST(cuMemFreeAsync(ordered, stream));
        }
    }
    report_close((uint64_t)rounds, 16 * MIB, 40);
}

/*
 * Variables that are changed in the middle of a run change nothing: a block is freed where it came from.
 */
static void toggled(void)
{
    enum { BLOCKS = 64 };
    CUdeviceptr block[BLOCKS];

    report_open();
    for (int i = 0; i < BLOCKS; i++) {
        if (i == BLOCKS / 2)
            REQUIRE(setenv("CUPOLA_DISABLE", "1", 1) == 0);
        block[i] = report_alloc(4096);
        REQUIRE(cuMemFree(block[i] + 256) == CUDA_ERROR_INVALID_VALUE);
    }
    for (int i = 0; i < BLOCKS; i++)
        report_free(block[i]);
    report_close(BLOCKS, 32 * MIB, 4);
}

/* A two-dimensional texture on blocks of many sizes; its address must be where the driver's own are. */
static void textures(void)
{
    enum { PITCH = 512, HEIGHT = 4 };
    CUDA_TEXTURE_DESC texture = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    uint64_t count = 0;
    int code = -1;

    report_open();
    resource.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.pitch2D.numChannels = 4;
    resource.res.pitch2D.width = PITCH / 4;
    resource.res.pitch2D.height = HEIGHT;
    resource.res.pitch2D.pitchInBytes = PITCH;
    for (uint64_t bytes = PITCH * HEIGHT; bytes < 100 * KIB; bytes += 1001, count++) {
        CUtexObject object = 0;
        CUdeviceptr block = report_alloc(bytes);

        resource.res.pitch2D.devPtr = block;
        int now = (int)cuTexObjectCreate(&object, &resource, &texture, NULL);

        REQUIRE(code < 0 || now == code);
        code = now;
        if (now == CUDA_SUCCESS)
            MUST(cuTexObjectDestroy(object));
        report_free(block);
    }
    report_say("code", (uint64_t)code); /* 0; the software driver has no textures */
    report_close(count, 32 * MIB, 10);
}

#define MIXED_LIST(X) X(frames) X(orders) X(toggled) X(textures)

CASES_MAIN(MIXED_LIST)
