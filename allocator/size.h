/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size - size classes, slab geometry, rounding.
 * What:       small requests (<= 32 KiB) round to a class: steps of 512 bytes to 4 KiB, then 8 classes per
 *             doubling. Larger ones round to 4 KiB, dedicated ones to CUP_CHUNK_ALIGN.
 * Invariants: rounding wastes at most 1/8 of what it hands out above 4 KiB (dedicated blocks apart: the
 *             driver itself reserves in units of 2 MiB); a class that is a multiple of 4 KiB keeps blocks 4
 *             KiB-aligned.
 * Threads:    pure functions.
 */
#ifndef CUP_ALLOCATOR_SIZE_H
#define CUP_ALLOCATOR_SIZE_H
#include "allocator/types.h"

#define CUP_SIZE_STEP       512            /* the driver's own spacing; linear textures need it */
#define CUP_SIZE_GRANULE    (4 * CUP_KIB)  /* spans are made of these */
#define CUP_SIZE_NIC_ALIGN  (64 * CUP_KIB) /* NIC and GDRCopy mappings pin pages of this size */
#define CUP_SIZE_SMALL_MAX  (32 * CUP_KIB) /* the largest class */
#define CUP_SIZE_GROUP_LOG2 3              /* 8 classes per doubling */

/*
 * Of two ranges, spans up to this live in one and larger ones in the other: a small block must not hold
 * back the handle that a large one needs. As large as the largest slab. Footprint / peak live on three
 * recorded programs (training, generation, CuPy; slack 1.0): slabs alone 1.014, 1.011, 1.110; 256 KiB
 * 1.015, 1.032, 1.074; 1 MiB 1.036, 1.042, 1.119.
 */
#define CUP_SIZE_SMALL_SPAN_MAX (256 * CUP_KIB)

/*
 * X(class, block bytes, slab bytes). A slab holds at least 8 blocks and at least 64 KiB, so that it is
 * worth its bookkeeping, and its tail is at most 1/8 of it. size.c asserts each of these for each row.
 */
#define CUP_SIZE_CLASS_LIST(X) \
    X(0, 512, 65536)           \
    X(1, 1024, 65536)          \
    X(2, 1536, 65536)          \
    X(3, 2048, 65536)          \
    X(4, 2560, 65536)          \
    X(5, 3072, 65536)          \
    X(6, 3584, 65536)          \
    X(7, 4096, 65536)          \
    X(8, 4608, 65536)          \
    X(9, 5120, 65536)          \
    X(10, 5632, 65536)         \
    X(11, 6144, 65536)         \
    X(12, 6656, 65536)         \
    X(13, 7168, 65536)         \
    X(14, 7680, 65536)         \
    X(15, 8192, 65536)         \
    X(16, 9216, 73728)         \
    X(17, 10240, 81920)        \
    X(18, 11264, 90112)        \
    X(19, 12288, 98304)        \
    X(20, 13312, 106496)       \
    X(21, 14336, 114688)       \
    X(22, 15360, 122880)       \
    X(23, 16384, 131072)       \
    X(24, 18432, 147456)       \
    X(25, 20480, 163840)       \
    X(26, 22528, 180224)       \
    X(27, 24576, 196608)       \
    X(28, 26624, 212992)       \
    X(29, 28672, 229376)       \
    X(30, 30720, 245760)       \
    X(31, 32768, 262144)

enum {
#define X(class, block, slab) +1
    CUP_SIZE_CLASS_COUNT = CUP_SIZE_CLASS_LIST(X)
#undef X
};

#define CUP_SIZE_SLAB_BLOCKS_MAX 128 /* 64 KiB of 512-byte blocks */

typedef struct cup_size_class {
    uint32_t block_bytes;
    uint32_t slab_bytes;
    uint32_t slab_blocks;
} cup_size_class_t;

extern const cup_size_class_t cup_size_classes[CUP_SIZE_CLASS_COUNT];

/* The smallest class that holds size_bytes, which is 1 .. CUP_SIZE_SMALL_MAX. */
uint32_t cup_size_class_of(uint64_t size_bytes);

/* Rounds up to a multiple of align (a power of two). Returns false, and writes nothing, on overflow. */
bool cup_size_round_up(uint64_t size_bytes, uint64_t align, uint64_t *out_bytes);

/* What a span of its own must be aligned to: for requests above CUP_SIZE_SMALL_MAX. */
uint64_t cup_size_span_align(uint64_t size_bytes);

/* How much to reserve for a shared chunk while the footprint is this: 2, 8, then 32 MiB. */
uint64_t cup_size_chunk_bytes(uint64_t footprint_bytes);

#endif /* CUP_ALLOCATOR_SIZE_H */
