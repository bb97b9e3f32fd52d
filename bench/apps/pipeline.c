/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline - a program that allocates and frees in every step, on four streams, and never waits for a free
 * on purpose.
 * What:       per step: fill a block, copy it to a second one, free the first; check and hash the second,
 *             copy its head back, free it. All is queued; a stream is waited for only before its next step.
 * Not here:   anything that knows about cupola.
 * Invariants: sizes and contents depend on the step alone, so every run must return the same bytes. A block
 *             handed to a new owner too early shows as mismatches, which fail the run.
 * Threads:    one, four streams.
 */
#include "bench/dev.h"
#include "bench/apps/hash.h"
#include <stdio.h>
#include <stdlib.h>

#define STREAMS    4
#define HEAD_BYTES UINT64_C(65536) /* of each block, copied back to the host */
#define MIN_LOG2   12

typedef struct pipeline {
    CUstream streams[STREAMS];
    CUdeviceptr hashes;     /* one word per step: of the whole block */
    CUdeviceptr mismatches; /* one word per stream */
    char *heads;            /* HEAD_BYTES per step, pinned */
    uint64_t steps;
    uint64_t max_bytes;
} pipeline_t;

/* Log-distributed from 4 KiB to max_bytes, a multiple of 8. */
static uint64_t step_bytes(const pipeline_t *pipe, uint64_t step)
{
    uint64_t random = hash_word(HASH_START, step);
    uint64_t octaves = 63 - (uint64_t)__builtin_clzll(pipe->max_bytes) - MIN_LOG2;
    uint64_t low = UINT64_C(1) << (MIN_LOG2 + random % octaves);
    return low + (((random >> 8) % low) & ~UINT64_C(7));
}

static uint64_t head_bytes(uint64_t bytes)
{
    return bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
}

static void run_step(pipeline_t *pipe, uint64_t step)
{
    CUstream stream = pipe->streams[step % STREAMS];
    uint64_t bytes = step_bytes(pipe, step);
    CUdeviceptr input = dev_alloc(bytes), output = dev_alloc(bytes);
    dev_fill(input, bytes, step, stream);
    dev_copy(output, input, bytes, stream);
    dev_free(input);
    dev_verify(output, bytes, step, pipe->mismatches + 8 * (step % STREAMS), stream);
    dev_hash(output, bytes, pipe->hashes + 8 * step, stream);
    dev_read_async(pipe->heads + HEAD_BYTES * step, output, head_bytes(bytes), stream);
    dev_free(output);
}

static double run_pass(pipeline_t *pipe)
{
    dev_zero(pipe->hashes, 8 * pipe->steps, NULL);
    dev_zero(pipe->mismatches, 8 * STREAMS, NULL);
    dev_sync();
    double start = dev_now_s();
    for (uint64_t step = 0; step < pipe->steps; step++) {
        dev_stream_sync(pipe->streams[step % STREAMS]);
        run_step(pipe, step);
    }
    dev_sync();
    return dev_now_s() - start;
}

static uint64_t collect_hash(const pipeline_t *pipe, uint64_t hash)
{
    uint64_t words[STREAMS], wrong = 0;
    uint64_t *hashes = dev_host_alloc(8 * pipe->steps);
    dev_read(words, pipe->mismatches, sizeof words);
    for (int i = 0; i < STREAMS; i++)
        wrong += words[i];
    if (wrong) {
        fprintf(stderr, "pipeline: %llu words were not what their owner had written\n",
                (unsigned long long)wrong);
        exit(1);
    }
    dev_read(hashes, pipe->hashes, 8 * pipe->steps);
    hash = hash_bytes(hash, hashes, 8 * pipe->steps);
    for (uint64_t step = 0; step < pipe->steps; step++)
        hash = hash_bytes(hash, pipe->heads + HEAD_BYTES * step, head_bytes(step_bytes(pipe, step)));
    return hash;
}

int main(int argc, char **argv)
{
    enum { PASSES = 4 }; /* the first warms up */
    pipeline_t pipe = {0};
    double times[PASSES];
    uint64_t hash = HASH_START;
    const dev_option_t options[] = {{"--steps", &pipe.steps}, {"--bytes", &pipe.max_bytes}};
    dev_options(argc, argv, options, 2);
    dev_open();
    pipe.steps = pipe.steps ? pipe.steps : dev_is_simulated() ? 100 : 400;
    pipe.max_bytes = pipe.max_bytes ? pipe.max_bytes : dev_is_simulated() ? 128 << 10 : 4 << 20;
    pipe.max_bytes = pipe.max_bytes < (2 << MIN_LOG2) ? 2 << MIN_LOG2 : pipe.max_bytes;
    for (int i = 0; i < STREAMS; i++)
        pipe.streams[i] = dev_stream();
    pipe.hashes = dev_alloc(8 * pipe.steps);
    pipe.mismatches = dev_alloc(8 * STREAMS);
    pipe.heads = dev_host_alloc(HEAD_BYTES * pipe.steps);
    for (int pass = 0; pass < PASSES; pass++) {
        times[pass] = run_pass(&pipe);
        hash = collect_hash(&pipe, hash);
    }
    dev_report("pipeline", dev_median(times + 1, PASSES - 1), PASSES - 1, hash);
    return 0;
}
