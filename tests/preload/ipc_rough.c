/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_rough - IPC of pooled memory where a process dies, stops, forks or runs out of descriptors.
 * What:       whoever is left gets the right bytes or an error, in bounded time; what the dead had on loan
 *             comes back.
 * Invariants: at the end nothing is in quarantine, or mapped: counted.sh looks.
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"
#include "tests/support/rng.h"

enum { SIZE = 3 << 20 };

static cup_rng_t g_rng;

static long some_us(long most)
{
    return (long)(cup_rng_next(&g_rng) % (uint64_t)most);
}

static void end_by_kill(const peer_t *peer)
{
    g_has_killed = 1;
    kill(peer->pid, SIGKILL);
    REQUIRE(peer_end(peer) == 128 + SIGKILL);
}

/* A process of its own, without CUDA: this one is in a call meanwhile. */
static pid_t kill_later(pid_t victim, long us)
{
    pid_t killer = fork();

    if (killer == 0) {
        ipc_pause(us);
        kill(victim, SIGKILL);
        _exit(0);
    }
    return killer;
}

/* ---- killed ---- */

/* The exporter dies somewhere between its export and the importer's close. */
static void exporter_dies(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here = {.handle = block.handle};
    pid_t killer = kill_later(there.pid, some_us(1500));

    g_has_killed = 1;
    for (int tries = 0; tries < 3; tries++) {
        if (servant_tell(NULL, SERVANT_OPEN, &here) != CUDA_SUCCESS)
            continue; /* dead by now */
        REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
        REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    }
    REQUIRE(waitpid(killer, NULL, 0) == killer);
    REQUIRE(peer_end(&there) == 128 + SIGKILL);
}

/* The importer dies somewhere between its open and its close. */
static void importer_dies(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(NULL, SIZE, 2), order = {.order = SERVANT_OPEN, .handle = block.handle};

    (void)servant_ask(&there, SERVANT_HELD, ""); /* it has started */
    peer_say(there.socket, &order, sizeof order);
    ipc_pause(some_us(1500));
    if (some_us(2))
        REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    end_by_kill(&there);
    if (servant_tell(NULL, SERVANT_FREE, &block) != CUDA_SUCCESS)
        REQUIRE(block.result == CUDA_ERROR_INVALID_VALUE); /* freed before */
}

/*
 * What the dead had comes back after a while, and not before: then nothing is in quarantine, and all of it
 * can go.
 */
static void kills(void)
{
    g_rng.state = cup_rng_seed(1);
    for (int round = 0; round < g_rounds; round++)
        (some_us(2) ? exporter_dies : importer_dies)();
    ipc_pause(1500000);
    ipc_count("quarantined_bytes", 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* One importer dies with a block: it comes back only after a time in which its work may run on. */
static void mourned(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(NULL, SIZE, 2), next = {.size = SIZE};

    (void)ipc_opened(&there, &block);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    end_by_kill(&there);
    ipc_pause(300000);
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &next) == CUDA_SUCCESS && next.address != block.address);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &next) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(block.address, SIZE));
    ipc_count("quarantined_bytes", 0);
}

/* ---- stopped ---- */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * A stopped exporter: an open gives up; what was opened works, and closes; when it goes on, all is as it
 * was, and the answer that comes too late is nobody's.
 */
static void stopped(void)
{
    peer_t there = ipc_peer();
    servant_t first = ipc_exported(&there, SIZE, 1), second = ipc_exported(&there, SIZE, 2);
    servant_t third = ipc_exported(&there, SIZE, 3), late = {.handle = second.handle};
    servant_t here = ipc_opened(NULL, &first), closed = ipc_opened(NULL, &third), again;
    double begun = seconds();
    int status;

    REQUIRE(kill(there.pid, SIGSTOP) == 0 && waitpid(there.pid, &status, WUNTRACED) == there.pid);
    REQUIRE(servant_tell(NULL, SERVANT_OPEN, &late) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(seconds() - begun < 15); /* not for ever */
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    again = ipc_opened(NULL, &first);
    REQUIRE(again.address == here.address);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &closed) == CUDA_SUCCESS);
    REQUIRE(kill(there.pid, SIGCONT) == 0);
    late = ipc_opened(NULL, &second);
    REQUIRE(servant_wrong(late.address, SIZE, 2) == 0);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &late) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &second) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back_to(&there, second.address, SIZE)); /* the open that gave up has not kept it */
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* ---- no descriptors ---- */

