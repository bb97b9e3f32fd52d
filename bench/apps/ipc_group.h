/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_group - processes that work together: started, lined up, and told when one of them is lost.
 * What:       a board that all have mapped (numbers of the run, handles and results of each member, an area
 *             for staging), a barrier, and a supervisor that starts the members and sees them end.
 * Not here:   the driver; what the members do (ipc_ring.c).
 * Invariants: nobody waits for a member for longer than GROUP_TIMEOUT_S. A member that ends otherwise than
 *             with code 0 makes the group lost: every wait of the others ends at once, and with it they do.
 *             A member dies with the supervisor.
 * Threads:    one in each process.
 */
#ifndef CUP_BENCH_IPC_GROUP_H
#define CUP_BENCH_IPC_GROUP_H
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

#define GROUP_MAX       16
#define GROUP_BLOCKS    8  /* whose handles a member can show at a time */
#define GROUP_TIMEOUT_S 30 /* of a barrier */
#define GROUP_LOST      3  /* exit code of a member whose group is lost */

typedef struct group_member {
    CUipcMemHandle blocks[GROUP_BLOCKS];
    bool has_blocks; /* false: no handle could be made */
    CUipcEventHandle written, read;
    uint64_t hash;  /* of all that it received */
    uint64_t wrong; /* words that were not what they should be, by GPU and host */
} group_member_t;

typedef struct group_board {
    uint64_t processes, devices, rounds, bytes; /* as asked for; 0: as the members find right */
    uint64_t rows;                              /* 1: print them */
    uint64_t kill_round;                        /* 1 and more: the last member is killed in that round */
    uint64_t kill_us, kill_start_us;  /* or the victim is, so long after the ring has opened, or the start */
    uint64_t victim;                  /* member + 1; 0: the last one */
    uint32_t arrived, sense, is_lost; /* atomic; sense is the word that all sleep on */
    uint32_t is_open;                 /* atomic: each has the blocks and events of its neighbours */
    bool has_no_staging;              /* the area can't be pinned */
    group_member_t members[GROUP_MAX];
} group_board_t;

typedef struct group {
    group_board_t *board;
    int fd, rank;
    uint32_t sense; /* of the last barrier that this member passed */
} group_t;

/*
 * The supervisor: starts board->processes members (this program anew, with "--board FD --member RANK+1") and
 * sees them end, one way or another. Returns the exit code of the run: 0; with kill_round 0 if the members
 * that were left told that they had lost one; with kill_us or kill_start_us 0 if they did, or had an error of
 * the driver; else the code of the first that failed.
 */
int group_run(const group_board_t *asked);

/* A member: maps the board. */
group_t group_join(int fd, int rank);

/* Maps bytes of staging that all members share. */
void *group_staging(const group_t *group, uint64_t bytes);

/* For who waits for something else than the others: when the group is lost, the process ends as there. */
void group_look(const group_t *group);

/* Returns when all members have called it. When the group is lost, the process ends with GROUP_LOST. */
void group_wait(group_t *group);

#endif /* CUP_BENCH_IPC_GROUP_H */
