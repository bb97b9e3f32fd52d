/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage - what an event covers, and what the driver's own free waits for, by kinds of work.
 * What:       a line for each row of coverage.h: the code of its submission; whether an event recorded on
 *             the context, and one on the row's own stream, become complete only when the work has
 *             ("covered", "not"); whether a free of memory that has nothing to do with it waits for it
 *             ("waits", "not"). "done": it was when the submission returned. "-": can't be asked. Then
 *             lines on graph nodes, devices and contexts. A row that this machine does not have: "skipped
 *             NAME".
 * Not here:   the pool: this program runs without the preload, on a real driver and on the software one.
 * Invariants: "not" is certain. "covered" and "waits" would also be said of work that ends by itself in
 *             the moment of the question; it takes COVERAGE_US.
 */
#define _GNU_SOURCE
#include "tests/gpu/coverage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES 5

typedef enum { CONTEXT, OWN, FREE, QUESTIONS } question_t;

static const struct row {
    const char *name;
    coverage_submit_t submit;
    unsigned flags;
} g_row[] = {
#define X(name, run, flags) {name, coverage_##run, flags},
    COVERAGE_LIST(X)
#undef X
};

void coverage_late(CUstream stream)
{
    dev_spin(COVERAGE_US, stream);
}

static bool is_done(const coverage_bed_t *bed)
{
    if (bed->asked)
        return cuStreamQuery(bed->asked) == CUDA_SUCCESS;
    return __atomic_load_n(bed->effect, __ATOMIC_ACQUIRE) != 0;
}

static void open_gate(const coverage_bed_t *bed)
{
    __atomic_store_n(bed->gate, 1, __ATOMIC_RELEASE);
}

static const char *covered(bool is_covered)
{
    return is_covered ? "covered" : "not";
}

/* NULL: the work had ended before the record, nobody knows. */
static const char *ask_event(const coverage_bed_t *bed, const struct row *row, CUstream on)
{
    const char *answer = NULL;
    CUresult recorded, query;
    CUevent mark;

    dev_check(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    recorded = on ? cuEventRecord(mark, on) : cuCtxRecordEvent(bed->ctx, mark);
    dev_check(recorded, "the record");
    query = cuEventQuery(mark);
    if (query == CUDA_SUCCESS && !is_done(bed))
        answer = covered(false);
    if (row->flags & COVERAGE_GATED)
        open_gate(bed);
    dev_check(cuEventSynchronize(mark), "cuEventSynchronize");
    if (query == CUDA_ERROR_NOT_READY)
        answer = covered(is_done(bed));
    dev_check(cuEventDestroy(mark), "cuEventDestroy");
    return answer;
}

static const char *ask_free(const coverage_bed_t *bed, CUdeviceptr other)
{
    dev_check(cuMemFree(other), "cuMemFree");
    return is_done(bed) ? "waits" : "not";
}

static void make_bed(coverage_bed_t *bed)
{
    bed->stream = dev_stream();
    bed->own = bed->asked = bed->stream;
    *bed->effect = 0;
    *bed->gate = 0;
}

static void clear_bed(const coverage_bed_t *bed, const struct row *row)
{
    open_gate(bed);
    dev_sync();
    if (row->submit != coverage_stream_destroyed)
        dev_check(cuStreamDestroy(bed->stream), "cuStreamDestroy");
}

static const char *ask_once(coverage_bed_t *bed, const struct row *row, question_t question,
                            CUresult *out_code)
{
    CUdeviceptr other = dev_alloc(4096);
    const char *answer = NULL;

    make_bed(bed);
    *out_code = row->submit(bed);
    if (*out_code != CUDA_SUCCESS)
        answer = "-";
    else if ((question == OWN && !bed->own) || (question == FREE && row->flags & COVERAGE_GATED))
        answer = "-";
    else if (question != FREE && !is_done(bed))
        answer = ask_event(bed, row, question == OWN ? bed->own : NULL);
    else if (!is_done(bed))
        answer = ask_free(bed, other);
    clear_bed(bed, row);
    if (question != FREE || !answer || strcmp(answer, "-") == 0)
        dev_check(cuMemFree(other), "cuMemFree");
    return answer;
}

static const char *ask(coverage_bed_t *bed, const struct row *row, question_t question, CUresult *out_code)
{
    const char *answer = NULL;

    for (int i = 0; i < TRIES && !answer; i++)
        answer = ask_once(bed, row, question, out_code);
    return answer ? answer : "done";
}

static void print_row(coverage_bed_t *bed, const struct row *row)
{
    const char *answer[QUESTIONS];
    CUresult code = CUDA_SUCCESS;

    for (question_t i = CONTEXT; i < QUESTIONS; i++)
        answer[i] = ask(bed, row, i, &code);
    if (code == COVERAGE_ABSENT)
        printf("skipped %s\n", row->name);
    else
        printf("%s submit %d context %s own %s free %s\n", row->name, code, answer[CONTEXT], answer[OWN],
               answer[FREE]);
    fflush(stdout);
}

CUresult coverage_leave_effect(coverage_bed_t *bed, CUstream stream)
{
    dev_fill((CUdeviceptr)bed->effect, 8, 1, stream);
    return CUDA_SUCCESS;
}

/* coverage [NAME]: one row, or all and what is printed at the end. */
int main(int argc, char **argv)
{
    coverage_bed_t bed = {0};

    alarm(300);
    dev_open();
    dev_check(cuCtxGetCurrent(&bed.ctx), "cuCtxGetCurrent");
    bed.from = dev_alloc(COVERAGE_TAIL);
    bed.to = dev_alloc(COVERAGE_TAIL);
    bed.pinned = dev_host_alloc(COVERAGE_TAIL);
    bed.pageable = calloc(1, COVERAGE_TAIL);
    bed.effect = dev_host_alloc(4096);
    bed.gate = dev_host_alloc(4096);
    for (size_t i = 0; i < sizeof(g_row) / sizeof(g_row[0]); i++)
        if (argc < 2 || strcmp(argv[1], g_row[i].name) == 0)
            print_row(&bed, &g_row[i]);
    if (argc < 2) {
        coverage_print_nodes(&bed);
        coverage_print_devices(&bed);
    }
    free(bed.pageable);
    return 0;
}
