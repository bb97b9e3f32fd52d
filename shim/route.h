/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route - the one decision "ours or the driver's", for every hooked entry point.
 * What:       cup_route_<symbol> for each row of hook_list.h, with the symbol's own signature: serves the
 *             call from the pool or forwards it with the program's arguments; for each row of
 *             submit_list.h: forwards it, keeping the order of what was freed before. All that preload/ may
 *             call.
 * Not here:   exporting symbols and answering look-ups (preload/).
 * Manners:    doubt means the driver; a result is always the driver's own code or what it is known to
 *             answer.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_ROUTE_H
#define CUP_SHIM_ROUTE_H
#include "shim/cuda_abi.h"
#include "shim/submit_list.h"
#include <stdbool.h>
#include <stddef.h>

/* The resolvers are forwarded only; what they find is replaced in preload/. */
#define X(symbol, params, args, ...) CUresult cup_route_##symbol params;
CUP_EXPORT_LIST(X)
#undef X

/* The real exported function behind a row, for comparing addresses; NULL while the program has no driver
 * loaded. */
typedef enum {
#define X(symbol, params, args, ...) CUP_HOOK_##symbol,
    CUP_EXPORT_LIST(X)
#undef X
        CUP_HOOK_COUNT
} cup_hook_t;
void *cup_route_real(cup_hook_t hook);

/* An entry point that is in no LIST of ours is about to be called (hook_doubt.h). name: the first time, else NULL. */
void cup_route_doubt(const char *name);

/*
 * The driver has no memory for something that is not pooled: what the pools of the current device (without a context: of
 * all) hold idle goes back, once the GPU is done with it, as natively after the frees. True: some did, call again.
 */
bool cup_route_rescue(void);

/* Count a look-up that was answered with a hook, by its door. */
void cup_route_note_dlsym(void);
void cup_route_note_getproc(void);

/*
 * The runtime's cudaMalloc and cudaFree, where they can be served at once and nothing in cudart would have
 * differed. False: call the real one, which reaches us again through the driver.
 */
bool cup_route_runtime_alloc(void **ptr, size_t size_bytes);
bool cup_route_runtime_free(void *ptr);

/* A function of the runtime that the program uses; NULL if there is none. Cached by the caller. */
void *cup_route_runtime_real(const char *name);

/* The C library's dlsym (drv.h), resolved by cup_drv_find_real_dlsym(): hook_dlsym.c jumps through this
 * variable. */
extern void *(*cup_drv_real_dlsym)(void *handle, const char *name);
void cup_drv_find_real_dlsym(void);

/* The real driver's exported symbol of any name (drv.h), to tell the driver's answer from another
 * library's. */
void *cup_drv_symbol(const char *name);

#endif /* CUP_SHIM_ROUTE_H */
