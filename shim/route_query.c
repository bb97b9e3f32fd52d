/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_query - the bodies of the entry points that ask about memory: each block tells its own story, as
 * one of cuMemAlloc does natively; nothing of the chunk or range that it lies in shows.
 */
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/query.h"
#include "shim/registry.h"
#include "shim/route.h"
#include "shim/stat.h"
#include "shim/submit.h"
#include "shim/zero.h"
#include <string.h>

/*
 * What the program has freed and we still hold is free memory: natively it would be. NULL outputs are fine,
 * and a call that fails writes to them, too (both measured): so the driver gets the program's own.
 */
CUresult cup_route_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    size_t unasked, *total_bytes = total ? total : &unasked;
    CUresult result = cup_drv.cuMemGetInfo_v2(free, total_bytes);
    CUdevice device;

    if (result != CUDA_SUCCESS || !free || free == total || !cup_gate_enter(false))
        return result;
    if (cup_drv.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        *free += cup_registry_reusable_bytes(device);
    if (*free > *total_bytes)
        *free = *total_bytes;
    cup_gate_leave();
    return CUDA_SUCCESS;
}

CUresult cup_route_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    cup_subject_t subject;
    CUresult result;

    if (!cup_query_begin(dptr, &subject))
        return cup_drv.cuMemGetAddressRange_v2(base, size, dptr);
    result = cup_drv.cuMemGetAddressRange_v2(base, size, subject.is_live ? dptr : cup_query_native(&subject));
    if (result == CUDA_SUCCESS && base)
        *base = subject.block.base;
    if (result == CUDA_SUCCESS && size)
        *size = subject.block.size_bytes;
    cup_query_end(&subject);
    return result;
}

/* ---- attributes of a pointer ---- */

typedef enum { ASK_NATIVE, ASK_SELF, ASK_BLOCK } ask_t;

static ask_t how_to_ask(CUpointer_attribute attribute)
{
    switch (attribute) {
#define SELF(name)                    \
    case CU_POINTER_ATTRIBUTE_##name: \
        return ASK_SELF;
#define NATIVE(name, type, value)     \
    case CU_POINTER_ATTRIBUTE_##name: \
        return ASK_NATIVE;
#define BLOCK(name, type, value)      \
    case CU_POINTER_ATTRIBUTE_##name: \
        return ASK_BLOCK;
#define FROM(name, type, value) SELF(name)
        CUP_ATTRIBUTE_LIST(SELF, NATIVE, BLOCK, FROM)
#undef SELF
#undef NATIVE
#undef BLOCK
#undef FROM
    default:
        return ASK_NATIVE;
    }
}

/*
 * What is the block's own, over what the driver has said; likewise what it could not say as natively
 * (is_alone).
 */
static void put_own(const cup_subject_t *subject, CUpointer_attribute attribute, bool is_alone, void *data)
{
    switch (attribute) {
#define SELF(name)
#define PUT(name, type, value, is_ours)      \
    case CU_POINTER_ATTRIBUTE_##name: {      \
        type put = (value);                  \
                                             \
        if (is_ours)                         \
            memcpy(data, &put, sizeof(put)); \
        return;                              \
    }
#define NATIVE(name, type, value) PUT(name, type, value, is_alone)
#define BLOCK(name, type, value)  PUT(name, type, value, true)
#define FROM(name, type, value)            \
    case CU_POINTER_ATTRIBUTE_##name: {    \
        type said, put;                    \
                                           \
        memcpy(&said, data, sizeof(said)); \
        put = (value);                     \
        memcpy(data, &put, sizeof(put));   \
        return;                            \
    }
        CUP_ATTRIBUTE_LIST(SELF, NATIVE, BLOCK, FROM)
#undef SELF
#undef PUT
#undef NATIVE
#undef BLOCK
#undef FROM
    default:
        return;
    }
}

/* Whoever has the tokens can pin the memory, and its operations synchronise. */
static void note_tokens(const cup_subject_t *subject)
{
    cup_query_mark(subject, CUP_MARK_NOTE | CUP_MARK_PINNED);
}

CUresult cup_route_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    cup_subject_t subject;
    CUdeviceptr at = ptr;
    CUresult result;

    if (!cup_query_begin(ptr, &subject))
        return cup_drv.cuPointerGetAttribute(data, attribute, ptr);
    if (!subject.is_live || how_to_ask(attribute) == ASK_NATIVE)
        at = cup_query_native(&subject);
    result = cup_drv.cuPointerGetAttribute(data, attribute, at ? at : ptr);
    if (result == CUDA_SUCCESS && subject.is_live) {
        put_own(&subject, attribute, at == 0, data);
        if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            note_tokens(&subject);
    }
    cup_query_end(&subject);
    return result;
}

/*
 * The driver answered for `at` (0: for the address itself, for want of better); what it can't know there is
 * put right.
 */
static void put_each(const cup_subject_t *subject, unsigned count, const CUpointer_attribute *attributes,
                     void **data, CUdeviceptr at)
{
    for (unsigned i = 0; i < count; i++) {
        bool is_tokens = attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS;
        bool is_other = at != 0 && at != subject->addr && how_to_ask(attributes[i]) == ASK_SELF;

        if (!data[i])
            continue;
        if ((is_other || is_tokens) && /* alone, the driver says whether it has any */
            cup_drv.cuPointerGetAttribute(data[i], attributes[i], subject->addr) == CUDA_SUCCESS && is_tokens)
            note_tokens(subject);
        put_own(subject, attributes[i], at == 0, data[i]);
    }
}

