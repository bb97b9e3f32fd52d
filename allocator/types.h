/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types - the only glossary, and the units that everything above speaks.
 *
 * provider     what gives device memory: a driver behind an ops table (provider.h)
 * chunk        one reservation from the provider: shared (cut into spans) or dedicated (one block, never split)
 * handle       memory of the provider that can be mapped at an address of our choice, and elsewhere later
 * range        addresses reserved in one piece, backed by handles as they are needed
 * place        where in a range one handle can be
 * hole         places of a range without memory
 * span         a contiguous part of a chunk or a range: free, a block of its own, or a slab
 * slab         a span of equal blocks of one small size class
 * size class   the sizes that small requests are rounded to
 * block        what the program gets
 * arena        the spans of all shared chunks: best fit, split, coalesce
 * order point  a numbered moment of a context; complete once all work submitted to it before has run
 * stamp        the order point that a freed block waits for
 * limbo        freed blocks whose stamp is not complete yet
 * complete     no work submitted before the free still runs, and the host knows it: may be handed out or released
 * guard        the first granule of a shared chunk, never handed out: a free of a chunk's own address through a
 *              door that we do not hook would release it under its neighbours
 * footprint    bytes held from the provider
 * slack        how much more than what is live the footprint may be before free memory is moved instead of
 *              more being asked for
 * live         bytes that the program holds, as it asked for them
 * mark         what is noted of one live block; gone when its memory is handed out again
 * quarantine   blocks that were freed and marked as reachable by others: not handed out again
 */
#ifndef CUP_ALLOCATOR_TYPES_H
#define CUP_ALLOCATOR_TYPES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A device address: arithmetic only, never dereferenced. */
typedef uint64_t cup_addr_t;

/* The number of an order point; 0 is complete from the start, CUP_POINT_MAX completes everything. */
typedef uint64_t cup_point_t;
#define CUP_POINT_MAX UINT64_MAX

#define CUP_KIB ((uint64_t)1 << 10)
#define CUP_MIB ((uint64_t)1 << 20)
#define CUP_GIB ((uint64_t)1 << 30)

/* X(enumerator, text) */
#define CUP_STATUS_LIST(X)                                  \
    X(CUP_OK, "ok")                                         \
    X(CUP_ERR_MISS, "nothing fits in what the pool holds")  \
    X(CUP_ERR_OOM, "the provider is out of memory")         \
    X(CUP_ERR_NOMEM, "no host memory for bookkeeping")      \
    X(CUP_ERR_NOT_FOUND, "not a live block of this pool")   \
    X(CUP_ERR_INVALID, "an argument that cannot be served") \
    X(CUP_ERR_DRIVER, "the driver reported an error")

typedef enum {
#define X(name, text) name,
    CUP_STATUS_LIST(X)
#undef X
        CUP_STATUS_COUNT
} cup_status_t;

#endif /* CUP_ALLOCATOR_TYPES_H */
