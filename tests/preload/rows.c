/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows - every row of the LISTs through every door. rows.sh runs it natively and under the preload, and
 * compares what it prints.
 * What:       look: what each door answers for each name: ours exactly where we export the name, the
 *             driver's own where it is known to be harmless, a stub where nobody has classified it, nothing
 *             where the driver has nothing. call: each row called through each door, in a world of its own
 *             (rows_world.h): the answer, which must be the native one; how often the driver's function was
 *             called; and under the witness (rows_witness.c) that the row's route ran, and what it counted.
 *             unknown: what nobody has classified is called. On a driver that is newer than the LISTs.
 * Usage:      rows look|call|unknown native|taken [symbol]
 * Not here:   what the calls do beyond their codes (the other programs of this folder;
 *             tests/gpu/golden_driver.c).
 */
#define _GNU_SOURCE
#include "tests/preload/rows_world.h"
#include "shim/known_list.h"
#include "shim/submit_list.h"
#include "tests/preload/rows_witness.h"
#include "tests/softcuda/softcuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the rows ---- */

typedef enum {
    HOOK,
    RESOLVER,
    SUBMIT,
    BY_HAND,
    DOUBT,
    COLLECT,
    ASK,
    WAIT,
    JOIN,
    MANAGED,
    RESCUE,
    GRAPH,
    QUERY,
    KNOWN
} kind_t;

typedef struct {
    const char *symbol;
    kind_t kind;
    const void *linked; /* what the linker found; NULL: nothing */
    void *call;         /* fills the parameters and calls g_target */
} row_t;

static void *g_target;
static unsigned g_at;

/* EACH(F, a, b, c): F(a) F(b) F(c). */
#define EACH_1(F, a)                                 F(a)
#define EACH_2(F, a, ...)                            F(a) EACH_1(F, __VA_ARGS__)
#define EACH_3(F, a, ...)                            F(a) EACH_2(F, __VA_ARGS__)
#define EACH_4(F, a, ...)                            F(a) EACH_3(F, __VA_ARGS__)
#define EACH_5(F, a, ...)                            F(a) EACH_4(F, __VA_ARGS__)
#define EACH_6(F, a, ...)                            F(a) EACH_5(F, __VA_ARGS__)
#define EACH_7(F, a, ...)                            F(a) EACH_6(F, __VA_ARGS__)
#define EACH_8(F, a, ...)                            F(a) EACH_7(F, __VA_ARGS__)
#define EACH_9(F, a, ...)                            F(a) EACH_8(F, __VA_ARGS__)
#define EACH_10(F, a, ...)                           F(a) EACH_9(F, __VA_ARGS__)
#define EACH_11(F, a, ...)                           F(a) EACH_10(F, __VA_ARGS__)
#define NTH(a, b, c, d, e, f, g, h, i, j, k, n, ...) EACH_##n
#define PICK(...)                                    NTH(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define EACH(F, ...)                                 __VA_OPT__(PICK(__VA_ARGS__)(F, __VA_ARGS__))
#define BARE(...)                                    __VA_ARGS__
#define EACH_OF(...)                                 EACH(__VA_ARGS__)

/*
 * A row's call has the row's signature, writes its own parameters and hands them on. Whoever calls it need
 * not know the signature: words enough to have a place for each parameter (call_row).
 */
#define FILL(name) rows_fill(row_name, row_params, g_at++, &name, sizeof(name));
#define X(symbol, params, args, ...)                                            \
    extern const char linked_##symbol[] __asm__(#symbol) __attribute__((weak)); \
    static CUresult call_##symbol params                                        \
    {                                                                           \
        static const char row_name[] = #symbol, row_params[] = #params;         \
                                                                                \
        (void)row_name, (void)row_params;                                       \
        g_at = 0;                                                               \
        EACH_OF(FILL, BARE args)                                                \
        return ((CUresult(*) params)g_target)args;                              \
    }
