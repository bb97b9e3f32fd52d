/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_ipc - what named blocks (route_named.c) have in common with IPC handles.
 * Threads:    any thread, inside the gate.
 */
#ifndef CUP_SHIM_ROUTE_IPC_H
#define CUP_SHIM_ROUTE_IPC_H
#include "shim/heap.h"
#include "shim/ipc_wire.h"

/* What the driver says to this caller before it looks at an address. */
CUresult cup_route_ipc_check_caller(void);

/* The token of a live block of a range. */
CUresult cup_route_ipc_export(cup_heap_t *heap, const cup_block_info_t *block, CUipcMemHandle *out_handle);

/*
 * Opens a token of a process of user uid in the current context; CUDA_ERROR_INVALID_CONTEXT: there is none.
 */
CUresult cup_route_ipc_open(const cup_ipc_token_t *token, uint32_t uid, bool is_read_only,
                            CUdeviceptr *out_addr);

#endif /* CUP_SHIM_ROUTE_IPC_H */
