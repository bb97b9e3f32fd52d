/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel - the built-in kernels, as host functions. Under ThreadSanitizer they are instrumented like
 * everything else: operations that the driver orders are ordered by its lock, so a report means that a
 * program let two of them touch the same bytes at the same time.
 */
#include "driver.h"
#include "pattern.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

struct sc_kernel {
    const char *name;
    const char *params; /* q: 8 bytes, d: 4 bytes */
    CUresult (*run)(const uint64_t *args);
    void (*touch)(sc_work_t *work, const uint64_t *args);
};

static void *at(uint64_t addr)
{
    return (void *)(uintptr_t)addr;
}

static void add_word(uint64_t addr, uint64_t value)
{
    __atomic_fetch_add((uint64_t *)at(addr), value, __ATOMIC_RELAXED);
}

static uint64_t load_word(uint64_t base, uint64_t bytes, uint64_t i)
{
    return softcuda_load_word(at(base), bytes, i);
}

static void store_word(uint64_t base, uint64_t bytes, uint64_t i, uint64_t word)
{
    unsigned char *byte = at(base + i * 8);
    uint64_t left = bytes - i * 8;

    if (left >= 8 && (base & 7) == 0) {
        *(uint64_t *)at(base + i * 8) = word;
        return;
    }
    for (uint64_t b = 0; b < (left < 8 ? left : 8); b++)
        byte[b] = (unsigned char)(word >> (8 * b));
}

static CUresult run_fill(const uint64_t *a)
{
    for (uint64_t i = 0; i < (a[1] + 7) / 8; i++)
        store_word(a[0], a[1], i, softcuda_fill_word(a[2], i));
    return CUDA_SUCCESS;
}

static CUresult run_verify(const uint64_t *a)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < (a[1] + 7) / 8; i++)
        wrong += load_word(a[0], a[1], i) != (softcuda_fill_word(a[2], i) & softcuda_word_mask(a[1], i));
    add_word(a[3], wrong);
    return CUDA_SUCCESS;
}

static CUresult run_hash(const uint64_t *a)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < (a[1] + 7) / 8; i++)
        sum += softcuda_hash_word(load_word(a[0], a[1], i), i);
    add_word(a[2], sum);
    return CUDA_SUCCESS;
}

static CUresult run_copy(const uint64_t *a)
{
    for (uint64_t i = 0; i < (a[2] + 7) / 8; i++)
        store_word(a[0], a[2], i, load_word(a[1], a[2], i));
    return CUDA_SUCCESS;
}

static CUresult run_spin(const uint64_t *a)
{
    struct timespec left = {.tv_sec = (time_t)(a[0] / 1000000), .tv_nsec = (long)(a[0] % 1000000 * 1000)};

    while (nanosleep(&left, &left) != 0)
        continue;
    return CUDA_SUCCESS;
}

static CUresult run_late_fill(const uint64_t *a)
{
    run_spin(&a[3]);
    return run_fill(a);
}

static CUresult wait_for_word(uint64_t addr, uint32_t value)
{
    const struct timespec pause = {.tv_nsec = 50000};
    uint64_t end_ns = sc_now_ns() + SC_WAIT_CAP_S * 1000000000ull;

    while (__atomic_load_n((const uint32_t *)at(addr), __ATOMIC_ACQUIRE) != value) {
        if (sc_now_ns() > end_ns) {
            fputs("softcuda: TIMEOUT kernel spin_until or held_fill\n", stderr);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult run_spin_until(const uint64_t *a)
{
    return wait_for_word(a[0], (uint32_t)a[1]);
}

static CUresult run_held_fill(const uint64_t *a)
{
    __atomic_store_n((uint32_t *)at(a[3]), 1, __ATOMIC_RELEASE);
    CUresult status = wait_for_word(a[3], 2);
    return status == CUDA_SUCCESS ? run_fill(a) : status;
}

static CUresult run_chase(const uint64_t *a)
{
    uint64_t i = 0;

    for (uint64_t step = 0; step < a[2] && a[1] > 0; step++)
        i = load_word(a[0], a[1] * 8, i % a[1]);
    store_word(a[3], 8, 0, i);
    return CUDA_SUCCESS;
}

static CUresult run_axpy(const uint64_t *a)
{
    float *y = at(a[0]);
    const float *x = at(a[1]);
    float factor;
    uint32_t bits = (uint32_t)a[3];

    memcpy(&factor, &bits, sizeof factor);
    for (uint64_t i = 0; i < a[2]; i++)
        y[i] += factor * x[i];
    return CUDA_SUCCESS;
}

#define SC_SPAN(pointer, count, bytes) sc_work_touch(work, args[pointer], args[count] * (bytes));
#define SC_OUT(pointer, count, bytes)  sc_work_write(work, args[pointer], args[count] * (bytes));
#define SC_WORD(pointer)               sc_work_write(work, args[pointer], 8);
#define SC_KERNEL(name, params, spans)                              \
    static void touch_##name(sc_work_t *work, const uint64_t *args) \
    {                                                               \
        spans                                                       \
    }
#include "kernel_list.h"
#undef SC_KERNEL

static const sc_kernel_t kernels[] = {
#define SC_KERNEL(name, params, spans) {#name, params, run_##name, touch_##name},
#include "kernel_list.h"
#undef SC_KERNEL
};

const sc_kernel_t *sc_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}

const char *sc_kernel_name(const sc_kernel_t *kernel)
{
    return kernel->name;
}

CUresult sc_kernel_plan(const sc_kernel_t *kernel, void **params, sc_work_t *out_work)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    *out_work = (sc_work_t){.kind = SC_WORK_KERNEL, .kernel.kernel = kernel};
    for (unsigned i = 0; kernel->params[i]; i++)
        memcpy(&out_work->kernel.args[i], params[i], kernel->params[i] == 'q' ? 8 : 4);
    kernel->touch(out_work, out_work->kernel.args);
    return CUDA_SUCCESS;
}

CUresult sc_kernel_run(const sc_kernel_t *kernel, const uint64_t *args)
{
    return kernel->run(args);
}
