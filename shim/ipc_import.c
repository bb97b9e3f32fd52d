/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: peer (a process, one connection) > mirror (a range of its addresses, reserved here with the same
 * size; one more for what is opened read-only) > part (one handle, at the same offset) and opened (one
 * block). Blocks that share a handle share the part; a block of many handles is contiguous as it is over
 * there. The last opened block of a mirror takes the addresses with it, that of a peer the connection.
 *
 * A request that times out leaves its number behind: an answer that comes later is read and thrown away,
 * and the loan that it speaks of is given back. The connection stays, because an exporter that can't see
 * this process would take its end for our death.
 *
 * close: natively it is taken to wait for the context's work, as a free does (not measured). The work
 * submitted so far is closed off by an order point of the context that opened the block, and waited for;
 * where that can't be now (a capture, a kernel that waits for the host) the mapping stays, and goes with a
 * later call here.
 */
#include "shim/ipc_import.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/capture.h"
#include "shim/drv.h"
#include "shim/green.h"
#include "shim/ipc_file.h"
#include "shim/ipc_server.h"
#include "shim/ipc_sock.h"
#include "shim/log.h"
#include "shim/order.h"
#include "shim/peer.h"
#include "shim/stat.h"
#include <unistd.h>

#define PARTS_MAX 65536 /* of one block */

typedef struct part {
    struct part *next;
    cup_ipc_part_t there;
    unsigned refs; /* opened blocks that touch it */
} part_t;

typedef struct mirror {
    struct mirror *next;
    cup_addr_t theirs, ours;
    uint64_t size_bytes;
    uint64_t range_id; /* theirs: after the end of a context other memory can be at the same addresses */
    unsigned stat;     /* of the peer */
    bool is_read_only;
    unsigned refs; /* opened blocks in it */
    part_t *parts;
} mirror_t;

typedef struct peer {
    struct peer *next;
    uint64_t name;
    uint32_t uid;
    cup_ipc_file_t socket;
    unsigned stat; /* its row there */
    uint64_t seq;  /* of the newest request */
    unsigned refs; /* opened blocks of it, and calls under way */
    mirror_t *mirrors;
} peer_t;

typedef struct opened {
    struct opened *next;
    cup_ipc_token_t token;
    peer_t *peer;
    mirror_t *mirror;
    uint64_t loan;
    cup_addr_t first, end; /* whole handles, here */
    cup_ipc_block_t block;
    unsigned refs; /* 0: closed, and still mapped */
    cup_order_t *order;
    cup_point_t stamp; /* closed: of the work that may use it */
} opened_t;

static cup_lock_t g_one = CUP_LOCK_INIT(CUP_LOCK_SHARE);
static peer_t *g_peers; /* guarded by g_one */
static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_IPC);
static opened_t *g_opened; /* changed with both locks, read with either */
static uint64_t g_ids;

_Atomic uint64_t cup_ipc_import_count; /* of g_opened */

/* ---- talking ---- */

static void close_all(const int *fds, uint32_t count)
{
    while (count > 0)
        close(fds[--count]);
}

/* False: not by then; or the socket is gone, over there or closed by the program. */
static bool say(peer_t *peer, cup_ipc_verb_t verb, cup_ipc_request_t *request, uint64_t deadline_ms)
{
    if (!cup_ipc_file_is_ours(&peer->socket))
        return false;
    request->magic = CUP_IPC_MAGIC;
    request->version = CUP_IPC_VERSION;
    request->verb = (uint16_t)verb;
    request->seq = ++peer->seq;
    return cup_ipc_send(peer->socket.fd, request, sizeof *request, NULL, 0, deadline_ms);
}

/* If this fails the loan stays until this process ends: too long, never too short. */
static void give_loan_back(peer_t *peer, uint64_t loan)
{
    cup_ipc_request_t request = {.loan = loan};

    (void)say(peer, CUP_IPC_CLOSE, &request, cup_ipc_now_ms() + CUP_IPC_TIMEOUT_MS);
}

