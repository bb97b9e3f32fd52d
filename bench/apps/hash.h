/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash - the 64-bit hash that a program prints over every byte of its output.
 * What:       a word-wise multiply and fold, to compare one run of a program with another, nothing else.
 * Not here:   hashing on the device (kernels.cu).
 * Invariants: depends on every byte, on the length and on the order of calls.
 * Threads:    no state.
 */
#ifndef CUP_BENCH_HASH_H
#define CUP_BENCH_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * HASH_PRIME;
    return hash ^ (hash >> 32);
}

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size_bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t word = 0;
    for (size_t left = size_bytes; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = hash_word(hash, word);
    }
    word = 0;
    memcpy(&word, at, size_bytes % sizeof word);
    return hash_word(hash_word(hash, word), size_bytes);
}

#endif /* CUP_BENCH_HASH_H */
