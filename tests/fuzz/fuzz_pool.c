/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pool - the bytes are operations on one pool, over chunks or ranges of a fake provider, three bytes
 * each. Laws: no block overlaps one that is live or still in limbo; what is not the base of a live block is
 * refused; the pool's own walk (cup_pool_check) finds nothing; when all is freed and complete, each chunk or
 * range is one free span, and a trim gives everything back. Failures of the provider and of host memory are
 * operations, too.
 */
#include "allocator/meta.h"
#include "allocator/pool.h"
#include "tests/fuzz/seeds.h"
#include "tests/support/fake_provider.h"
#include <string.h>

#define BLOCKS_MAX 256

/* A live block has stamp 0. */
typedef struct block {
    cup_addr_t addr;
    uint64_t size_bytes;
    cup_point_t stamp;
} block_t;

typedef struct model {
    cup_pool_t *pool;
    block_t block[BLOCKS_MAX];
    size_t count;
    cup_point_t recorded, completed;
} model_t;

static cup_fake_provider_t provider;

/* X(operation, weight in 16) */
#define OPERATION_LIST(X) \
    X(alloc, 5)           \
    X(free, 5)            \
    X(misuse, 1)          \
    X(complete, 2)        \
    X(trim, 1)            \
    X(surrender, 1)       \
    X(fault, 1)

static void add_block(model_t *model, cup_addr_t addr, uint64_t size_bytes)
{
    cup_block_info_t info;

    FUZZ_CHECK(addr % 512 == 0, "%llx is not aligned", (unsigned long long)addr);
    for (size_t i = 0; i < model->count; i++)
        FUZZ_CHECK(addr + size_bytes <= model->block[i].addr ||
                       model->block[i].addr + model->block[i].size_bytes <= addr,
                   "%llx + %llu overlaps %llx + %llu, stamp %llu", (unsigned long long)addr,
                   (unsigned long long)size_bytes, (unsigned long long)model->block[i].addr,
                   (unsigned long long)model->block[i].size_bytes, (unsigned long long)model->block[i].stamp);
    FUZZ_CHECK(cup_pool_find(addr + size_bytes - 1, &info), "the last byte is not found");
    FUZZ_CHECK(info.pool == model->pool && info.base == addr && info.size_bytes == size_bytes,
               "found wrongly");
    model->block[model->count++] = (block_t){addr, size_bytes, 0};
}

/* Sizes up to 64 MiB, evenly over the doublings; every eighth is what rounding must refuse. */
static uint64_t size_of(uint8_t a, uint8_t b)
{
    unsigned shift = a % 27;

    if (a >= 248)
        return UINT64_MAX - b;
    return ((uint64_t)1 << shift) + (((uint64_t)b << shift) >> 8) - (b & 1);
}

static void do_alloc(model_t *model, uint8_t a, uint8_t b)
{
    uint64_t size_bytes = size_of(a, b);
    cup_addr_t addr = 1;
    cup_status_t status;

    if (model->count == BLOCKS_MAX)
        return;
    status = cup_pool_alloc(model->pool, size_bytes, &addr);
    if (status == CUP_ERR_MISS)
        status = cup_pool_grow(model->pool, size_bytes, b & 2, &addr);
    if (status == CUP_OK)
        add_block(model, addr, size_bytes);
    else
        FUZZ_CHECK(addr == 1, "an output is written on error %d", (int)status);
}

static void do_free(model_t *model, uint8_t a, uint8_t b)
{
    block_t *block = model->count ? &model->block[(a | b << 8) % model->count] : NULL;

    if (!block)
        return;
    if (block->stamp) {
        FUZZ_CHECK(cup_pool_free(model->pool, block->addr, 1, NULL) == CUP_ERR_NOT_FOUND, "freed twice");
        return;
    }
    block->stamp = ++model->recorded;
    FUZZ_CHECK(cup_pool_free(model->pool, block->addr, block->stamp, NULL) == CUP_OK,
               "a live block is refused");
}

static void do_misuse(model_t *model, uint8_t a, uint8_t b)
{
    cup_addr_t addr = model->count ? model->block[a % model->count].addr : 0x1000;

    addr += model->count && b % 2 == 0 && model->block[a % model->count].size_bytes > 1 ? 1 : 0;
    if (addr % 512 == 0) /* a base: that would be a free */
        return;
    FUZZ_CHECK(cup_pool_free(model->pool, addr, 1, NULL) == CUP_ERR_NOT_FOUND,
               "an interior address is freed");
}

static void forget_up_to(model_t *model, cup_point_t completed)
{
    size_t kept = 0;

    for (size_t i = 0; i < model->count; i++)
        if (model->block[i].stamp == 0 || model->block[i].stamp > completed)
            model->block[kept++] = model->block[i];
    model->count = kept;
}

static void do_complete(model_t *model, uint8_t a, uint8_t b)
{
    uint64_t waiting = model->recorded - model->completed;

    if (waiting == 0)
        return;
    model->completed += (a | b << 8) % waiting + 1;
    cup_pool_complete(model->pool, model->completed);
    forget_up_to(model, model->completed);
}