static void set_limit(const peer_t *where, uint64_t more)
{
    servant_t message = {.number = more};

    REQUIRE(servant_tell(where, SERVANT_LIMIT, &message) == CUDA_SUCCESS);
}

/* With few descriptors an open or an export fails or not, by their number; with more it succeeds. */
static void descriptors(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_filled(NULL, 5 << 20, 1), far = {.size = 4096};
    int failed = 0;

    REQUIRE(servant_tell(&there, SERVANT_ALLOC, &far) == CUDA_SUCCESS);
    for (uint64_t more = 1; more < 4; more++) {
        set_limit(NULL, more);
        failed += servant_tell(NULL, SERVANT_GET, &block) != CUDA_SUCCESS;
        set_limit(NULL, 0);
    }
    REQUIRE(failed > 0);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &block) == CUDA_SUCCESS);
    far.handle = block.handle;
    failed = 0;
    for (uint64_t more = 1; more < 8; more++) {
        set_limit(&there, more);
        if (servant_tell(&there, SERVANT_OPEN, &far) == CUDA_SUCCESS)
            REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
        else
            failed++;
        set_limit(&there, 0);
    }
    REQUIRE(failed > 0);
    far = ipc_opened(&there, &block);
    REQUIRE(ipc_wrong(&there, &far, 5 << 20, 1) == 0);
    ipc_end(&there);
    ipc_count("quarantined_bytes", 0);
}

/* The number that the program's next file gets. */
static int next_number(void)
{
    int fd = dup(0);

    REQUIRE(fd >= 0 && close(fd) == 0);
    return fd;
}

/*
 * Descriptors of ours don't take the low numbers, which some programs need; and where there are none left one line
 * says how many there can be.
 */
static void numbers(void)
{
    enum { BLOCKS = 20, ALL = 256 };
    peer_t there = ipc_peer();
    servant_t block[BLOCKS], large = {.size = 512 << 20}, far;
    int before, next;

    for (int i = 0; i < BLOCKS; i++)
        block[i] = ipc_filled(NULL, SIZE, (uint64_t)i);
    next = next_number();
    REQUIRE(next < ALL / 2);
    set_limit(NULL, ALL);
    for (int i = 0; i < BLOCKS; i++) {
        REQUIRE(servant_tell(NULL, SERVANT_GET, &block[i]) == CUDA_SUCCESS);
        far = ipc_opened(&there, &block[i]);
        REQUIRE(ipc_wrong(&there, &far, SIZE, (uint64_t)i) == 0);
    }
    REQUIRE(next_number() == next);
    set_limit(NULL, 0);
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &large) == CUDA_SUCCESS); /* the software driver's take some */
    next = next_number();
    set_limit(NULL, ALL / 2);
    before = ipc_listen();
    REQUIRE(servant_tell(NULL, SERVANT_GET, &large) != CUDA_SUCCESS);
    REQUIRE(ipc_has_said(before, "ulimit -n is"));
    REQUIRE(next_number() == next); /* what was made on the way has gone */
    set_limit(NULL, 0);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &large) == CUDA_SUCCESS);
    REQUIRE(next_number() == next);
    ipc_end(&there);
    ipc_count("quarantined_bytes", 0);
}

/* The exporter can't take a connection: an open gives up, and a later one succeeds. */
static void deaf(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), here = {.handle = block.handle};

    set_limit(&there, 1);
    REQUIRE(servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_ERROR_INVALID_HANDLE);
    set_limit(&there, 0);
    here = ipc_opened(NULL, &block);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* ---- descriptors that the program closes ---- */

static void usurp_all(const peer_t *where, int only_sockets)
{
    servant_t message = {.number = (uint64_t)only_sockets};

    REQUIRE(servant_tell(where, SERVANT_USURP, &message) == CUDA_SUCCESS);
    REQUIRE(servant_ask(where, SERVANT_USURPED, "") == 0);
}

