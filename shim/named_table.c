/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a list under CUP_LOCK_NAME. Whether a block is live the exports know (ipc_export.h), which are asked
 * each time: a free need not look for names.
 */
#include "shim/named_table.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/ipc_export.h"

typedef struct node {
    struct node *next;
    cup_named_row_t row;
} node_t;

static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_NAME);
static node_t *g_nodes; /* guarded by g_lock */

static node_t **find_locked(const char *name)
{
    node_t **at = &g_nodes;

    while (*at && strcmp((*at)->row.name, name) != 0)
        at = &(*at)->next;
    return at;
}

bool cup_named_add(const cup_named_row_t *row)
{
    node_t *node = cup_meta_alloc(sizeof *node);

    if (!node)
        return false;
    node->row = *row;
    cup_lock_acquire(&g_lock);
    node->next = g_nodes;
    g_nodes = node;
    cup_lock_release(&g_lock);
    if (row->gid != CUP_IPC_NO_GROUP)
        (void)cup_ipc_publish(row->id, 1);
    return true;
}

bool cup_named_remove(const char *name)
{
    node_t **at, *node;

    cup_lock_acquire(&g_lock);
    at = find_locked(name);
    node = *at;
    if (node)
        *at = node->next;
    cup_lock_release(&g_lock);
    if (!node)
        return false;
    if (node->row.gid != CUP_IPC_NO_GROUP)
        (void)cup_ipc_publish(node->row.id, -1);
    cup_meta_free(node, sizeof *node);
    return true;
}

bool cup_named_look_up(const char *name, cup_ipc_named_t *out_named)
{
    cup_named_row_t row;
    bool is_there;

    cup_lock_acquire(&g_lock);
    const node_t *node = *find_locked(name);
    is_there = node != NULL;
    if (is_there)
        row = node->row;
    cup_lock_release(&g_lock);
    memset(out_named, 0, sizeof *out_named);
    if (!is_there || !cup_ipc_look_up(row.id, &out_named->token, &out_named->readers))
        return false;
    out_named->generation = row.generation;
    out_named->flags = row.flags;
    out_named->gid = row.gid;
    return true;
}

bool cup_named_first(bool is_dead, cup_named_row_t *out_row)
{
    cup_ipc_token_t token;
    uint32_t loans;
    bool is_found = false;

    cup_lock_acquire(&g_lock);
    for (const node_t *node = g_nodes; node && !is_found; node = node->next) {
        is_found = !is_dead || !cup_ipc_look_up(node->row.id, &token, &loans);
        if (is_found)
            *out_row = node->row;
    }
    cup_lock_release(&g_lock);
    return is_found;
}

void cup_named_answer(bool is_foreign, const cup_ipc_request_t *request, cup_ipc_reply_t *out_reply)
{
    char name[CUP_IPC_NAME_MAX];

    memcpy(name, request->name, sizeof name);
    name[sizeof name - 1] = '\0';
    memset(out_reply, 0, sizeof *out_reply);
    out_reply->magic = CUP_IPC_MAGIC;
    out_reply->version = CUP_IPC_VERSION;
    out_reply->seq = request->seq;
    if (cup_named_look_up(name, &out_reply->named) &&
        (!is_foreign || out_reply->named.gid != CUP_IPC_NO_GROUP))
        return;
    memset(&out_reply->named, 0, sizeof out_reply->named);
    out_reply->reason = CUP_IPC_NO_NAME;
}
