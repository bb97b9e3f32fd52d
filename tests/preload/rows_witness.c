/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the linker's --wrap turns every call of cup_route_X that comes from another object, so from
 * preload/, into __wrap_cup_route_X: a count, and the route itself. The objects are those of the shipped
 * library.
 */
#include "tests/preload/rows_witness.h"
#include "shim/route.h"
#include "shim/stat.h"
#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t g_ran[CUP_HOOK_COUNT];

#define X(symbol, params, args, ...)                                                   \
    CUresult __real_cup_route_##symbol params;                                         \
    CUresult __wrap_cup_route_##symbol params;                                         \
    CUresult __wrap_cup_route_##symbol params                                          \
    {                                                                                  \
        atomic_fetch_add_explicit(&g_ran[CUP_HOOK_##symbol], 1, memory_order_relaxed); \
        return __real_cup_route_##symbol args;                                         \
    }
CUP_EXPORT_LIST(X)
#undef X

uint64_t rows_witness_ran(const char *symbol)
{
    static const char *const names[] = {
#define X(symbol, ...) #symbol,
        CUP_EXPORT_LIST(X)
#undef X
    };

    for (int i = 0; i < CUP_HOOK_COUNT; i++)
        if (strcmp(names[i], symbol) == 0)
            return atomic_load(&g_ran[i]);
    return 0;
}

uint64_t rows_witness_stat(const char *field)
{
#define X(name, meaning)           \
    if (strcmp(field, #name) == 0) \
        return CUP_STAT_GET(name);
    CUP_STAT_LIST(X)
#undef X
    return 0;
}
