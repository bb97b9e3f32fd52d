/* SPDX-License-Identifier: Apache-2.0 */
/* How: the span map tells in a few loads that an address is not ours; only then a lock is taken. */
#include "shim/query.h"
#include "shim/drv.h"
#include "shim/gate.h"
#include "shim/ipc_import.h"
#include "shim/registry.h"
#include "shim/stat.h"

/* The first pages of a process are never mapped (vm.mmap_min_addr), and no device memory lies there. */
#define NOWHERE    4096
#define PAGE_BYTES 4096

#define IMPORT (UINT64_C(1) << 61) /* in a serial */

/* Another process's block: its numbers are beside those of our own. */
static bool find_import(cup_subject_t *subject)
{
    cup_ipc_block_t import;

    if (!cup_ipc_find(subject->addr, &import))
        return false;
    subject->ctx = import.ctx;
    subject->is_live = true;
    subject->is_read_only = import.is_read_only;
    subject->block = (cup_block_info_t){
        .base = import.base, .size_bytes = import.size_bytes, .serial = IMPORT | import.id};
    return true;
}

bool cup_query_begin(CUdeviceptr addr, cup_subject_t *out_subject)
{
    if (!cup_gate_enter(false))
        return false;
    out_subject->addr = addr;
    out_subject->is_read_only = false;
    out_subject->heap = cup_registry_acquire_owner(addr);
    if (out_subject->heap) {
        out_subject->ctx = cup_heap_ctx(out_subject->heap);
        out_subject->is_live = cup_pool_find(addr, &out_subject->block);
    } else if (!find_import(out_subject)) {
        cup_gate_leave();
        return false;
    }
    CUP_STAT_ADD(queries, 1);
    return true;
}

void cup_query_end(const cup_subject_t *subject)
{
    if (subject->heap)
        cup_heap_leave(subject->heap);
    cup_gate_leave();
}

CUdeviceptr cup_query_nowhere(CUdeviceptr addr)
{
    return NOWHERE + addr % PAGE_BYTES;
}

CUdeviceptr cup_query_native(const cup_subject_t *subject)
{
    if (!subject->is_live)
        return cup_query_nowhere(subject->addr);
    if (!subject->heap)
        return 0;
    return cup_heap_is_vmm(subject->heap) ? cup_heap_witness(subject->heap) : subject->addr;
}

static bool is_mapping(CUdeviceptr addr)
{
    cup_heap_t *heap = cup_registry_acquire_owner(addr);
    bool is_vmm = heap && cup_heap_is_vmm(heap);
    cup_ipc_block_t import;

    if (heap)
        cup_heap_leave(heap);
    return is_vmm || cup_ipc_find(addr, &import);
}

/* Our ranges are larger than the device: what touches one begins or ends in it. */
bool cup_query_is_mapping(CUdeviceptr addr, size_t size_bytes)
{
    bool is_ours;

    if (!cup_gate_enter(false))
        return false;
    is_ours = is_mapping(addr) || (size_bytes > 0 && is_mapping(addr + size_bytes - 1));
    if (is_ours)
        CUP_STAT_ADD(queries, 1);
    cup_gate_leave();
    return is_ours;
}

void cup_query_mark(const cup_subject_t *subject, unsigned marks)
{
    if (subject->heap)
        cup_heap_mark(subject->heap, subject->block.base, marks);
}

cup_mapping_t cup_query_mapping(const cup_block_info_t *block)
{
    const cup_addr_t mask = ~(cup_addr_t)(CUP_CHUNK_ALIGN - 1);
    cup_mapping_t mapping = {.base = block->base};
    cup_addr_t end = block->base + block->size_bytes;

    if (block->size_bytes < CUP_CHUNK_ALIGN)
        mapping.base = block->base & mask;
    mapping.size_bytes = (end - mapping.base + CUP_CHUNK_ALIGN - 1) & mask;
    mapping.is_shared = block->size_bytes < CUP_CHUNK_ALIGN && mapping.size_bytes == CUP_CHUNK_ALIGN;
    return mapping;
}

/* | 1 | the driver's number: 35 bits | the unit: 28 bits |: addresses of a GPU have 49 bits. */
#define UNIT_BITS 28

unsigned long long cup_query_mapping_id(const cup_block_info_t *block, unsigned long long said)
{
    cup_mapping_t mapping = cup_query_mapping(block);
    unsigned long long unit = mapping.base / CUP_CHUNK_ALIGN % (1ull << UNIT_BITS);

    return mapping.is_shared ? 1ull << 63 | said << UNIT_BITS | unit : cup_query_id(block);
}

static CUresult sync_current(void)
{
    unsigned flags = 0;
    CUresult result = cup_drv.cuCtxGetFlags(&flags);

    if (result != CUDA_SUCCESS || flags & CU_CTX_SYNC_MEMOPS)
        return result;
    return cup_drv.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
}

CUresult cup_query_sync_contexts(const cup_subject_t *subject)
{
    CUcontext current = NULL, owner = subject->ctx;
    CUresult result = cup_drv.cuCtxGetCurrent(&current);

    if (result == CUDA_SUCCESS && current) /* natively it needs none (measured) */
        result = sync_current();
    if (result != CUDA_SUCCESS || current == owner)
        return result;
    result = cup_drv.cuCtxPushCurrent_v2(owner);
    if (result != CUDA_SUCCESS)
        return result;
    result = sync_current();
    cup_drv.cuCtxPopCurrent_v2(&current);
    return result;
}
