/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch_cost - what an empty kernel's launch costs the host, alone and as the first one after a free.
 * What:       nanoseconds a turn, medians over batches, for a launch, for an allocation and its free, and
 *             for both together, on the legacy and on a non-blocking stream. The last lines: a launch, what it costs
 *             more after a free (both together less each alone), after an event of the program (natively what the
 *             driver takes for one), and what the preload adds to it (against launches that go round it).
 * Not here:   the GPU's time: batches are short enough never to fill the launch queue, and the wait behind
 *             each is not timed. Natively the free after a launch waits for it, and that is timed.
 * Invariants: the kinds take turns, batch by batch, so a machine that slows down slows them alike. There is
 *             no output to compare: the hash is constant.
 * Threads:    one, one stream at a time.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <stdio.h>

#define BATCH       500 /* launches; the queue holds 1,021 (measured) */
#define BATCHES_MAX 1000
#define BYTES       4096

enum { LAUNCH, PAIR, BOTH, RECORD, BARE, KINDS };
static const char *const kind_names[KINDS] = {"launch", "alloc+free", "alloc+free+launch", "event+launch",
                                              "bare launch"};

/* Seconds a turn. */
static double time_batch(int kind, CUstream stream)
{
    double start, end;
    dev_launch_bare(kind == BARE);
    start = dev_now_s();
    for (int i = 0; i < BATCH; i++) {
        if (kind == PAIR || kind == BOTH)
            dev_free(dev_alloc(BYTES));
        if (kind == RECORD)
            dev_record(stream);
        if (kind != PAIR)
            dev_spin(0, stream);
    }
    end = dev_now_s();
    dev_launch_bare(false);
    dev_sync();
    return (end - start) / BATCH;
}

/* On one stream; prints the medians. */
static void time_kinds(const char *name, CUstream stream, int batches, double out_s[KINDS])
{
    static double batch_s[KINDS][BATCHES_MAX];
    for (int kind = 0; kind < KINDS; kind++)
        time_batch(kind, stream); /* the first ones of a process are slow */
    for (int i = 0; i < batches; i++)
        for (int kind = 0; kind < KINDS; kind++)
            batch_s[kind][i] = time_batch(kind, stream);
    for (int kind = 0; kind < KINDS; kind++) {
        out_s[kind] = dev_median(batch_s[kind], batches);
        printf("%s,%s,%d,%.1f\n", name, kind_names[kind], batches, out_s[kind] * 1e9);
    }
}

static void report(const char *name, const double time_s[KINDS], uint64_t batches)
{
    char text[64];
    dev_report(name, time_s[LAUNCH], batches, HASH_START);
    snprintf(text, sizeof text, "%s-after-free", name);
    dev_report(text, time_s[BOTH] - time_s[PAIR] - time_s[LAUNCH], batches, HASH_START);
    snprintf(text, sizeof text, "%s-after-event", name);
    dev_report(text, time_s[RECORD] - time_s[LAUNCH], batches, HASH_START);
    snprintf(text, sizeof text, "%s-added", name);
    dev_report(text, time_s[LAUNCH] - time_s[BARE], batches, HASH_START);
}

int main(int argc, char **argv)
{
    double legacy_s[KINDS], stream_s[KINDS];
    uint64_t batches = 0;
    const dev_option_t options[] = {{"--batches", &batches}};
    dev_options(argc, argv, options, 1);
    dev_open();
    batches = batches ? batches : dev_is_simulated() ? 5 : 200;
    batches = batches < BATCHES_MAX ? batches : BATCHES_MAX;
    dev_alloc(BYTES); /* lives on, or the driver would give back what it cuts the others from */
    printf("stream,kind,batches,ns\n");
    time_kinds("legacy", CU_STREAM_LEGACY, (int)batches, legacy_s);
    time_kinds("non-blocking", dev_stream(), (int)batches, stream_s);
    report("launch_cost-legacy", legacy_s, batches);
    report("launch_cost-stream", stream_s, batches);
    return 0;
}
