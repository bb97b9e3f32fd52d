/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks - processes that share a GPU and peak one after the other: each takes 40 % of the memory and
 *         frees it before the next one does. Natively there is room for all.
 * What:       ranks: a line for each rank with the code of its allocation, and whether it holds more than
 *             a twentieth of the memory afterwards, as another process sees it.
 * Not here:   a test on the software driver, where each process has a device of its own. For a GPU:
 *             tests/gpu/reports.sh.
 */
#include "tests/reports/other.h"

enum { RANKS = 4 };

static void peak(const other_t *teller)
{
    CUdeviceptr block = 0;
    uint64_t bytes;
    int code;

    report_open();
    report_use(MIB, 0, NULL);
    MUST(cuCtxSynchronize());
    other_tell(teller, &(int){0}, sizeof code);
    while (recv(teller->fd, &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes) {
        code = (int)cuMemAlloc(&block, bytes);
        if (code == CUDA_SUCCESS)
            report_free(block);
        other_tell(teller, &code, sizeof code);
    }
}

int main(void)
{
    other_t rank[RANKS];
    uint64_t before, peak_bytes, total;
    int code;

    for (int i = 0; i < RANKS; i++)
        rank[i] = other_start(peak);
    report_open();
    for (int i = 0; i < RANKS; i++)
        other_hear(&rank[i], &code, sizeof code); /* everybody's context is there */
    total = report_total();
    peak_bytes = total / 100 * 40;
    for (int i = 0; i < RANKS; i++) {
        before = report_free_memory();
        other_tell(&rank[i], &peak_bytes, sizeof peak_bytes);
        other_hear(&rank[i], &code, sizeof code);
        printf("rank %d code %d keeps %d\n", i, code, report_free_memory() + total / 20 < before);
    }
    for (int i = 0; i < RANKS; i++)
        close(rank[i].fd);
    for (int i = 0; i < RANKS; i++)
        REQUIRE(waitpid(rank[i].pid, NULL, 0) == rank[i].pid);
    return 0;
}
