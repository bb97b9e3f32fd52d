/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_table - the names under which this process has published blocks.
 * What:       name -> exported block, and the answer to whoever asks for a name over the socket.
 * Not here:   the folder in which others find this process by a name (named_folder.h), publishing (named.h).
 * Invariants: a name is in the table before it is in the folder, and leaves it after. A row whose block was
 *             freed is dead: it answers as if it were not there.
 * Threads:    any thread, the server's too: no driver call, no lock that is held during one.
 */
#ifndef CUP_SHIM_NAMED_TABLE_H
#define CUP_SHIM_NAMED_TABLE_H
#include "shim/ipc_wire.h"

enum { CUP_NAMED_READ_ONLY = 1 }; /* nobody may open it for writing */

typedef struct cup_named_row {
    char name[CUP_IPC_NAME_MAX];
    uint64_t id; /* of the export behind it: the token's */
    uint64_t generation;
    uint32_t flags;
    uint32_t gid;
} cup_named_row_t;

/* A name that is not there. False: no memory. */
bool cup_named_add(const cup_named_row_t *row);

/* False: it was not there. */
bool cup_named_remove(const char *name);

/* What is published under a name. False: nothing, or its block was freed. */
bool cup_named_look_up(const char *name, cup_ipc_named_t *out_named);

/* The first row that is dead, or in any state. False: there is none. */
bool cup_named_first(bool is_dead, cup_named_row_t *out_row);

/* Answers FIND. A foreigner is told what is published to a group. */
void cup_named_answer(bool is_foreign, const cup_ipc_request_t *request, cup_ipc_reply_t *out_reply);

#endif /* CUP_SHIM_NAMED_TABLE_H */
