/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs - entry points that exist and refuse. cuda.h must not be in view: every stub is defined without its
 * parameters, which the x86-64 calling convention allows.
 */
#include "stubs.h"
#include <stdatomic.h>
#include <string.h>

enum {
#define SC_STUB(symbol, name, version, per_thread) SC_STUB_##symbol,
#include "stub_list.h"
#undef SC_STUB
    SC_STUB_COUNT
};

static _Atomic uint64_t calls[SC_STUB_COUNT];

#define NOT_SUPPORTED 801 /* CUDA_ERROR_NOT_SUPPORTED */

#define SC_STUB(symbol, name, version, per_thread)                                      \
    int symbol(void) __attribute__((visibility("default"), alias("sc_stub_" #symbol))); \
    int sc_stub_##symbol(void)                                                          \
    {                                                                                   \
        atomic_fetch_add(&calls[SC_STUB_##symbol], 1);                                  \
        return NOT_SUPPORTED;                                                           \
    }
#include "stub_list.h"
#undef SC_STUB

uint64_t sc_stub_calls(const char *symbol)
{
#define SC_STUB(stub, name, version, per_thread) \
    if (strcmp(symbol, #stub) == 0)              \
        return atomic_load(&calls[SC_STUB_##stub]);
#include "stub_list.h"
#undef SC_STUB
    return 0;
}

void sc_stub_reset_counters(void)
{
    for (int i = 0; i < SC_STUB_COUNT; i++)
        atomic_store(&calls[i], 0);
}
