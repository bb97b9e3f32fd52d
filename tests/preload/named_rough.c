/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_rough - named blocks where several are at it at once, and where one is killed in the middle of a call.
 * What:       kills [ROUNDS]: whoever is left gets the block or an error, in bounded time; names and memory of
 *             the dead come back. race: one of several publishers of a name gets it. contend: each publishes
 *             and takes back, as fast as it can. threads: of one process. named_rough contender SOCKET is one.
 * Invariants: at the end nothing is in quarantine, or mapped: counted.sh looks.
 */
#define _GNU_SOURCE
#include "tests/preload/named_bed.h"
#include "tests/support/rng.h"
#include <pthread.h>

enum { SIZE = 600 << 10 };

static cup_rng_t g_rng;

static long some_us(long most)
{
    return (long)cup_rng_below(&g_rng, (uint64_t)most);
}

static void order_only(const peer_t *there, servant_order_t order, servant_t message)
{
    message.order = order;
    peer_say(there->socket, &message, sizeof message);
}

/* ---- killed in a call ---- */

/* While it publishes: the name is there to be had, and at once. */
static void publisher_dies(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_filled(&there, SIZE, 1), own = {.name = "a", .size = SIZE};

    snprintf(block.name, sizeof block.name, "a");
    block.number = 0;
    order_only(&there, SERVANT_PUBLISH, block);
    ipc_pause(some_us(800));
    named_kill(&there);
    own = named_published(NULL, "a", SIZE, 2);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &own) == CUDA_SUCCESS);
}

/* While it opens or closes: its loan ends. */
static void reader_dies(void)
{
    peer_t there = ipc_peer();
    servant_t here = named_published(NULL, "a", SIZE, 1), far = named(&here);

    (void)servant_ask(&there, SERVANT_HELD, ""); /* it has started */
    far.number = (uint64_t)some_us(2);           /* CUPOLA_READ_ONLY, or not */
    order_only(&there, SERVANT_NAMED_OPEN, far);
    ipc_pause(some_us(1500));
    if (some_us(2))
        REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == CUDA_SUCCESS);
    named_kill(&there);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
}

/* While this one opens. */
static void owner_dies(void)
{
    peer_t there = ipc_peer();
    servant_t block = named_published(&there, "a", SIZE, 1), here = named(&block);
    pid_t killer = fork();

    if (killer == 0) {
        ipc_pause(some_us(1500));
        kill(there.pid, SIGKILL);
        _exit(0);
    }
    for (int tries = 0; tries < 3; tries++) {
        if (servant_tell(NULL, SERVANT_NAMED_OPEN, &here) != CUDA_SUCCESS)
            continue; /* dead by now */
        REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
        REQUIRE(servant_tell(NULL, SERVANT_NAMED_CLOSE, &here) == CUDA_SUCCESS);
    }
    g_has_killed = 1;
    REQUIRE(waitpid(killer, NULL, 0) == killer);
    REQUIRE(peer_end(&there) == 128 + SIGKILL);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &here) == (CUresult)CUPOLA_NOT_FOUND);
}

static void kills(void)
{
    static void (*const deaths[])(void) = {publisher_dies, reader_dies, owner_dies};

    g_rng.state = cup_rng_seed(1);
    for (int round = 0; round < g_rounds; round++)
        deaths[some_us(3)]();
    REQUIRE(servant_ask(NULL, SERVANT_NAMED_COUNT, "") == 0);
    ipc_pause(1500000); /* the dead have their second */
    ipc_count("quarantined_bytes", 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* ---- at once ---- */

/* Several publish one name at the same time, also one whose owner has just died: one gets it. */
static void race(void)
{
    enum { PEERS = 3, ROUNDS = 100 };
    peer_t peer[PEERS];
    servant_t block[PEERS], answer[PEERS];

    for (int i = 0; i < PEERS; i++) {
        peer[i] = ipc_peer();
        block[i] = ipc_filled(&peer[i], SIZE, 1 + (uint64_t)i);
        block[i].number = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        int winner = -1, winners = 0;

        if (round % 10 == 0) {
            peer_t dead = ipc_peer();

            (void)named_published(&dead, "a", SIZE, 1);
            named_kill(&dead);
        }
        for (int i = 0; i < PEERS; i++) {
            snprintf(block[i].name, sizeof block[i].name, "a");
            order_only(&peer[i], SERVANT_PUBLISH, block[i]);
        }
        for (int i = 0; i < PEERS; i++) {
            peer_hear(peer[i].socket, &answer[i], sizeof answer[i]);
            REQUIRE(answer[i].result == CUDA_SUCCESS || answer[i].result == (CUresult)CUPOLA_TAKEN);
            winner = answer[i].result == CUDA_SUCCESS ? i : winner;
            winners += answer[i].result == CUDA_SUCCESS;
        }
        REQUIRE(winners == 1);
        REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &(servant_t){.name = "a"}) == CUDA_SUCCESS);
        REQUIRE(servant_tell(&peer[winner], SERVANT_UNPUBLISH, &block[winner]) == CUDA_SUCCESS);
    }
    for (int i = PEERS - 1; i >= 0; i--)
        REQUIRE(peer_end(&peer[i]) == 0);
    ipc_count("named_opens", ROUNDS);
}

