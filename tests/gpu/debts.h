/* SPDX-License-Identifier: Apache-2.0 */
/*
 * debts - what a program may take for granted after a free, because the driver's own free waits for all
 * work of the context: one small case each, of programs that are right natively, by luck or by intent.
 * What:       debts NAME runs a case and prints "NAME kept" if the program saw what it would see
 *             natively, or "NAME lost"; debts alone prints the names. debts.sh runs them all, each in a
 *             process of its own, and compares them with debts.expected. A case that hangs is ended by
 *             SIGALRM.
 * Not here:   the pool: this program knows nothing of it. Blocks that change hands at speed (fence.c).
 * Invariants: a kernel that takes DEBTS_SPIN_US is in flight at each free; what decides a case is
 *             bytes, flags and codes, never a time. Whatever could wait for the GPU by itself (pinned
 *             memory, contexts, the first use of a kernel) is done before.
 * Threads:    one, but where a case says so.
 */
#ifndef CUP_GPU_DEBTS_H
#define CUP_GPU_DEBTS_H
#include "bench/dev.h"

/* X(name, function): the function is debts_run_..., in the file that its group says. True: kept. */
/* clang-format off */
#define DEBTS_LIST(X)                                           \
    /* later work, on the device: debts_order.c */              \
    X("later-kernel", later_kernel)                             \
    X("later-sync-copy", later_sync_copy)                       \
    X("later-own-block", later_own_block)                       \
    X("earlier-kernel", earlier_kernel)                         \
    X("destroyed-stream", destroyed_stream)                     \
    X("destroyed-after-free", destroyed_after_free)             \
    X("thread-streams", thread_streams)                         \
    X("programmatic", programmatic)                             \
    X("two-contexts", two_contexts)                             \
    X("two-contexts-own-block", two_contexts_own_block)         \
    X("async-free-elsewhere", async_free_elsewhere)             \
    /* the CPU, by memory: debts_host.c */                      \
    X("d2h-pinned", d2h_pinned)                                 \
    X("d2h-pinned-two-streams", d2h_pinned_two_streams)         \
    X("d2h-pageable", d2h_pageable)                             \
    X("d2h-unified", d2h_unified)                               \
    X("h2d-pinned", h2d_pinned)                                 \
    X("h2d-pageable", h2d_pageable)                             \
    X("set-pinned", set_pinned)                                 \
    X("write-value", write_value)                               \
    X("graph-d2h", graph_d2h)                                   \
    X("graph-h2d", graph_h2d)                                   \
    X("graph-by-hand", graph_by_hand)                           \
    X("host-function", host_function)                           \
    X("stream-callback", stream_callback)                       \
    X("graph-host-function", graph_host_function)               \
    X("managed", managed)                                       \
    X("managed-variable", managed_variable)                     \
    X("pageable", pageable)                                     \
    X("mapped", mapped)                                         \
    /* calls that natively find the GPU done: debts_order.c */  \
    X("event-elapsed", event_elapsed)                           \
    X("stream-query", stream_query)                             \
    X("async-free", async_free)                                 \
    X("unmap-own", unmap_own)                                   \
    X("free-host", free_host)                                   \
    /* programs that natively end: debts_hang.c */              \
    X("hang-malloc", hang_malloc)                               \
    X("hang-partner", hang_partner)                             \
    X("hang-mailbox", hang_mailbox)                             \
    X("hang-wait-value", hang_wait_value)                       \
    X("hang-persistent", hang_persistent)                       \
    X("hang-host-function", hang_host_function)                 \
    X("hang-queue", hang_queue)                                 \
    X("hang-free-async", hang_free_async)                       \
    X("hang-free-async-host", hang_free_async_host)             \
    X("hang-two-threads", hang_two_threads)                     \
    /* two devices */                                           \
    X("peer-kernel", peer_kernel)                               \
    X("hang-peer", hang_peer)
/* clang-format on */

#define DEBTS_DECLARE(name, run) bool debts_run_##run(void);
DEBTS_LIST(DEBTS_DECLARE)
#undef DEBTS_DECLARE

#define DEBTS_SPIN_US 40000
#define DEBTS_BYTES   ((uint64_t)256 << 10) /* of every block that a case looks at */
#define DEBTS_OLD     1                     /* seeds of dev_fill: what must be gone, what must be there */
#define DEBTS_NEW     2

#define DEBTS_CHECK(call) dev_check(call, #call)

/* Pinned words: a flag, 0 until somebody raises it; two buffers of DEBTS_BYTES. */
extern uint64_t *debts_flag, *debts_host, *debts_other;
extern CUmodule debts_module; /* has the variable managed_words */

void *debts_pinned(uint64_t bytes);

/* Whether words have the pattern of a seed; DEBTS_BYTES of them; those of a block, after all work here. */
bool debts_is_filled(const uint64_t *words, uint64_t bytes, uint64_t seed);
bool debts_is_host(const uint64_t *words, uint64_t seed);
bool debts_is_device(CUdeviceptr block, uint64_t seed);
void debts_fill_host(uint64_t *words, uint64_t seed);

/* A kernel that ends when the flag is raised: by the host, or by another kernel. */
void debts_wait_for_flag(CUstream stream);
void debts_raise_flag(void);
void debts_raise_flag_by_kernel(CUstream stream);

/* Two devices that reach each other, the second one joined; or the end of the program, with DEV_SKIP. */
void debts_open_two(void);
void debts_join(int device);
void debts_sync_both(void);

#endif /* CUP_GPU_DEBTS_H */
