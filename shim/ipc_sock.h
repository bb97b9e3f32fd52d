/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_sock - sockets between processes of one user: where they are, and messages with descriptors.
 * What:       a path socket (SOCK_SEQPACKET, 0600) for each exporting process in CUPOLA_SOCKET_DIR, or else
 *             in $XDG_RUNTIME_DIR, or in a folder of the user's own in /tmp; each side looks who the other
 *             one is. A process may let one group in, too (named.h).
 * Not here:   what is said (ipc_wire.h).
 * Manners:    never blocks longer than CUP_IPC_TIMEOUT_MS; raises no SIGPIPE; every descriptor is closed on
 *             exec. errno is lost: the callers are inside the gate, or on the thread of ipc_server.c.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_IPC_SOCK_H
#define CUP_SHIM_IPC_SOCK_H
#include "shim/ipc_wire.h"
#include <sys/types.h>

#define CUP_IPC_TIMEOUT_MS 2000
#define CUP_IPC_PATH_MAX   108 /* sun_path */

/* CLOCK_MONOTONIC */
uint64_t cup_ipc_now_ms(void);

/* Where processes meet. False: there is none that is safe. */
bool cup_ipc_folder(char out_path[CUP_IPC_PATH_MAX]);

/* Calls found for the names in a folder that begin with prefix, most of them at most. */
void cup_ipc_each_file(const char *folder, const char *prefix, int most,
                       void (*found)(const char *folder, const char *name, void *arg), void *arg);

/* The file name of an exporter's socket, and back; false: it is none. */
void cup_ipc_socket_name(uint64_t exporter, char out_name[CUP_IPC_PATH_MAX]);
bool cup_ipc_socket_parse(const char *name, uint64_t *out_exporter);

/* A listening socket for this exporter; sockets that dead ones left in the folder go. -1 with a reason. */
int cup_ipc_listen(uint64_t exporter, char out_path[CUP_IPC_PATH_MAX], cup_ipc_reason_t *out_reason);

/* From now on members of this group can connect to the socket at path. */
cup_ipc_reason_t cup_ipc_let_in(const char *path, uint32_t gid);

/*
 * Of the same user, or of this group, a foreigner; -1 otherwise, and when nobody connects. out_pid: 0 for a
 * process that can't be seen from here.
 */
int cup_ipc_accept(int listener, uint32_t gid, pid_t *out_pid, bool *out_is_foreign);

/* A connection to an exporter of this user. -1 with a reason. */
int cup_ipc_connect(uint64_t exporter, uint32_t uid, cup_ipc_reason_t *out_reason);

/*
 * One message, with up to CUP_IPC_PAGE descriptors. False: it was not sent. deadline_ms 0: does not wait.
 */
bool cup_ipc_send(int socket, const void *bytes, size_t size, const int *fds, uint32_t count,
                  uint64_t deadline_ms);

/*
 * One message of at most size bytes, with up to CUP_IPC_PAGE descriptors, which become the caller's.
 * Returns its length; 0 at the end of the connection; -1 when there is none by then (deadline_ms 0: does
 * not wait). out_has_lost: descriptors did not fit into this process.
 */
long cup_ipc_receive(int socket, void *bytes, size_t size, int *out_fds, uint32_t *out_count,
                     bool *out_has_lost, uint64_t deadline_ms);

#endif /* CUP_SHIM_IPC_SOCK_H */