/* Freed longer ago than the dead are mourned: nobody gets it while it is mapped there. */
static void require_kept(const peer_t *there, const servant_t *freed, servant_t *far, uint64_t seed)
{
    enum { COUNT = 8 };
    servant_t next[COUNT];

    ipc_pause(1500000);
    for (int i = 0; i < COUNT; i++) {
        next[i] = ipc_filled(NULL, SIZE, 50 + (uint64_t)i);
        REQUIRE(next[i].address != freed->address);
    }
    REQUIRE(ipc_wrong(there, far, SIZE, seed) == 0);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(servant_tell(NULL, SERVANT_FREE, &next[i]) == CUDA_SUCCESS);
}

/*
 * The exporter closes what it does not know, and has files of its own under our numbers: they stay its own; what is
 * open stays lent, until the importer's end.
 */
static void usurped(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_filled(NULL, SIZE, 1), other = ipc_filled(NULL, SIZE, 2), far, late;

    (void)servant_ask(NULL, SERVANT_NOTE, "");
    REQUIRE(servant_tell(NULL, SERVANT_GET, &block) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &other) == CUDA_SUCCESS);
    far = ipc_opened(&there, &block);
    usurp_all(NULL, 0);
    late.handle = other.handle;
    REQUIRE(servant_tell(&there, SERVANT_OPEN, &late) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    require_kept(&there, &block, &far, 1);
    REQUIRE(servant_ask(NULL, SERVANT_USURPED, "") == 0);
    late = ipc_filled(NULL, SIZE, 3);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &late) == CUDA_ERROR_OPERATING_SYSTEM);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &other) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    REQUIRE(ipc_comes_back(block.address, SIZE));
    REQUIRE(servant_ask(NULL, SERVANT_USURPED, "") == 0);
    ipc_count("quarantined_bytes", 0);
}

/* The importer does: it keeps what it has open, and can open more. */
static void usurped_there(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(NULL, SIZE, 1), other = ipc_exported(NULL, SIZE, 2), far, far_other;

    (void)servant_ask(&there, SERVANT_NOTE, "");
    far = ipc_opened(&there, &block);
    usurp_all(&there, 1);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    require_kept(&there, &block, &far, 1);
    far_other = ipc_opened(&there, &other);
    REQUIRE(ipc_wrong(&there, &far_other, SIZE, 2) == 0);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_CLOSE, &far_other) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    REQUIRE(servant_ask(&there, SERVANT_USURPED, "") == 0);
    ipc_end(&there);
    REQUIRE(ipc_comes_back(block.address, SIZE));
    ipc_count("quarantined_bytes", 0);
}

/* ---- forked ---- */

/* A child that was forked holds its parent's sockets: nobody hangs, and nothing is handed out early. */
static void forked(void)
{
    peer_t there = ipc_peer();
    servant_t theirs = ipc_exported(&there, SIZE, 1), ours = ipc_exported(NULL, SIZE, 2);
    servant_t far = ipc_opened(&there, &ours), here = {.handle = theirs.handle}, next = {.size = SIZE};
    uint64_t child = servant_ask(&there, SERVANT_FORK, "");

    here = ipc_opened(NULL, &theirs); /* the parent still serves */
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    (void)far;
    end_by_kill(&there);
    REQUIRE(servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &ours) == CUDA_SUCCESS);
    ipc_pause(1500000);
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &next) == CUDA_SUCCESS && next.address != ours.address);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &next) == CUDA_SUCCESS);
    kill((pid_t)child, SIGKILL);
    REQUIRE(ipc_comes_back(ours.address, SIZE));
    ipc_count("quarantined_bytes", 0);
    ipc_count("ipc_mapped_bytes", 0);
}

#define CASE_LIST(X) \
    X(kills)         \
    X(mourned)       \
    X(stopped)       \
    X(descriptors)   \
    X(numbers)       \
    X(deaf)          \
    X(usurped)       \
    X(usurped_there) \
    X(forked)

IPC_MAIN(CASE_LIST)
