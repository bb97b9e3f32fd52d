/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_law - random sequences over three devices: access given and taken, contexts that end and come back,
 * blocks that come and go, copies between any two by any third; against a model of who may write what and
 * what is in it.
 * What:       natively a context reaches another one's memory exactly while it has been given access to it.
 *             Under vmm access is the device's: a context reaches what any context of its device was given.
 *             Copies need no access.
 * Invariants: at the end every context is asked about every block, every block's bytes are the model's, and
 *             the overlap detector has seen nothing. The seed is printed on a failure (CUP_SEED).
 */
#include "tests/preload/peer.h"
#include "tests/support/rng.h"

#define MIB     ((size_t)1 << 20)
#define DEVICES 3
#define PLACES  5 /* the primary contexts, then two of the program's own, on devices 1 and 2 */
#define BLOCKS  40
#define WORDS   8 /* of each block that the model knows */
#define STEPS   5000

typedef struct block {
    CUdeviceptr base; /* 0: none */
    int owner;
    uint64_t word[WORDS];
} block_t;

static cup_rng_t g_rng;
static uint64_t g_seed;
static place_t g_place[PLACES];
static bool g_given[PLACES][PLACES]; /* from, to */
static block_t g_block[BLOCKS];
static int g_step;

/* As REQUIRE, with what repeats it. */
#define LAW(cond)                                                                                        \
    do {                                                                                                 \
        if (!(cond)) {                                                                                   \
            fprintf(stderr, "CUP_SEED=%llu, step %d, line %d: not so: %s\n", (unsigned long long)g_seed, \
                    g_step, __LINE__, #cond);                                                            \
            _Exit(1);                                                                                    \
        }                                                                                                \
    } while (0)

static int any(int count)
{
    return (int)cup_rng_below(&g_rng, (uint64_t)count);
}

static int any_block(void)
{
    int index = any(BLOCKS);

    for (int i = 0; i < BLOCKS; i++, index = (index + 1) % BLOCKS)
        if (g_block[index].base)
            return index;
    return -1;
}

/* ---- the model ---- */

static bool may_write(int from, int owner)
{
    if (g_place[from].device == g_place[owner].device)
        return true;
    for (int i = 0; i < PLACES; i++)
        if (g_given[i][owner] && (i == from || (peer_is_vmm() && g_place[i].device == g_place[from].device)))
            return true;
    return false;
}

static void forget_place(int place)
{
    for (int i = 0; i < PLACES; i++)
        g_given[place][i] = g_given[i][place] = false;
    for (int i = 0; i < BLOCKS; i++)
        if (g_block[i].owner == place)
            g_block[i].base = 0;
}

/* ---- what happens ---- */

static void give(void)
{
    int from = any(PLACES), to = any(PLACES);
    CUresult expected = g_place[from].device == g_place[to].device ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
                        : g_given[from][to]                        ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                                                   : CUDA_SUCCESS;

    peer_join(&g_place[from]);
    LAW(cuCtxEnablePeerAccess(g_place[to].ctx, 0) == expected);
    g_given[from][to] |= expected == CUDA_SUCCESS;
}

static void take(void)
{
    int from = any(PLACES), to = any(PLACES);
    CUresult expected = g_given[from][to] ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;

    peer_join(&g_place[from]);
    LAW(cuCtxDisablePeerAccess(g_place[to].ctx) == expected);
    g_given[from][to] = false;
}

/* Mostly small ones; now and then so large that the heap grows, or something in it moves. */
static void alloc(void)
{
    size_t bytes = any(8) == 0 ? (size_t)(1 + any(24)) * MIB : 64 + cup_rng_size(&g_rng, 18);
    int index = any(BLOCKS), owner = any(PLACES);
    block_t *block = &g_block[index];

    if (block->base)
        return;
    *block = (block_t){.base = peer_alloc(&g_place[owner], bytes), .owner = owner};
    LAW(cuMemsetD8(block->base, 0, sizeof(block->word)) == CUDA_SUCCESS);
    LAW(cuCtxSynchronize() == CUDA_SUCCESS);
}

static void release(void)
{
    int index = any_block();

    if (index < 0)
        return;
    peer_join(&g_place[any(PLACES)]);
    LAW(cuMemFree(g_block[index].base) == CUDA_SUCCESS);
    g_block[index].base = 0;
}

static void write_from(int from, int index)
{
    block_t *block = &g_block[index];
    uint64_t seed = cup_rng_next(&g_rng);
    bool can = peer_can_write(&g_place[from], block->base, seed);

    LAW(can == may_write(from, block->owner));
    for (uint64_t i = 0; can && i < WORDS; i++)
        block->word[i] = softcuda_fill_word(seed, i);
}

static void write_any(void)
{
    int index = any_block();

    if (index >= 0)
        write_from(any(PLACES), index);
}

static CUresult copy_linear(int way, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    switch (way) {
    case 0:
        return cuMemcpy(dst, src, bytes);
    case 1:
        return cuMemcpyDtoD(dst, src, bytes);
    case 2:
        return cuMemcpyAsync(dst, src, bytes, stream);
    default:
        return cuMemcpyDtoDAsync(dst, src, bytes, stream);
    }
}

static CUresult copy_2d(bool is_async, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    const CUDA_MEMCPY2D copy = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = dst,
                                .dstPitch = 8,
                                .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = src,
                                .srcPitch = 8,
                                .WidthInBytes = 8,
                                .Height = bytes / 8};

    return is_async ? cuMemcpy2DAsync(&copy, stream) : cuMemcpy2D(&copy);
}

