/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drv - the real driver: a table of its functions, never NULL.
 * What:       one slot per row of hook_list.h, submit_list.h and drv_list.h, born as a resolver that finds
 *             the real entry on its first call and replaces itself; an entry that the driver lacks answers
 *             CUDA_ERROR_NOT_SUPPORTED, no driver at all CUDA_ERROR_NOT_INITIALIZED (as a driver that was
 *             never initialised).
 * Not here:   any decision. Our own calls go through this table, so they never meet our hooks.
 * Invariants: we never load libcuda; we only find the one that the program has loaded, and keep it loaded
 *             then.
 * Threads:    any thread; slots are replaced atomically with the same value by whoever comes first.
 */
#ifndef CUP_SHIM_DRV_H
#define CUP_SHIM_DRV_H
#include "shim/cuda_abi.h"
#include "shim/drv_list.h"
#include "shim/submit_list.h"
#include <stdbool.h>

#define CUP_DRV_LIST(X) \
    CUP_EXPORT_LIST(X)  \
    CUP_DRV_ONLY_LIST(X)

typedef enum {
#define X(symbol, params, args, ...) CUP_DRV_##symbol,
    CUP_DRV_LIST(X)
#undef X
        CUP_DRV_COUNT
} cup_drv_entry_t;

typedef struct cup_drv {
#define X(symbol, params, args, ...) CUresult(*_Atomic symbol) params;
    CUP_DRV_LIST(X)
#undef X
} cup_drv_t;

/* Call as cup_drv.cuMemAlloc_v2(...). */
extern cup_drv_t cup_drv;

/* The real exported function, or NULL where the program has loaded no driver or an older one. Cached once
 * found. */
void *cup_drv_address(cup_drv_entry_t entry);

/*
 * Looks all of them up, if a driver is loaded: each look-up takes the loader's lock, which a thread may
 * hold while it waits for a lock of ours (a constructor that allocates). To be called with none of ours
 * held, before any is taken.
 */
void cup_drv_prepare(void);

/* The real driver's exported symbol of any name; NULL as above. dlerror() has nothing to tell of it. */
void *cup_drv_symbol(const char *name);

/* Whether the driver has the entry point: the difference between "refused" and "too old". */
bool cup_drv_has(cup_drv_entry_t entry);

/*
 * The C library's own dlsym, found without calling ours. NULL never in practice (a C library without
 * dlsym). Kept in a variable, because hook_dlsym.c jumps through it.
 */
extern void *(*cup_drv_real_dlsym)(void *handle, const char *name);
void cup_drv_find_real_dlsym(void);

/*
 * A function of the CUDA runtime that comes after us in the search order, or of one loaded out of sight
 * (RTLD_LOCAL, as Python wheels do): the first of the known sonames. NULL if there is none.
 */
void *cup_drv_runtime_address(const char *name);

#endif /* CUP_SHIM_DRV_H */
