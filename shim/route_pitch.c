/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_pitch - allocations of rows, as far apart as the driver puts them.
 * How:        only the driver knows the pitch: of each device, width and element size the first allocation
 *             is its own, and tells. Later ones are pooled like any other of as many bytes. What is learned
 *             is never changed or given up; a program with more widths than there is room for goes to the
 *             driver with the rest.
 * Assumed:    that the height makes no difference to the pitch (tests/gpu/query_probe.c asks; not
 *             measured). If it does, a program gets another pitch than natively, which is right all the
 *             same: it satisfies what the width needs.
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/route.h"
#include "shim/stat.h"
#include <stdatomic.h>

#define PITCHES_MAX 64
#define COMES       1 /* a key that no request has: its pitch is being written */

static struct {
    _Atomic uint64_t key; /* 0: free */
    size_t pitch;         /* written before its key is there */
} g_pitch[PITCHES_MAX];

/* Width, device and element size in one word; 0 for what does not fit, or is no request. */
static uint64_t key_of(size_t width, unsigned element)
{
    CUdevice device;

    if (width == 0 || width >> 40 || element >> 8 || cup_drv.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        device >> 8)
        return 0;
    return (uint64_t)width << 24 | (uint64_t)device << 16 | (uint64_t)element << 8;
}

static size_t find(uint64_t key)
{
    for (size_t i = 0; key != 0 && i < PITCHES_MAX; i++) {
        uint64_t seen = atomic_load_explicit(&g_pitch[i].key, memory_order_acquire);

        if (seen == key)
            return g_pitch[i].pitch;
        if (seen == 0)
            return 0;
    }
    return 0;
}

/* Two threads may learn the same twice: the second one is never found. */
static void learn(uint64_t key, size_t pitch)
{
    for (size_t i = 0; key != 0 && i < PITCHES_MAX; i++) {
        uint64_t expected = 0;

        if (atomic_compare_exchange_strong(&g_pitch[i].key, &expected, COMES)) {
            g_pitch[i].pitch = pitch;
            atomic_store_explicit(&g_pitch[i].key, key, memory_order_release);
            return;
        }
    }
}

CUresult cup_route_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *out_pitch, size_t width, size_t height,
                                      unsigned int element)
{
    uint64_t key = 0;
    size_t pitch = 0, bytes;
    CUresult result;

    if (cup_gate_enter(true)) {
        key = key_of(width, element);
        pitch = find(key);
        cup_gate_leave();
    }
    if (pitch > 0 && dptr && out_pitch && height > 0 && !__builtin_mul_overflow(pitch, height, &bytes)) {
        result = cup_route_cuMemAlloc_v2(dptr, bytes);
        if (result == CUDA_SUCCESS)
            *out_pitch = pitch;
        return result;
    }
    CUP_STAT_ADD(allocs, 1);
    CUP_STAT_ADD(pass_allocs, 1);
    CUP_STAT_ADD(driver_allocs, 1);
    result = cup_drv.cuMemAllocPitch_v2(dptr, out_pitch, width, height, element);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && cup_route_rescue())
        result = cup_drv.cuMemAllocPitch_v2(dptr, out_pitch, width, height, element);
    if (result == CUDA_SUCCESS && out_pitch)
        learn(key, *out_pitch);
    return result;
}