CUP_EXPORT_LIST(X)
#undef X
#define K(symbol) extern const char linked_##symbol[] __asm__(#symbol) __attribute__((weak));
CUP_KNOWN_LIST(K)
#undef K

/* clang-format off */
#define ROW(kind, symbol) {#symbol, kind, linked_##symbol, (void *)call_##symbol},
#define ROW_HOOK(symbol, ...) ROW(HOOK, symbol)
#define ROW_RESOLVER(symbol, ...) ROW(RESOLVER, symbol)
#define ROW_SUBMIT(symbol, ...) ROW(SUBMIT, symbol)
#define ROW_BY_HAND(symbol, ...) ROW(BY_HAND, symbol)
#define ROW_DOUBT(symbol, ...) ROW(DOUBT, symbol)
#define ROW_COLLECT(symbol, ...) ROW(COLLECT, symbol)
#define ROW_ASK(symbol, ...) ROW(ASK, symbol)
#define ROW_WAIT(symbol, ...) ROW(WAIT, symbol)
#define ROW_JOIN(symbol, ...) ROW(JOIN, symbol)
#define ROW_MANAGED(symbol, ...) ROW(MANAGED, symbol)
#define ROW_RESCUE(symbol, ...) ROW(RESCUE, symbol)
#define ROW_GRAPH(symbol, ...) ROW(GRAPH, symbol)
#define ROW_QUERY(symbol, ...) ROW(QUERY, symbol)
#define ROW_KNOWN(symbol) {#symbol, KNOWN, linked_##symbol, NULL},
static const row_t g_rows[] = {
    CUP_HOOK_LIST(ROW_HOOK)
    CUP_RESOLVER_LIST(ROW_RESOLVER)
    CUP_SUBMIT_LIST(ROW_SUBMIT)
    CUP_SUBMIT_HAND_LIST(ROW_BY_HAND)
    CUP_SUBMIT_DOUBT_LIST(ROW_DOUBT)
    CUP_COLLECT_LIST(ROW_COLLECT)
    CUP_ASK_LIST(ROW_ASK)
    CUP_WAIT_LIST(ROW_WAIT)
    CUP_WAIT_CONTEXT_LIST(ROW_WAIT)
    CUP_JOIN_LIST(ROW_JOIN)
    CUP_MANAGED_LIST(ROW_MANAGED)
    CUP_RESCUE_LIST(ROW_RESCUE)
    CUP_GRAPH_LIST(ROW_GRAPH)
    CUP_QUERY_LIST(ROW_QUERY)
    CUP_KNOWN_LIST(ROW_KNOWN)
};
/* clang-format on */
enum { ROWS = sizeof(g_rows) / sizeof(g_rows[0]) };
_Static_assert(ROWS > 600, "a LIST is missing");

/*
 * What the driver's resolver is asked for, so that it answers with the symbol: the software driver's own
 * LISTs.
 */
typedef struct {
    const char *symbol, *name;
    int version;
    bool is_per_thread;
} asked_t;

#define SOFTCUDA_VERSION 13010 /* the newest */
static const asked_t g_asked[] = {
#define SC_ENTRY(symbol, name, version, per_thread, needs) {#symbol, #name, version, per_thread},
#include "tests/softcuda/entry_list.h"
#undef SC_ENTRY
#define SC_STUB(symbol, name, version, per_thread) {#symbol, #name, version, per_thread},
#include "tests/softcuda/stub_list.h"
#undef SC_STUB
};
enum { ASKED = sizeof(g_asked) / sizeof(g_asked[0]) };

static const row_t *find_row(const char *symbol)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(g_rows[i].symbol, symbol) == 0)
            return &g_rows[i];
    return NULL;
}

/* The linker, too, leaves out what it did not find in the software driver. */
static bool is_softcudas(const char *symbol)
{
    for (int i = 0; i < ASKED; i++)
        if (strcmp(g_asked[i].symbol, symbol) == 0)
            return true;
    return false;
}

