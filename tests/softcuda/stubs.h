/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs - entry points that exist and refuse.
 * What:       every driver function of the toolkit that is not implemented: exported under its own name,
 *             found by cuGetProcAddress, answers CUDA_ERROR_NOT_SUPPORTED.
 * Invariants: a row is in entry_list.h or in stub_list.h, never in both.
 */
#ifndef SOFTCUDA_STUBS_H
#define SOFTCUDA_STUBS_H
#include <stdint.h>

/* C names of ours, so that the true prototypes of cuda.h may be in view; the exported names are their
 * aliases. */
#define SC_STUB(symbol, name, version, per_thread) int sc_stub_##symbol(void);
#include "stub_list.h"
#undef SC_STUB

/* How often one was called since the counters were reset; 0 for one that does not exist. */
uint64_t sc_stub_calls(const char *symbol);
void sc_stub_reset_counters(void);

#endif /* SOFTCUDA_STUBS_H */