/* What is wrong with an answer; those to earlier requests are not asked about. */
static cup_ipc_reason_t judge(const cup_ipc_reply_t *reply, long length, uint32_t fd_count, bool has_lost)
{
    if (has_lost)
        return CUP_IPC_SYSTEM;
    if (length != (long)sizeof *reply || reply->magic != CUP_IPC_MAGIC || reply->version != CUP_IPC_VERSION ||
        reply->reason >= CUP_IPC_REASON_COUNT || reply->count > CUP_IPC_PAGE || reply->parts > PARTS_MAX)
        return CUP_IPC_BROKEN;
    return fd_count > 0 && fd_count != reply->count ? CUP_IPC_BROKEN : (cup_ipc_reason_t)reply->reason;
}

/* On an error out_fds holds nothing. */
static cup_ipc_reason_t ask(peer_t *peer, cup_ipc_verb_t verb, cup_ipc_request_t *request,
                            cup_ipc_reply_t *out_reply, int out_fds[CUP_IPC_PAGE], uint32_t *out_count)
{
    uint64_t deadline_ms = cup_ipc_now_ms() + CUP_IPC_TIMEOUT_MS;
    cup_ipc_reason_t reason;
    bool has_lost = false;
    long length;

    *out_count = 0;
    if (!say(peer, verb, request, deadline_ms))
        return cup_ipc_now_ms() >= deadline_ms ? CUP_IPC_SILENT : CUP_IPC_GONE;
    for (;;) {
        length = cup_ipc_receive(peer->socket.fd, out_reply, sizeof *out_reply, out_fds, out_count, &has_lost,
                                 deadline_ms);
        if (length <= 0)
            return length == 0 ? CUP_IPC_GONE : CUP_IPC_SILENT;
        if (length != (long)sizeof *out_reply || out_reply->seq == request->seq)
            break;
        close_all(out_fds, *out_count); /* late: its request was given up, and what it lent given back */
    }
    reason = judge(out_reply, length, *out_count, has_lost);
    if (reason != CUP_IPC_OK) {
        close_all(out_fds, *out_count);
        *out_count = 0;
    }
    return reason;
}

/* ---- peers ---- */

/*
 * A connection whose other side has gone serves no new block; the blocks that are mapped stay. One whose socket the
 * program has closed is for those that are mapped alone.
 */
static peer_t *acquire_peer(uint64_t name, uint32_t uid, cup_ipc_reason_t *out_reason)
{
    peer_t *peer = g_peers;

    while (peer && (peer->name != name || peer->uid != uid || !cup_ipc_file_is_ours(&peer->socket)))
        peer = peer->next;
    if (!peer) {
        peer = cup_meta_alloc(sizeof *peer);
        *out_reason = CUP_IPC_NOMEM;
        if (!peer)
            return NULL;
        peer->name = name;
        peer->uid = uid;
        peer->socket = cup_ipc_file_adopt(cup_ipc_connect(name, uid, out_reason));
        if (peer->socket.fd < 0) {
            cup_meta_free(peer, sizeof *peer);
            return NULL;
        }
        peer->next = g_peers;
        g_peers = peer;
    }
    peer->refs++;
    return peer;
}

static void put_peer(peer_t *peer)
{
    peer_t **at = &g_peers;

    if (--peer->refs > 0)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    cup_ipc_file_close(&peer->socket);
    cup_meta_free(peer, sizeof *peer);
}

/* ---- mirrors ---- */

static CUresult acquire_mirror(peer_t *peer, const cup_ipc_reply_t *reply, bool is_read_only,
                               mirror_t **out_mirror)
{
    mirror_t *mirror = peer->mirrors;
    CUdeviceptr ours;
    CUresult result;

    while (mirror && (mirror->theirs != reply->range_base || mirror->range_id != reply->range_id ||
                      mirror->is_read_only != is_read_only))
        mirror = mirror->next;
    if (!mirror) {
        mirror = cup_meta_alloc(sizeof *mirror);
        if (!mirror)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = cup_drv.cuMemAddressReserve(&ours, reply->range_bytes, 32 * CUP_MIB, 0, 0);
        if (result != CUDA_SUCCESS) {
            cup_meta_free(mirror, sizeof *mirror);
            return result;
        }
        *mirror = (mirror_t){.next = peer->mirrors,
                             .theirs = reply->range_base,
                             .ours = ours,
                             .size_bytes = reply->range_bytes,
                             .range_id = reply->range_id,
                             .stat = peer->stat,
                             .is_read_only = is_read_only};
        peer->mirrors = mirror;
    }
    mirror->refs++;
    *out_mirror = mirror;
    return CUDA_SUCCESS;
}

