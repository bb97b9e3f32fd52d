/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size - how: with l = floor(log2(size - 1)), at least 12, the step inside the doubling is 2^(l - 3), so the
 * class is 8 * (l - 12) + ((size - 1) >> (l - 3)). The list in size.h is checked against this at compile
 * time.
 */
#include "allocator/size.h"

#include "allocator/assert.h"
#include "allocator/provider.h"

#define FIRST_LOG2 12 /* below 4 KiB the step stays 512 bytes */

const cup_size_class_t cup_size_classes[CUP_SIZE_CLASS_COUNT] = {
#define X(class, block, slab) [class] = {(block), (slab), (slab) / (block)},
    CUP_SIZE_CLASS_LIST(X)
#undef X
};

#define GROUP(class) ((class) < 8 ? 0 : (class) / 8 - 1) /* how often the step has doubled */

#define X(class, block, slab)                                                                             \
    _Static_assert((block) == (uint64_t)((class) + 1 - 8 * GROUP(class)) * CUP_SIZE_STEP << GROUP(class), \
                   "8 classes per doubling");                                                             \
    _Static_assert((block) % CUP_SIZE_STEP == 0, "blocks keep the driver's spacing");                     \
    _Static_assert((slab) % CUP_SIZE_GRANULE == 0, "a slab is a span");                                   \
    _Static_assert((slab) <= CUP_SIZE_SMALL_SPAN_MAX, "a slab is a small span");                          \
    _Static_assert((slab) >= 64 * CUP_KIB, "a slab is worth its bookkeeping");                            \
    _Static_assert((slab) / (block) >= 8, "a slab serves many requests");                                 \
    _Static_assert((slab) / (block) <= CUP_SIZE_SLAB_BLOCKS_MAX, "a slab's bitmaps hold its blocks");     \
    _Static_assert((slab) % (block)*8 <= (slab), "a slab's tail is at most 1/8");
CUP_SIZE_CLASS_LIST(X)
#undef X
_Static_assert(CUP_SIZE_CLASS_COUNT == 32, "the last class is 32 KiB");
_Static_assert(CUP_SIZE_STEP << CUP_SIZE_GROUP_LOG2 == 1 << FIRST_LOG2,
               "the first doubling starts at 8 steps");
_Static_assert(CUP_SIZE_GRANULE <= (CUP_SIZE_SMALL_MAX + 1) / 8,
               "granules waste at most 1/8 above the classes");
_Static_assert(CUP_CHUNK_ALIGN % CUP_SIZE_NIC_ALIGN == 0, "a chunk's base satisfies every alignment");

/* Up to this footprint, chunks of this size: past the start, at most a quarter of what is there. */
static const struct {
    uint64_t below_bytes, chunk_bytes;
} chunk_rule[] = {
    {32 * CUP_MIB, 2 * CUP_MIB},
    {256 * CUP_MIB, 8 * CUP_MIB},
    {UINT64_MAX, 32 * CUP_MIB},
};
#define CHUNK_RULES (sizeof chunk_rule / sizeof chunk_rule[0])

uint32_t cup_size_class_of(uint64_t size_bytes)
{
    CUP_ASSERT(size_bytes >= 1 && size_bytes <= CUP_SIZE_SMALL_MAX);
    uint32_t last = (uint32_t)size_bytes - 1;
    uint32_t log2 = last >> FIRST_LOG2 ? 31 - (uint32_t)__builtin_clz(last) : FIRST_LOG2;
    return ((log2 - FIRST_LOG2) << CUP_SIZE_GROUP_LOG2) + (last >> (log2 - CUP_SIZE_GROUP_LOG2));
}

bool cup_size_round_up(uint64_t size_bytes, uint64_t align, uint64_t *out_bytes)
{
    CUP_ASSERT(align && (align & (align - 1)) == 0);
    uint64_t padded;
    if (__builtin_add_overflow(size_bytes, align - 1, &padded))
        return false;
    *out_bytes = padded & ~(align - 1);
    return true;
}

uint64_t cup_size_span_align(uint64_t size_bytes)
{
    return size_bytes >= CUP_SIZE_NIC_ALIGN ? CUP_SIZE_NIC_ALIGN : CUP_SIZE_GRANULE;
}

uint64_t cup_size_chunk_bytes(uint64_t footprint_bytes)
{
    size_t rule = 0;
    while (rule + 1 < CHUNK_RULES && footprint_bytes >= chunk_rule[rule].below_bytes)
        rule++;
    return chunk_rule[rule].chunk_bytes;
}
