/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_import - blocks of other processes, opened by a token.
 * What:       open: asks the exporter, imports the memory behind the block, maps it where the exporter's
 *             own range has it, relative to a range of the same size here, so that each handle is mapped
 *             once, however many blocks touch it. close: counted; after the last one the mapping goes, as
 *             soon as the work that may use it is done.
 * Not here:   handles of the driver (route_ipc.c forwards those).
 * Invariants: while a block is mapped here the exporter has it on loan to us; the loan ends after the
 *             mapping.
 * Threads:    any thread. One open or close at a time (CUP_LOCK_SHARE), which waits for the other process,
 *             up to CUP_IPC_TIMEOUT_MS; find takes a short lock.
 */
#ifndef CUP_SHIM_IPC_IMPORT_H
#define CUP_SHIM_IPC_IMPORT_H
#include "shim/cuda_abi.h"
#include "shim/ipc_wire.h"
#include <stdatomic.h>

/*
 * The token of a block of another process, of user uid, in the current context. is_read_only: mapped without
 * write access, at addresses of its own. Errors: those of ipc_list.h; the driver's, of a call that failed.
 */
CUresult cup_ipc_open(const cup_ipc_token_t *token, uint32_t uid, bool is_read_only, CUdeviceptr *out_addr);

/* False: addr is not what an open here returned: the driver answers. */
bool cup_ipc_close(CUdeviceptr addr, CUresult *out_result);

/* Unmaps what was closed and is not in use any more. */
void cup_ipc_reap(void);

/* The context has ended: what was opened in it is closed. */
void cup_ipc_end_imports(CUcontext ctx);

/* A block that is open here. */
typedef struct cup_ipc_block {
    cup_addr_t base; /* here */
    uint64_t size_bytes;
    CUcontext ctx;    /* that opened it; of a green one its primary */
    uint64_t devices; /* that reach it: bits */
    bool is_read_only;
    uint64_t id; /* of this mapping: no other one of the process has it; from 1 */
} cup_ipc_block_t;

/* Whether anything is mapped: one load. */
static inline bool cup_ipc_has_imports(void)
{
    extern _Atomic uint64_t cup_ipc_import_count;

    return atomic_load_explicit(&cup_ipc_import_count, memory_order_acquire) > 0;
}

/* The open block that contains addr, base or interior. Mostly one load. */
bool cup_ipc_find(cup_addr_t addr, cup_ipc_block_t *out_block);

/* Devices that peers of this context have got (peer.h) get to what is open in it, if they can. */
void cup_ipc_follow_peers(CUcontext ctx);

/* The device gets to the block that contains addr, if there is one, until it is unmapped. */
void cup_ipc_reach(cup_addr_t addr, CUdevice device);

#endif /* CUP_SHIM_IPC_IMPORT_H */
