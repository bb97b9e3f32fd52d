/* SPDX-License-Identifier: Apache-2.0 */
/* named - the exported functions of cupola.h. How: the shim's structs put into the program's. */
#define CUPOLA_INSIDE
#include "preload/cupola.h"
#include "shim/route.h"
#include "shim/route_named.h"
#include <string.h>

_Static_assert(CUPOLA_NAME_MAX == CUP_IPC_NAME_MAX, "names");
_Static_assert((int)CUPOLA_READ_ONLY == (int)CUP_NAMED_READ_ONLY, "flags");
_Static_assert(sizeof(cupola_block_t) == 144, "the program's: reserved fields are there to be used up");

static void fill_block(const cup_named_info_t *info, cupola_block_t *out_block)
{
    const cup_ipc_named_t *named = &info->named;

    memset(out_block, 0, sizeof *out_block);
    memcpy(out_block->name, info->name, sizeof out_block->name);
    out_block->address = info->address;
    out_block->size_bytes = named->token.size_bytes;
    out_block->generation = named->generation;
    out_block->flags = named->flags;
    out_block->device = named->token.device;
    out_block->pid = named->token.pid;
    out_block->uid = info->uid;
    out_block->gid = named->gid == CUP_IPC_NO_GROUP ? CUPOLA_NO_GROUP : named->gid;
    out_block->readers = named->readers;
}

int cupola_publish(const char *name, uint64_t pointer, uint32_t flags, int64_t group)
{
    return (int)cup_route_named_publish(name, pointer, flags, group);
}

int cupola_unpublish(const char *name)
{
    return (int)cup_route_named_unpublish(name);
}

int cupola_open(const char *name, uint32_t flags, int64_t owner, cupola_block_t *out_block)
{
    cup_named_info_t info;
    CUresult result;

    if (!out_block)
        return CUPOLA_INVALID;
    result = cup_route_named_open(name, flags, owner, &info);
    if (result == CUDA_SUCCESS)
        fill_block(&info, out_block);
    return (int)result;
}

int cupola_close(uint64_t address)
{
    return (int)cup_route_cuIpcCloseMemHandle(address);
}

typedef struct gather {
    cupola_block_t *block;
    size_t room, count;
} gather_t;

static void gather_one(const cup_named_info_t *info, void *arg)
{
    gather_t *gather = arg;

    if (gather->count < gather->room)
        fill_block(info, &gather->block[gather->count]);
    gather->count++;
}

int cupola_list(cupola_block_t *out_block, size_t room, size_t *out_count)
{
    gather_t gather = {.block = out_block, .room = room};
    CUresult result;

    if (!out_count || (room > 0 && !out_block))
        return CUPOLA_INVALID;
    result = cup_route_named_list(gather_one, &gather);
    if (result == CUDA_SUCCESS)
        *out_count = gather.count;
    return (int)result;
}
