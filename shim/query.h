/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query - what an address is to us, and where the driver can be asked about it.
 * What:       address -> heap and block; the address at which the driver tells of memory as natively: of a
 *             live block under `raw` its own, under `vmm` that of an allocation of the driver's own in the
 *             same context; of what was freed one that nobody has. So the code is the driver's, whatever it
 *             is.
 * Not here:   the entry points (route_query.c).
 * Invariants: a block's id is no other's, before or after, and none of the driver's, which counts up from a
 *             small number (measured: 917 in a young process).
 * Threads:    any thread; a subject is its caller's.
 */
#ifndef CUP_SHIM_QUERY_H
#define CUP_SHIM_QUERY_H
#include "shim/heap.h"

typedef struct cup_subject {
    CUdeviceptr addr;
    cup_heap_t *heap;  /* entered; NULL: the block is another process's, opened by an IPC handle */
    CUcontext ctx;     /* whose memory it is */
    bool is_live;      /* else the address is ours and nobody's */
    bool is_read_only; /* another process's block, opened so */
    cup_block_info_t block;
} cup_subject_t;

/*
 * Looks the address up. False: it is not ours, or we stand aside; the driver answers, and nothing is to be
 * ended.
 */
bool cup_query_begin(CUdeviceptr addr, cup_subject_t *out_subject);
void cup_query_end(const cup_subject_t *subject);

/*
 * Where the driver is asked instead. May make that allocation of the driver's own; 0 where none can be had:
 * no memory, an asynchronous error, another process's block.
 */
CUdeviceptr cup_query_native(const cup_subject_t *subject);

/* An address that nobody has, on the same place in its page as this one. */
CUdeviceptr cup_query_nowhere(CUdeviceptr addr);

/*
 * Whether some of these addresses are ours, under `vmm`: under `raw` the driver knows them as what they
 * are.
 */
bool cup_query_is_mapping(CUdeviceptr addr, size_t size_bytes);

/* BUFFER_ID. */
static inline unsigned long long cup_query_id(const cup_block_info_t *block)
{
    return 1ull << 62 | block->serial;
}

/*
 * The physical memory that a block lies in, as the driver tells of its own (measured): whole units of 2 MiB,
 * which small blocks share. A block of a unit or more begins one; one that is smaller and yet reaches from
 * one into the next, which the driver's never do, has them to itself.
 */
typedef struct cup_mapping {
    cup_addr_t base;
    uint64_t size_bytes;
    bool is_shared;
} cup_mapping_t;

cup_mapping_t cup_query_mapping(const cup_block_info_t *block);

/*
 * MEMORY_BLOCK_ID: two blocks have the same one if and only if their mappings are the same. `said`: the
 * driver's number for the memory there, so that an address that has other memory later has another one.
 */
unsigned long long cup_query_mapping_id(const cup_block_info_t *block, unsigned long long said);

/*
 * CUP_MARK_PINNED: the block's memory can be reached without us from now on, so that it is not handed out
 * again. CUP_MARK_NOTE: it is told to have SYNC_MEMOPS. Another process's block keeps no marks here.
 */
void cup_query_mark(const cup_subject_t *subject, unsigned marks);

/*
 * Synchronous operations on the block's context, and on the current one, synchronise from now on. Else the
 * driver's code.
 */
CUresult cup_query_sync_contexts(const cup_subject_t *subject);

#endif /* CUP_SHIM_QUERY_H */
