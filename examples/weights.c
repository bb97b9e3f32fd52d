/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights - N inference processes, one set of weights: one copy on the device.
 *
 *     weights [PROCESSES [MIB]]        one copy: published by the first process, opened by the others
 *     weights copies [PROCESSES [MIB]] a copy in each process, as without cupola
 *
 * The loader allocates, fills and publishes. The others open by name, for reading only: no bytes are copied,
 * and a stray write of one can't spoil the weights of all. Each "infers": it reads all of the weights through
 * the device, into a buffer of its own, and hashes what it read; the hashes must be that of the bytes which
 * the loader had in host memory. What the device holds is what a process without cupola is told by
 * cuMemGetInfo; the software driver is one device for each process, so there the figures of all are added up.
 */
#define _GNU_SOURCE
#include "examples/common.h"
#include "preload/cupola.h"

enum { PIECE = 1 << 20 };

typedef struct board {
    pthread_barrier_t meeting;
    char name[CUPOLA_NAME_MAX];
    uint64_t used[PROCESSES_MAX]; /* by each process's own figure */
    uint64_t hash[PROCESSES_MAX];
    uint64_t expected;
    size_t bytes;
    int processes, has_copies;
} board_t;

static uint64_t used_here(void)
{
    size_t idle, total;

    OK(cuMemGetInfo(&idle, &total));
    return total - idle;
}

/* `weights used`: of a process without cupola. */
static int print_used(void)
{
    open_cuda();
    printf("%llu\n", (unsigned long long)used_here());
    return 0;
}

static uint64_t used_on_device(void)
{
    char self[4096] = "", command[4200];
    unsigned long long used = 0;
    FILE *out;

    check(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "no /proc/self/exe");
    snprintf(command, sizeof command, "env -u LD_PRELOAD '%s' used", self);
    out = popen(command, "r");
    check(out && fscanf(out, "%llu", &used) == 1, "the process that asks for the figure failed");
    pclose(out);
    return used;
}

/* All processes call it; the parent gets the figure. */
static uint64_t take_figure(board_t *board, int self, int is_simulated)
{
    uint64_t sum = 0;

    board->used[self] = used_here();
    meet(&board->meeting);
    for (int i = 0; i < board->processes; i++)
        sum += board->used[i];
    if (self == 0 && !is_simulated)
        sum = used_on_device();
    meet(&board->meeting);
    return sum;
}

/* What the file with the weights would hold: the same for everybody. */
static void make_piece(uint64_t *piece, uint64_t number)
{
    for (uint64_t i = 0; i < PIECE / 8; i++)
        piece[i] = (number * PIECE / 8 + i + 1) * 0x9e3779b97f4a7c15ull;
}

static CUdeviceptr load(board_t *board)
{
    uint64_t *piece = malloc(PIECE), hash = 0;
    CUdeviceptr weights;

    check(piece != NULL, "no host memory");
    OK(cuMemAlloc(&weights, board->bytes));
    for (uint64_t i = 0; i < board->bytes / PIECE; i++) {
        make_piece(piece, i);
        hash = hash_bytes(piece, PIECE, hash);
        OK(cuMemcpyHtoD(weights + i * PIECE, piece, PIECE));
    }
    board->expected = hash; /* the same in all */
    free(piece);
    return weights;
}

/* Reads everything, through a buffer of its own on the device. */
static uint64_t infer(CUdeviceptr weights, size_t bytes, CUdeviceptr buffer)
{
    uint64_t *piece = malloc(PIECE), hash = 0;

    check(piece != NULL, "no host memory");
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        OK(cuMemcpyDtoD(buffer, weights + at, PIECE));
        OK(cuMemcpyDtoH(piece, buffer, PIECE));
        hash = hash_bytes(piece, PIECE, hash);
    }
    free(piece);
    return hash;
}

/* The loader's own, the one opened, or a copy. */
static CUdeviceptr have_weights(board_t *board, int self, CUdeviceptr own)
{
    cupola_block_t block;

    if (board->has_copies)
        return self == 0 ? own : load(board);
    if (self == 0)
        return own;
    OK(cupola_open(board->name, CUPOLA_READ_ONLY, CUPOLA_MYSELF, &block));
    check(block.size_bytes == board->bytes, "the block has another size");
    return block.address;
}

static void drop_weights(board_t *board, int self, CUdeviceptr weights)
{
    if (board->has_copies || self == 0)
        OK(cuMemFree(weights));
    else
        OK(cupola_close(weights));
}

static int report(const board_t *board, uint64_t before, uint64_t after, int is_simulated)
{
    uint64_t copies = board->has_copies ? (uint64_t)board->processes : 1;
    double mib = (double)board->bytes / (1 << 20), grown = ((double)after - (double)before) / (1 << 20);
    int wrong = 0;

    for (int i = 0; i < board->processes; i++)
        wrong += board->hash[i] != board->expected;
    printf("processes %d, weights %.0f MiB, device memory grew by %.0f MiB: %.2f copies%s; hash %016llx, "
           "wrong in %d\n",
           board->processes, mib, grown, grown / mib, is_simulated ? " (simulated)" : "",
           (unsigned long long)board->expected, wrong);
    return wrong == 0 && grown > ((double)copies - 0.5) * mib && grown < ((double)copies + 0.5) * mib;
}

static int run(board_t *board, int self)
{
    int is_simulated = open_cuda(), is_good = 1;
    CUdeviceptr buffer, weights = 0;
    uint64_t before, after;

    OK(cuMemAlloc(&buffer, PIECE)); /* the pool is there before anything is measured */
    OK(cuMemsetD8(buffer, 0, PIECE));
    OK(cuCtxSynchronize());
    before = take_figure(board, self, is_simulated);
    if (self == 0)
        weights = load(board);
    if (self == 0 && !board->has_copies)
        OK(cupola_publish(board->name, weights, CUPOLA_READ_ONLY, CUPOLA_NO_GROUP));
    meet(&board->meeting);
    weights = have_weights(board, self, weights);
    after = take_figure(board, self, is_simulated);
    board->hash[self] = infer(weights, board->bytes, buffer);
    meet(&board->meeting);
    if (self == 0)
        is_good = report(board, before, after, is_simulated);
    drop_weights(board, self, weights);
    OK(cuMemFree(buffer));
    return is_good;
}

int main(int argc, char **argv)
{
    board_t *board;
    int at = 1, self, is_good;

    if (argc == 2 && strcmp(argv[1], "used") == 0)
        return print_used();
    board = share(sizeof *board);
    board->has_copies = argc > at && strcmp(argv[at], "copies") == 0;
    at += board->has_copies;
    board->processes = argc > at ? atoi(argv[at]) : 4;
    board->bytes = (size_t)(argc > at + 1 ? atoi(argv[at + 1]) : 512) << 20;
    check(board->processes >= 1 && board->processes <= PROCESSES_MAX && board->bytes > 0,
          "usage: weights [copies] [PROCESSES (at most 16) [MIB]]");
    snprintf(board->name, sizeof board->name, "weights-%d", (int)getpid());
    make_meeting(&board->meeting, board->processes);
    self = start_processes(board->processes);
    is_good = run(board, self);
    return self == 0 ? !(all_ended_well() && is_good) : 0;
}
