/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - what the preloaded program tells us: the lines of CUPOLA_STATS and CUPOLA_LOG.
 * What:       a file in memory whose name the program can open, its text, and the sum of its figures.
 * Not here:   the counters and their meaning (shim/stat_list.h).
 */
#ifndef CUP_TOOLS_REPORT_H
#define CUP_TOOLS_REPORT_H
#include "shim/stat_list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No name in any directory, so nothing is left behind however we end. */
typedef struct cup_report {
    int fd;
    char path[64]; /* /proc/<our process>/fd/<fd>: open for whoever runs as the same user while we live */
} cup_report_t;

/* False, said on stderr: the kernel gave none. */
bool cup_report_open(cup_report_t *out_report);
void cup_report_close(cup_report_t *report);

/* All that was written into fd so far, or into a file; the caller frees it. NULL on an error. */
char *cup_report_text(int fd);

/* Of a process that blocks were opened of, over all that opened some; pid 0: of several. */
typedef struct cup_peer_figures {
    uint64_t pid;
#define X(field, meaning) uint64_t field;
    CUP_STAT_PEER_LIST(X)
#undef X
} cup_peer_figures_t;

/* The figures of all lines, added up. */
typedef struct cup_figures {
    unsigned processes; /* lines: each process appends one */
    unsigned peer_count;
    cup_peer_figures_t peers[CUP_STAT_PEERS]; /* the first peer_count */
#define X(field, meaning) uint64_t field;
    CUP_STAT_LIST(X)
    CUP_STAT_POOL_LIST(X)
#undef X
#define X(field, meaning) uint64_t field[CUP_STAT_BUCKETS];
    CUP_STAT_TIME_LIST(X)
#undef X
} cup_figures_t;

/* False when a line is not one of our objects; what was understood is in out_figures all the same. */
bool cup_figures_add_up(const char *text, cup_figures_t *out_figures);

#endif /* CUP_TOOLS_REPORT_H */
