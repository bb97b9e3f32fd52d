/* SPDX-License-Identifier: Apache-2.0 */
/* stat - `cupola stat FILE`: a file that CUPOLA_STATS wrote, for people. How: the rows of the LISTs, summed
 * over its lines. */
#include "tools/report.h"
#include "tools/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nothing of what never happened. */
static void print_times(const char *field, const char *meaning, const uint64_t *buckets)
{
    uint64_t calls = 0;

    for (unsigned i = 0; i < CUP_STAT_BUCKETS; i++)
        calls += buckets[i];
    if (calls == 0)
        return;
    printf("%16" PRIu64 "  %-20s  %s\n", calls, field, meaning);
    for (unsigned i = 0; i < CUP_STAT_BUCKETS; i++) {
        bool is_last = i + 1 == CUP_STAT_BUCKETS;
        uint64_t ns = UINT64_C(1) << (is_last ? i : i + 1);

        if (buckets[i] > 0)
            printf("%16" PRIu64 "      %s %.*f us\n", buckets[i], is_last ? "from" : "below",
                   ns < 10000 ? 3 : 0, (double)ns / 1000);
    }
}

static void print_peer(const cup_peer_figures_t *peer)
{
    if (peer->pid)
        printf("%16s  of process %" PRIu64 "\n", "", peer->pid);
    else
        printf("%16s  of all further processes\n", "");
#define X(field, meaning) printf("%16" PRIu64 "      %-18s  %s\n", peer->field, #field, meaning);
    CUP_STAT_PEER_LIST(X);
#undef X
}

static void print_figures(const cup_figures_t *sum)
{
    printf("%16u  processes\n", sum->processes);
#define X(field, meaning) printf("%16" PRIu64 "  %-20s  %s\n", sum->field, #field, meaning);
    CUP_STAT_LIST(X);
    CUP_STAT_POOL_LIST(X);
#undef X
#define X(field, meaning) print_times(#field, meaning, sum->field);
    CUP_STAT_TIME_LIST(X);
#undef X
    for (unsigned i = 0; i < sum->peer_count; i++)
        print_peer(&sum->peers[i]);
}

int cup_verb_stat(int argc, char **argv)
{
    cup_figures_t sum;
    char *text;
    int fd;
    bool is_good;

    if (argc != 2 || argv[1][0] == '-') {
        cup_tool_say("usage: cupola stat FILE (one that CUPOLA_STATS=FILE wrote)");
        return CUP_EXIT_OWN;
    }
    fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    text = fd >= 0 ? cup_report_text(fd) : NULL;
    if (!text) {
        cup_tool_say("%s: %s", argv[1], strerror(errno));
        return CUP_EXIT_OWN;
    }
    close(fd);
    is_good = cup_figures_add_up(text, &sum);
    free(text);
    print_figures(&sum);
    if (!is_good)
        cup_tool_say("%s: some lines are not from CUPOLA_STATS", argv[1]);
    return is_good && sum.processes > 0 ? CUP_EXIT_OK : CUP_EXIT_PROBLEM;
}