static void put_mirror(peer_t *peer, mirror_t *mirror)
{
    mirror_t **at = &peer->mirrors;

    if (--mirror->refs > 0)
        return;
    while (*at != mirror)
        at = &(*at)->next;
    *at = mirror->next;
    cup_drv.cuMemAddressFree(mirror->ours, mirror->size_bytes);
    cup_meta_free(mirror, sizeof *mirror);
}

static cup_addr_t place_of(const mirror_t *mirror, const cup_ipc_part_t *part)
{
    return mirror->ours + (part->base - mirror->theirs);
}

/* ---- parts ---- */

static part_t *find_part(const mirror_t *mirror, cup_addr_t theirs)
{
    part_t *part = mirror->parts;

    while (part && part->there.base != theirs)
        part = part->next;
    return part;
}

/* The descriptor stays the caller's. The mapping alone keeps the memory. */
static CUresult map_part(mirror_t *mirror, const cup_ipc_part_t *there, int fd)
{
    part_t *part = cup_meta_alloc(sizeof *part);
    CUmemGenericAllocationHandle handle;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!part)
        return result;
    result = cup_drv.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS) {
        result = cup_drv.cuMemMap(place_of(mirror, there), there->size_bytes, 0, handle, 0);
        cup_drv.cuMemRelease(handle);
    }
    if (result != CUDA_SUCCESS) {
        cup_meta_free(part, sizeof *part);
        return result;
    }
    *part = (part_t){.next = mirror->parts, .there = *there, .refs = 1};
    mirror->parts = part;
    cup_stat_peer_mapped(mirror->stat, there->size_bytes);
    return CUDA_SUCCESS;
}

static void put_part(mirror_t *mirror, cup_addr_t theirs)
{
    part_t **at = &mirror->parts, *part;

    while (*at && (*at)->there.base != theirs)
        at = &(*at)->next;
    part = *at;
    if (!part || --part->refs > 0)
        return;
    *at = part->next;
    cup_drv.cuMemUnmap(place_of(mirror, &part->there), part->there.size_bytes);
    cup_stat_peer_unmapped(mirror->stat, part->there.size_bytes);
    cup_meta_free(part, sizeof *part);
}

/* The parts that touch [first, end), ours: all of them hold one reference of the block. */
static void put_parts(mirror_t *mirror, cup_addr_t first, cup_addr_t end)
{
    while (first < end) {
        part_t *part = find_part(mirror, mirror->theirs + (first - mirror->ours));

        if (!part)
            return;
        first += part->there.size_bytes;
        put_part(mirror, part->there.base);
    }
}

/* ---- opening ---- */

/* Whether the answer can be believed: whole handles in order, without gaps, inside the range. */
static bool is_page_sound(const opened_t *opened, const cup_ipc_reply_t *reply)
{
    const mirror_t *mirror = opened->mirror;
    cup_addr_t at = mirror->theirs + (opened->end - mirror->ours);

    for (uint32_t i = 0; i < reply->count; i++) {
        const cup_ipc_part_t *part = &reply->part[i];

        if (part->size_bytes == 0 || part->size_bytes % (2 * CUP_MIB) != 0 || part->base < mirror->theirs ||
            (opened->end > opened->first && part->base != at) ||
            part->base - mirror->theirs > mirror->size_bytes - part->size_bytes ||
            part->size_bytes > mirror->size_bytes)
            return false;
        at = part->base + part->size_bytes;
        if (i == 0 && opened->end == opened->first && reply->first != 0)
            return false;
        if (i > 0 && reply->part[i - 1].base + reply->part[i - 1].size_bytes != part->base)
            return false;
    }
    return reply->count > 0;
}

