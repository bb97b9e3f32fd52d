/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels - what the driver-level programs run on a real GPU: names, parameters and results of the software
 * driver's built-in kernels, so that one program source serves both.
 * What:       fill, verify, hash, copy, spin over 64-bit words; late_fill, which writes only at its end;
 *             batch_fill and batch_verify, which the software driver has not, over several blocks at once.
 * Not here:   the pattern and the hash (tests/softcuda/pattern.h), launching (dev.c).
 * Invariants: sizes are multiples of 8. verify and hash add to a word that the caller zeroed on the same
 *             stream; addition makes the result independent of the order of threads.
 * Threads:    any grid: every kernel strides over its range. Batches have a row of the grid (y) for each
 *             block.
 */
#include <stdint.h>
#include "bench/batch.h"
#include "tests/softcuda/pattern.h"

static __device__ uint64_t first_word(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ uint64_t stride(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ uint64_t now_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ void wait_us(uint64_t us)
{
    uint64_t start = now_ns();
    while (now_ns() - start < us * 1000) {
    }
    asm volatile("" ::: "memory"); /* what comes after is not read before */
}

extern "C" __global__ void fill(uint64_t *block, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = first_word(); i < bytes / 8; i += stride())
        block[i] = softcuda_fill_word(seed, i);
}

extern "C" __global__ void verify(const uint64_t *block, uint64_t bytes, uint64_t seed,
                                  unsigned long long *mismatches)
{
    unsigned long long wrong = 0;
    for (uint64_t i = first_word(); i < bytes / 8; i += stride())
        wrong += block[i] != softcuda_fill_word(seed, i);
    if (wrong)
        atomicAdd(mismatches, wrong);
}

extern "C" __global__ void hash(const uint64_t *block, uint64_t bytes, unsigned long long *out)
{
    unsigned long long sum = 0;
    for (uint64_t i = first_word(); i < bytes / 8; i += stride())
        sum += softcuda_hash_word(block[i], i);
    if (sum)
        atomicAdd(out, sum);
}

extern "C" __global__ void copy(uint64_t *to, const uint64_t *from, uint64_t bytes)
{
    for (uint64_t i = first_word(); i < bytes / 8; i += stride())
        to[i] = from[i];
}

extern "C" __global__ void spin(uint64_t us)
{
    wait_us(us);
}

/* Every thread waits first: whoever is handed the block early sees the old words, or has its own overwritten.
 */
extern "C" __global__ void late_fill(uint64_t *block, uint64_t bytes, uint64_t seed, uint64_t us)
{
    wait_us(us);
    for (uint64_t i = first_word(); i < bytes / 8; i += stride())
        block[i] = softcuda_fill_word(seed, i);
}

/* Programmatic launches, where the GPU has them. Without the launch attribute neither does anything. */
static __device__ void let_next_launch_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

static __device__ void wait_for_launch_before(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/*
 * Launched programmatically it fills while the kernel in front of it may still run: legal, as the blocks are
 * new. It ends after that kernel, so that whoever follows is behind both.
 */
extern "C" __global__ void batch_fill(const __grid_constant__ dev_batch_t batch)
{
    const dev_block_t &block = batch.blocks[blockIdx.y];
    uint64_t *words = (uint64_t *)block.base;
    if (first_word() < block.bytes / 8)
        wait_us(batch.delay_us);
    for (uint64_t i = first_word(); i < block.bytes / 8; i += stride())
        words[i] = softcuda_fill_word(block.seed, i);
    wait_for_launch_before();
}

/* Lets a programmatic launch start at once, then waits, then reads: it is the last user that sees any
 * early fill. */
extern "C" __global__ void batch_verify(const __grid_constant__ dev_batch_t batch)
{
    const dev_block_t &block = batch.blocks[blockIdx.y];
    const uint64_t *words = (const uint64_t *)block.base;
    unsigned long long wrong = 0;
    let_next_launch_start();
    if (first_word() < block.bytes / 8)
        wait_us(batch.delay_us);
    for (uint64_t i = first_word(); i < block.bytes / 8; i += stride())
        wrong += words[i] != softcuda_fill_word(block.seed, i);
    if (wrong)
        atomicAdd((unsigned long long *)batch.wrong, wrong);
}
