/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap - the detector: does memory change hands while an operation of the old owner is in flight? Every
 * claim starts a new generation of its range. An operation takes the generations of the ranges that it
 * touches when it is submitted. A violation is an operation that begins while an unfinished one of an older
 * generation touches the same bytes. That both only read makes no difference: the order that a free gives
 * was not kept.
 *
 * Cost: only operations submitted before the newest claim on a range can be older than it, so the walk over
 * the unfinished ones ends there.
 */
#include "driver.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define REPORTS_MAX 5

/* Generations of a slot: of the whole, and of its grains once a part was claimed. The newer counts. */
typedef struct {
    uint64_t whole;
    uint64_t *grain;
} slot_claims_t;

static slot_claims_t claims[SC_DEVICES_MAX * SC_SLOTS_MAX];
static uint64_t claim_clock; /* claims made, ever */
static _Atomic uint64_t violations;
static _Atomic uint64_t claims_in_flight;

/* Of the first byte: a block is claimed whole, so any byte of it tells. 0: never claimed. */
static uint64_t find_generation(uint64_t addr)
{
    uint64_t index;

    if (!sc_heap_slot(addr, &index))
        return 0;
    uint64_t whole = claims[index].whole;
    uint64_t grain = claims[index].grain ? claims[index].grain[addr % SC_SLOT_BYTES / SC_GRAIN_BYTES] : 0;
    return whole > grain ? whole : grain;
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

static bool is_in_flight(uint64_t addr, uint64_t size)
{
    for (const sc_op_t *op = sc.oldest; op; op = op->newer)
        for (unsigned i = 0; i < op->work.range_count; i++)
            if (is_overlap(&op->work.ranges[i], addr, size))
                return true;
    return false;
}

/* Gives the part of one slot, from the grain of addr on, the generation; returns the bytes covered. */
static uint64_t claim_slot(uint64_t addr, uint64_t size, uint64_t generation)
{
    uint64_t index, offset = addr % SC_SLOT_BYTES;
    uint64_t part = size < SC_SLOT_BYTES - offset ? size : SC_SLOT_BYTES - offset;

    if (!sc_heap_slot(addr, &index))
        return part;
    if (part == SC_SLOT_BYTES) {
        claims[index].whole = generation;
        return part;
    }
    if (!claims[index].grain)
        claims[index].grain = sc_zalloc(SC_GRAINS * sizeof *claims[index].grain);
    for (uint64_t grain = offset / SC_GRAIN_BYTES; grain * SC_GRAIN_BYTES < offset + part; grain++)
        claims[index].grain[grain] = generation;
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

SC_EXPORT uint64_t softcuda_claims_in_flight(void)
{
    return atomic_load(&claims_in_flight);
}

void sc_overlap_reset(void)
{
    atomic_store(&violations, 0);
    atomic_store(&claims_in_flight, 0);
}