/* The missing ones among [from, to) of a page, which are all missing. */
static CUresult fetch(opened_t *opened, const cup_ipc_reply_t *page, uint32_t from, uint32_t to)
{
    cup_ipc_request_t request = {.loan = opened->loan, .first = page->first + from, .count = to - from};
    cup_ipc_reply_t reply;
    int fds[CUP_IPC_PAGE];
    uint32_t count, mapped = 0;
    CUresult result;
    cup_ipc_reason_t reason = ask(opened->peer, CUP_IPC_FETCH, &request, &reply, fds, &count);

    if (reason == CUP_IPC_OK && count != to - from)
        reason = CUP_IPC_BROKEN;
    result = cup_ipc_reason_code(reason);
    while (result == CUDA_SUCCESS && mapped < count) {
        const cup_ipc_part_t *part = &page->part[from + mapped];

        result = reply.part[mapped].key == part->key ? map_part(opened->mirror, part, fds[mapped])
                                                     : CUDA_ERROR_INVALID_HANDLE;
        if (result != CUDA_SUCCESS)
            break;
        opened->end = place_of(opened->mirror, part) + part->size_bytes;
        mapped++;
    }
    close_all(fds, count);
    return result;
}

/*
 * The parts of a page, one after the other: those that are mapped are shared, runs of the others fetched.
 */
static CUresult map_page(opened_t *opened, const cup_ipc_reply_t *page)
{
    CUresult result = CUDA_SUCCESS;

    if (opened->end == opened->first)
        opened->first = opened->end = place_of(opened->mirror, &page->part[0]);
    for (uint32_t i = 0, to; result == CUDA_SUCCESS && i < page->count; i = to) {
        part_t *part = find_part(opened->mirror, page->part[i].base);

        to = i + 1;
        if (part) {
            if (part->there.key != page->part[i].key)
                return CUDA_ERROR_INVALID_HANDLE;
            part->refs++;
            opened->end += part->there.size_bytes;
            continue;
        }
        while (to < page->count && !find_part(opened->mirror, page->part[to].base))
            to++;
        result = fetch(opened, page, i, to);
    }
    return result;
}

static CUresult map_pages(opened_t *opened, const cup_ipc_reply_t *first)
{
    cup_ipc_reply_t page = *first;
    CUresult result;
    int none[CUP_IPC_PAGE];
    uint32_t count, done = 0;

    for (;;) {
        if (page.first != done || !is_page_sound(opened, &page))
            return CUDA_ERROR_INVALID_HANDLE;
        result = map_page(opened, &page);
        done += page.count;
        if (result != CUDA_SUCCESS || done >= first->parts)
            return result;
        cup_ipc_request_t request = {.loan = opened->loan, .first = done, .count = CUP_IPC_PAGE};
        result = cup_ipc_reason_code(ask(opened->peer, CUP_IPC_LOOK, &request, &page, none, &count));
        close_all(none, count);
        if (result != CUDA_SUCCESS)
            return result;
    }
}

static CUresult grant_to(opened_t *opened, CUdevice device)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = opened->block.is_read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                                  : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result;

    if (device < CUP_PEER_DEVICES_MAX && opened->block.devices >> device & 1)
        return CUDA_SUCCESS;
    result = cup_drv.cuMemSetAccess(opened->first, opened->end - opened->first, &access, 1);
    if (result != CUDA_SUCCESS || device >= CUP_PEER_DEVICES_MAX)
        return result;
    cup_lock_acquire(&g_lock);
    opened->block.devices |= 1ull << device;
    cup_lock_release(&g_lock);
    return CUDA_SUCCESS;
}

static void grant_to_peers(opened_t *opened)
{
    for (uint64_t peers = cup_peer_devices(opened->block.ctx); peers != 0; peers &= peers - 1)
        (void)grant_to(opened, __builtin_ctzll(peers));
}

