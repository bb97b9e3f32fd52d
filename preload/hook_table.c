/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: rows in the order of the LISTs, first ours, then the known ones, and three hash tables of row
 * numbers (open addressing, a sixth full): by name, by family (our names without _v2, _ptsz), by the
 * driver's address. They are filled at first use, without a lock: every filler puts the same rows in the
 * same order, so whoever is behind finds its own values there.
 */
#include "preload/hook_table.h"
#include "preload/hook_doubt.h"
#include "preload/hooks.h"
#include "shim/known_list.h"
#include "shim/route.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For `cupola doctor` and what(1): which version is this file? */
__attribute__((used)) static const char g_tag[] = "@(#)cupola " CUPOLA_VERSION;

enum {
    OURS = CUP_HOOK_COUNT,
    ROWS = OURS
#define K(symbol) +1
        CUP_KNOWN_LIST(K)
#undef K
        ,
    SLOTS = 4096,
    NONE = -1
};
_Static_assert(ROWS * 2 <= SLOTS, "the tables are too full");

static void *const g_hook[OURS] = {
#define X(symbol, params, args, ...) [CUP_HOOK_##symbol] = (void *)symbol,
    CUP_EXPORT_LIST(X)
#undef X
};

/* The names, end to end, and where each begins: no pointers, which every process would pay for at its
 * start. */
static const struct names {
#define X(symbol, params, args, ...) char symbol[sizeof(#symbol)];
#define K(symbol)                    char symbol[sizeof(#symbol)];
    CUP_EXPORT_LIST(X) CUP_KNOWN_LIST(K)
#undef K
#undef X
} g_names = {
#define X(symbol, params, args, ...) #symbol,
#define K(symbol)                    #symbol,
    CUP_EXPORT_LIST(X) CUP_KNOWN_LIST(K)
#undef K
#undef X
};
static const uint16_t g_name_at[ROWS] = {
#define X(symbol, params, args, ...) offsetof(struct names, symbol),
#define K(symbol)                    offsetof(struct names, symbol),
    CUP_EXPORT_LIST(X) CUP_KNOWN_LIST(K)
#undef K
#undef X
};

/* A row's number + 1, or 0. */
typedef _Atomic uint16_t table_t[SLOTS];

static table_t g_by_name, g_by_family, g_by_address;
static _Atomic bool g_is_filled, g_is_prepared;

static const char *name_of(int row)
{
    return (const char *)&g_names + g_name_at[row];
}

/* The length of the name without what only tells ABI versions apart: _ptsz or _ptds, then _v and digits. */
static size_t family_length(const char *name)
{
    size_t length = strlen(name), end;

    if (length > 5 &&
        (memcmp(name + length - 5, "_ptsz", 5) == 0 || memcmp(name + length - 5, "_ptds", 5) == 0))
        length -= 5;
    for (end = length; end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9'; end--)
        ;
    return end < length && end > 2 && name[end - 1] == 'v' && name[end - 2] == '_' ? end - 2 : length;
}

/* ---- the tables ---- */

/* Puts a row at the first free slot from `from` on, unless it is there. */
static void insert(table_t table, size_t from, int row)
{
    for (size_t i = from % SLOTS;; i = (i + 1) % SLOTS) {
        uint16_t there = atomic_load_explicit(&table[i], memory_order_acquire);

        if (there == row + 1)
            return;
        if (there == 0) {
            atomic_store_explicit(&table[i], (uint16_t)(row + 1), memory_order_release);
            return;
        }
    }
}

static size_t hash_name(const char *name, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return (size_t)(hash >> 20);
}

static size_t hash_address(const void *address)
{
    return (size_t)(((uintptr_t)address * 0x9e3779b97f4a7c15u) >> 40);
}

static bool is_named(int row, const char *name, size_t length, bool is_family)
{
    const char *own = name_of(row);

    return (is_family ? family_length(own) : strlen(own)) == length && memcmp(own, name, length) == 0;
}

static int find_name(const table_t table, const char *name, size_t length)
{
    for (size_t i = hash_name(name, length) % SLOTS;; i = (i + 1) % SLOTS) {
        int row = atomic_load_explicit(&table[i], memory_order_acquire) - 1;

        if (row == NONE || is_named(row, name, length, table == g_by_family))
            return row;
    }
}

static void fill_names(void)
{
    if (atomic_load_explicit(&g_is_filled, memory_order_acquire))
        return;
    for (int row = 0; row < ROWS; row++) {
        const char *name = name_of(row);

        insert(g_by_name, hash_name(name, strlen(name)), row);
        if (row < OURS)
            insert(g_by_family, hash_name(name, family_length(name)), row);
    }
    atomic_store_explicit(&g_is_filled, true, memory_order_release);
}

void cup_hook_prepare(void)
{
    if (atomic_load_explicit(&g_is_prepared, memory_order_acquire) || !cup_drv_symbol("cuInit"))
        return;
    for (int row = 0; row < OURS; row++) {
        void *real = cup_route_real((cup_hook_t)row);

        if (real)
            insert(g_by_address, hash_address(real), row);
    }
    atomic_store_explicit(&g_is_prepared, true, memory_order_release);
}

/* ---- what they say ---- */

/* In our LISTs there is an ABI version of this one. */
static bool is_family(const char *name)
{
    return find_name(g_by_family, name, family_length(name)) != NONE;
}

cup_name_t cup_hook_classify(const char *name)
{
    int row, base;

    fill_names();
    row = find_name(g_by_name, name, strlen(name));
    if (row != NONE)
        return row < OURS ? CUP_NAME_OURS : CUP_NAME_KNOWN;
    base = find_name(g_by_name, name, family_length(name));
    return base >= OURS && !is_family(name) ? CUP_NAME_KNOWN : CUP_NAME_UNKNOWN;
}

void *cup_hook_find(void *real)
{
    if (!atomic_load_explicit(&g_is_prepared, memory_order_acquire))
        return real;
    for (size_t i = hash_address(real) % SLOTS;; i = (i + 1) % SLOTS) {
        int row = atomic_load_explicit(&g_by_address[i], memory_order_acquire) - 1;

        if (row == NONE)
            return real;
        if (cup_route_real((cup_hook_t)row) == real)
            return g_hook[row];
    }
}

static bool is_driver_name(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

void *cup_hook_substitute(const char *name, void *real)
{
    void *found = cup_hook_find(real);

    if (found != real || !name || !is_driver_name(name) ||
        !atomic_load_explicit(&g_is_prepared, memory_order_acquire))
        return found;
    /* A known name of one of our families is one symbol, not what newer drivers may answer in its name. */
    if (cup_hook_classify(name) == CUP_NAME_KNOWN && (!is_family(name) || cup_drv_symbol(name) == real))
        return real;
    return cup_hook_doubt(name, real);
}
