/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a section for each LIST; what a row says of its call (where, what about memory of the host) is the
 * row's own expression, put in words. Rows of one function in several ABI versions that say the same are
 * one line. What an answered call answers is written here, a row of TREATMENT_LIST each: a hook without one
 * is an error, so that a test fails.
 */
#include "tools/gen_docs.h"
#include "shim/cuda_abi.h"
#include "shim/known_list.h"
#include "shim/submit_list.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *symbol, *cell[3]; /* as they are shown */
} row_t;

/* ---- names ---- */

/*
 * The length of the name without what only tells ABI versions apart: _ptsz or _ptds, then _v and a digit.
 */
static int family_length(const char *symbol)
{
    size_t length = strlen(symbol);

    if (length > 5 &&
        (strcmp(symbol + length - 5, "_ptsz") == 0 || strcmp(symbol + length - 5, "_ptds") == 0))
        length -= 5;
    if (length > 3 && memcmp(symbol + length - 3, "_v", 2) == 0)
        length -= 3;
    return (int)length;
}

static bool is_same_cell(const char *one, const char *other)
{
    return one == other || (one && other && strcmp(one, other) == 0);
}

static bool is_same_line(const row_t *one, const row_t *other)
{
    int length = family_length(one->symbol);

    if (family_length(other->symbol) != length || memcmp(one->symbol, other->symbol, (size_t)length) != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (!is_same_cell(one->cell[i], other->cell[i]))
            return false;
    return true;
}

/* A line of the table for the row and all that go with it, unless an earlier row had them. */
static void print_line(const row_t *rows, int count, int at, int columns)
{
    int length = family_length(rows[at].symbol);
    const char *comma = "";

    for (int i = 0; i < at; i++)
        if (is_same_line(&rows[i], &rows[at]))
            return;
    printf("| `%.*s` | ", length, rows[at].symbol);
    for (int i = at; i < count; i++) {
        if (!is_same_line(&rows[i], &rows[at]))
            continue;
        printf(rows[i].symbol[length] ? "%s`%s`" : "%splain%s", comma, rows[i].symbol + length);
        comma = ", ";
    }
    for (int i = 0; i < columns; i++)
        printf(" | %s", rows[at].cell[i]);
    printf(" |\n");
}

static void print_table(const row_t *rows, int count, int columns, const char *head)
{
    printf("\n| entry point | ABI versions |%s\n|---|---|", head);
    for (int i = 0; i < columns; i++)
        printf("---|");
    printf("\n");
    for (int i = 0; i < count; i++)
        print_line(rows, count, i, columns);
}

/* ---- what a row says, in words ---- */

/* Of the place. */
static const char *in_words_where(const char *place)
{
    if (strstr(place, "cup_place_at"))
        return "the one that the argument points to";
    return strstr(place, "(NULL)") ? "the null stream" : "the argument";
}

/*
 * W(in the expression, in words), the first that is there: when it may read or write memory of the host, as
 * far as points go.
 */
#define HOST_WORDS_LIST(W)                                                         \
    W("CUP_SUBMIT_BLOCKING", "done when it returns")                               \
    W("CUP_SUBMIT_HOST", "later")                                                  \
    W("CUP_SUBMIT_MARK", "no: an event")                                           \
    W("cup_graph_rule", "later, where a node of the graph does ([free](free.md))") \
    W("cup_rule_touch", "later, where the address is the host's")                  \
    W("cup_rule_either_side", "no: done or staged when it returns")                \
    W("cup_rule_either", "later, where an address is the host's")                  \
    W("cup_rule_memops", "later, where an address is the host's")                  \
    W("cup_rule_copy_2d", "by the sides that it names")                            \
    W("cup_rule_copy_3d", "by the sides that it names")                            \
    W("cup_rule_copy_peer", "by the sides that it names")                          \
    W("cup_rule_batch", "later, whatever the addresses")

static const char *in_words_host(const char *rule)
{
#define W(sign, words)      \
    if (strstr(rule, sign)) \
        return words;
    HOST_WORDS_LIST(W)
#undef W
    return "no";
}

/* What else is done about a call that may touch memory of another context than its stream's. */
static const char *in_words_far(const char *rule, const char *far)
{
    bool is_copy =
        strstr(rule, "side") || strstr(rule, "either") || strstr(rule, "_copy_") || strstr(rule, "_batch");

    if (strstr(rule, "CUP_SUBMIT_EVERYWHERE"))
        return far[0] ? "any; Peer form" : "any";
    if (far[0])
        return "noted; Peer form";
    return is_copy ? "noted" : "no";
}

/* ---- what answered calls answer ---- */

/* T(function, treatment, what it answers). */
#define TREATMENT_LIST(T)                                                                                    \
    T(cuMemAlloc, "pooled",                                                                                  \
      "a free block; else one driver allocation for many; out of memory, what is idle goes back, and at "    \
      "last the driver answers")                                                                             \
    T(cuMemAllocPitch, "pooled",                                                                             \
      "the first of each width and element size is the driver's and tells the pitch; later ones are blocks " \
      "with that pitch")                                                                                     \
    T(cuMemFree, "pooled",                                                                                   \
      "a block of ours returns at once and marks its context; anything else is the driver's")                \
    T(cuMemFreeAsync, "pooled",                                                                              \
      "a block of ours waits until all is done that was submitted before; nobody waits for it. Anything "    \
      "else is the driver's, as a submission")                                                               \
    T(cuMemGetInfo, "translated",                                                                            \
      "the driver's code; free memory counts what the pool could hand out, as after native frees")           \
    T(cuMemGetAddressRange, "translated",                                                                    \
      "the block; of a freed one, what the driver says of an address that nobody has")                       \
    T(cuIpcGetMemHandle, "translated",                                                                       \
      "under `vmm` a token for any block; under `raw` a block that is a driver allocation of its own, 801 "  \
      "for others")                                                                                          \
    T(cuIpcOpenMemHandle, "translated",                                                                      \
      "a token maps the block of its exporter; a handle of the driver's is the driver's")                    \
    T(cuIpcCloseMemHandle, "translated", "the last close of a token's block unmaps it; else the driver's")   \
    T(cuMemPoolCreate, "observed", "a pool of managed memory: frees wait from then on")                      \
    T(cuMemGetDefaultMemPool, "observed", "the same, of the default pools")                                  \
    T(cuMemGetMemPool, "observed", "the same, of the current pools")                                         \
    T(cuCtxDestroy, "observed",                                                                              \
      "the context's pool ends with it; what the driver took along is not freed again")                      \
    T(cuCtxDetach, "observed", "the same, with the last use")                                                \
    T(cuDevicePrimaryCtxRetain, "observed",                                                                  \
      "references are counted: who gives back the last one ends the context")                                \
    T(cuDevicePrimaryCtxRelease, "observed", "as a destroy, with the last reference")                        \
    T(cuDevicePrimaryCtxReset, "observed", "as a destroy")                                                   \
    T(cuGreenCtxCreate, "observed", "a part of its device's primary context: the same pool")                 \
    T(cuGreenCtxDestroy, "observed", "its streams end")                                                      \
    T(cuCtxEnablePeerAccess, "observed", "under `vmm` the pools' memory is opened to the other device")      \
    T(cuCtxDisablePeerAccess, "observed", "under `vmm` closed again")                                        \
    T(cuStreamBeginCapture, "observed", "a capture begins: the stream's last point before it is recorded")   \
    T(cuStreamBeginCaptureToGraph, "observed", "the same")                                                   \
    T(cuStreamEndCapture, "observed", "a capture ends")                                                      \
    T(cuStreamDestroy, "observed", "the stream's work is kept in mind, its handle forgotten")

static const char *treatment(const char *symbol, bool is_kind)
{
    size_t length = (size_t)family_length(symbol);

#define T(function, kind, answer)                                               \
    if (strlen(#function) == length && strncmp(#function, symbol, length) == 0) \
        return is_kind ? kind : answer;
    TREATMENT_LIST(T)
#undef T
    return NULL;
}

/* ---- the rows ---- */

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

static const row_t g_hooks[] = {
#define X(symbol, ...) {#symbol, {NULL, NULL, NULL}},
    CUP_HOOK_LIST(X)
#undef X
};

/* A row's far copy may hold commas. */
#define X(symbol, params, args, place, rule, ...) {#symbol, {#place, #rule, "" __VA_OPT__("far")}},
static const row_t g_submits[] = {CUP_SUBMIT_LIST(X)};
#undef X

/* Sections without columns of their own. */
#define X(symbol, ...) {#symbol, {NULL, NULL, NULL}},
static const row_t g_resolvers[] = {CUP_RESOLVER_LIST(X)};
static const row_t g_by_hand[] = {CUP_SUBMIT_HAND_LIST(X)};
static const row_t g_doubts[] = {CUP_SUBMIT_DOUBT_LIST(X)};
static const row_t g_collects[] = {CUP_COLLECT_LIST(X)};
static const row_t g_asks[] = {CUP_ASK_LIST(X)};
static const row_t g_waits[] = {CUP_WAIT_LIST(X) CUP_WAIT_CONTEXT_LIST(X)};
static const row_t g_joins[] = {CUP_JOIN_LIST(X)};
static const row_t g_managed[] = {CUP_MANAGED_LIST(X)};
static const row_t g_rescues[] = {CUP_RESCUE_LIST(X)};
static const row_t g_graph_makes[] = {CUP_GRAPH_MAKE_LIST(X) CUP_GRAPH_UPDATE_LIST(X)};
static const row_t g_graph_changes[] = {CUP_GRAPH_CHANGE_LIST(X)};
static const row_t g_query_hand[] = {CUP_QUERY_HAND_LIST(X)};
static const row_t g_query_asks[] = {CUP_QUERY_ASK_LIST(X)};
static const row_t g_query_maps[] = {CUP_QUERY_MAP_LIST(X)};
#undef X
#define K(symbol) {#symbol, {NULL, NULL, NULL}},
static const row_t g_known[] = {CUP_KNOWN_LIST(K)};
#undef K

/* S(rows, treatment, section, what is done, where it is tested), in the order of the page. */
#define SECTION_LIST(S)                                                                                      \
    S(g_by_hand, "observed", "Submissions with a body of their own",                                         \
      "Launches that may have to go without an attribute that lets them start early, one launch on several " \
      "streams, an instantiation that may upload.",                                                          \
      "order.c, graphs.c")                                                                                   \
    S(g_doubts, "observed", "Submissions to a whole context",                                                \
      "They name no stream, so what was freed before is complete first, and the context counts as one with " \
      "work that nobody follows.",                                                                           \
      "doubted.c")                                                                                           \
    S(g_collects, "observed", "Calls that notice",                                                           \
      "They unmap, export or end what work may be using, or tell times: what was freed before is complete "  \
      "first, as the native frees had waited for it.",                                                       \
      "order.c, ../gpu/fence.c")                                                                             \
    S(g_asks, "observed", "Questions that may be early",                                                     \
      "Answered \"not ready\", they are asked again once what was freed before is complete; an error that "  \
      "they tell, the pool learns.",                                                                         \
      "order.c, cases.c")                                                                                    \
    S(g_waits, "observed", "Waits",                                                                          \
      "After one the stream, or the context, is known to be idle; an error that it tells, the pool learns.", \
      "order.c, cases.c")                                                                                    \
    S(g_joins, "observed", "Waits on the device",                                                            \
      "While a capture is in progress one may make its stream a part of it: the stream's last point before " \
      "that is recorded.",                                                                                   \
      "order.c")                                                                                             \
    S(g_managed, "observed", "Memory that the CPU uses without a call",                                      \
      "If what they hand out is managed memory, frees wait from then on.", "order.c")                        \
    S(g_rescues, "observed", "Memory beside the pools",                                                      \
      "Where the driver has none, what the pools hold idle goes back, and it is asked once more. So it is "  \
      "with submissions (but those with a body of their own), the first pitch of a width, and managed "      \
      "memory.",                                                                                             \
      "rescue.c")                                                                                            \
    S(g_graph_makes, "observed", "Executable graphs made and updated",                                       \
      "The graph is looked at: may it touch memory of the host? Its launches count so.", "graphs.c")         \
    S(g_graph_changes, "observed", "Executable graphs changed",                                              \
      "From then on it counts as one that may, unless the change can't.", "graphs.c")                        \
    S(g_query_hand, "translated", "Questions about an address",                                              \
      "The code is the driver's; of a block of ours, the answer is the block's ([queries](queries.md)).",    \
      "query.c, ../gpu/query_probe.c")                                                                       \
    S(g_query_asks, "translated", "Questions that a mapping answers otherwise",                              \
      "Of a block of ours the driver is asked at memory of its own `cuMemAlloc`, or at an address that "     \
      "nobody has.",                                                                                         \
      "query.c, ../gpu/query_probe.c")                                                                       \
    S(g_query_maps, "translated", "Mappings that would change hands",                                        \
      "On addresses of ours, under `vmm`: what the driver says of an address that nobody has reserved.",     \
      "query.c, ../gpu/query_probe.c")                                                                       \
    S(g_resolvers, "translated", "Look-ups",                                                                 \
      "The driver's own answer; where it is the address of an entry point above, ours instead. So a "        \
      "look-up fails as natively, at every version and flag.",                                               \
      "doors.c, newer.c, ../softcuda/lookups.c")

/* ---- the page ---- */

static const char HEAD[] =
    "<!-- Made by tools/gen_interception.c from the LISTs: change those, then build the target docs. -->\n"
    "# Every entry point, and what becomes of it\n"
    "\n"
    "The driver's API as the toolkit's headers have it (`cuda.h`, those for OpenGL, EGL, VDPAU and\n"
    "the profiler; CUDA 13.0), every ABI version. The lint `api_list.py` finds a name that is in none\n"
    "of the LISTs, or in two.\n"
    "\n"
    "| | entry points | treatment |\n"
    "|---|---|---|\n";

static const char LEGEND[] =
    "\n"
    "*Pooled*: served from memory that the pool holds. *Translated*: the driver's code, our answer.\n"
    "*Observed*: the driver's own call with the program's arguments; around it we keep the order that\n"
    "native frees give. *Passed*: not touched, the driver's address at every door. What a newer\n"
    "driver has and no LIST names is answered with a stub: the call counts as work on all streams\n"
    "(`doubts`).\n"
    "\n"
    "Each is held at three doors: the exported symbol, `dlsym` and `cuGetProcAddress` in both its\n"
    "ABIs. [rows.c](../tests/preload/rows.c), made of the same LISTs, calls every row at every door:\n"
    "the address is ours, the row's route ran (a counter at the seam), the counters of what it did,\n"
    "how often the driver's own function was called, and the code, which is the native one. Sections\n"
    "name what tests the rest; names without a folder are in [tests/preload](../tests/preload).\n"
    "\n"
    "Linked weakly, an entry point that an older driver lacks is null natively; here it is there and\n"
    "answers 801. `dlsym` and `cuGetProcAddress` miss it as natively.\n"
    "\n"
    "*ABI versions*: what follows the name in the exported symbol; *plain*: nothing. `_ptsz` and\n"
    "`_ptds` are those of programs built with a default stream for each thread: their null stream is\n"
    "the thread's. The 32-bit versions of memory calls can't carry our addresses.\n";

static const char SUBMITS_HEAD[] =
    "\n"
    "## Submissions\n"
    "\n"
    "Observed. The call that comes first after a free closes the order point, and its stream goes\n"
    "behind it on the device ([free](free.md)). A call on a stream that captures submits nothing, and\n"
    "is let through: the launch of the graph is the submission ([captures](captures.md)). *Host\n"
    "memory*: whether the work may read or write memory of the host after the call, which a later\n"
    "free must wait for. *Other contexts*: whether it may touch their memory. *Noted*: the addresses\n"
    "are looked at, and a context whose memory it is waits for the copy; *any*: it counts as work of\n"
    "every context; *Peer form*: where the copying device can't reach the memory (`vmm`), the copy is\n"
    "made as one between peers. Tests: order.c, storm.c, graphs.c, peer.c, ../softcuda/detector.c.\n";

static void print_counts(void)
{
    int exported = 0;

#define S(rows, kind, title, text, tests) exported += COUNT(rows);
    SECTION_LIST(S)
#undef S
    exported += COUNT(g_hooks) + COUNT(g_submits);
    printf("| answered, or followed | %d | pooled, translated, observed |\n", COUNT(g_hooks));
    printf("| submissions | %d | observed |\n", COUNT(g_submits));
#define S(rows, kind, title, text, tests) \
    printf("| %c%s | %d | %s |\n", title[0] | 32, title + 1, COUNT(rows), kind);
    SECTION_LIST(S)
#undef S
    printf("| others | %d | passed |\n", COUNT(g_known));
    printf("| **all** | **%d** | **%d held at the doors** |\n", exported + COUNT(g_known), exported);
}

/* False: a hook that nobody has described. */
static bool print_hooks(void)
{
    row_t rows[COUNT(g_hooks)];

    for (int i = 0; i < COUNT(g_hooks); i++) {
        rows[i] = g_hooks[i];
        rows[i].cell[0] = treatment(rows[i].symbol, true);
        rows[i].cell[1] = treatment(rows[i].symbol, false);
        if (!rows[i].cell[0])
            return fprintf(stderr, "gen_docs: nobody has described %s\n", rows[i].symbol), false;
    }
    printf("\n## Answered, or followed\n\nTests: cases.c, faults.c, contexts.c, peer.c, ipc.c, order.c "
           "(captures), query.c.\n");
    print_table(rows, COUNT(g_hooks), 2, " treatment | what is answered, or done |");
    return true;
}

static void print_submits(void)
{
    row_t rows[COUNT(g_submits)];

    for (int i = 0; i < COUNT(g_submits); i++) {
        const char *const *said = g_submits[i].cell;

        rows[i] = (row_t){g_submits[i].symbol,
                          {in_words_where(said[0]), in_words_host(said[1]), in_words_far(said[1], said[2])}};
    }
    fputs(SUBMITS_HEAD, stdout);
    print_table(rows, COUNT(g_submits), 3, " stream | host memory | other contexts |");
}

/* "cuMem" of cuMemAlloc. */
static int area_length(const char *symbol)
{
    int length = 3;

    while (symbol[length] >= 'a' && symbol[length] <= 'z')
        length++;
    return length;
}

static bool is_same_area(const row_t *one, const row_t *other)
{
    int length = area_length(one->symbol);

    return area_length(other->symbol) == length && memcmp(one->symbol, other->symbol, (size_t)length) == 0;
}

static void print_area(int at)
{
    for (int i = 0; i < at; i++)
        if (is_same_area(&g_known[i], &g_known[at]))
            return;
    printf("| `%.*s` |", area_length(g_known[at].symbol), g_known[at].symbol);
    for (int i = at; i < COUNT(g_known); i++)
        if (is_same_area(&g_known[i], &g_known[at]))
            printf(" `%s`", g_known[i].symbol);
    printf(" |\n");
}

bool print_interception(void)
{
    fputs(HEAD, stdout);
    print_counts();
    fputs(LEGEND, stdout);
    if (!print_hooks())
        return false;
    print_submits();
#define S(rows, kind, title, text, tests)                     \
    printf("\n## %s\n\n%s Tests: %s.\n", title, text, tests); \
    print_table(rows, COUNT(rows), 0, "");
    SECTION_LIST(S)
#undef S
    printf("\n## Passed\n\nThey put no work on a stream. A newer ABI version of one is taken to be as "
           "harmless, unless another of its "
           "versions is held.\n\n| begins with | entry points |\n|---|---|\n");
    for (int i = 0; i < COUNT(g_known); i++)
        print_area(i);
    return true;
}