/* The current device; and those of contexts that the program has let at this one's memory, if they can. */
static CUresult grant(opened_t *opened)
{
    CUdevice device;
    CUresult result = cup_drv.cuCtxGetDevice(&device);

    if (result == CUDA_SUCCESS)
        result = grant_to(opened, device);
    if (result != CUDA_SUCCESS)
        return result;
    grant_to_peers(opened);
    return CUDA_SUCCESS;
}

static void unmap(opened_t *opened)
{
    put_parts(opened->mirror, opened->first, opened->end);
    put_mirror(opened->peer, opened->mirror);
}

/* The loan is open. Mapped and accessible, or nothing. */
static CUresult map_opened(opened_t *opened, const cup_ipc_reply_t *reply)
{
    const cup_ipc_token_t *token = &opened->token;
    CUresult result;

    if (reply->base != token->base || reply->size_bytes != token->size_bytes ||
        reply->base < reply->range_base || reply->size_bytes > reply->range_bytes ||
        reply->base - reply->range_base > reply->range_bytes - reply->size_bytes)
        return CUDA_ERROR_INVALID_HANDLE;
    result = acquire_mirror(opened->peer, reply, opened->block.is_read_only, &opened->mirror);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_pages(opened, reply);
    opened->block.base = opened->mirror->ours + (token->base - opened->mirror->theirs);
    opened->block.size_bytes = token->size_bytes;
    if (result == CUDA_SUCCESS &&
        (opened->block.base < opened->first || opened->block.base + opened->block.size_bytes > opened->end))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = grant(opened);
    if (result != CUDA_SUCCESS)
        unmap(opened);
    return result;
}

static CUresult refuse(const cup_ipc_token_t *token, cup_ipc_reason_t reason)
{
    cup_log(CUP_LOG_INFO, "an IPC handle of process %d can't be opened: %s", (int)token->pid,
            cup_ipc_reason_text(reason));
    return cup_ipc_reason_code(reason);
}

/* Asks for the loan; on an error it is given back. */
static CUresult borrow(opened_t *opened)
{
    cup_ipc_request_t request = {.id = opened->token.id};
    cup_ipc_reply_t reply;
    int none[CUP_IPC_PAGE];
    uint32_t count;
    cup_ipc_reason_t reason;
    CUresult result;

    memcpy(request.secret, opened->token.secret, sizeof request.secret);
    reason = ask(opened->peer, CUP_IPC_OPEN, &request, &reply, none, &count);
    close_all(none, count);
    opened->loan = request.seq;
    result = reason == CUP_IPC_OK ? map_opened(opened, &reply) : refuse(&opened->token, reason);
    if (result != CUDA_SUCCESS && reason != CUP_IPC_GONE)
        give_loan_back(opened->peer, opened->loan);
    return result;
}

/* Whose memory it is to be. */
static CUcontext find_owner(void)
{
    CUcontext ctx = NULL;

    cup_drv.cuCtxGetCurrent(&ctx);
    return cup_green_primary(ctx);
}

static void enter(opened_t *opened)
{
    cup_lock_acquire(&g_lock);
    opened->next = g_opened;
    g_opened = opened;
    cup_lock_release(&g_lock);
    atomic_fetch_add_explicit(&cup_ipc_import_count, 1, memory_order_release);
}

static CUresult open_new(const cup_ipc_token_t *token, uint32_t uid, bool is_read_only, CUdeviceptr *out_addr)
{
    opened_t *opened = cup_meta_alloc(sizeof *opened);
    cup_ipc_reason_t reason;
    CUresult result;

    if (!opened)
        return CUDA_ERROR_OUT_OF_MEMORY;
    opened->token = *token;
    opened->block.is_read_only = is_read_only;
    opened->refs = 1;
    opened->block.ctx = find_owner();
    opened->order = cup_order_of(opened->block.ctx);
    opened->peer = acquire_peer(token->exporter, uid, &reason);
    if (!opened->peer) {
        cup_meta_free(opened, sizeof *opened);
        return refuse(token, reason);
    }
    opened->peer->stat = cup_stat_peer(token->exporter, token->pid);
    result = borrow(opened);
    if (result != CUDA_SUCCESS) {
        put_peer(opened->peer);
        cup_meta_free(opened, sizeof *opened);
        return result;
    }
    opened->block.id = ++g_ids;
    cup_peer_note_heap(true); /* likewise: the driver does not count it as the context's */
    cup_stat_peer_opened(opened->peer->stat);
    *out_addr = opened->block.base;
    enter(opened);
    CUP_STAT_ADD(ipc_opens, 1);
    return CUDA_SUCCESS;
}

