/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a question takes a connection of its own, which has nothing on loan, so that it disturbs no other one.
 * Names of this very process are looked up in its table.
 *
 * A name of a process that was killed stays in the folder until somebody publishes it, or something for the
 * first time; one whose block was freed until its process publishes again, or ends. Neither can be opened.
 */
#define _GNU_SOURCE
#include "shim/named.h"
#include "allocator/lock.h"
#include "shim/ipc_server.h"
#include "shim/ipc_sock.h"
#include "shim/named_folder.h"
#include <stdlib.h>
#include <unistd.h>

static _Atomic pid_t g_pid; /* that has published something; under the lock of the folder */
static cup_lock_t g_one = CUP_LOCK_INIT(CUP_LOCK_SHARE); /* a row and its link come and go together */

/* ---- asking ---- */

/* No late answers here: the connection is new. Descriptors come with none. */
static cup_ipc_reason_t hear(int socket, cup_ipc_reply_t *out_reply, uint64_t deadline_ms)
{
    int fds[CUP_IPC_PAGE];
    uint32_t count;
    bool has_lost;
    long length = cup_ipc_receive(socket, out_reply, sizeof *out_reply, fds, &count, &has_lost, deadline_ms);

    while (count > 0)
        close(fds[--count]);
    if (length <= 0)
        return length == 0 ? CUP_IPC_GONE : CUP_IPC_SILENT;
    if (length != (long)sizeof *out_reply || out_reply->magic != CUP_IPC_MAGIC ||
        out_reply->version != CUP_IPC_VERSION || out_reply->reason >= CUP_IPC_REASON_COUNT)
        return CUP_IPC_BROKEN;
    return (cup_ipc_reason_t)out_reply->reason;
}

static cup_ipc_reason_t ask(uint64_t exporter, uint32_t uid, const char *name, cup_ipc_named_t *out_named)
{
    cup_ipc_request_t request = {.magic = CUP_IPC_MAGIC, .version = CUP_IPC_VERSION, .verb = CUP_IPC_FIND};
    uint64_t deadline_ms = cup_ipc_now_ms() + CUP_IPC_TIMEOUT_MS;
    cup_ipc_reply_t reply;
    cup_ipc_reason_t reason;
    int socket = cup_ipc_connect(exporter, uid, &reason);

    if (socket < 0)
        return reason;
    strncpy(request.name, name, sizeof request.name - 1);
    reason = cup_ipc_send(socket, &request, sizeof request, NULL, 0, deadline_ms)
                 ? hear(socket, &reply, deadline_ms)
                 : CUP_IPC_GONE;
    close(socket);
    if (reason == CUP_IPC_OK)
        *out_named = reply.named;
    return reason == CUP_IPC_OK &&
                   (reply.named.token.magic != CUP_IPC_MAGIC || reply.named.token.exporter != exporter)
               ? CUP_IPC_BROKEN
               : reason;
}

static cup_ipc_reason_t ask_anybody(uint64_t exporter, uint32_t uid, const char *name,
                                    cup_ipc_named_t *out_named)
{
    if (exporter == cup_ipc_server_name())
        return cup_named_look_up(name, out_named) ? CUP_IPC_OK : CUP_IPC_NO_NAME;
    return ask(exporter, uid, name, out_named);
}

cup_ipc_reason_t cup_named_find(uint32_t uid, const char *name, cup_named_info_t *out_info)
{
    uint64_t exporter;
    cup_ipc_reason_t reason;

    memset(out_info, 0, sizeof *out_info);
    strncpy(out_info->name, name, sizeof out_info->name - 1);
    out_info->uid = uid;
    if (!cup_named_read(uid, name, &exporter))
        return CUP_IPC_NO_NAME;
    reason = ask_anybody(exporter, uid, name, &out_info->named);
    return reason == CUP_IPC_GONE ? CUP_IPC_NO_NAME : reason;
}

/* ---- what has no process, or no block, any more ---- */

/* Under the lock. The sockets of the dead went when this process began to listen. */
static void sweep_one(uint32_t uid, const char *name, void *unused)
{
    (void)unused;
    if (uid == geteuid() && cup_named_is_orphan(name))
        cup_named_unlink(name);
}

/*
 * Names of this process whose block was freed: somebody else may have taken such a one since. Under the lock.
 */
static void drop_dead(void)
{
    cup_named_row_t row;
    uint64_t exporter;

    while (cup_named_first(true, &row)) {
        if (cup_named_read(geteuid(), row.name, &exporter) && exporter == cup_ipc_server_name())
            cup_named_unlink(row.name);
        cup_named_remove(row.name);
    }
}

