/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence_shares - how: the map has a number for each 512 bytes: which freed block covered them last. Slots
 * of 2 MiB that one block covers whole need no table of their own. Numbers grow with the run and are never
 * given twice.
 */
#include "tests/gpu/fence_shares.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN_BYTES  UINT64_C(512)
#define SLOT_BYTES   (UINT64_C(2) << 20)
#define GRAINS       (SLOT_BYTES / GRAIN_BYTES)
#define LEAF_SLOTS   UINT64_C(8192)
#define ADDRESS_BITS 48
#define LEAVES       ((UINT64_C(1) << ADDRESS_BITS) / SLOT_BYTES / LEAF_SLOTS)

typedef struct slot {
    uint32_t whole;   /* the block that covers it, where there is no table; 0: none */
    uint32_t *grains; /* of GRAINS numbers */
} slot_t;

typedef struct former {
    uint64_t bytes;
    uint32_t stream;
} former_t;

static slot_t *leaves[LEAVES];
static former_t *formers; /* by number; 0 is nobody */
static uint32_t former_count = 1, former_capacity;

static void *must(void *memory)
{
    if (memory)
        return memory;
    fputs("fence: out of host memory\n", stderr);
    exit(1);
}

void fence_log_add(fence_log_t *log, fence_event_t event)
{
    if (log->count == log->capacity) {
        fputs("fence: a log is full\n", stderr);
        exit(1);
    }
    log->events[log->count++] = event;
}

static slot_t *get_slot(uint64_t addr)
{
    uint64_t number = addr / SLOT_BYTES, leaf = number / LEAF_SLOTS;
    if (leaf >= LEAVES) {
        fputs("fence: an address of more than 48 bits\n", stderr);
        exit(1);
    }
    if (!leaves[leaf])
        leaves[leaf] = must(calloc(LEAF_SLOTS, sizeof *leaves[leaf]));
    return &leaves[leaf][number % LEAF_SLOTS];
}

static uint64_t bytes_left_in_slot(uint64_t addr)
{
    return SLOT_BYTES - addr % SLOT_BYTES;
}

/* The block that covered the address last; *out_bytes: how far the answer holds at least. */
static uint32_t find_former(uint64_t addr, uint64_t *out_bytes)
{
    const slot_t *slot = get_slot(addr);
    *out_bytes = slot->grains ? GRAIN_BYTES - addr % GRAIN_BYTES : bytes_left_in_slot(addr);
    return slot->grains ? slot->grains[addr % SLOT_BYTES / GRAIN_BYTES] : slot->whole;
}

static void cover_slot(uint64_t addr, uint64_t bytes, uint32_t number)
{
    slot_t *slot = get_slot(addr);
    if (bytes == SLOT_BYTES) {
        free(slot->grains);
        *slot = (slot_t){.whole = number};
        return;
    }
    if (!slot->grains) {
        slot->grains = must(malloc(GRAINS * sizeof *slot->grains));
        for (uint64_t i = 0; i < GRAINS; i++)
            slot->grains[i] = slot->whole;
    }
    for (uint64_t at = addr % SLOT_BYTES / GRAIN_BYTES, end = at + bytes / GRAIN_BYTES; at < end; at++)
        slot->grains[at] = number;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
}

static void replay_free(const fence_event_t *event)
{
    if (former_count == former_capacity || !formers) {
        former_capacity = former_capacity ? 2 * former_capacity : 1 << 16;
        formers = must(realloc(formers, former_capacity * sizeof *formers));
    }
    uint32_t number = former_count++;
    formers[number] = (former_t){event->bytes, event->stream};
    uint64_t addr = event->base, left = round_up(event->bytes);
    while (left > 0) {
        uint64_t part = left < bytes_left_in_slot(addr) ? left : bytes_left_in_slot(addr);
        cover_slot(addr, part, number);
        addr += part;
        left -= part;
    }
}

/* Adds up what one block was given of one before it; ends the run when the next one begins. */
typedef struct run {
    uint32_t number; /* 0: nobody's memory */
    uint64_t bytes;
    unsigned pieces; /* runs so far that count */
    bool is_in_larger, has_other_stream;
} run_t;

static void end_run(run_t *run, const fence_event_t *event)
{
    uint64_t least = event->bytes < FENCE_SLACK ? round_up(event->bytes) : FENCE_SLACK;
    if (run->number != 0 && run->bytes >= least) {
        const former_t *former = &formers[run->number];
        run->pieces++;
        run->has_other_stream |= former->stream != event->stream;
        run->is_in_larger = former->bytes > event->bytes + event->bytes / 8 + FENCE_SLACK;
    }
    run->bytes = 0;
}

static void replay_alloc(const fence_event_t *event, fence_shares_t *shares)
{
    run_t run = {0};
    uint64_t end = event->base + round_up(event->bytes), step;
    for (uint64_t addr = event->base; addr < end; addr += step) {
        uint32_t number = find_former(addr, &step);
        step = step < end - addr ? step : end - addr;
        if (number != run.number)
            end_run(&run, event);
        run.number = number;
        run.bytes += step;
    }
    end_run(&run, event);
    shares->given++;
    shares->split += run.pieces == 1 && run.is_in_larger;
    shares->coalesced += run.pieces >= 2;
    shares->other_stream += run.has_other_stream;
}

static int compare_events(const void *left, const void *right)
{
    const fence_event_t *a = left, *b = right;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (int)b->is_free - (int)a->is_free;
}

void fence_shares_replay(fence_log_t *const *logs, unsigned count, fence_shares_t *shares)
{
    size_t total = 0, at = 0;
    for (unsigned i = 0; i < count; i++)
        total += logs[i]->count;
    fence_event_t *events = must(malloc((total + 1) * sizeof *events));
    for (unsigned i = 0; i < count; i++) {
        memcpy(events + at, logs[i]->events, logs[i]->count * sizeof *events);
        at += logs[i]->count;
        logs[i]->count = 0;
    }
    qsort(events, total, sizeof *events, compare_events);
    for (at = 0; at < total; at++) {
        if (events[at].is_free)
            replay_free(&events[at]);
        else
            replay_alloc(&events[at], shares);
    }
    free(events);
}