/*
 * Open already, or closed and still mapped: natively the same address, counted; but one context at a time
 * (measured).
 */
static CUresult open_again(opened_t *opened, CUdeviceptr *out_addr)
{
    CUresult result;

    if (find_owner() != opened->block.ctx)
        return refuse(&opened->token, CUP_IPC_ELSEWHERE);
    result = grant(opened);
    if (result != CUDA_SUCCESS)
        return result;
    cup_lock_acquire(&g_lock);
    opened->refs++;
    cup_lock_release(&g_lock);
    *out_addr = opened->block.base;
    CUP_STAT_ADD(ipc_reopens, 1);
    return CUDA_SUCCESS;
}

/*
 * What is open by this token. Or else what is closed, waiting for this context's work: what waits for
 * another's goes its own way, beside a new one that shares its parts.
 */
static opened_t *find_token(const cup_ipc_token_t *token, bool is_read_only)
{
    CUcontext ctx = find_owner();
    opened_t *closed = NULL;

    for (opened_t *opened = g_opened; opened; opened = opened->next) {
        if (memcmp(&opened->token, token, sizeof *token) != 0 || opened->block.is_read_only != is_read_only)
            continue;
        if (opened->refs > 0)
            return opened;
        if (opened->block.ctx == ctx)
            closed = opened;
    }
    return closed;
}

CUresult cup_ipc_open(const cup_ipc_token_t *token, uint32_t uid, bool is_read_only, CUdeviceptr *out_addr)
{
    uint64_t start_ns = cup_stat_now_ns();
    opened_t *opened;
    CUresult result;

    if (token->exporter == cup_ipc_server_name())
        return refuse(token, CUP_IPC_SELF);
    cup_lock_acquire(&g_one);
    opened = find_token(token, is_read_only);
    result = opened ? open_again(opened, out_addr) : open_new(token, uid, is_read_only, out_addr);
    cup_lock_release(&g_one);
    if (result == CUDA_SUCCESS)
        CUP_STAT_TIME(ipc_open_ns, start_ns);
    return result;
}

/* ---- closing ---- */

/* Whether the work that may use a closed mapping is done. Asks, never waits. */
static bool is_unused(const opened_t *opened)
{
    cup_point_t completed = 0;

    if (!opened->order || cup_order_of(opened->block.ctx) != opened->order)
        return true; /* waited for when it was closed; or its context has ended */
    if (cup_order_newest(opened->order) < opened->stamp &&
        cup_order_close(opened->order, true) != CUDA_SUCCESS)
        return false;
    if (cup_order_newest(opened->order) < opened->stamp)
        return false; /* a capture keeps the point open */
    return cup_order_poll(opened->order, &completed) == CUDA_SUCCESS && completed >= opened->stamp;
}

static void remove_opened(opened_t *opened)
{
    opened_t **at = &g_opened;

    cup_lock_acquire(&g_lock);
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    cup_lock_release(&g_lock);
    atomic_fetch_sub_explicit(&cup_ipc_import_count, 1, memory_order_relaxed);
    unmap(opened);
    give_loan_back(opened->peer, opened->loan);
    put_peer(opened->peer);
    cup_meta_free(opened, sizeof *opened);
}

static void reap_all(bool (*may_go)(const opened_t *opened))
{
    opened_t *next;

    for (opened_t *opened = g_opened; opened; opened = next) {
        next = opened->next;
        if (opened->refs == 0 && may_go(opened))
            remove_opened(opened);
    }
}