/* Of an address that nobody has the driver tells that address, as if it were the host's (measured). */
static void put_host_pointer(unsigned count, const CUpointer_attribute *attributes, void **data,
                             CUdeviceptr ptr)
{
    for (unsigned i = 0; i < count; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER && data[i])
            memcpy(data[i], &ptr, sizeof(ptr));
}

/* The plural form succeeds for any address: of what it does not know it tells zeros, or nothing. */
CUresult cup_route_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                          CUdeviceptr ptr)
{
    cup_subject_t subject;
    CUdeviceptr at = ptr;
    CUresult result;

    if (!cup_query_begin(ptr, &subject))
        return cup_drv.cuPointerGetAttributes(count, attributes, data, ptr);
    if (!subject.is_live)
        at = cup_query_native(&subject);
    for (unsigned i = 0; attributes && at == ptr && i < count; i++)
        if (how_to_ask(attributes[i]) == ASK_NATIVE)
            at = cup_query_native(&subject);
    result = cup_drv.cuPointerGetAttributes(count, attributes, data, at ? at : ptr);
    if (result == CUDA_SUCCESS && subject.is_live && attributes && data)
        put_each(&subject, count, attributes, data, at);
    else if (result == CUDA_SUCCESS && attributes && data)
        put_host_pointer(count, attributes, data, ptr);
    cup_query_end(&subject);
    return result;
}

/*
 * SYNC_MEMOPS of a block. Memory of cuMemCreate can't have it: there its contexts get it as a whole. It is
 * set by those who are about to pin the memory. Taking it back is ours alone: a chunk keeps it for its
 * other blocks.
 */
static CUresult set_sync(const cup_subject_t *subject, const unsigned *value)
{
    CUresult result;

    if (*value == 0) {
        cup_heap_unmark(subject->heap, subject->block.base, CUP_MARK_NOTE);
        return CUDA_SUCCESS;
    }
    result = cup_drv.cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, subject->addr);
    if (result == CUDA_ERROR_NOT_SUPPORTED && cup_query_sync_contexts(subject) == CUDA_SUCCESS)
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        cup_query_mark(subject, CUP_MARK_NOTE | CUP_MARK_PINNED);
    return result;
}

/* Where a call goes that must not find our mapping. */
static CUdeviceptr stand_in(const cup_subject_t *subject, CUdeviceptr ptr)
{
    CUdeviceptr at = cup_query_native(subject);

    return at ? at : cup_query_nowhere(ptr);
}

CUresult cup_route_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    cup_subject_t subject;
    CUresult result;

    if (!cup_query_begin(ptr, &subject))
        return cup_drv.cuPointerSetAttribute(value, attribute, ptr);
    if (subject.is_live && subject.heap && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        result = set_sync(&subject, value);
    else
        result = cup_drv.cuPointerSetAttribute(value, attribute, stand_in(&subject, ptr));
    cup_query_end(&subject);
    return result;
}

/* ---- handles, mappings ---- */

#define PAGE_BYTES 4096

/*
 * A range that leaves its block is no range: up to the page in which the block ends, nobody else is there.
 */
static bool is_inside(const cup_subject_t *subject, size_t size)
{
    cup_addr_t end =
        (subject->block.base + subject->block.size_bytes + PAGE_BYTES - 1) & ~(cup_addr_t)(PAGE_BYTES - 1);

    return subject->is_live && size <= end - subject->addr;
}

CUresult cup_route_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                                 CUmemRangeHandleType type, unsigned long long flags)
{
    cup_subject_t subject;
    CUresult result;

    cup_submit_collect();
    if (!cup_query_begin(dptr, &subject))
        return cup_drv.cuMemGetHandleForAddressRange(handle, dptr, size, type, flags);
    if (!is_inside(&subject, size)) {
        result = cup_drv.cuMemGetHandleForAddressRange(handle, cup_query_nowhere(dptr), size, type, flags);
    } else {
        cup_zero_settle();
        result = cup_drv.cuMemGetHandleForAddressRange(handle, dptr, size, type, flags);
        if (result == CUDA_SUCCESS)
            cup_query_mark(&subject, CUP_MARK_PINNED);
    }
    cup_query_end(&subject);
    return result;
}

#define X(symbol, params, args, before)                                                        \
    CUresult cup_route_##symbol params                                                         \
    {                                                                                          \
        cup_subject_t subject;                                                                 \
                                                                                               \
        before;                                                                                \
        if (cup_query_begin((CUdeviceptr)(uintptr_t)ptr, &subject)) {                          \
            ptr = (__typeof__(ptr))(uintptr_t)stand_in(&subject, (CUdeviceptr)(uintptr_t)ptr); \
            cup_query_end(&subject);                                                           \
        }                                                                                      \
        return cup_drv.symbol args;                                                            \
    }
CUP_QUERY_ASK_LIST(X)
#undef X

/*
 * On memory of cuMemAlloc these are refused. So they are where nothing is, and nothing of ours can change.
 */
#define X(symbol, params, args, before)      \
    CUresult cup_route_##symbol params       \
    {                                        \
        if (cup_query_is_mapping(ptr, size)) \
            ptr = cup_query_nowhere(ptr);    \
        else                                 \
            before;                          \
        return cup_drv.symbol args;          \
    }
CUP_QUERY_MAP_LIST(X)
#undef X

#define X(symbol, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(cup_route_##symbol)), #symbol);
CUP_QUERY_LIST(X)
#undef X
