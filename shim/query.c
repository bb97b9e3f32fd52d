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
    subject->block = (cup_block_info_t){
        .base = import.base, .size_bytes = import.size_bytes, .serial = IMPORT | import.id};
    return true;
}

bool cup_query_begin(CUdeviceptr addr, cup_subject_t *out_subject)
{
    if (!cup_gate_enter(false))
        return false;
    out_subject->addr = addr;
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
    CUresult result = sync_current();

    if (result != CUDA_SUCCESS || (cup_drv.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == owner))
        return result;
    result = cup_drv.cuCtxPushCurrent_v2(owner);
    if (result != CUDA_SUCCESS)
        return result;
    result = sync_current();
    cup_drv.cuCtxPopCurrent_v2(&current);
    return result;
}