void cup_ipc_reap(void)
{
    if (!cup_ipc_has_imports())
        return;
    cup_lock_acquire(&g_one);
    reap_all(is_unused);
    cup_lock_release(&g_one);
}

/* It may have ended, and another one be current. */
static void synchronize(CUcontext ctx)
{
    CUcontext popped;

    if (cup_drv.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
        return;
    cup_drv.cuCtxSynchronize();
    cup_drv.cuCtxPopCurrent_v2(&popped);
}

/* The context's work so far: behind a point, or waited for at once where there are none. */
static void close_off(opened_t *opened)
{
    if (opened->order && cup_order_of(opened->block.ctx) == opened->order) {
        opened->stamp = cup_order_stamp(opened->order);
        return;
    }
    opened->order = NULL;
    synchronize(opened->block.ctx);
}

/* Natively the close has waited. For what can't be waited for, and for long, the mapping stays instead. */
static void wait_for_point(cup_order_t *order, cup_point_t stamp)
{
    if (cup_order_close(order, true) == CUDA_SUCCESS && cup_order_newest(order) >= stamp)
        cup_order_wait(order, stamp);
}

static opened_t *find_open(CUdeviceptr addr)
{
    opened_t *opened = g_opened;

    while (opened && (opened->block.base != addr || opened->refs == 0))
        opened = opened->next;
    return opened;
}

bool cup_ipc_close(CUdeviceptr addr, CUresult *out_result)
{
    cup_order_t *order = NULL;
    cup_point_t stamp = 0;
    opened_t *opened;
    uint64_t start_ns;

    if (!cup_ipc_has_imports())
        return false;
    start_ns = cup_stat_now_ns();
    cup_lock_acquire(&g_one);
    opened = find_open(addr);
    if (opened) {
        cup_lock_acquire(&g_lock);
        opened->refs--;
        cup_lock_release(&g_lock);
        if (opened->refs == 0) {
            close_off(opened);
            order = opened->order;
            stamp = opened->stamp;
        }
    }
    cup_lock_release(&g_one);
    if (!opened)
        return false;
    if (order)
        wait_for_point(order, stamp);
    cup_ipc_reap();
    CUP_STAT_ADD(ipc_closes, 1);
    CUP_STAT_TIME(ipc_close_ns, start_ns);
    *out_result = CUDA_SUCCESS;
    return true;
}

void cup_ipc_end_imports(CUcontext ctx)
{
    if (!cup_ipc_has_imports())
        return;
    cup_lock_acquire(&g_one);
    for (opened_t *opened = g_opened, *next; opened; opened = next) {
        next = opened->next;
        if (opened->block.ctx == ctx)
            remove_opened(opened);
    }
    cup_lock_release(&g_one);
}

/* ---- asking ---- */

bool cup_ipc_find(cup_addr_t addr, cup_ipc_block_t *out_block)
{
    bool is_found = false;

    if (!cup_ipc_has_imports())
        return false;
    cup_lock_acquire(&g_lock);
    for (const opened_t *opened = g_opened; opened && !is_found; opened = opened->next) {
        is_found = opened->refs > 0 && addr - opened->block.base < opened->block.size_bytes;
        if (is_found)
            *out_block = opened->block;
    }
    cup_lock_release(&g_lock);
    return is_found;
}

void cup_ipc_reach(cup_addr_t addr, CUdevice device)
{
    if (!cup_ipc_has_imports())
        return;
    cup_lock_acquire(&g_one);
    for (opened_t *opened = g_opened; opened; opened = opened->next)
        if (opened->refs > 0 && addr - opened->block.base < opened->block.size_bytes)
            (void)grant_to(opened, device);
    cup_lock_release(&g_one);
}

void cup_ipc_follow_peers(CUcontext ctx)
{
    if (!cup_ipc_has_imports())
        return;
    cup_lock_acquire(&g_one);
    for (opened_t *opened = g_opened; opened; opened = opened->next)
        if (opened->refs > 0 && opened->block.ctx == ctx)
            grant_to_peers(opened);
    cup_lock_release(&g_one);
}