static void leave_at_exit(void)
{
    cup_ipc_reason_t reason;
    cup_named_row_t row;
    int lock;

    if (g_pid != getpid())
        return;
    lock = cup_named_lock(0, &reason); /* held: the dead ones stay for the next who publishes */
    if (lock >= 0) {
        drop_dead();
        cup_named_unlock(lock);
    }
    while (cup_named_first(false, &row))
        cup_named_unpublish(row.name);
}

/* Once, under the lock. */
static void start(void)
{
    if (g_pid != 0)
        return;
    g_pid = getpid();
    atexit(leave_at_exit);
    (void)cup_named_each(sweep_one, NULL);
}

/* ---- publishing ---- */

/* Whether the name can be had. */
static cup_ipc_reason_t check_free(const char *name)
{
    cup_named_info_t info;
    cup_ipc_reason_t reason = cup_named_find(geteuid(), name, &info);

    if (reason == CUP_IPC_NO_NAME || reason == CUP_IPC_SYSTEM || reason == CUP_IPC_FOLDER)
        return reason == CUP_IPC_NO_NAME ? CUP_IPC_OK : reason;
    return CUP_IPC_TAKEN;
}

static cup_ipc_reason_t enter(const cup_named_row_t *row)
{
    cup_ipc_reason_t reason = CUP_IPC_NOMEM;

    cup_lock_acquire(&g_one);
    if (cup_named_add(row)) {
        cup_named_unlink(row->name);
        reason = cup_named_link(row->name, cup_ipc_server_name()) ? CUP_IPC_OK : CUP_IPC_FOLDER;
        if (reason != CUP_IPC_OK)
            cup_named_remove(row->name);
    }
    cup_lock_release(&g_one);
    return reason;
}

static cup_ipc_reason_t publish_locked(int lock, cup_named_row_t *row)
{
    cup_ipc_reason_t reason;

    start();
    drop_dead();
    reason = check_free(row->name);
    if (reason == CUP_IPC_OK && row->gid != CUP_IPC_NO_GROUP)
        reason = cup_ipc_server_let_in(row->gid);
    if (reason != CUP_IPC_OK)
        return reason;
    row->generation = cup_named_count(lock);
    return row->generation != 0 ? enter(row) : CUP_IPC_FOLDER;
}

cup_ipc_reason_t cup_named_publish(const cup_ipc_token_t *token, const char *name, uint32_t flags,
                                   uint32_t gid)
{
    cup_named_row_t row = {.id = token->id, .flags = flags, .gid = gid};
    cup_ipc_reason_t reason;
    int lock = cup_named_lock(CUP_NAMED_LOCK_MS, &reason);

    if (lock < 0)
        return reason;
    strncpy(row.name, name, sizeof row.name - 1);
    reason = publish_locked(lock, &row);
    cup_named_unlock(lock);
    return reason;
}

/* The link goes first: while the table has the name nobody else takes it. */
bool cup_named_unpublish(const char *name)
{
    cup_ipc_named_t named;
    bool is_there;

    cup_lock_acquire(&g_one);
    is_there = cup_named_look_up(name, &named);
    if (is_there) {
        cup_named_unlink(name);
        cup_named_remove(name);
    }
    cup_lock_release(&g_one);
    return is_there;
}

/* ---- listing ---- */

typedef struct listing {
    void (*found)(const cup_named_info_t *info, void *arg);
    void *arg;
    uint64_t silent; /* the last one that did not answer is not asked again */
} listing_t;

static void list_one(uint32_t uid, const char *name, void *arg)
{
    listing_t *listing = arg;
    cup_named_info_t info;
    uint64_t exporter;
    cup_ipc_reason_t reason = CUP_IPC_SILENT;

    memset(&info, 0, sizeof info);
    if (!cup_named_read(uid, name, &exporter))
        return;
    if (exporter != listing->silent)
        reason = ask_anybody(exporter, uid, name, &info.named);
    if (reason == CUP_IPC_SILENT)
        listing->silent = exporter;
    if (reason != CUP_IPC_OK && reason != CUP_IPC_SILENT)
        return;
    strncpy(info.name, name, sizeof info.name - 1);
    info.uid = uid;
    listing->found(&info, listing->arg);
}

cup_ipc_reason_t cup_named_list(void (*found)(const cup_named_info_t *info, void *arg), void *arg)
{
    listing_t listing = {.found = found, .arg = arg};

    return cup_named_each(list_one, &listing) ? CUP_IPC_OK : CUP_IPC_FOLDER;
}
