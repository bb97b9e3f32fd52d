/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: two tables under CUP_LOCK_IPC. `memory`: handles of the driver that back something exported, each
 * with one descriptor, shared by the blocks that it backs. `entry`: exported blocks, found by id (for
 * tokens) and by base (for frees). One export at a time (CUP_LOCK_SHARE): what is made of driver calls is
 * made outside CUP_LOCK_IPC, and nobody makes the same meanwhile.
 */
#define _GNU_SOURCE
#include "shim/ipc_export.h"
#include "allocator/lock.h"
#include "allocator/meta.h"
#include "shim/drv.h"
#include "shim/ipc_file.h"
#include "shim/ipc_server.h"
#include "shim/log.h"
#include "shim/stat.h"
#include <errno.h>
#include <sys/random.h>

#define BUCKETS    512
#define MOURNED_MS 1000 /* a dead borrower's GPU work may run on; how long was not measured */

typedef struct memory {
    struct memory *next;
    uint64_t handle; /* the driver's */
    cup_ipc_part_t part;
    cup_ipc_file_t file;
    unsigned refs; /* entries */
    bool is_over;  /* its context is: the driver may give its handle, and its addresses, to another */
} memory_t;

/* A pool that has exported. */
typedef struct owner {
    struct owner *next;
    cup_pool_t *pool;
    uint64_t range_id;
} owner_t;

typedef memory_t *memory_ref_t;

typedef struct entry {
    struct entry *next_id, *next_base;
    cup_ipc_token_t token;
    cup_pool_t *pool; /* NULL: gone with its context */
    cup_backed_t range;
    uint64_t range_id;
    uint32_t parts;
    bool is_freed;
    bool is_ordered;   /* the free: later work of ours runs after it */
    cup_point_t stamp; /* likewise */
    unsigned loans;
    int group_names;       /* under which a group may open it */
    bool was_abroad;       /* another user has had its descriptors, and may have them still */
    uint32_t room;         /* for that many parts */
    memory_ref_t memory[]; /* of its parts */
} entry_t;

struct cup_ipc_loan {
    struct cup_ipc_loan *next;
    entry_t *entry;
    uint64_t seq;
    uint64_t due_ms; /* mourned: when it ends */
};

_Atomic uint64_t cup_ipc_export_count;

static cup_lock_t g_one = CUP_LOCK_INIT(CUP_LOCK_SHARE); /* exports */
static cup_lock_t g_lock = CUP_LOCK_INIT(CUP_LOCK_IPC);
/* Guarded by g_lock: */
static memory_t *g_memory[BUCKETS];
static entry_t *g_by_id[BUCKETS], *g_by_base[BUCKETS];
static cup_ipc_loan_t *g_mourned;
static owner_t *g_owners;
static uint64_t g_key, g_range_id;

static size_t bucket_of(uint64_t number)
{
    return (size_t)((number * 0x9e3779b97f4a7c15ull) >> 32) % BUCKETS;
}

/* ---- descriptors ---- */

static memory_t *find_memory_locked(const cup_backed_t *backed)
{
    memory_t *memory = g_memory[bucket_of(backed->handle)];

    while (memory &&
           (memory->is_over || memory->handle != backed->handle || memory->part.base != backed->base))
        memory = memory->next;
    return memory;
}

static void put_memory_locked(memory_t *memory)
{
    memory_t **at = &g_memory[bucket_of(memory->handle)];

    if (--memory->refs > 0)
        return;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    cup_ipc_file_close(&memory->file);
    cup_meta_free(memory, sizeof *memory);
}

