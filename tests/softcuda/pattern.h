/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern - what the built-in kernels write and compute, for the CPU and for CUDA alike.
 * What:       splitmix64, the fill pattern, the order-independent hash.
 * Threads:    pure functions.
 */
#ifndef SOFTCUDA_PATTERN_H
#define SOFTCUDA_PATTERN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SOFTCUDA_PURE static inline __host__ __device__
#else
#define SOFTCUDA_PURE static inline
#endif

/* Sebastiano Vigna's splitmix64 finaliser, with the increment. */
SOFTCUDA_PURE uint64_t softcuda_splitmix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Word number i (8 bytes, little-endian) of a region filled with seed. */
SOFTCUDA_PURE uint64_t softcuda_fill_word(uint64_t seed, uint64_t i)
{
    return softcuda_splitmix64(seed ^ i * 0x9E3779B97F4A7C15ull);
}

/* What word number i adds to the hash. The sum over all words, mod 2^64, is the hash. */
SOFTCUDA_PURE uint64_t softcuda_hash_word(uint64_t word, uint64_t i)
{
    return softcuda_splitmix64(word ^ i);
}

/*
 * Word number i of a region of size_bytes; the last one is shorter than 8 bytes where size_bytes is no
 * multiple of 8: it is then zero-extended. A region has (size_bytes + 7) / 8 words. fill writes only the low
 * bytes of that last word, verify compares only them.
 */
SOFTCUDA_PURE uint64_t softcuda_load_word(const void *region, uint64_t size_bytes, uint64_t i)
{
    uint64_t word = 0;
    const unsigned char *at = (const unsigned char *)region + i * 8;
    uint64_t left = size_bytes - i * 8;

    if (left >= 8 && ((uintptr_t)at & 7) == 0)
        return *(const uint64_t *)(const void *)at;
    for (uint64_t b = 0; b < (left < 8 ? left : 8); b++)
        word |= (uint64_t)at[b] << (8 * b);
    return word;
}

/* The bits of word number i that lie inside a region of size_bytes. */
SOFTCUDA_PURE uint64_t softcuda_word_mask(uint64_t size_bytes, uint64_t i)
{
    uint64_t left = size_bytes - i * 8;

    return left >= 8 ? ~0ull : (1ull << (8 * left)) - 1;
}

/* The hash of a region in host memory. */
static inline uint64_t softcuda_hash_region(const void *region, uint64_t size_bytes)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < (size_bytes + 7) / 8; i++)
        sum += softcuda_hash_word(softcuda_load_word(region, size_bytes, i), i);
    return sum;
}

/* Words of a region in host memory that differ from the fill pattern of seed. */
static inline uint64_t softcuda_verify_region(const void *region, uint64_t size_bytes, uint64_t seed)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < (size_bytes + 7) / 8; i++) {
        uint64_t expected = softcuda_fill_word(seed, i) & softcuda_word_mask(size_bytes, i);
        wrong += softcuda_load_word(region, size_bytes, i) != expected;
    }
    return wrong;
}

#endif /* SOFTCUDA_PATTERN_H */