/* The few names that the software driver has not are asked for as they are. */
static asked_t find_asked(const char *symbol)
{
    for (int i = 0; i < ASKED; i++)
        if (strcmp(g_asked[i].symbol, symbol) == 0)
            return g_asked[i];
    return (asked_t){symbol, symbol, 2000, false};
}

/* ---- the doors ---- */

typedef enum { LINK, HANDLE, DEFAULT, GETPROC, GETPROC_OLD, DOORS } door_t;

static const char *const g_door_names[DOORS] = {"link", "dlsym", "default", "getproc", "getproc-old"};

typedef struct {
    void *address;
    int code, status; /* of the resolver */
} found_t;

typedef CUresult (*resolver_t)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult (*old_resolver_t)(const char *, void **, int, cuuint64_t);

static bool g_is_taken; /* under the preload */
static void *g_driver;

static found_t resolve(const char *symbol, bool is_old)
{
    asked_t asked = find_asked(symbol);
    cuuint64_t flags = asked.is_per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
    found_t found = {.status = -1};

    if (is_old)
        found.code = ((old_resolver_t)dlsym(g_driver, "cuGetProcAddress"))(asked.name, &found.address,
                                                                           asked.version, flags);
    else
        found.code = ((resolver_t)dlsym(g_driver, "cuGetProcAddress_v2"))(asked.name, &found.address,
                                                                          asked.version, flags, &status);
    found.status = (int)status;
    return found;
}

static found_t knock(const row_t *row, door_t door)
{
    switch (door) {
    case LINK:
        return (found_t){.address = (void *)(uintptr_t)row->linked};
    case HANDLE:
        return (found_t){.address = dlsym(g_driver, row->symbol)};
    case DEFAULT:
        return (found_t){.address = dlsym(RTLD_DEFAULT, row->symbol)};
    default:
        return resolve(row->symbol, door == GETPROC_OLD);
    }
}

/*
 * Whether an object whose file name begins so has the address; *out_symbol: its exported symbol there, or
 * "".
 */
static bool is_of(const void *address, const char *library, const char **out_symbol)
{
    const char *slash;
    Dl_info info;

    REQUIRE(dladdr(address, &info) && info.dli_fname);
    *out_symbol = info.dli_saddr == address ? info.dli_sname : "";
    slash = strrchr(info.dli_fname, '/');
    return strncmp(slash ? slash + 1 : info.dli_fname, library, strlen(library)) == 0;
}

/* The name of what a door answered: exported by us if it is in one of our LISTs, else by the driver. */
static const char *place(const void *address)
{
    const char *symbol;
    const row_t *row;
    bool is_driver;

    is_driver = is_of(address, "libcuda.so", &symbol);
    row = find_row(symbol);
    if (is_driver == !(g_is_taken && row && row->kind != KNOWN) &&
        (is_driver || is_of(address, "libcupola", &symbol)))
        return symbol;
    fprintf(stderr, "%s is %s\n", symbol, is_driver ? "the driver's" : "not the driver's");
    _Exit(1);
}

/* ---- what a call must have done under the preload ---- */

enum { STATS = 7 };
static const char *const g_stats[STATS] = {"pool_allocs", "pool_frees", "queries", "points",
                                           "passes",      "waits",      "doubts"};

/* Counters that go up by one for a row of a kind, each named once. */
#define SUBMITS "points passes " /* the order point closes, and the stream goes behind it */
#define WAITS   "points waits "  /* what was freed is complete first */
static const char *const g_kind_counts[] = {
    [SUBMIT] = SUBMITS, [BY_HAND] = SUBMITS, [DOUBT] = "points waits doubts ",
    [COLLECT] = WAITS,  [ASK] = WAITS,       [QUERY] = "queries ",
    [KNOWN] = NULL};

/*
 * X(symbol, under raw, under vmm, calls of the driver's function), where it is not as its kind has it, and
 * one call.
 */