static void do_trim(model_t *model, uint8_t a, uint8_t b)
{
    uint64_t held = provider.held_bytes;
    uint64_t given = cup_pool_trim(model->pool, (uint64_t)a << (b % 32));

    FUZZ_CHECK(held - provider.held_bytes == given, "trim says %llu", (unsigned long long)given);
}

static void do_surrender(model_t *model, uint8_t a, uint8_t b)
{
    block_t *block = model->count ? &model->block[(a | b << 8) % model->count] : NULL;
    cup_block_info_t info;
    cup_pool_stat_t before, after;

    if (!block || block->stamp || !cup_pool_find(block->addr, &info))
        return;
    cup_pool_stat(model->pool, &before);
    if (cup_pool_surrender(model->pool, block->addr) != CUP_OK) {
        FUZZ_CHECK(!info.is_dedicated, "a dedicated block is kept");
        return;
    }
    cup_pool_stat(model->pool, &after);
    FUZZ_CHECK(info.is_dedicated, "a shared chunk is surrendered");
    cup_fake_release(&provider, block->addr, before.footprint_bytes - after.footprint_bytes);
    *block = model->block[--model->count];
}

static void do_fault(model_t *model, uint8_t a, uint8_t b)
{
    (void)model;
    if (a & 1)
        provider.fail_nth = b % 4;
    else
        cup_meta_fail_nth(b % 16);
}

static void do_one(model_t *model, const uint8_t *bytes)
{
    unsigned left = bytes[0] % 16;

#define X(operation, weight)                       \
    if (left < weight) {                           \
        do_##operation(model, bytes[1], bytes[2]); \
        return;                                    \
    }                                              \
    left -= weight;
    OPERATION_LIST(X);
#undef X
}

static void check_pool(const model_t *model)
{
    const char *broken = cup_pool_check(model->pool);

    FUZZ_CHECK(!broken, "%s", broken);
    FUZZ_CHECK(provider.faults == 0, "the provider was misused");
}

/* All blocks freed and complete: the law of an empty pool. */
static void empty_pool(model_t *model)
{
    const char *broken;

    provider.fail_nth = 0;
    cup_meta_fail_nth(0);
    for (size_t i = 0; i < model->count; i++)
        if (model->block[i].stamp == 0)
            FUZZ_CHECK(cup_pool_free(model->pool, model->block[i].addr, ++model->recorded, NULL) == CUP_OK,
                       "not freed");
    cup_pool_complete(model->pool, CUP_POINT_MAX);
    check_pool(model);
    broken = cup_pool_check_empty(model->pool);
    FUZZ_CHECK(!broken, "%s", broken);
    cup_pool_trim(model->pool, UINT64_MAX);
    FUZZ_CHECK(provider.held_bytes == 0, "%llu bytes are still held",
               (unsigned long long)provider.held_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model_t model;
    static bool is_ready;
    cup_pool_conf_t conf = {.range_bytes = 256 * CUP_MIB};
    cup_provider_t ops;

    if (size < 2)
        return 0;
    if (!is_ready) /* kept for all inputs: its addresses are used again, so the span map stays small */
        cup_fake_init(&provider, 0);
    is_ready = true;
    provider.limit_bytes = (uint64_t)(data[0] + 1) * CUP_CHUNK_ALIGN;
    conf.dedicated_bytes = data[1] & 1 ? 2 * CUP_MIB : (uint64_t)(data[1] + 1) * 128 * CUP_KIB;
    conf.slack_percent = 100 + data[1];
    conf.slack_floor_bytes = (uint64_t)(data[0] & 7) * 8 * CUP_MIB;
    ops = data[1] & 2 ? cup_fake_range_ops(&provider) : cup_fake_ops(&provider);
    memset(&model, 0, sizeof(model));
    if (cup_pool_create(&conf, &ops, &model.pool) != CUP_OK)
        return 0;
    for (size_t at = 2, round = 0; at + 3 <= size; at += 3, round++) {
        do_one(&model, data + at);
        if (round % 16 == 0)
            check_pool(&model);
    }
    check_pool(&model);
    empty_pool(&model);
    cup_pool_destroy(model.pool);
    FUZZ_CHECK(provider.held_addresses == 0, "a range is still held");
    return 0;
}

/* A seed allocates, frees half, completes, allocates again; they differ in the size they start from. */
size_t cup_fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    size_t length = 2;

    if (index >= 26)
        return 0;
    out[0] = 255;
    out[1] = (uint8_t)index;
    for (unsigned i = 0; i < 120 && length + 3 <= capacity; i++, length += 3) {
        out[length] = i % 60 < 30 ? 0 : i % 60 < 55 ? 5 : 11; /* alloc, free, complete */
        out[length + 1] = (uint8_t)(i % 60 < 30 ? (index + i) % 27 : i);
        out[length + 2] = (uint8_t)(i * 37);
    }
    return length;
}
