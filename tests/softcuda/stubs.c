/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs - entry points that exist and refuse. cuda.h must not be in view: every stub is defined without its
 * parameters, which the x86-64 calling convention allows.
 */
#include "stubs.h"

#define NOT_SUPPORTED 801 /* CUDA_ERROR_NOT_SUPPORTED */

#define SC_STUB(symbol, name, version, per_thread)                                      \
    int symbol(void) __attribute__((visibility("default"), alias("sc_stub_" #symbol))); \
    int sc_stub_##symbol(void)                                                          \
    {                                                                                   \
        return NOT_SUPPORTED;                                                           \
    }
#include "stub_list.h"
#undef SC_STUB