#define EXCEPTION_LIST(X)                                                   \
    X(cuMemAlloc_v2, "pool_allocs ", "pool_allocs ", 0)                     \
    X(cuMemAllocPitch_v2, "pool_allocs ", "pool_allocs ", 0)                \
    X(cuMemFree_v2, "pool_frees ", "pool_frees ", 0)                        \
    X(cuMemFreeAsync, "pool_frees ", "pool_frees ", 0)                      \
    X(cuMemFreeAsync_ptsz, "pool_frees ", "pool_frees ", 0)                 \
    X(cuMemGetAddressRange_v2, "queries ", "queries ", 1)                   \
    X(cuIpcGetMemHandle, WAITS, WAITS, 0)                                   \
    X(cuIpcCloseMemHandle, WAITS, WAITS, 1)                                 \
    X(cuCtxEnablePeerAccess, WAITS, WAITS, 1)                               \
    X(cuCtxDisablePeerAccess, WAITS, WAITS, 1)                              \
    X(cuCtxDetach, WAITS, WAITS, 1)                                         \
    X(cuDevicePrimaryCtxRelease, WAITS, WAITS, 1)                           \
    X(cuDevicePrimaryCtxRelease_v2, WAITS, WAITS, 1)                        \
    X(cuDevicePrimaryCtxReset, WAITS, WAITS, 1)                             \
    X(cuDevicePrimaryCtxReset_v2, WAITS, WAITS, 1)                          \
    X(cuGreenCtxDestroy, WAITS, WAITS, 1)                                   \
    X(cuStreamBeginCapture, "points ", "points ", 1)                        \
    X(cuStreamBeginCapture_ptsz, "points ", "points ", 1)                   \
    X(cuStreamBeginCapture_v2, "points ", "points ", 1)                     \
    X(cuStreamBeginCapture_v2_ptsz, "points ", "points ", 1)                \
    X(cuStreamBeginCaptureToGraph, "points ", "points ", 1)                 \
    X(cuStreamBeginCaptureToGraph_ptsz, "points ", "points ", 1)            \
    X(cuGraphInstantiateWithParams, "", "", 1) /* uploads only if asked */  \
    X(cuGraphInstantiateWithParams_ptsz, "", "", 1)                         \
    X(cuEventQuery, WAITS, WAITS, 2) /* asked again */                      \
    X(cuStreamQuery, WAITS, WAITS, 2)                                       \
    X(cuStreamQuery_ptsz, WAITS, WAITS, 2)                                  \
    X(cuMemGetHandleForAddressRange, "queries " WAITS, "queries " WAITS, 1) \
    X(cuMemHostUnregister, "queries " WAITS, "queries " WAITS, 1)           \
    X(cuMemMap, "", "queries ", 1)                                          \
    X(cuMemUnmap, WAITS, "queries ", 1)                                     \
    X(cuMemSetAccess, WAITS, "queries ", 1)                                 \
    X(cuMemAddressFree, "", "queries ", 1)

typedef struct {
    const char *counts;
    uint64_t calls;
} expected_t;

