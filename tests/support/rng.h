/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rng - seeded random numbers for laws (splitmix64): the same seed is the same run everywhere.
 */
#ifndef CUP_TESTS_RNG_H
#define CUP_TESTS_RNG_H
#include <stdint.h>
#include <stdlib.h>

typedef struct cup_rng {
    uint64_t state;
} cup_rng_t;

static inline uint64_t cup_rng_next(cup_rng_t *rng)
{
    uint64_t x = rng->state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* 0 .. n - 1; n > 0. The bias of the remainder does not matter here. */
static inline uint64_t cup_rng_below(cup_rng_t *rng, uint64_t n)
{
    return cup_rng_next(rng) % n;
}

/* 1 .. 2^max_log2, evenly over the doublings, often exactly at an edge: what programs ask for. */
static inline uint64_t cup_rng_size(cup_rng_t *rng, unsigned max_log2)
{
    uint64_t top = UINT64_C(1) << cup_rng_below(rng, max_log2 + 1);
    uint64_t kind = cup_rng_below(rng, 8);
    if (kind == 0)
        return top;
    if (kind == 1 && top > 1)
        return top - 1;
    return top - cup_rng_below(rng, (top + 1) / 2);
}

/* The seed of this run: CUP_SEED from the environment, if it is set. */
static inline uint64_t cup_rng_seed(uint64_t otherwise)
{
    const char *text = getenv("CUP_SEED");
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

#endif /* CUP_TESTS_RNG_H */