/* In the folder, and known to its process, which is this one. */
static int is_listed(const char *name, uint64_t size)
{
    cupola_block_t block[8];
    size_t count;

    REQUIRE(cupola_list(block, 8, &count) == CUPOLA_OK && count <= 8);
    for (size_t i = 0; i < count; i++)
        if (strcmp(block[i].name, name) == 0)
            return block[i].pid == (int32_t)getpid() && block[i].size_bytes == size;
    return 0;
}

/* Returns how often it got the name. Whoever has it is found under it, until it takes it back. */
static uint64_t contend_for(CUdeviceptr block, int turns)
{
    uint64_t won = 0;

    for (int i = 0; i < turns; i++) {
        int code = cupola_publish("a", block, 0, CUPOLA_NO_GROUP);

        REQUIRE(code == CUPOLA_OK || code == CUPOLA_TAKEN);
        if (code != CUPOLA_OK)
            continue;
        won++;
        REQUIRE(is_listed("a", SIZE));
        REQUIRE(cupola_unpublish("a") == CUPOLA_OK);
    }
    return won;
}

enum { TURNS = 3000 };

static int run_contender(int socket)
{
    CUdeviceptr block;
    uint64_t won;

    servant_open();
    REQUIRE(cuMemAlloc(&block, SIZE) == CUDA_SUCCESS);
    won = contend_for(block, TURNS);
    peer_say(socket, &won, sizeof won);
    return 0;
}

static void contend(void)
{
    enum { PEERS = 2 };
    const char *const args[] = {"contender", NULL};
    peer_t peer[PEERS];
    servant_t block = ipc_filled(NULL, SIZE, 1);
    uint64_t own, won, all = 0;

    for (int i = 0; i < PEERS; i++)
        peer[i] = peer_start(args);
    own = contend_for(block.address, TURNS);
    for (int i = PEERS - 1; i >= 0; i--) {
        peer_hear(peer[i].socket, &won, sizeof won);
        REQUIRE(peer_end(&peer[i]) == 0);
        all += won;
    }
    REQUIRE(own > 0 && all > 0);
    ipc_count("named_publishes", (unsigned)own);
}

/* ---- threads ---- */

enum { THREADS = 4, STEPS = 300 };

static CUcontext g_ctx;
static peer_t g_there;
static unsigned g_published[THREADS];

/* All publish one name and one of their own, and open one of another process. */
static void *use_names(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;
    char own[32];
    cupola_block_t block;
    CUdeviceptr memory;

    snprintf(own, sizeof own, "thread-%u", self);
    REQUIRE(cuCtxSetCurrent(g_ctx) == CUDA_SUCCESS && cuMemAlloc(&memory, SIZE + self) == CUDA_SUCCESS);
    for (int i = 0; i < STEPS; i++) {
        int code = cupola_publish("shared", memory, 0, CUPOLA_NO_GROUP);

        REQUIRE(code == CUPOLA_OK || code == CUPOLA_TAKEN);
        REQUIRE(cupola_publish(own, memory, 0, CUPOLA_NO_GROUP) == CUPOLA_OK);
        REQUIRE(cupola_open("far", i % 2 ? CUPOLA_READ_ONLY : 0, CUPOLA_MYSELF, &block) == CUPOLA_OK);
        REQUIRE(is_listed(own, SIZE + self) && (code != CUPOLA_OK || is_listed("shared", SIZE + self)));
        REQUIRE(cupola_unpublish(own) == CUPOLA_OK);
        if (code == CUPOLA_OK) /* this thread alone has it */
            REQUIRE(cupola_unpublish("shared") == CUPOLA_OK);
        REQUIRE(cupola_close(block.address) == CUPOLA_OK);
        g_published[self] += 1 + (code == CUPOLA_OK);
    }
    REQUIRE(cuMemFree(memory) == CUDA_SUCCESS);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    unsigned published = 0;

    g_there = ipc_peer();
    (void)named_published(&g_there, "far", SIZE, 1);
    REQUIRE(cuCtxGetCurrent(&g_ctx) == CUDA_SUCCESS);
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, use_names, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(thread[i], NULL) == 0);
        published += g_published[i];
    }
    named_unread("far");
    REQUIRE(servant_ask(NULL, SERVANT_NAMED_COUNT, "") == 1);
    REQUIRE(peer_end(&g_there) == 0);
    ipc_count("named_publishes", published);
    ipc_count("named_opens", THREADS * STEPS);
    ipc_count("ipc_mapped_bytes", 0);
}

#define CASE_LIST(X) \
    X(kills)         \
    X(race)          \
    X(contend)       \
    X(threads)

int main(int argc, char **argv)
{
    static const ipc_case_t cases[] = {CASE_LIST(IPC_CASE)};

    if (argc == 3 && strcmp(argv[1], "contender") == 0)
        return run_contender(atoi(argv[2]));
    return ipc_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
