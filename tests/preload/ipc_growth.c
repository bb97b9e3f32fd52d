/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_growth - IPC of pooled memory again and again, by processes that live and by such that are killed: what it takes does
 * not grow.
 * What:       descriptors and device memory are compared here, host memory by ipc_growth.sh: what the bookkeeping holds is
 *             told at exit only. The other process of rounds reports, too, to the file that IPC_THERE names.
 * Not here:   what each open gives (ipc.c), who gets an error when another dies (ipc_rough.c).
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"
#include "tests/support/rng.h"

enum { SIZE = 3 << 20, SETTLE_US = 5000000, STEP_US = 20000 };

static cup_rng_t g_rng;

static long below(long most)
{
    return (long)cup_rng_below(&g_rng, (uint64_t)most);
}

/* Open descriptors and bytes of the device, here (NULL) or there. */
typedef struct taken {
    uint64_t descriptors, held;
} taken_t;

static taken_t taken(const peer_t *where)
{
    return (taken_t){servant_ask(where, SERVANT_DESCRIPTORS, ""), servant_ask(where, SERVANT_HELD, "")};
}

/* Connections and loans end a moment later. What is idle in the pool may be one block more. */
static int comes_down_to(const peer_t *where, const taken_t *before)
{
    for (long us = 0; us < SETTLE_US; us += STEP_US) {
        taken_t now = taken(where);

        if (now.descriptors <= before->descriptors && now.held <= before->held + 2 * SIZE)
            return 1;
        ipc_pause(STEP_US);
    }
    return 0;
}

/* ---- alive ---- */

/* Exported at one side, and opened at the other; freed before it is closed, or after. */
static void one_round(const peer_t *from, const peer_t *to, uint64_t size)
{
    servant_t block = ipc_exported(from, size, 1), far = ipc_opened(to, &block),
              late = {.handle = block.handle};
    int is_early = below(2) == 0;

    if (is_early)
        REQUIRE(servant_tell(from, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(servant_tell(to, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    if (!is_early)
        REQUIRE(servant_tell(from, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(servant_tell(to, SERVANT_OPEN, &late) == CUDA_ERROR_INVALID_VALUE);
}

static void some_rounds(const peer_t *there, int rounds)
{
    static const uint64_t sizes[] = {4096, 100 << 10, SIZE};

    for (int round = 0; round < rounds; round++)
        one_round(round % 2 ? there : NULL, round % 2 ? NULL : there, sizes[below(3)]);
}

static void rounds(void)
{
    char stats[256] = "CUPOLA_STATS=";
    const char *const env[] = {stats, NULL}, *const args[] = {IPC_SERVANT, NULL}, *file = getenv("IPC_THERE");

    if (file)
        snprintf(stats, sizeof stats, "CUPOLA_STATS=%s", file);
    g_rng.state = cup_rng_seed(1);
    peer_t there = peer_start_in(&(peer_world_t){.env = env}, args);
    some_rounds(&there, 50);
    taken_t here_before = taken(NULL), there_before = taken(&there);
    some_rounds(&there, g_rounds);
    REQUIRE(comes_down_to(NULL, &here_before));
    REQUIRE(comes_down_to(&there, &there_before));
    REQUIRE(peer_end(&there) == 0);
}

/* ---- killed ---- */

/* The other process has ours open, or we have its, or both; it is killed at some moment of that. */
static void one_kill(void)
{
    peer_t there = ipc_peer();
    servant_t ours = ipc_exported(NULL, SIZE, 1), far = {.order = SERVANT_OPEN, .handle = ours.handle};
    servant_t theirs = ipc_exported(&there, SIZE, 2), here = {.handle = theirs.handle};
    int is_open = below(2) && servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_SUCCESS;

    peer_say(there.socket, &far, sizeof far);
    ipc_pause(below(1000));
    REQUIRE(kill(there.pid, SIGKILL) == 0 && peer_end(&there) == 128 + SIGKILL);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &ours) == CUDA_SUCCESS);
    if (is_open)
        REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
}

/* All that is held can be handed out, but for what is too small. */
static void require_all_free(void)
{
    enum { MOST = 1024 };
    static servant_t block[MOST];
    uint64_t held = softcuda_held_bytes(), count = held / SIZE, i;

    REQUIRE(count > 1 && count < MOST);
    for (i = 0; i + 1 < count; i++)
        block[i] = ipc_filled(NULL, SIZE, 3);
    REQUIRE(softcuda_held_bytes() == held);
    while (i > 0)
        REQUIRE(servant_tell(NULL, SERVANT_FREE, &block[--i]) == CUDA_SUCCESS);
}

/* What is taken when nothing is in use: the pool has gone with the context. */
static taken_t taken_idle(void)
{
    servant_t none;

    ipc_pause(1500000); /* the dead are mourned for a second */
    require_all_free();
    REQUIRE(servant_tell(NULL, SERVANT_NEW_CONTEXT, &none) == CUDA_SUCCESS);
    return taken(NULL);
}

/* The first one makes what stays: the thread, its socket. */
static void kills(void)
{
    taken_t before, after;

    g_has_killed = 1;
    g_rng.state = cup_rng_seed(1);
    one_kill();
    before = taken_idle();
    for (int round = 0; round < g_rounds; round++)
        one_kill();
    after = taken_idle();
    REQUIRE(after.descriptors == before.descriptors && after.held == before.held);
}

#define CASE_LIST(X) \
    X(rounds)        \
    X(kills)

IPC_MAIN(CASE_LIST)
