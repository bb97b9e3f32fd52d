/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap - the detector: does memory change hands while an operation of the old owner is in flight? Every
 * claim starts a new generation of its range. An operation takes the generations of the ranges that it
 * touches when it is submitted. A violation is an operation that begins while an unfinished one of an older
 * generation touches the same bytes. That both only read makes no difference: the order that a free gives
 * was not kept. Of a kind of its own, UNMAP: a mapping, or access to it, taken away while an unfinished
 * operation touches it; once for each mapping.
 *
 * Cost: only operations submitted before the newest claim on a range can be older than it, so the walk over
 * the unfinished ones ends there.
 */
#include "driver.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define REPORTS_MAX 5

#define ADDRESS_BITS 47 /* of user space */
#define LEAF_BITS    13
#define LEAF_SLOTS   (1ull << LEAF_BITS)
#define LEAVES       ((1ull << ADDRESS_BITS) / SC_SLOT_BYTES / LEAF_SLOTS)

/* Generations of a slot: of the whole, and of its grains once a part was claimed. The newer counts. */
typedef struct {
    uint64_t whole;
    uint64_t *grain;
} slot_claims_t;

static slot_claims_t *leaves[LEAVES]; /* of slots, by address */
static uint64_t claim_clock;          /* claims made, ever */
static _Atomic uint64_t violations;
static _Atomic uint64_t unmap_violations;
static _Atomic uint64_t claims_in_flight;

/* NULL where nothing was ever claimed near the address. */
static slot_claims_t *find_slot(uint64_t addr)
{
    uint64_t slot = addr / SC_SLOT_BYTES;
    slot_claims_t *leaf = slot < LEAVES * LEAF_SLOTS ? leaves[slot / LEAF_SLOTS] : NULL;

    return leaf ? &leaf[slot % LEAF_SLOTS] : NULL;
}

/* NULL for what is no memory of the device. */
static slot_claims_t *get_slot(uint64_t addr)
{
    uint64_t leaf = addr / SC_SLOT_BYTES / LEAF_SLOTS;

    if (leaf >= LEAVES || !sc_is_device_address(addr))
        return NULL;
    if (!leaves[leaf])
        leaves[leaf] = sc_zalloc(LEAF_SLOTS * sizeof *leaves[leaf]);
    return find_slot(addr);
}

/* Of the first byte: a block is claimed whole, so any byte of it tells. 0: never claimed. */
static uint64_t find_generation(uint64_t addr)
{
    const slot_claims_t *slot = find_slot(addr);

    if (!slot)
        return 0;
    uint64_t grain = slot->grain ? slot->grain[addr % SC_SLOT_BYTES / SC_GRAIN_BYTES] : 0;
    return slot->whole > grain ? slot->whole : grain;
}

void sc_overlap_stamp(sc_op_t *op)
{
    op->clock = claim_clock;
    for (unsigned i = 0; i < op->work.range_count; i++)
        op->work.ranges[i].generation = find_generation(op->work.ranges[i].base);
}

static bool is_overlap(const sc_range_t *a, uint64_t base, uint64_t size)
{
    return a->base < base + size && base < a->base + a->size;
}

static void report(const sc_op_t *begun, const sc_range_t *range, const sc_op_t *unfinished,
                   const sc_range_t *old)
{
    if (atomic_fetch_add(&violations, 1) >= REPORTS_MAX)
        return;
    fprintf(stderr,
            "softcuda: OVERLAP %s #%llu begins on [0x%llx, +%llu) of generation %llu while %s #%llu of "
            "generation %llu "
            "is unfinished on [0x%llx, +%llu)\n",
            sc_work_name(&begun->work), (unsigned long long)begun->number, (unsigned long long)range->base,
            (unsigned long long)range->size, (unsigned long long)range->generation,
            sc_work_name(&unfinished->work), (unsigned long long)unfinished->number,
            (unsigned long long)old->generation, (unsigned long long)old->base,
            (unsigned long long)old->size);
}

