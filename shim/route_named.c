/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a published block is an exported one (route_ipc.c), so it has to be pooled memory of a range. Blocks
 * under raw are the driver's: they can be opened for writing only, and whoever has one open loses it with the
 * owner's free, so they are refused.
 *
 * A group gets whole driver handles: only those in which nothing else of this process is.
 */
#define _GNU_SOURCE
#include "shim/route_named.h"
#include "shim/conf.h"
#include "shim/gate.h"
#include "shim/ipc_server.h"
#include "shim/log.h"
#include "shim/named_folder.h"
#include "shim/registry.h"
#include "shim/route_ipc.h"
#include "shim/stat.h"
#include "shim/submit.h"
#include <unistd.h>

/* Why the gate did not let the call in. */
static CUresult refuse_outside(void)
{
    return cup_gate_is_forked() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult refuse(const char *verb, const char *name, cup_ipc_reason_t reason)
{
    CUresult code = cup_ipc_reason_code(reason);

    if (reason != CUP_IPC_OK)
        cup_log(code == CUDA_ERROR_NOT_SUPPORTED ? CUP_LOG_ERROR : CUP_LOG_INFO,
                "block \"%s\" can't be %s: %s", name, verb, cup_ipc_reason_text(reason));
    return code;
}

static CUresult refuse_line(const char *name, const char *remedy)
{
    cup_log(CUP_LOG_ERROR, "block \"%s\" can't be published: %s", name, remedy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- publishing ---- */

/* Nothing else of this process is in the handles behind it; where they are isolated the rest is zeroed. */
static bool is_alone(const cup_block_info_t *block)
{
    cup_addr_t end = block->base + block->size_bytes;
    cup_backed_t first, last;

    return cup_pool_find_backed(block->pool, block->base, &first) && first.base == block->base &&
           cup_pool_find_backed(block->pool, end - 1, &last) &&
           (cup_gate_conf()->ipc_isolate.word || last.base + last.size_bytes == end);
}

static CUresult export_block(cup_heap_t *heap, const char *name, const cup_block_info_t *block,
                             bool is_for_group, cup_ipc_token_t *out_token)
{
    CUipcMemHandle handle;
    cup_backed_t backed;
    CUresult result;

    if (!cup_pool_find_backed(block->pool, block->base, &backed))
        return refuse_line(name, "set CUPOLA_BACKING=vmm");
    if (is_for_group && !is_alone(block))
        return refuse_line(name, "a group would see its neighbours; set CUPOLA_IPC_ISOLATE=1");
    result = cup_route_ipc_export(heap, block, &handle);
    if (result == CUDA_SUCCESS && !cup_ipc_token_read(&handle, out_token))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* The heap is let go before others are waited for: a block that is freed meanwhile is published, and dead. */
static CUresult publish(const char *name, CUdeviceptr pointer, uint32_t flags, uint32_t gid)
{
    CUresult result = cup_route_ipc_check_caller();
    cup_ipc_token_t token;
    cup_block_info_t block;
    cup_heap_t *heap;

    if (result != CUDA_SUCCESS)
        return result;
    heap = cup_registry_acquire_owner(pointer);
    if (!heap)
        return CUDA_ERROR_INVALID_VALUE;
    result = cup_pool_find(pointer, &block)
                 ? export_block(heap, name, &block, gid != CUP_IPC_NO_GROUP, &token)
                 : CUDA_ERROR_INVALID_VALUE;
    cup_heap_leave(heap);
    return result == CUDA_SUCCESS ? refuse("published", name, cup_named_publish(&token, name, flags, gid))
                                  : result;
}

/* Others reach the block without our streams: what was freed in it before must be complete. */
CUresult cup_route_named_publish(const char *name, CUdeviceptr pointer, uint32_t flags, int64_t group)
{
    CUresult result;

    if (!cup_named_is_name(name) || (flags & ~CUP_NAMED_READ_ONLY) || group < -1 || group >= UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    cup_submit_collect();
    if (!cup_gate_enter(true))
        return refuse_outside();
    result = publish(name, pointer, flags, group < 0 ? CUP_IPC_NO_GROUP : (uint32_t)group);
    if (result == CUDA_SUCCESS)
        CUP_STAT_ADD(named_publishes, 1);
    cup_gate_leave();
    return result;
}

CUresult cup_route_named_unpublish(const char *name)
{
    bool is_done;

    if (!cup_named_is_name(name))
        return CUDA_ERROR_INVALID_VALUE;
    if (!cup_gate_enter(true))
        return refuse_outside();
    is_done = cup_named_unpublish(name);
    cup_gate_leave();
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- opening ---- */

static CUresult open_named(const char *name, uint32_t flags, uint32_t uid, cup_named_info_t *out_info)
{
    cup_named_info_t info;
    CUdeviceptr addr;
    CUresult result = refuse("opened", name, cup_named_find(uid, name, &info));

    if (result != CUDA_SUCCESS)
        return result;
    if ((info.named.flags & CUP_NAMED_READ_ONLY) && !(flags & CUP_NAMED_READ_ONLY))
        return CUDA_ERROR_NOT_PERMITTED;
    result = cup_route_ipc_open(&info.named.token, uid, flags & CUP_NAMED_READ_ONLY, &addr);
    if (result != CUDA_SUCCESS)
        return result;
    info.address = addr;
    *out_info = info;
    return CUDA_SUCCESS;
}

CUresult cup_route_named_open(const char *name, uint32_t flags, int64_t owner, cup_named_info_t *out_info)
{
    CUresult result;

    if (!cup_named_is_name(name) || (flags & ~CUP_NAMED_READ_ONLY) || owner < -1 || owner >= UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cup_gate_enter(true))
        return refuse_outside();
    result = open_named(name, flags, owner < 0 ? (uint32_t)geteuid() : (uint32_t)owner, out_info);
    if (result == CUDA_SUCCESS)
        CUP_STAT_ADD(named_opens, 1);
    cup_gate_leave();
    return result;
}

CUresult cup_route_named_list(void (*found)(const cup_named_info_t *info, void *arg), void *arg)
{
    CUresult result;

    if (!cup_gate_enter(true))
        return refuse_outside();
    result = cup_ipc_reason_code(cup_named_list(found, arg));
    cup_gate_leave();
    return result;
}
