/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named - blocks under names: who publishes, who finds, what is there.
 * What:       a name leads to the process that published it, and that process answers with the token of the
 *             block, which is opened as any other token (ipc_import.h).
 * Not here:   which blocks can be published, and the codes (route_named.c).
 * Invariants: at most one process that is alive has a name of one user in one folder. An answer is of one
 *             moment: whoever has it may open the block although the name has gone since.
 * Threads:    any thread; waits for other processes, CUP_IPC_TIMEOUT_MS at most for each answer.
 */
#ifndef CUP_SHIM_NAMED_H
#define CUP_SHIM_NAMED_H
#include "shim/named_table.h"

/* What is known of a name. An owner that does not answer: all 0 but name and uid. */
typedef struct cup_named_info {
    char name[CUP_IPC_NAME_MAX];
    uint32_t uid;
    uint64_t address; /* open: here */
    cup_ipc_named_t named;
} cup_named_info_t;

/* The block of a token that this process has given out. gid: CUP_IPC_NO_GROUP, or a group. */
cup_ipc_reason_t cup_named_publish(const cup_ipc_token_t *token, const char *name, uint32_t flags,
                                   uint32_t gid);

/* False: this process has not published it, or its block was freed. */
bool cup_named_unpublish(const char *name);

/* Asks whoever has the name. CUP_IPC_NO_NAME also when that process has gone. */
cup_ipc_reason_t cup_named_find(uint32_t uid, const char *name, cup_named_info_t *out_info);

/* Calls found for each name that this process may open. */
cup_ipc_reason_t cup_named_list(void (*found)(const cup_named_info_t *info, void *arg), void *arg);

#endif /* CUP_SHIM_NAMED_H */
