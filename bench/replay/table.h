/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table - numbers to numbers, and host memory that is there or ends the program.
 * What:       open addressing, linear probing; no removal: what is not there any more gets the value 0.
 * Threads:    one.
 */
#ifndef CUP_BENCH_REPLAY_TABLE_H
#define CUP_BENCH_REPLAY_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct table_slot {
    uint64_t key, value;
    bool is_used;
} table_slot_t;

typedef struct table {
    table_slot_t *slots;
    size_t capacity, used;
} table_t;

/* The value of a key, made as 0 if it is new. Good until the next call. */
uint64_t *table_at(table_t *table, uint64_t key);

/* The value of a key, or 0. */
uint64_t table_get(const table_t *table, uint64_t key);

void table_fini(table_t *table);

/* Zeroed; ends the program where there is none. */
void *replay_alloc(size_t count, size_t size_bytes);

/* An array that grows by doubling: room for one more beyond count. */
void *replay_grow(void *array, size_t count, size_t *capacity, size_t size_bytes);

/* "replay: …" on standard error, then exit 2: for what the user asked and cannot have. */
void replay_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif /* CUP_BENCH_REPLAY_TABLE_H */