static expected_t expect(const row_t *row)
{
    const char *backing = getenv("CUPOLA_BACKING"), *counts = g_kind_counts[row->kind];
    bool is_vmm = backing && strcmp(backing, "vmm") == 0;

    if (!g_is_taken)
        return (expected_t){"", 1};
#define X(name, raw, vmm, calls)         \
    if (strcmp(row->symbol, #name) == 0) \
        return (expected_t){is_vmm ? vmm : raw, calls};
    EXCEPTION_LIST(X)
#undef X
    return (expected_t){counts ? counts : "", 1};
}

typedef struct {
    uint64_t calls, ran, stat[STATS];
} counted_t;

static counted_t count(const char *symbol)
{
    counted_t now = {.calls = softcuda_calls(symbol)};

    if (!rows_witness_ran)
        return now;
    now.ran = rows_witness_ran(symbol);
    for (int i = 0; i < STATS; i++)
        now.stat[i] = rows_witness_stat(g_stats[i]);
    return now;
}

static void require_counted(const char *symbol, const char *counts, const counted_t *before,
                            const counted_t *after)
{
    for (int i = 0; i < STATS; i++) {
        const char *named = strstr(counts, g_stats[i]);
        uint64_t least = named && named[strlen(g_stats[i])] == ' ' && (named == counts || named[-1] == ' ');

        if (after->stat[i] - before->stat[i] == least)
            continue;
        fprintf(stderr, "%s counted %s %d times, not %d\n", symbol, g_stats[i],
                (int)(after->stat[i] - before->stat[i]), (int)least);
        _Exit(1);
    }
}

/* ---- call ---- */

/* Calls whatever the row's signature is: the row's call writes its parameters, in registers and here. */
static CUresult call_row(const row_t *row)
{
#define W8 uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t
#define Z8 0, 0, 0, 0, 0, 0, 0, 0
    return ((CUresult(*)(W8, W8, W8, W8))row->call)(Z8, Z8, Z8, Z8);
}

static const row_t *g_row;
static _Atomic bool g_has_returned;

static uint64_t waits_in_driver(void)
{
    return softcuda_calls("cuEventSynchronize") + softcuda_calls("cuStreamSynchronize") +
           softcuda_calls("cuCtxSynchronize") + (g_row->kind == ASK ? 0 : softcuda_calls(g_row->symbol));
}

/*
 * Lets the held stream go once the call waits in the driver, or is over. A question must be asked before.
 */
static void *release(void *unused)
{
    const uint64_t before = *(const uint64_t *)unused;
    const struct timespec while_ = {0, 100000};

    for (int i = 0; i < 100000 && !g_has_returned && waits_in_driver() == before; i++)
        nanosleep(&while_, NULL);
    softcuda_release(g_world.made.stream);
    return NULL;
}

static CUresult call_held(const row_t *row)
{
    uint64_t before;
    pthread_t thread;
    CUresult code;

    g_row = row;
    before = waits_in_driver();
    REQUIRE(pthread_create(&thread, NULL, release, &before) == 0);
    code = call_row(row);
    g_has_returned = true;
    REQUIRE(pthread_join(thread, NULL) == 0);
    return code;
}

/* In a process of its own. */
static void call(const row_t *row, door_t door)
{
    expected_t expected = expect(row);
    counted_t before, after;
    CUresult code;

    g_driver = dlopen("libcuda.so.1", RTLD_NOW);
    rows_make_world(g_is_taken);
    g_target = knock(row, door).address;
    if (!g_target) {
        printf("%s %s missing\n", row->symbol, g_door_names[door]);
        return;
    }
    REQUIRE(strcmp(place(g_target), row->symbol) == 0);
    before = count(row->symbol);
    code = call_held(row);
    after = count(row->symbol);
    printf("%s %s %d\n", row->symbol, g_door_names[door], code);
    if (after.calls - before.calls != expected.calls)
        fprintf(stderr, "%s: the driver's was called %d times\n", row->symbol,
                (int)(after.calls - before.calls));
    REQUIRE(after.calls - before.calls == expected.calls);
    REQUIRE(!rows_witness_ran || after.ran == before.ran + 1);
    if (rows_witness_stat)
        require_counted(row->symbol, expected.counts, &before, &after);
}

/* What nobody has classified: counted when it is called, and the driver's own then. */
static void call_unknown(const row_t *row, door_t door)
{
    bool is_doubted = g_is_taken && strcmp(row->symbol, "cuInit_v2") != 0;
    counted_t before, after;
    CUresult code;

    g_driver = dlopen("libcuda.so.1", RTLD_NOW);
    rows_make_world(false);
    g_target = knock(row, door).address;
    REQUIRE(g_target || door == LINK);
    if (!g_target)
        return;
    before = count(row->symbol);
    code = ((CUresult(*)(void))g_target)();
    after = count(row->symbol);
    printf("%s %s %d\n", row->symbol, g_door_names[door], code);
    REQUIRE(after.calls == before.calls + 1);
    REQUIRE(!rows_witness_stat || after.stat[STATS - 1] == before.stat[STATS - 1] + is_doubted);
}

/* ---- look ---- */

/*
 * What every door says of a name. What the linker found is not printed: a weak reference to what an older
 * driver lacks is nothing natively, and under the preload an entry point of ours, which must then say so.
 */
static void look_at(const row_t *row)
{
    for (door_t door = LINK; door < DOORS; door++) {
        found_t found = knock(row, door);

        const char *symbol = found.address ? place(found.address) : "missing";

        if (door != LINK)
            printf("%s %s %s %d %d\n", row->symbol, g_door_names[door], symbol, found.code, found.status);
    }
    if (!g_is_taken || row->kind == KNOWN)
        return;
    REQUIRE(row->linked || !is_softcudas(row->symbol));
    g_target = (void *)(uintptr_t)row->linked;
    if (g_target && !dlsym(g_driver, row->symbol))
        REQUIRE(call_row(row) == CUDA_ERROR_NOT_SUPPORTED);
}

/* In no LIST, and the driver has it: the same stub by every door but the linker's. */
static void look_at_unknown(const asked_t *asked)
{
    const row_t row = {.symbol = asked->symbol, .kind = KNOWN};
    void *seen = NULL;

    for (door_t door = HANDLE; door < DOORS; door++) {
        found_t found = knock(&row, door);
        const char *symbol = "";

        printf("%s %s %s %d %d\n", asked->symbol, g_door_names[door], found.address ? "found" : "missing",
               found.code, found.status);
        if (strcmp(asked->symbol, "cuInit_v2") == 0) /* newer than a known one: as harmless */
            continue;
        REQUIRE(is_of(found.address, g_is_taken ? "libcupola" : "libcuda.so", &symbol));
        REQUIRE(!g_is_taken == (strcmp(symbol, asked->symbol) == 0));
        REQUIRE(!seen || seen == found.address);
        seen = found.address;
    }
}

static void look(void)
{
    g_driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < ROWS; i++)
        look_at(&g_rows[i]);
    for (int i = 0; i < ASKED; i++)
        if (!find_row(g_asked[i].symbol) && dlsym(g_driver, g_asked[i].symbol))
            look_at_unknown(&g_asked[i]);
}

/* ---- all of them ---- */

#ifdef __SANITIZE_THREAD__ /* a second for each child */
enum { ROW_STEP = 16, DOOR_STEP = 3 };
#else
enum { ROW_STEP = 1, DOOR_STEP = 1 };
#endif

static bool in_child(void (*body)(const row_t *, door_t), const row_t *row, door_t door)
{
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        body(row, door);
        fflush(stdout);
        _exit(0);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    fprintf(stderr, "%s by %s: status %d\n", row->symbol, g_door_names[door], status);
    return false;
}

static bool call_all(const char *only)
{
    bool is_well = true;

    for (int i = 0; i < ROWS; i += ROW_STEP)
        for (door_t door = LINK; door < DOORS; door += DOOR_STEP)
            if (g_rows[i].kind != KNOWN && (!only || strcmp(only, g_rows[i].symbol) == 0))
                is_well &= in_child(call, &g_rows[i], door);
    return is_well;
}

static bool call_all_unknown(void)
{
    bool is_well = true;

    for (int i = 0; i < ASKED; i++) {
        const row_t row = {.symbol = g_asked[i].symbol, .kind = KNOWN};

        for (door_t door = LINK; door < DOORS; door += DOOR_STEP)
            if (!find_row(row.symbol))
                is_well &= in_child(call_unknown, &row, door);
    }
    return is_well;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";

    g_is_taken = argc > 2 && strcmp(argv[2], "taken") == 0;
    if (strcmp(mode, "look") == 0)
        return look(), 0;
    if (strcmp(mode, "call") == 0)
        return !call_all(argc > 3 ? argv[3] : NULL);
    if (strcmp(mode, "unknown") == 0)
        return !call_all_unknown();
    return 2;
}
