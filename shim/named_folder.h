/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_folder - the folder of sockets as a directory of names.
 * What:       a name is a symbolic link cupola-name-<uid>-<name> to the socket of the process that published
 *             it; a file of each user, cupola-names-<uid>, is locked while a link is made, and counts the
 *             publications.
 * Not here:   what a name stands for (named_table.h): the process behind the socket is asked.
 * Invariants: links are made under the lock. Whoever published a name and is alive may take its link away
 *             without; anybody else of the user under it, once the process behind has said that it has no
 *             such name, or is gone.
 * Threads:    any thread; locks are between threads, too. errno is lost, as in ipc_sock.h.
 */
#ifndef CUP_SHIM_NAMED_FOLDER_H
#define CUP_SHIM_NAMED_FOLDER_H
#include "shim/ipc_sock.h"

#define CUP_NAMED_LOCK_MS (2 * CUP_IPC_TIMEOUT_MS)

/* 1 to 63 characters that a file name may have anywhere: A-Z a-z 0-9 . _ -, no dot at the beginning. */
bool cup_named_is_name(const char *name);

/* The lock of this user's names: a descriptor for the next ones, or -1 with a reason. */
int cup_named_lock(uint64_t timeout_ms, cup_ipc_reason_t *out_reason);
void cup_named_unlock(int lock);

/* The number of one more publication; 0: it could not be written. */
uint64_t cup_named_count(int lock);

/* The process behind a name of this user. False: there is no such link, or somebody else made it. */
bool cup_named_read(uint32_t uid, const char *name, uint64_t *out_exporter);

/* For names of this process's user. is_orphan: the socket that the link leads to is not there. */
bool cup_named_link(const char *name, uint64_t exporter);
void cup_named_unlink(const char *name);
bool cup_named_is_orphan(const char *name);

/* Every name of every user that is in the folder. False: no folder that is safe. */
bool cup_named_each(void (*found)(uint32_t uid, const char *name, void *arg), void *arg);

#endif /* CUP_SHIM_NAMED_FOLDER_H */
