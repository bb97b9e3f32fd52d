/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_server - the thread that hands descriptors of exported memory to other processes.
 * What:       one thread and one listening socket a process, from the first export on. The thread only does
 *             sockets: all signals are blocked in it, its stack is small, it makes no driver call.
 * Not here:   what is exported (ipc_export.h).
 * Manners:    a forked child has neither; the socket's name goes when the process exits by itself, and else
 *             when the next exporter of the folder starts.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_IPC_SERVER_H
#define CUP_SHIM_IPC_SERVER_H
#include "shim/cuda_abi.h"
#include "shim/ipc_wire.h"

/* Sees to it that it runs. CUP_IPC_OK, or why it does not. One thread at a time (ipc_export.c). */
cup_ipc_reason_t cup_ipc_server_start(void);

/*
 * Started: members of this group may connect, too; they get what is published to it (named.h). Not two groups.
 */
cup_ipc_reason_t cup_ipc_server_let_in(uint32_t gid);

/* The name of this process in its tokens; 0 before the first start. */
uint64_t cup_ipc_server_name(void);

/* A reason in words, and as the driver's code. */
const char *cup_ipc_reason_text(cup_ipc_reason_t reason);
CUresult cup_ipc_reason_code(cup_ipc_reason_t reason);

#endif /* CUP_SHIM_IPC_SERVER_H */
