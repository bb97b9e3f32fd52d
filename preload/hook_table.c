/* SPDX-License-Identifier: Apache-2.0 */
/* How: two arrays in the order of the LIST, searched in a row: look-ups are few (about 440 in a process's
 * life). */
#include "preload/hook_table.h"
#include "preload/hooks.h"
#include "shim/route.h"
#include <string.h>

/* For `cupola doctor` and what(1): which version is this file? */
__attribute__((used)) static const char g_tag[] = "@(#)cupola " CUPOLA_VERSION;

static void *const g_hook[CUP_HOOK_COUNT] = {
#define X(symbol, params, args) [CUP_HOOK_##symbol] = (void *)symbol,
    CUP_HOOK_LIST(X) CUP_RESOLVER_LIST(X)
#undef X
};

static const char *const g_name[CUP_HOOK_COUNT] = {
#define X(symbol, params, args) [CUP_HOOK_##symbol] = #symbol,
    CUP_HOOK_LIST(X) CUP_RESOLVER_LIST(X)
#undef X
};

void *cup_hook_substitute(void *real)
{
    for (int i = 0; i < CUP_HOOK_COUNT; i++) {
        if (real && cup_route_real((cup_hook_t)i) == real)
            return g_hook[i];
    }
    return real;
}

bool cup_hook_is_name(const char *name)
{
    for (int i = 0; i < CUP_HOOK_COUNT; i++)
        if (strcmp(name, g_name[i]) == 0)
            return true;
    return false;
}
