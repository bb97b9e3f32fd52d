/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf - the options: the environment parsed once into a struct that never changes afterwards.
 * What:       CUPOLA_<NAME> for each row of conf_list.h; CUPOLA_CONF="name:value,name:value" sets many, a
 *             single variable wins. Sizes take k m g t (powers of 1024) or % of the device's memory, and
 *             per-device values: "4g", "25%", "0=8g,1=10%", "2g,1=4g" (the value without a device is for all
 *             others).
 * Not here:   what the options do.
 * Errors:     an unknown variable or a bad value is one clear line on stderr, and the default is used;
 *             nothing fails.
 * Threads:    cup_conf_load() runs once, inside the gate's start; reading afterwards is free.
 */
#ifndef CUP_SHIM_CONF_H
#define CUP_SHIM_CONF_H
#include "shim/conf_list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUP_CONF_TEXT_MAX    512
#define CUP_CONF_DEVICES_MAX 16

typedef enum { CUP_CONF_BOOL, CUP_CONF_WORD, CUP_CONF_SIZE, CUP_CONF_NUMBER, CUP_CONF_TEXT } cup_conf_kind_t;

typedef struct cup_conf_size {
    struct cup_conf_amount {
        int device;      /* -1: every device without a value of its own */
        bool is_percent; /* amount is in hundredths of a percent of the device's memory */
        uint64_t amount; /* else in bytes */
    } item[CUP_CONF_DEVICES_MAX];
    size_t count;
} cup_conf_size_t;

typedef struct cup_conf_value {
    char text[CUP_CONF_TEXT_MAX]; /* as given, or the default: what reports show */
    bool is_set;                  /* given by the user */
    int word;                     /* BOOL: 0 or 1; WORD: index into the row's values */
    cup_conf_size_t size;
    uint64_t hundredths; /* NUMBER */
} cup_conf_value_t;

/* Indices of WORD values, in the order of their rows. */
enum { CUP_CHECKER_ASIDE, CUP_CHECKER_POOL };
enum { CUP_BACKING_AUTO, CUP_BACKING_RAW, CUP_BACKING_VMM };
enum { CUP_FREE_EXACT, CUP_FREE_OVERLAP, CUP_FREE_DEFERRED, CUP_FREE_SYNC };
enum { CUP_ZERO_NONE, CUP_ZERO_ALLOC };

typedef struct cup_conf {
#define X(field, NAME, kind, fallback, values, meaning) cup_conf_value_t field;
    CUP_CONF_LIST(X)
#undef X
} cup_conf_t;

/* One row of the list, for docs, doctor and tests. */
typedef struct cup_conf_row {
    const char *name; /* "FREE" */
    cup_conf_kind_t kind;
    const char *fallback, *values, *meaning;
    size_t offset; /* of the value in cup_conf_t */
} cup_conf_row_t;

extern const cup_conf_row_t cup_conf_rows[];
extern const size_t cup_conf_row_count;

/* Where complaints go: one call for each, without prefix or newline. */
typedef void (*cup_conf_complain_t)(const char *line);

/* Parses environment (a NULL-terminated list of "NAME=value") into out_conf. Never fails. */
void cup_conf_load(char *const *environment, cup_conf_complain_t complain, cup_conf_t *out_conf);

/* The bytes that a SIZE means on a device with total_bytes of memory; saturates. */
uint64_t cup_conf_bytes(const cup_conf_size_t *size, int device, uint64_t total_bytes);

/* Whether a comma-separated list of names holds name. */
bool cup_conf_names(const char *list, const char *name);

#endif /* CUP_SHIM_CONF_H */
