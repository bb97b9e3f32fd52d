/* SPDX-License-Identifier: Apache-2.0 */
/* How: see table.h. At most half full, so a probe is short. */
#include "bench/replay/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static size_t slot_of(const table_t *table, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(hash >> 20) & (table->capacity - 1);
    while (table->slots[i].is_used && table->slots[i].key != key)
        i = (i + 1) & (table->capacity - 1);
    return i;
}

static void grow_table(table_t *table)
{
    table_t larger = {.capacity = table->capacity ? 2 * table->capacity : 64, .used = table->used};
    larger.slots = replay_alloc(larger.capacity, sizeof *larger.slots);
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].is_used)
            larger.slots[slot_of(&larger, table->slots[i].key)] = table->slots[i];
    free(table->slots);
    *table = larger;
}

uint64_t *table_at(table_t *table, uint64_t key)
{
    if (2 * table->used >= table->capacity)
        grow_table(table);
    table_slot_t *slot = &table->slots[slot_of(table, key)];
    if (!slot->is_used) {
        *slot = (table_slot_t){key, 0, true};
        table->used++;
    }
    return &slot->value;
}

uint64_t table_get(const table_t *table, uint64_t key)
{
    if (table->capacity == 0)
        return 0;
    const table_slot_t *slot = &table->slots[slot_of(table, key)];
    return slot->is_used ? slot->value : 0;
}

void table_fini(table_t *table)
{
    free(table->slots);
    *table = (table_t){0};
}

void *replay_alloc(size_t count, size_t size_bytes)
{
    void *memory = calloc(count ? count : 1, size_bytes);
    if (!memory)
        replay_die("no memory for %zu x %zu bytes", count, size_bytes);
    return memory;
}

void *replay_grow(void *array, size_t count, size_t *capacity, size_t size_bytes)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : 64;
    array = reallocarray(array, *capacity, size_bytes);
    if (!array)
        replay_die("no memory for %zu x %zu bytes", *capacity, size_bytes);
    return array;
}

void replay_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("replay: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}
