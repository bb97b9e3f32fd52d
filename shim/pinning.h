/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinning - can others hold on to pages of the device behind our back?
 * What:       network cards (RDMA), GDRCopy and GPUDirect Storage pin device pages through a kernel driver of theirs, with
 *             no CUDA call that we see. The pin outlives the block, often on purpose (registration caches): memory that
 *             was handed out once and is moved afterwards would be read and written under its new owner.
 * Not here:   what follows from it (allocator/pool_range.c: nothing is moved or given back).
 * Threads:    any thread. Takes the loader's lock: to be called with none of ours.
 */
#ifndef CUP_SHIM_PINNING_H
#define CUP_SHIM_PINNING_H
#include <stdbool.h>

/*
 * A library that can pin is loaded, and a kernel driver that lets it. Libraries may come at any time, so it is asked
 * each time; once true it stays so (what was pinned may outlive the library). The drivers are looked up once.
 */
bool cup_pinning_is_possible(void);

/* The library of this path, or of this name alone, as we know it: "libibverbs.so"; NULL when it can't pin. */
const char *cup_pinning_find_library(const char *path);

#endif /* CUP_SHIM_PINNING_H */
