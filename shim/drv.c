/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: each slot starts at a resolver function generated from its LIST row. The resolver looks the
 * symbol up in the libcuda that the program has loaded (RTLD_NOLOAD: by soname, so any path will do),
 * stores the result in the slot and calls it. While no libcuda is loaded nothing is stored: the program
 * may load one later.
 *
 * The look-up goes through the C library's dlsym, which we find by dlvsym: our own dlsym comes first in
 * every search.
 */
#define _GNU_SOURCE
#include "shim/drv.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

void *(*cup_drv_real_dlsym)(void *, const char *);

static _Atomic(void *) g_libcuda;
static _Atomic(void *) g_address[CUP_DRV_COUNT];
static atomic_bool g_is_complete; /* all have been looked up: what is NULL there, the driver lacks */

/* The names, end to end, and where each begins: no pointers, which every process would pay for at its
 * start. */
static const struct names {
#define X(symbol, params, args, ...) char symbol[sizeof(#symbol)];
    CUP_DRV_LIST(X)
#undef X
} g_names = {
#define X(symbol, params, args, ...) #symbol,
    CUP_DRV_LIST(X)
#undef X
};
static const uint16_t g_name_at[CUP_DRV_COUNT] = {
#define X(symbol, params, args, ...) offsetof(struct names, symbol),
    CUP_DRV_LIST(X)
#undef X
};

/* Not instrumented: a sanitizer's own start calls dlsym, ours, before its shadow memory exists. */
__attribute__((no_sanitize("address", "thread", "undefined"))) void cup_drv_find_real_dlsym(void)
{
    /* One of these is dlsym's version on every glibc: x86-64 since ever, aarch64, and the move into libc
     * in 2.34. */
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        void *real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);

        if (real) {
            __atomic_store_n((void **)&cup_drv_real_dlsym, real, __ATOMIC_RELEASE);
            return;
        }
    }
}

static void *real_dlsym(void *handle, const char *name)
{
    if (!__atomic_load_n((void **)&cup_drv_real_dlsym, __ATOMIC_ACQUIRE))
        cup_drv_find_real_dlsym();
    return cup_drv_real_dlsym ? cup_drv_real_dlsym(handle, name) : NULL;
}

/* The reference that NOLOAD takes is kept for ever: the slots must outlive a dlclose by the program. */
static void *libcuda(void)
{
    void *handle = atomic_load_explicit(&g_libcuda, memory_order_acquire);

    if (handle)
        return handle;
    handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        (void)dlerror(); /* our miss is not for the program to read */
    else
        atomic_store_explicit(&g_libcuda, handle, memory_order_release);
    return handle;
}

void *cup_drv_symbol(const char *name)
{
    void *handle = libcuda();
    void *address = handle ? real_dlsym(handle, name) : NULL;

    if (handle && !address)
        (void)dlerror();
    return address;
}

void *cup_drv_address(cup_drv_entry_t entry)
{
    void *address = atomic_load_explicit(&g_address[entry], memory_order_acquire);

    if (address || atomic_load_explicit(&g_is_complete, memory_order_acquire))
        return address;
    address = cup_drv_symbol((const char *)&g_names + g_name_at[entry]);
    if (address)
        atomic_store_explicit(&g_address[entry], address, memory_order_release);
    return address;
}

void cup_drv_prepare(void)
{
    if (!libcuda())
        return;
    for (int entry = 0; entry < CUP_DRV_COUNT; entry++)
        (void)cup_drv_address((cup_drv_entry_t)entry);
    atomic_store_explicit(&g_is_complete, true, memory_order_release);
}

bool cup_drv_has(cup_drv_entry_t entry)
{
    return cup_drv_address(entry) != NULL;
}

#define X(symbol, params, args, ...)                                                    \
    static CUresult missing_##symbol params                                             \
    {                                                                                   \
        return CUDA_ERROR_NOT_SUPPORTED;                                                \
    }                                                                                   \
    static CUresult resolve_##symbol params                                             \
    {                                                                                   \
        CUresult(*real) params = (CUresult(*) params)cup_drv_address(CUP_DRV_##symbol); \
        if (!real && !libcuda())                                                        \
            return CUDA_ERROR_NOT_INITIALIZED;                                          \
        if (!real)                                                                      \
            real = missing_##symbol;                                                    \
        atomic_store_explicit(&cup_drv.symbol, real, memory_order_relaxed);             \
        return real args;                                                               \
    }
CUP_DRV_LIST(X)
#undef X

cup_drv_t cup_drv = {
#define X(symbol, params, args, ...) .symbol = resolve_##symbol,
    CUP_DRV_LIST(X)
#undef X
};

void *cup_drv_runtime_address(const char *name)
{
    static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12"};
    void *found = real_dlsym(RTLD_NEXT, name);

    for (size_t i = 0; !found && i < sizeof(sonames) / sizeof(sonames[0]); i++) {
        void *handle = dlopen(sonames[i], RTLD_LAZY | RTLD_NOLOAD);

        if (handle)
            found = real_dlsym(handle, name);
    }
    return found;
}