/* On the stream of the place, or of another. */
static void copy_any(void)
{
    const place_t *by = &g_place[any(PLACES)];
    int dst = any_block(), src = any_block(), way = any(6), stream = any(4) ? -1 : any(PLACES);
    uint64_t words = 1 + cup_rng_below(&g_rng, WORDS);
    CUstream on = stream < 0 ? by->stream : g_place[stream].stream;

    if (dst < 0 || src < 0 || dst == src)
        return;
    peer_join(by);
    LAW((way < 4 ? copy_linear(way, g_block[dst].base, g_block[src].base, words * 8, on)
                 : copy_2d(way == 5, g_block[dst].base, g_block[src].base, words * 8, on)) == CUDA_SUCCESS);
    LAW(cuCtxSynchronize() == CUDA_SUCCESS);
    LAW(cuStreamSynchronize(on) == CUDA_SUCCESS);
    memcpy(g_block[dst].word, g_block[src].word, words * 8);
}

/* By a copy from any place, without its access. */
static void read_from(int from, int index)
{
    uint64_t word[WORDS];

    peer_join(&g_place[from]);
    LAW(cuMemcpyDtoH(word, g_block[index].base, sizeof(word)) == CUDA_SUCCESS);
    LAW(memcmp(word, g_block[index].word, sizeof(word)) == 0);
}

static void read_any(void)
{
    int index = any_block();

    if (index >= 0)
        read_from(any(PLACES), index);
}

/* A context ends, with its memory and its access, and is there again. */
static void renew(void)
{
    int place = any(PLACES);

    if (any(8) != 0)
        return;
    forget_place(place);
    if (place < DEVICES) {
        LAW(cuDevicePrimaryCtxReset(place) == CUDA_SUCCESS);
        g_place[place] = peer_primary(place);
        return;
    }
    LAW(cuCtxDestroy(g_place[place].ctx) == CUDA_SUCCESS);
    g_place[place] = peer_create(g_place[place].device);
}

static void walk(void)
{
    for (int i = 0; i < BLOCKS; i++)
        for (int from = 0; g_block[i].base && from < PLACES; from++) {
            read_from(from, i);
            write_from(from, i);
        }
}

int main(int argc, char **argv)
{
    static void (*const steps[])(void) = {give,      take,     alloc,    alloc,    release,
                                          write_any, copy_any, copy_any, read_any, renew};
    int count = argc > 1 ? atoi(argv[1]) : STEPS;

    g_seed = cup_rng_seed(1);
    g_rng.state = g_seed;
    for (int i = 0; i < PLACES; i++)
        g_place[i] = i < DEVICES ? peer_primary(i) : peer_create(i - DEVICES + 1);
    for (g_step = 0; g_step < count; g_step++)
        steps[any(sizeof(steps) / sizeof(steps[0]))]();
    walk();
    LAW(softcuda_violations() == 0);
    LAW(!peer_is_vmm() || softcuda_calls("cuMemcpyPeerAsync") > 0);
    return 0;
}
