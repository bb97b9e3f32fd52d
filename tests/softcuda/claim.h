/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim - tells the software driver that a block has a new owner; does nothing on a real driver.
 * What:       one inline function, for driver-level test programs: call it on every block just allocated.
 * Threads:    any thread.
 */
#ifndef SOFTCUDA_CLAIM_H
#define SOFTCUDA_CLAIM_H
#include <dlfcn.h>
#include <stdint.h>

typedef void (*softcuda_claim_fn_t)(uint64_t addr, uint64_t size_bytes);

/* softcuda_claim of the loaded driver; NULL on a real one. */
static inline softcuda_claim_fn_t softcuda_find_claim(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, "softcuda_claim") : 0;

    if (driver)
        dlclose(driver);
    return (softcuda_claim_fn_t)(uintptr_t)symbol;
}

/* The driver is loaded by the first call, and stays: the answer is kept. */
static inline void softcuda_claim_block(uint64_t addr, uint64_t size_bytes)
{
    static softcuda_claim_fn_t claim;
    static int is_known;

    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&claim, softcuda_find_claim(), __ATOMIC_RELAXED);
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    softcuda_claim_fn_t call = __atomic_load_n(&claim, __ATOMIC_RELAXED);
    if (call)
        call(addr, size_bytes);
}

#endif /* SOFTCUDA_CLAIM_H */