/* What the driver says then is not what it is about. */
static void tell_full(void)
{
    int probe = open("/", O_PATH | O_CLOEXEC);
    struct rlimit limit;

    if (probe >= 0)
        close(probe);
    else if (errno == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        cup_log(CUP_LOG_ERROR,
                "no descriptors left (ulimit -n is %llu): a block that is exported takes one for each driver "
                "handle behind it",
                (unsigned long long)limit.rlim_cur);
}

static CUresult export_handle(uint64_t handle, cup_ipc_file_t *out_file)
{
    int fd;
    CUresult result =
        cup_drv.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

    if (result != CUDA_SUCCESS) {
        tell_full();
        return result;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    *out_file = cup_ipc_file_adopt(fd);
    return CUDA_SUCCESS;
}

/* A reference to the memory behind one handle: what is there, or new. */
static CUresult acquire_memory(const cup_backed_t *backed, memory_t **out_memory)
{
    memory_t *memory;
    CUresult result;

    cup_lock_acquire(&g_lock);
    memory = find_memory_locked(backed);
    if (memory)
        memory->refs++;
    cup_lock_release(&g_lock);
    *out_memory = memory;
    if (memory)
        return CUDA_SUCCESS;
    memory = cup_meta_alloc(sizeof *memory);
    result = memory ? export_handle(backed->handle, &memory->file) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        cup_meta_free(memory, sizeof *memory);
        return result;
    }
    memory->handle = backed->handle;
    memory->refs = 1;
    cup_lock_acquire(&g_lock);
    memory->part = (cup_ipc_part_t){++g_key, backed->base, backed->size_bytes};
    memory->next = g_memory[bucket_of(memory->handle)];
    g_memory[bucket_of(memory->handle)] = memory;
    cup_lock_release(&g_lock);
    *out_memory = memory;
    return CUDA_SUCCESS;
}

/* ---- entries ---- */

static entry_t *find_id_locked(uint64_t id)
{
    entry_t *entry = g_by_id[bucket_of(id)];

    while (entry && entry->token.id != id)
        entry = entry->next_id;
    return entry;
}

static void insert_locked(entry_t *entry)
{
    size_t id = bucket_of(entry->token.id), base = bucket_of(entry->token.base);

    entry->next_id = g_by_id[id];
    g_by_id[id] = entry;
    entry->next_base = g_by_base[base];
    g_by_base[base] = entry;
}

static void remove_locked(entry_t *entry)
{
    entry_t **by_id = &g_by_id[bucket_of(entry->token.id)],
            **by_base = &g_by_base[bucket_of(entry->token.base)];

    while (*by_id != entry)
        by_id = &(*by_id)->next_id;
    *by_id = entry->next_id;
    while (*by_base != entry)
        by_base = &(*by_base)->next_base;
    *by_base = entry->next_base;
}

static void put_parts(entry_t *entry)
{
    cup_lock_acquire(&g_lock);
    for (uint32_t i = 0; i < entry->parts; i++)
        put_memory_locked(entry->memory[i]);
    cup_lock_release(&g_lock);
}

static size_t entry_bytes(uint32_t room)
{
    return sizeof(entry_t) + room * sizeof(memory_ref_t);
}

static void destroy_entry(entry_t *entry)
{
    cup_meta_free(entry, entry_bytes(entry->room));
    atomic_fetch_sub_explicit(&cup_ipc_export_count, 1, memory_order_relaxed);
}

/*
 * Freed, or its context gone, and on loan to nobody: the block can be handed out again. But not where another user
 * would see what comes next in it: then it stays in quarantine until its context ends.
 */
static void drop_if_done_locked(entry_t *entry)
{
    if (!entry->is_freed || entry->loans > 0)
        return;
    remove_locked(entry);
    for (uint32_t i = 0; i < entry->parts; i++)
        put_memory_locked(entry->memory[i]);
    if (entry->pool && !entry->was_abroad)
        (entry->is_ordered ? cup_pool_unmark_ordered : cup_pool_unmark)(entry->pool, entry->token.base,
                                                                        CUP_MARK_LENT, entry->stamp);
    destroy_entry(entry);
}

/* ---- exporting ---- */

/* The number of what the pool has now; 0: no host memory. */
static uint64_t acquire_range_id(cup_pool_t *pool)
{
    owner_t *owner;
    uint64_t id = 0;

    cup_lock_acquire(&g_lock);
    for (owner = g_owners; owner && owner->pool != pool;)
        owner = owner->next;
    if (!owner && (owner = cup_meta_alloc(sizeof *owner))) {
        *owner = (owner_t){.next = g_owners, .pool = pool, .range_id = ++g_range_id};
        g_owners = owner;
    }
    if (owner)
        id = owner->range_id;
    cup_lock_release(&g_lock);
    return id;
}

static void forget_owner_locked(const cup_pool_t *pool)
{
    owner_t **at = &g_owners, *owner;

    while ((owner = *at) && owner->pool != pool)
        at = &owner->next;
    if (!owner)
        return;
    *at = owner->next;
    cup_meta_free(owner, sizeof *owner);
}

/* How many handles the block touches, which are all backed while it is live; 0 if it is not in a range. */
static uint32_t count_parts(const cup_block_info_t *block)
{
    uint32_t parts = 0;
    cup_backed_t backed;

    for (cup_addr_t at = block->base; at < block->base + block->size_bytes; parts++) {
        if (!cup_pool_find_backed(block->pool, at, &backed))
            return 0;
        at = backed.base + backed.size_bytes;
    }
    return parts;
}

static CUresult acquire_parts(const cup_block_info_t *block, entry_t *entry)
{
    CUresult result = CUDA_SUCCESS;

    for (cup_addr_t at = block->base; result == CUDA_SUCCESS && entry->parts < entry->room;) {
        if (!cup_pool_find_backed(block->pool, at, &entry->range))
            return CUDA_ERROR_INVALID_VALUE;
        result = acquire_memory(&entry->range, &entry->memory[entry->parts]);
        entry->parts += result == CUDA_SUCCESS;
        at = entry->range.base + entry->range.size_bytes;
    }
    return result;
}

static CUresult fill_token(const cup_block_info_t *block, int device, cup_ipc_token_t *out_token)
{
    *out_token = (cup_ipc_token_t){.magic = CUP_IPC_MAGIC,
                                   .version = CUP_IPC_VERSION,
                                   .device = (uint16_t)device,
                                   .exporter = cup_ipc_server_name(),
                                   .id = block->serial,
                                   .base = block->base,
                                   .size_bytes = block->size_bytes,
                                   .pid = (int32_t)getpid()};
    if (getrandom(out_token->secret, sizeof out_token->secret, 0) != sizeof out_token->secret)
        return CUDA_ERROR_OPERATING_SYSTEM;
    out_token->check = cup_ipc_token_check(out_token);
    return CUDA_SUCCESS;
}

/* The block is marked. On an error nothing is held. */
static CUresult make_entry(const cup_block_info_t *block, int device, entry_t **out_entry)
{
    uint32_t room = count_parts(block);
    entry_t *entry = cup_meta_alloc(entry_bytes(room));
    CUresult result;

    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add_explicit(&cup_ipc_export_count, 1, memory_order_relaxed);
    entry->pool = block->pool;
    entry->room = room;
    entry->range_id = acquire_range_id(block->pool);
    result = room > 0 ? fill_token(block, device, &entry->token) : CUDA_ERROR_INVALID_VALUE;
    if (entry->range_id == 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = acquire_parts(block, entry);
    if (result == CUDA_SUCCESS) {
        *out_entry = entry;
        return CUDA_SUCCESS;
    }
    put_parts(entry);
    destroy_entry(entry);
    return result;
}

static bool find_token(uint64_t id, CUipcMemHandle *out_handle)
{
    bool is_found;

    cup_lock_acquire(&g_lock);
    entry_t *entry = find_id_locked(id);
    is_found = entry && !entry->is_freed;
    if (is_found)
        memcpy(out_handle, &entry->token, sizeof entry->token);
    cup_lock_release(&g_lock);
    return is_found;
}

/* A free that ran meanwhile found no entry: it is told here. */
static void publish(entry_t *entry, cup_order_t *order)
{
    uint64_t id = entry->token.id;
    cup_addr_t base = entry->token.base;
    cup_block_info_t now;

    cup_lock_acquire(&g_lock);
    insert_locked(entry);
    cup_lock_release(&g_lock);
    if (cup_pool_find(base, &now) && now.serial == id)
        return;
    cup_lock_acquire(&g_lock);
    entry = find_id_locked(id);
    if (entry && !entry->is_freed) {
        entry->is_freed = true;
        entry->stamp = order ? cup_order_stamp(order) : 0;
        drop_if_done_locked(entry);
    }
    cup_lock_release(&g_lock);
}

/* One thread at a time. */
static CUresult export_new(const cup_block_info_t *block, int device, cup_order_t *order,
                           CUipcMemHandle *out_handle)
{
    cup_ipc_reason_t reason = cup_ipc_server_start();
    entry_t *entry;
    CUresult result;

    if (reason != CUP_IPC_OK) {
        cup_log(CUP_LOG_ERROR, "no IPC handle for a pooled block: %s", cup_ipc_reason_text(reason));
        return cup_ipc_reason_code(reason);
    }
    if (cup_pool_mark(block->pool, block->base, CUP_MARK_LENT) != CUP_OK)
        return CUDA_ERROR_INVALID_VALUE;
    result = make_entry(block, device, &entry);
    if (result != CUDA_SUCCESS) {
        cup_log(CUP_LOG_ERROR,
                "no IPC handle for a pooled block of %llu bytes: its memory can't be exported (%d)",
                (unsigned long long)block->size_bytes, (int)result);
        cup_pool_unmark(block->pool, block->base, CUP_MARK_LENT, order ? cup_order_stamp(order) : 0);
        return result;
    }
    CUP_STAT_ADD(ipc_exports, 1);
    memcpy(out_handle, &entry->token, sizeof entry->token);
    publish(entry, order);
    return CUDA_SUCCESS;
}

CUresult cup_ipc_export(const cup_block_info_t *block, int device, cup_order_t *order,
                        CUipcMemHandle *out_handle)
{
    uint64_t start_ns = cup_stat_now_ns();
    CUresult result = CUDA_SUCCESS;

    if (!find_token(block->serial, out_handle)) {
        cup_lock_acquire(&g_one);
        if (!find_token(block->serial, out_handle))
            result = export_new(block, device, order, out_handle);
        cup_lock_release(&g_one);
    }
    if (result == CUDA_SUCCESS)
        CUP_STAT_TIME(ipc_get_ns, start_ns);
    return result;
}

void cup_ipc_note_free_slow(cup_pool_t *pool, cup_addr_t base, cup_point_t stamp, bool is_ordered)
{
    entry_t *entry;

    cup_lock_acquire(&g_lock);
    entry = g_by_base[bucket_of(base)];
    while (entry && (entry->token.base != base || entry->pool != pool || entry->is_freed))
        entry = entry->next_base;
    if (entry) {
        entry->is_freed = true;
        entry->stamp = stamp;
        entry->is_ordered = is_ordered;
        drop_if_done_locked(entry);
    }
    cup_lock_release(&g_lock);
}

static void end_entry_locked(entry_t *entry)
{
    for (uint32_t i = 0; i < entry->parts; i++)
        entry->memory[i]->is_over = true;
    entry->pool = NULL;
    entry->is_freed = true;
    drop_if_done_locked(entry);
}

/*
 * Borrowers keep the memory, by their own references to it; its addresses and handles mean nothing any more.
 */
void cup_ipc_end_exports(cup_pool_t *pool)
{
    if (cup_ipc_server_name() == 0)
        return;
    cup_lock_acquire(&g_lock);
    forget_owner_locked(pool);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (entry_t *entry = g_by_id[i], *next; entry; entry = next) {
            next = entry->next_id;
            if (entry->pool == pool)
                end_entry_locked(entry);
        }
    }
    cup_lock_release(&g_lock);
}

bool cup_ipc_look_up(uint64_t id, cup_ipc_token_t *out_token, uint32_t *out_loans)
{
    bool is_found;

    cup_lock_acquire(&g_lock);
    const entry_t *entry = find_id_locked(id);
    is_found = entry && !entry->is_freed;
    if (is_found) {
        *out_token = entry->token;
        *out_loans = entry->loans;
    }
    cup_lock_release(&g_lock);
    return is_found;
}

bool cup_ipc_publish(uint64_t id, int names)
{
    bool is_found;

    cup_lock_acquire(&g_lock);
    entry_t *entry = find_id_locked(id);
    is_found = entry && !entry->is_freed;
    if (is_found)
        entry->group_names += names;
    cup_lock_release(&g_lock);
    return is_found;
}

/* ---- loans: the server's thread ---- */

static cup_ipc_loan_t *find_loan(const cup_ipc_borrower_t *borrower, uint64_t seq)
{
    cup_ipc_loan_t *loan = borrower->loans;

    while (loan && loan->seq != seq)
        loan = loan->next;
    return loan;
}

static void end_loan_locked(cup_ipc_loan_t *loan)
{
    loan->entry->loans--;
    drop_if_done_locked(loan->entry);
    cup_meta_free(loan, sizeof *loan);
}

static void end_loan(cup_ipc_borrower_t *borrower, uint64_t seq)
{
    cup_ipc_loan_t **at = &borrower->loans, *loan;

    while (*at && (*at)->seq != seq)
        at = &(*at)->next;
    loan = *at;
    if (!loan)
        return;
    *at = loan->next;
    cup_lock_acquire(&g_lock);
    end_loan_locked(loan);
    cup_lock_release(&g_lock);
}

/* Takes as long for a wrong secret as for the right one. */
static bool is_secret(const uint8_t *one, const uint8_t *other)
{
    uint8_t difference = 0;

    for (int i = 0; i < CUP_IPC_SECRET_BYTES; i++)
        difference |= one[i] ^ other[i];
    return difference == 0;
}

static void describe_locked(const entry_t *entry, uint32_t first, uint32_t count, cup_ipc_reply_t *out_reply)
{
    out_reply->range_base = entry->range.range_base;
    out_reply->range_bytes = entry->range.range_bytes;
    out_reply->range_id = entry->range_id;
    out_reply->base = entry->token.base;
    out_reply->size_bytes = entry->token.size_bytes;
    out_reply->parts = entry->parts;
    out_reply->first = first;
    for (uint32_t i = first; i < entry->parts && out_reply->count < count; i++)
        out_reply->part[out_reply->count++] = entry->memory[i]->part;
}

static void lend(cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request, cup_ipc_reply_t *out_reply)
{
    cup_ipc_loan_t *loan = cup_meta_alloc(sizeof *loan);
    entry_t *entry;

    cup_lock_acquire(&g_lock);
    entry = find_id_locked(request->id);
    if (!loan) {
        out_reply->reason = CUP_IPC_NOMEM;
    } else if (!entry || entry->is_freed || !is_secret(entry->token.secret, request->secret) ||
               find_loan(borrower, request->seq) || (borrower->is_foreign && entry->group_names == 0)) {
        out_reply->reason = CUP_IPC_REFUSED;
    } else {
        entry->loans++;
        entry->was_abroad |= borrower->is_foreign;
        *loan = (cup_ipc_loan_t){.next = borrower->loans, .entry = entry, .seq = request->seq};
        borrower->loans = loan;
        describe_locked(entry, 0, CUP_IPC_PAGE, out_reply);
        loan = NULL;
    }
    cup_lock_release(&g_lock);
    cup_meta_free(loan, sizeof *loan);
}

/* What is on loan stays in the table, and its descriptors with it, also when it is freed meanwhile. */
static void show(const cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request,
                 cup_ipc_reply_t *out_reply, int *out_fds, uint32_t *out_fd_count)
{
    const cup_ipc_loan_t *loan = find_loan(borrower, request->loan);
    uint32_t count = request->count < CUP_IPC_PAGE ? request->count : CUP_IPC_PAGE;

    if (!loan) {
        out_reply->reason = CUP_IPC_REFUSED;
        return;
    }
    cup_lock_acquire(&g_lock);
    describe_locked(loan->entry, request->first, count, out_reply);
    for (uint32_t i = 0; request->verb == CUP_IPC_FETCH && i < out_reply->count; i++) {
        const memory_t *memory = loan->entry->memory[request->first + i];

        if (!cup_ipc_file_is_ours(&memory->file))
            out_reply->reason = CUP_IPC_REFUSED;
        out_fds[i] = memory->file.fd;
        *out_fd_count = i + 1;
    }
    cup_lock_release(&g_lock);
    if (out_reply->reason != CUP_IPC_OK)
        *out_fd_count = 0;
}

bool cup_ipc_answer(cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request,
                    cup_ipc_reply_t *out_reply, int out_fds[CUP_IPC_PAGE], uint32_t *out_fd_count)
{
    memset(out_reply, 0, sizeof *out_reply);
    out_reply->magic = CUP_IPC_MAGIC;
    out_reply->version = CUP_IPC_VERSION;
    out_reply->seq = request->seq;
    *out_fd_count = 0;
    if (request->verb == CUP_IPC_CLOSE) {
        end_loan(borrower, request->loan);
        return false;
    }
    if (request->verb == CUP_IPC_OPEN)
        lend(borrower, request, out_reply);
    else
        show(borrower, request, out_reply, out_fds, out_fd_count);
    return true;
}

void cup_ipc_unanswered(cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request)
{
    if (request->verb == CUP_IPC_OPEN)
        end_loan(borrower, request->seq);
}

void cup_ipc_bereave(cup_ipc_borrower_t *borrower, uint64_t now_ms)
{
    cup_ipc_loan_t *loan;

    cup_lock_acquire(&g_lock);
    while ((loan = borrower->loans)) {
        borrower->loans = loan->next;
        loan->due_ms = now_ms + MOURNED_MS;
        loan->next = g_mourned;
        g_mourned = loan;
    }
    cup_lock_release(&g_lock);
}

int cup_ipc_forgive(uint64_t now_ms)
{
    uint64_t next_ms = UINT64_MAX;
    cup_ipc_loan_t **at = &g_mourned, *loan;

    cup_lock_acquire(&g_lock);
    while ((loan = *at)) {
        if (loan->due_ms <= now_ms) {
            *at = loan->next;
            end_loan_locked(loan);
            continue;
        }
        if (loan->due_ms < next_ms)
            next_ms = loan->due_ms;
        at = &loan->next;
    }
    cup_lock_release(&g_lock);
    return next_ms == UINT64_MAX ? -1 : (int)(next_ms - now_ms);
}
