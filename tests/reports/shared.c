/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared - a loop that allocates a buffer, sends it to another process by an IPC handle, and frees it.
 * What:       shared CASE. closing: the receiver closes each one; memory does not grow. keeping: it keeps
 *             them open, as caches of communication libraries did; what they hold comes back when they
 *             close.
 * Not here:   blocks that can't be exported under raw (below CUPOLA_DEDICATED): tests/preload/ipc.c.
 */
#include "tests/reports/other.h"

enum { BYTES = (REPORT_ROUNDS(6) + 2) << 20, KEPT = 40 };

typedef struct {
    CUipcMemHandle handle;
    unsigned tag;
    int is_last;
} message_t;

static int g_kept; /* how many the receiver keeps open */

static void receive(const other_t *sender)
{
    CUdeviceptr open[KEPT + 1] = {0};
    message_t message;
    int next = 0;

    report_open();
    do {
        CUdeviceptr *place = &open[next++ % (g_kept + 1)];

        if (*place)
            MUST(cuIpcCloseMemHandle(*place));
        other_hear(sender, &message, sizeof message);
        MUST(cuIpcOpenMemHandle(place, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        report_look(*place, BYTES, message.tag, NULL);
        report_tag(*place, BYTES, message.tag + 1, NULL);
        MUST(cuCtxSynchronize());
        if (g_kept == 0 || message.is_last)
            for (int i = 0; i <= g_kept; i++) {
                if (open[i])
                    MUST(cuIpcCloseMemHandle(open[i]));
                open[i] = 0;
            }
        other_tell(sender, &message, sizeof message);
    } while (!message.is_last);
}

static void rounds(int count, int kept)
{
    other_t receiver;
    uint64_t held = 0;

    g_kept = kept;
    receiver = other_start(receive);
    report_open();
    for (int i = 0; i < count; i++) {
        message_t message = {.tag = (unsigned)i, .is_last = i == count - 1};
        CUdeviceptr block = report_alloc(BYTES);

        report_tag(block, BYTES, message.tag, NULL);
        MUST(cuCtxSynchronize());
        MUST(cuIpcGetMemHandle(&message.handle, block));
        other_tell(&receiver, &message, sizeof message);
        other_hear(&receiver, &message, sizeof message);
        report_look(block, BYTES, message.tag + 1, NULL);
        report_free(block);
        if (i == count / 10)
            held = report_free_memory();
    }
    other_end(&receiver);
    report_free(report_alloc(BYTES)); /* a loan that has ended is noticed by the next allocation */
    REQUIRE(report_free_memory() + 4 * BYTES >= held);
    /* raw: what was exported goes back to the driver */
    report_close((uint64_t)count + 1, (uint64_t)(kept + 5) * BYTES,
                 report_is_vmm() ? report_calls_for((uint64_t)(kept + 5) * BYTES) : (uint64_t)count + 1);
    if (report_is_vmm())
        report_counter("ipc_exports", (uint64_t)count, (uint64_t)count);
}

static void closing(void)
{
    rounds(REPORT_ROUNDS(100), 0);
}

static void keeping(void)
{
    rounds(KEPT, KEPT);
}

#define SHARED_LIST(X) X(closing) X(keeping)

CASES_MAIN(SHARED_LIST)
