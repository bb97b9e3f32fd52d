/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm - a law: whatever threads, streams, captures and contexts do, nobody meets the work of a block's last owner.
 * Usage:      storm OPERATIONS [THREADS [OPERATION...]]: 0 threads: as many as the dice say; the operations that are named
 *             are left out. CUP_SEED draws the program, SOFTCUDA_SEED the delays, CUPOLA_FREE says what may be expected
 *             of a free (unset: exact, as the driver's own).
 * What:       threads with streams of every kind fill, verify, copy, set and hand over blocks that they own, and free them
 *             with work in flight. It is a right program: work on a block is ordered by its stream, by events, or, where
 *             frees promise it, by a free in between. Natively it must pass as well.
 * Not here:   one behaviour at a time (order.c), what the host and other calls may expect of a free (gpu/debts.h).
 * Invariants: exit 0 only when every call succeeded, every capture came out, no word was wrong on the device or the host,
 *             and the overlap detector saw nothing.
 * Threads:    storm.h. A thread ends with its phase, its worker goes on in another.
 */
#define _GNU_SOURCE
#include "tests/preload/storm.h"
#include <time.h>

storm_t g_storm = {.lock = PTHREAD_MUTEX_INITIALIZER};

void storm_must(CUresult got, const char *call, const char *file, int line)
{
    if (got == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: seed %llu: %s: %d\n", file, line, (unsigned long long)g_storm.seed, call,
            (int)got);
    _Exit(1);
}

/* ---- a worker ---- */

static bool op_nothing(worker_t *w)
{
    return false;
}

static struct {
    const char *name;
    bool (*run)(worker_t *);
    unsigned weight;
    _Atomic uint64_t done;
} g_op[] = {
#define X(name, weight) {#name, storm_op_##name, weight, 0},
    STORM_OPS(X)
#undef X
};

enum {
#define X(name, weight) +weight
    WEIGHTS = 0 STORM_OPS(X)
#undef X
};

/* To find out what a failure needs. */
static void leave_out(const char *name)
{
    bool is_found = false;

    for (size_t i = 0; i < sizeof(g_op) / sizeof(g_op[0]); i++)
        if (strcmp(g_op[i].name, name) == 0) {
            is_found = true;
            g_op[i].run = op_nothing;
        }
    REQUIRE(is_found);
}

static void run_one(worker_t *w)
{
    uint64_t draw = below(w, WEIGHTS);
    size_t i = 0;

    while (draw >= g_op[i].weight)
        draw -= g_op[i++].weight;
    if (!g_op[i].run(w))
        return;
    atomic_fetch_add_explicit(&g_op[i].done, 1, memory_order_relaxed);
    w->done++;
}

/* Its streams stay, but for the thread's own. */
static void *run_worker(void *arg)
{
    worker_t *w = arg;
    bool is_relaxed = one_in(w, 2), is_local = w->phase->has_globals || one_in(w, 2);
    CUstreamCaptureMode mode = is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                               : is_local ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                          : CU_STREAM_CAPTURE_MODE_GLOBAL;

    CU(cuCtxSetCurrent(g_storm.primary));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    for (w->done = 0; w->done < w->quota && softcuda_violations() == 0;)
        run_one(w);
    while (w->capture.stream)
        storm_op_go_on_capturing(w);
    storm_leave_place(w, PER_THREAD, true);
    storm_leave_place(w, LEGACY, false); /* the next phase may be one without */
    atomic_fetch_add(&g_storm.operations, w->done);
    return NULL;
}

static void create_worker(worker_t *w, uint64_t number)
{
    w->rng.state = g_storm.seed * 1000003 + number;
    w->place[LEGACY] = CU_STREAM_LEGACY;
    w->place[PER_THREAD] = CU_STREAM_PER_THREAD;
    w->place[SHARED] = g_storm.shared;
    for (int place = OWN; place < PLACES; place++)
        storm_create_own(w, place);
    CU(cuStreamCreate(&w->branch, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&w->fork, CU_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&w->join, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < SLOTS; i++) {
        CU(cuMemAllocHost(&w->slot[i].host, SLOT_BYTES));
        CU(cuEventCreate(&w->slot[i].event, CU_EVENT_DISABLE_TIMING));
    }
    w->wrong = storm_get_memory(w, sizeof(uint64_t));
    CU(cuMemsetD32(w->wrong, 0, 2));
    CU(cuCtxSynchronize());
}

/* Frees all that it has; returns its wrong words. */
static uint64_t end_worker(worker_t *w)
{
    uint64_t wrong;

    w->phase = NULL;
    for (int i = 0; i < GRAPHS; i++)
        if (w->graph[i].exec)
            storm_drop_graph(&w->graph[i]);
    while (w->count > 0)
        storm_drop_block(w, w->count - 1);
    for (int place = OWN; place < PLACES; place++)
        CU(cuStreamDestroy(w->place[place]));
    CU(cuStreamDestroy(w->branch));
    CU(cuCtxSynchronize());
    storm_settle_slots(w);
    CU(cuMemcpyDtoH(&wrong, w->wrong, sizeof(wrong)));
    storm_free_memory(w, w->wrong);
    return wrong;
}

/* ---- phases ---- */

static phase_t draw_phase(cup_rng_t *rng)
{
    uint64_t draw = cup_rng_next(rng);
    phase_t phase = {.streams = draw % 4 == 0 ? ONE : draw % 4 == 1 ? OWN_ONE : ALL};

    phase.one = draw >> 8 & 1 ? LEGACY : SHARED;
    phase.has_legacy = phase.streams == ONE ? phase.one == LEGACY : phase.streams == ALL && (draw >> 9 & 1);
    phase.has_captures = draw >> 10 & 1;
    phase.has_globals = phase.has_captures && (draw >> 11 & 1);
    return phase;
}

/* A capture that nobody has ended. */
static void end_offer(worker_t *w)
{
    while (g_storm.offer.stream && !storm_op_end_offered(w))
        for (int i = 0; i < w->count; i++)
            if (w->live[i]->pins == 0)
                storm_drop_block(w, i--);
}

static void run_phase(worker_t *workers, unsigned threads, cup_rng_t *rng)
{
    phase_t phase = draw_phase(rng);

    for (unsigned i = 0; i < threads; i++) {
        workers[i].phase = &phase;
        workers[i].quota = PHASE_OPS / 4 + cup_rng_below(rng, PHASE_OPS * 3 / 2);
        REQUIRE(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++)
        REQUIRE(pthread_join(workers[i].thread, NULL) == 0);
    end_offer(&workers[0]);
    for (unsigned i = 0; i < threads; i++)
        workers[i].phase = NULL;
}

static void open_storm(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const char *kept = getenv("CUPOLA_FREE");
    CUmodule module;

    g_storm.is_kept = !kept || strcmp(kept, "exact") == 0 || strcmp(kept, "sync") == 0;
    client_open();
    g_storm.fill = client_fill_kernel;
    CU(cuCtxGetCurrent(&g_storm.primary));
    CU(cuModuleLoadData(&module, "softcuda\nverify\ncopy\n"));
    CU(cuModuleGetFunction(&g_storm.verify, module, "verify"));
    CU(cuModuleGetFunction(&g_storm.copy, module, "copy"));
    CU(cuStreamCreate(&g_storm.shared, g_storm.seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(double seconds, uint64_t wrong)
{
    for (size_t i = 0; i < sizeof(g_op) / sizeof(g_op[0]); i++)
        printf("%s%s %llu", i > 0 ? ", " : "", g_op[i].name, (unsigned long long)atomic_load(&g_op[i].done));
    printf("\n%llu operations, %.0f a second; ", (unsigned long long)atomic_load(&g_storm.operations),
           (double)atomic_load(&g_storm.operations) / seconds);
    printf("%llu claims of blocks in flight; ", (unsigned long long)softcuda_claims_in_flight());
    printf("%llu violations, %llu wrong words on the device, %llu on the host\n",
           (unsigned long long)softcuda_violations(), (unsigned long long)wrong,
           (unsigned long long)atomic_load(&g_storm.host_wrong));
}

int main(int argc, char **argv)
{
    static worker_t workers[THREADS_MAX];
    uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, wrong = 0;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    double begun_s = now_s();
    cup_rng_t rng;

    g_storm.seed = cup_rng_seed(1);
    rng.state = g_storm.seed;
    if (threads == 0)
        threads = 1 + (unsigned)cup_rng_below(&rng, 8);
    REQUIRE(operations > 0 && threads <= THREADS_MAX);
    printf("seed %llu, %u threads\n", (unsigned long long)g_storm.seed, threads);
    fflush(stdout);
    open_storm();
    for (int i = 3; i < argc; i++)
        leave_out(argv[i]);
    for (unsigned i = 0; i < threads; i++)
        create_worker(&workers[i], i);
    while (atomic_load(&g_storm.operations) < operations && softcuda_violations() == 0)
        run_phase(workers, threads, &rng);
    while (g_storm.market_count > 0)
        storm_free_block(&workers[0], g_storm.market[--g_storm.market_count]);
    for (unsigned i = 0; i < threads; i++)
        wrong += end_worker(&workers[i]);
    report(now_s() - begun_s, wrong);
    return softcuda_violations() != 0 || wrong != 0 || atomic_load(&g_storm.host_wrong) != 0;
}
