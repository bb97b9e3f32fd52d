/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_export - blocks of this process that others may open.
 * What:       the table behind the tokens that this process has given out: the descriptors of the memory
 *             behind each block, made inside the program's own call, and who has borrowed it.
 * Not here:   sockets (ipc_server.h).
 * Invariants: a block in the table is marked CUP_MARK_LENT. Freed, it stays where it is until nobody has it
 *             on loan; from the free on its token opens nothing. The memory of a context that has ended is
 *             forgotten at once.
 * Threads:    any thread. The functions for the server's thread make no driver call, and take no lock that
 *             is held during one.
 */
#ifndef CUP_SHIM_IPC_EXPORT_H
#define CUP_SHIM_IPC_EXPORT_H
#include "allocator/pool.h"
#include "shim/cuda_abi.h"
#include "shim/ipc_wire.h"
#include "shim/order.h"
#include <stdatomic.h>

/* ---- the program's calls ---- */

/*
 * The token of a live block of a range, the same one each time. Errors: CUDA_ERROR_INVALID_VALUE when it is
 * not live any more; the driver's code of an export that failed; those of ipc_list.h, with a line.
 */
CUresult cup_ipc_export(const cup_block_info_t *block, int device, cup_order_t *order,
                        CUipcMemHandle *out_handle);

/* Exports in the table: one load. */
extern _Atomic uint64_t cup_ipc_export_count;

/* Slow half of the next one. */
void cup_ipc_note_free_slow(cup_pool_t *pool, cup_addr_t base, cup_point_t stamp, bool is_ordered);

/*
 * After the pool has freed a block: one that was exported is freed for others once nobody has it, in the
 * same way.
 */
static inline void cup_ipc_note_free(cup_pool_t *pool, cup_addr_t base, cup_point_t stamp, bool is_ordered)
{
    if (atomic_load_explicit(&cup_ipc_export_count, memory_order_relaxed) > 0)
        cup_ipc_note_free_slow(pool, base, stamp, is_ordered);
}

/* The context has ended, and its blocks with it. Before the pool goes. */
void cup_ipc_end_exports(cup_pool_t *pool);

/* The token of an export whose block is live, and how many have it on loan. False: there is none. */
bool cup_ipc_look_up(uint64_t id, cup_ipc_token_t *out_token, uint32_t *out_loans);

/* One more name, or one less, under which a group may open it. False: as before. */
bool cup_ipc_publish(uint64_t id, int names);

/* ---- the server's thread ---- */

typedef struct cup_ipc_loan cup_ipc_loan_t;

/* What one connection has borrowed. */
typedef struct cup_ipc_borrower {
    cup_ipc_loan_t *loans;
    bool is_foreign; /* of another user: is lent what is published to a group (cup_ipc_publish) */
} cup_ipc_borrower_t;

/*
 * Answers one request of a borrower: fills the reply, and the descriptors that go with it, which stay ours.
 * CLOSE has no answer: false.
 */
bool cup_ipc_answer(cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request,
                    cup_ipc_reply_t *out_reply, int out_fds[CUP_IPC_PAGE], uint32_t *out_fd_count);

/* The answer could not be sent: nothing was lent. */
void cup_ipc_unanswered(cup_ipc_borrower_t *borrower, const cup_ipc_request_t *request);

/*
 * The connection has ended with loans open: the process died, and its GPU work may run on for a moment.
 * They end after that (cup_ipc_forgive).
 */
void cup_ipc_bereave(cup_ipc_borrower_t *borrower, uint64_t now_ms);

/*
 * Ends the loans of those that have been dead long enough. Returns the time until the next, or -1 for none.
 */
int cup_ipc_forgive(uint64_t now_ms);

#endif /* CUP_SHIM_IPC_EXPORT_H */