/* True when an older owner's operation on the range is unfinished; then reported. */
static bool check_range(const sc_op_t *op, const sc_range_t *range)
{
    for (const sc_op_t *other = sc.oldest; other && other->clock < range->generation; other = other->newer) {
        if (other == op)
            continue;
        for (unsigned i = 0; i < other->work.range_count; i++) {
            const sc_range_t *old = &other->work.ranges[i];
            if (old->generation < range->generation && is_overlap(old, range->base, range->size)) {
                report(op, range, other, old);
                return true;
            }
        }
    }
    return false;
}

void sc_overlap_check(const sc_op_t *op)
{
    for (unsigned i = 0; i < op->work.range_count; i++)
        if (check_range(op, &op->work.ranges[i]))
            return; /* one operation, one violation */
}

static bool is_touching(const sc_op_t *op, uint64_t addr, uint64_t size)
{
    for (unsigned i = 0; i < op->work.range_count; i++)
        if (is_overlap(&op->work.ranges[i], addr, size))
            return true;
    return false;
}

static bool is_in_flight(uint64_t addr, uint64_t size)
{
    for (const sc_op_t *op = sc.oldest; op; op = op->newer)
        if (is_touching(op, addr, size))
            return true;
    return false;
}

bool sc_overlap_is_running(uint64_t base, uint64_t size)
{
    for (const sc_op_t *op = sc.oldest; op; op = op->newer)
        if (op->is_begun && is_touching(op, base, size))
            return true;
    return false;
}

void sc_overlap_unmap(uint64_t base, uint64_t size, uint32_t devices)
{
    const sc_op_t *op = sc.oldest;

    while (op && !(devices & 1u << op->queue->ctx->device && is_touching(op, base, size)))
        op = op->newer;
    if (!op)
        return;
    atomic_fetch_add(&unmap_violations, 1);
    if (atomic_fetch_add(&violations, 1) < REPORTS_MAX)
        fprintf(stderr,
                "softcuda: UNMAP of [0x%llx, +%llu) while %s #%llu, which touches it, is unfinished\n",
                (unsigned long long)base, (unsigned long long)size, sc_work_name(&op->work),
                (unsigned long long)op->number);
}

/* Gives the part of one slot, from the grain of addr on, the generation; returns the bytes covered. */
static uint64_t claim_slot(uint64_t addr, uint64_t size, uint64_t generation)
{
    uint64_t offset = addr % SC_SLOT_BYTES;
    uint64_t part = size < SC_SLOT_BYTES - offset ? size : SC_SLOT_BYTES - offset;
    slot_claims_t *slot = get_slot(addr);

    if (!slot)
        return part;
    if (part == SC_SLOT_BYTES) {
        slot->whole = generation;
        return part;
    }
    if (!slot->grain)
        slot->grain = sc_zalloc(SC_GRAINS * sizeof *slot->grain);
    for (uint64_t grain = offset / SC_GRAIN_BYTES; grain * SC_GRAIN_BYTES < offset + part; grain++)
        slot->grain[grain] = generation;
    return part;
}

SC_EXPORT void softcuda_claim(uint64_t addr, uint64_t size_bytes)
{
    pthread_mutex_lock(&sc.lock);
    uint64_t generation = ++claim_clock;
    if (is_in_flight(addr, size_bytes))
        atomic_fetch_add(&claims_in_flight, 1);
    while (size_bytes > 0) {
        uint64_t part = claim_slot(addr, size_bytes, generation);
        addr += part;
        size_bytes -= part;
    }
    pthread_mutex_unlock(&sc.lock);
}

SC_EXPORT uint64_t softcuda_violations(void)
{
    return atomic_load(&violations);
}

SC_EXPORT uint64_t softcuda_unmap_violations(void)
{
    return atomic_load(&unmap_violations);
}

SC_EXPORT uint64_t softcuda_claims_in_flight(void)
{
    return atomic_load(&claims_in_flight);
}

void sc_overlap_reset(void)
{
    atomic_store(&violations, 0);
    atomic_store(&unmap_violations, 0);
    atomic_store(&claims_in_flight, 0);
}
