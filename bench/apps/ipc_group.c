/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the board is a memfd that the members inherit. The barrier reverses its sense: the last one to arrive
 * turns the word that the others sleep on, so that it can be used again at once, and nobody who is late in
 * waking is caught by the next one. Who waits looks up from time to time whether the group is lost. The
 * members are the supervisor's children: no other process can be taken for a dead one.
 */
#define _GNU_SOURCE
#include "bench/apps/ipc_group.h"
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BOARD_BYTES ((sizeof(group_board_t) + 65535) & ~(size_t)65535) /* whole pages; staging behind them */
#define GRACE_S     10 /* for the others, once one has failed */
#define LIFE_S      600
#define SLICE_NS    50000000

_Static_assert(sizeof(group_board_t) <= 65536, "the board is one area of 64 KiB");

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *map(int fd, uint64_t at, uint64_t bytes)
{
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
    if (area == MAP_FAILED) {
        perror("ipc_group: mmap");
        exit(1);
    }
    return area;
}

static void wake_all(group_board_t *board)
{
    syscall(SYS_futex, &board->sense, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void lose(group_board_t *board)
{
    __atomic_store_n(&board->is_lost, 1, __ATOMIC_RELEASE);
    wake_all(board);
}

/* ---- members ---- */

group_t group_join(int fd, int rank)
{
    return (group_t){map(fd, 0, BOARD_BYTES), fd, rank, 0};
}

void *group_staging(const group_t *group, uint64_t bytes)
{
    if (ftruncate(group->fd, (off_t)(BOARD_BYTES + bytes)) != 0) { /* the same size by each */
        perror("ipc_group: ftruncate");
        exit(1);
    }
    return map(group->fd, BOARD_BYTES, bytes);
}

/* The driver is not asked to tidy up: what it has in flight may wait for the one that is gone. */
static void leave_lost(const group_t *group, const char *why)
{
    fprintf(stderr, "ipc_group: member %d: %s\n", group->rank, why);
    _exit(GROUP_LOST);
}

void group_look(const group_t *group)
{
    if (__atomic_load_n(&group->board->is_lost, __ATOMIC_ACQUIRE))
        leave_lost(group, "a member is lost");
}

void group_wait(group_t *group)
{
    const struct timespec slice = {0, SLICE_NS};
    group_board_t *board = group->board;
    uint32_t before = group->sense;
    double end_s = now_s() + GROUP_TIMEOUT_S;

    group->sense = !before;
    if (__atomic_add_fetch(&board->arrived, 1, __ATOMIC_ACQ_REL) == board->processes) {
        __atomic_store_n(&board->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&board->sense, group->sense, __ATOMIC_RELEASE);
        wake_all(board);
    }
    while (__atomic_load_n(&board->sense, __ATOMIC_ACQUIRE) == before) {
        group_look(group);
        if (now_s() > end_s) {
            lose(board);
            leave_lost(group, "a member did not come in time");
        }
        syscall(SYS_futex, &board->sense, FUTEX_WAIT, before, &slice, NULL, 0);
    }
}

/* ---- the supervisor ---- */

static pid_t start_member(int fd, int rank)
{
    char board[16], member[16];
    pid_t supervisor = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor)
        _exit(1);
    snprintf(board, sizeof board, "%d", fd);
    snprintf(member, sizeof member, "%d", rank + 1);
    execl("/proc/self/exe", "ipc_ring", "--board", board, "--member", member, (char *)NULL);
    _exit(127);
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

typedef struct kill_clock {
    double start_s, open_s; /* 0: not yet */
    bool is_done;
} kill_clock_t;

typedef struct roll {
    pid_t pids[GROUP_MAX];
    int codes[GROUP_MAX]; /* -1: runs */
    int count, running, first_code;
    double end_s;
} roll_t;

static void kill_rest(const roll_t *roll)
{
    for (int i = 0; i < roll->count; i++)
        if (roll->codes[i] < 0)
            kill(roll->pids[i], SIGKILL);
}

/* The first that fails makes the group lost, and gives the others a little time. */
static void take_down(roll_t *roll, int member, int code, group_board_t *board)
{
    roll->codes[member] = code;
    roll->running--;
    if (code == 0 || roll->first_code != 0)
        return;
    roll->first_code = code;
    roll->end_s = now_s() + GRACE_S;
    lose(board);
}

static void look_round(roll_t *roll, group_board_t *board)
{
    for (int i = 0; i < roll->count; i++) {
        int status;
        if (roll->codes[i] < 0 && waitpid(roll->pids[i], &status, WNOHANG) == roll->pids[i])
            take_down(roll, i, code_of(status), board);
    }
}

static bool is_timed(const group_board_t *asked)
{
    return asked->kill_us || asked->kill_start_us;
}

static int victim_of(const group_board_t *asked)
{
    return (int)(asked->victim ? asked->victim : asked->processes) - 1;
}

/* Killed from outside, at any moment. */
static void kill_in_time(const roll_t *roll, const group_board_t *asked, const group_board_t *board,
                         kill_clock_t *clock)
{
    int victim = victim_of(asked);
    double now = now_s();
    if (clock->open_s == 0 && __atomic_load_n(&board->is_open, __ATOMIC_ACQUIRE))
        clock->open_s = now;
    if (clock->is_done || roll->codes[victim] >= 0)
        return;
    if (asked->kill_start_us ? now < clock->start_s + (double)asked->kill_start_us * 1e-6
                             : clock->open_s == 0 || now < clock->open_s + (double)asked->kill_us * 1e-6)
        return;
    kill(roll->pids[victim], SIGKILL);
    clock->is_done = true;
}

/*
 * One was killed on purpose: everybody else must have noticed, by itself and in time. Who was killed in a round
 * of its own choice is missed at a barrier; else a call of the driver may fail first.
 */
static int judge_kill(const roll_t *roll, const group_board_t *asked)
{
    int victim = victim_of(asked);
    for (int i = 0; i < roll->count; i++)
        if (roll->codes[i] != (i == victim ? 128 + SIGKILL : GROUP_LOST) &&
            !(i != victim && is_timed(asked) && roll->codes[i] == 1)) {
            fprintf(stderr, "ipc_group: member %d ended with code %d\n", i, roll->codes[i]);
            return 1;
        }
    printf("a member was killed, %d others ended with an error\n", roll->count - 1);
    return 0;
}

int group_run(const group_board_t *asked)
{
    const struct timespec pause = {0, 2000000};
    int fd = memfd_create("ipc_group", 0);
    roll_t roll = {
        .count = (int)asked->processes, .running = (int)asked->processes, .end_s = now_s() + LIFE_S};
    kill_clock_t clock = {.start_s = now_s()};
    group_board_t *board;
    bool is_over = false;

    if (fd < 0 || ftruncate(fd, (off_t)BOARD_BYTES) != 0) {
        perror("ipc_group: memfd");
        return 1;
    }
    board = map(fd, 0, BOARD_BYTES);
    *board = *asked;
    for (int i = 0; i < roll.count; i++) {
        roll.codes[i] = -1;
        roll.pids[i] = start_member(fd, i);
        if (roll.pids[i] < 0)
            take_down(&roll, i, 1, board);
    }
    while (roll.running > 0) {
        look_round(&roll, board);
        if (is_timed(asked))
            kill_in_time(&roll, asked, board, &clock);
        if (!is_over && now_s() > roll.end_s) {
            is_over = true;
            kill_rest(&roll);
        }
        nanosleep(&pause, NULL);
    }
    return asked->kill_round || is_timed(asked) ? judge_kill(&roll, asked) : roll.first_code;
}
