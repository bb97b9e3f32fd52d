/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named - blocks under names (preload/cupola.h), between real processes under the preload, on the software
 * driver.
 * What:       named NAME runs one case: right bytes both ways, each answer that the header promises, reading
 *             only, frees, ends and deaths, no growth. What served is told by counters: counted.sh.
 * Not here:   other users and groups, failing calls (named_guard.c); random histories (named_law.c).
 */
#define _GNU_SOURCE
#include "tests/preload/named_bed.h"

enum { SIZE = 3 << 20 };

/* ---- right bytes ---- */

/* Published here, read and written there, read here: of one handle, a part of one, several. */
static void bytes(void)
{
    static const uint64_t sizes[] = {512, 100 << 10, SIZE, 9 << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    peer_t there = ipc_peer();

    for (unsigned i = 0; i < COUNT; i++) {
        servant_t here = named_published(NULL, "weights", sizes[i], i + 1), far = named(&here);

        REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
        REQUIRE(far.size == sizes[i] && far.generation == i + 1);
        REQUIRE(ipc_wrong(&there, &far, sizes[i], i + 1) == 0);
        far.number = i + 100;
        REQUIRE(servant_tell(&there, SERVANT_FILL, &far) == CUDA_SUCCESS);
        REQUIRE(servant_wrong(here.address, sizes[i], i + 100) == 0);
        REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
        REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == CUDA_SUCCESS);
    }
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
    ipc_count("named_publishes", COUNT);
    ipc_count("ipc_exports", COUNT);
}

/* Both ways at once: two mappings of one memory; a write to the one for reading is its writer's error alone. */
static void read_only(void)
{
    peer_t reader = ipc_peer(), writer = ipc_peer();
    servant_t here = named_published(NULL, "weights", SIZE, 1), far = named(&here), own, other;

    far.number = CUPOLA_READ_ONLY;
    REQUIRE(servant_tell(&reader, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
    own = other = named(&here);
    REQUIRE(servant_tell(&reader, SERVANT_NAMED_OPEN, &own) == CUDA_SUCCESS && own.address != far.address);
    REQUIRE(servant_tell(&writer, SERVANT_NAMED_OPEN, &other) == CUDA_SUCCESS);
    own.size = SIZE;
    own.number = 2;
    REQUIRE(servant_tell(&reader, SERVANT_FILL, &own) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&reader, &far, SIZE, 2) == 0 && ipc_wrong(&writer, &other, SIZE, 2) == 0);
    REQUIRE(named_readers("weights") == 3);
    far.size = SIZE;
    far.number = 3;
    REQUIRE(servant_tell(&reader, SERVANT_WRITE, &far) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(servant_wrong(here.address, SIZE, 2) == 0 && ipc_wrong(&writer, &other, SIZE, 2) == 0);
    REQUIRE(servant_tell(&writer, SERVANT_NAMED_CLOSE, &other) == CUDA_SUCCESS);
    ipc_end(&writer);
    REQUIRE(peer_end(&reader) == 0);
    ipc_count("named_publishes", 1);
}

/* ---- each defined answer ---- */

static void codes(void)
{
    peer_t there = ipc_peer();
    servant_t here = named_published(NULL, "a", SIZE, 1), far = named(&here), inside = here, again;

    inside.address += 700;
    REQUIRE(named_publish_code("a", here.address, 0) == CUPOLA_TAKEN);
    REQUIRE(named_publish_code("b", inside.address, CUPOLA_READ_ONLY) ==
            CUPOLA_OK); /* one block, two names */
    far.number = 0;
    snprintf(far.name, sizeof far.name, "b");
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == (CUresult)CUPOLA_NOT_PERMITTED);
    far.number = CUPOLA_READ_ONLY;
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS && far.size == SIZE);
    again = far;
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &again) == CUDA_SUCCESS && again.address == far.address);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &again) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0); /* one opening is left */
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == (CUresult)CUPOLA_INVALID);
    snprintf(far.name, sizeof far.name, "nobody");
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == (CUresult)CUPOLA_NOT_FOUND);
    snprintf(far.name, sizeof far.name, "a");
    REQUIRE(servant_tell(&there, SERVANT_UNPUBLISH, &far) == (CUresult)CUPOLA_NOT_FOUND); /* not its own */
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &far) == (CUresult)CUPOLA_NO_CONTEXT); /* its own */
    REQUIRE(servant_ask(&there, SERVANT_NAMED_COUNT, "") == 2);
    ipc_end(&there);
    ipc_count("named_publishes", 2);
    ipc_count("ipc_exports", 1);
}

static void bad_calls(void)
{
    static const char *const names[] = {
        "",   ".a", "a/b",      "a b",
        "..", NULL, "\xc3\xa4", "a234567890123456789012345678901234567890123456789012345678901234"};
    servant_t block = ipc_filled(NULL, SIZE, 1), freed = block;
    cupola_block_t out = {.size_bytes = 7};
    size_t count;
    int host = 0;

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        REQUIRE(cupola_publish(names[i], block.address, 0, CUPOLA_NO_GROUP) == CUPOLA_INVALID);
        REQUIRE(cupola_open(names[i], 0, CUPOLA_MYSELF, &out) == CUPOLA_INVALID);
        REQUIRE(cupola_unpublish(names[i]) == CUPOLA_INVALID);
    }
    REQUIRE(cupola_publish("a", block.address, 2, CUPOLA_NO_GROUP) == CUPOLA_INVALID);
    REQUIRE(cupola_publish("a", block.address, 0, -2) == CUPOLA_INVALID);
    REQUIRE(cupola_publish("a", (uint64_t)(uintptr_t)&host, 0, CUPOLA_NO_GROUP) == CUPOLA_INVALID);
    REQUIRE(cupola_publish("a", 0, 0, CUPOLA_NO_GROUP) == CUPOLA_INVALID);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &freed) == CUDA_SUCCESS);
    REQUIRE(cupola_publish("a", block.address, 0, CUPOLA_NO_GROUP) == CUPOLA_INVALID);
    REQUIRE(cupola_open("a", 0, CUPOLA_MYSELF, NULL) == CUPOLA_INVALID);
    REQUIRE(cupola_open("a", 4, CUPOLA_MYSELF, &out) == CUPOLA_INVALID);
    REQUIRE(cupola_open("a", 0, CUPOLA_MYSELF, &out) == CUPOLA_NOT_FOUND && out.size_bytes == 7);
    REQUIRE(cupola_close(12345) == CUPOLA_INVALID);
    REQUIRE(cupola_list(NULL, 0, NULL) == CUPOLA_INVALID && cupola_list(NULL, 1, &count) == CUPOLA_INVALID);
    REQUIRE(cupola_list(NULL, 0, &count) == CUPOLA_OK && count == 0);
    ipc_count("named_publishes", 0);
}

/* What the address says of itself. It stays open. */
static unsigned access_of(const char *name, unsigned flags)
{
    cupola_block_t block;
    unsigned access = 0;

    REQUIRE(cupola_open(name, flags, CUPOLA_MYSELF, &block) == CUPOLA_OK);
    REQUIRE(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, block.address) == CUDA_SUCCESS);
    return access;
}

/* All that is said of a block. */
static void listed(void)
{
    peer_t there = ipc_peer();
    servant_t block = named_published(&there, "here", SIZE, 1), other = named_published(NULL, "x", 512, 2);
    cupola_block_t out[3];
    size_t count;

    (void)other;
    REQUIRE(cupola_list(out, 1, &count) == CUPOLA_OK && count == 2);
    REQUIRE(cupola_list(out, 3, &count) == CUPOLA_OK && count == 2);
    const cupola_block_t *at = strcmp(out[0].name, "here") == 0 ? &out[0] : &out[1];
    REQUIRE(strcmp(at->name, "here") == 0 && at->size_bytes == SIZE && at->pid == there.pid);
    REQUIRE(at->uid == geteuid() && at->gid == CUPOLA_NO_GROUP && at->readers == 0 && at->device == 0);
    REQUIRE(at->address == 0 && at->flags == 0 && at->generation == 1);
    REQUIRE(access_of("here", CUPOLA_READ_ONLY) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
    REQUIRE(access_of("here", 0) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    REQUIRE(named_readers("here") == 2);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(cupola_list(out, 3, &count) == CUPOLA_OK && count == 1 && strcmp(out[0].name, "x") == 0);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("named_publishes", 1);
    ipc_count("named_opens", 2);
}

/* ---- frees, ends, deaths ---- */

/*
 * The free takes the name, which can be had again at once; the reader keeps the bytes, and the pool the block.
 */
static void freed(void)
{
    peer_t there = ipc_peer(), late = ipc_peer();
    servant_t here = named_published(NULL, "a", SIZE, 1), far = named(&here), next, too_late = named(&here);

    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_tell(&late, SERVANT_NAMED_OPEN, &too_late) == (CUresult)CUPOLA_NOT_FOUND);
    next = named_published(&late, "a", SIZE, 2); /* by another process */
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &too_late) == CUDA_SUCCESS);
    REQUIRE(too_late.generation == 2 && servant_wrong(too_late.address, SIZE, 2) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_CLOSE, &too_late) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&late, SERVANT_UNPUBLISH, &next) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    next = named_published(NULL, "a", SIZE, 3); /* by the first one, which had a dead row of that name */
    REQUIRE(next.address != here.address);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(here.address, SIZE));
    ipc_end(&late);
    ipc_end(&there);
    ipc_count("named_publishes", 2);
    ipc_count("quarantined_bytes", 0);
}

/* Unpublished while it is open: nobody new, and whoever has it keeps it. */
static void unpublished(void)
{
    peer_t there = ipc_peer();
    servant_t here = named_published(NULL, "a", SIZE, 1), far = named(&here);

    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_ask(&there, SERVANT_NAMED_COUNT, "") == 0);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    REQUIRE(named_publish_code("a", here.address, 0) == CUPOLA_OK);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    ipc_end(&there);
    ipc_count("named_publishes", 2);
}

/* The owner's context ends: as a free. */
static void context_ends(void)
{
    peer_t there = ipc_peer();
    servant_t block = named_published(&there, "a", SIZE, 1), here = named(&block), late = here;

    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &here) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_NEW_CONTEXT, &late) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &late) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* The owner is killed: the name can be had again, the reader keeps the bytes. */
static void owner_dies(void)
{
    peer_t there = ipc_peer();
    servant_t block = named_published(&there, "a", SIZE, 1), here = named(&block), late = here;

    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &here) == CUDA_SUCCESS);
    named_kill(&there);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &late) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_ask(NULL, SERVANT_NAMED_COUNT, "") == 0);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    (void)named_published(NULL, "a", SIZE, 2);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_CLOSE, &here) == CUDA_SUCCESS);
    ipc_count("named_publishes", 1);
    ipc_count("ipc_mapped_bytes", 0);
}

/* A reader is killed: for a second it counts, then its block can go. */
static void reader_dies(void)
{
    peer_t there = ipc_peer();
    servant_t here = named_published(NULL, "a", SIZE, 1), far = named(&here);

    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS && named_readers("a") == 1);
    named_kill(&there);
    named_unread("a");
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(here.address, SIZE));
    ipc_count("quarantined_bytes", 0);
}

/*
 * The owner is stopped: who asks is told so in bounded time, its name is not given away, and later all is well.
 */
static void owner_stops(void)
{
    peer_t there = ipc_peer();
    servant_t block = named_published(&there, "a", SIZE, 1), here = named(&block);
    cupola_block_t out;
    size_t count;
    int status;

    REQUIRE(kill(there.pid, SIGSTOP) == 0 && waitpid(there.pid, &status, WUNTRACED) == there.pid);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &here) == (CUresult)CUPOLA_SILENT);
    REQUIRE(cupola_list(&out, 1, &count) == CUPOLA_OK && count == 1 && out.pid == 0 && out.size_bytes == 0);
    block = ipc_filled(NULL, SIZE, 2);
    REQUIRE(named_publish_code("a", block.address, 0) == CUPOLA_TAKEN);
    REQUIRE(kill(there.pid, SIGCONT) == 0);
    here = named(&here);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &here) == CUDA_SUCCESS);
    REQUIRE(servant_wrong(here.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
}

/* ---- without growth ---- */

static void growth(void)
{
    enum { WARM = 20, ROUND = 256 << 10 };
    peer_t there = ipc_peer();
    uint64_t held = 0, descriptors = 0, far_descriptors = 0;

    for (int i = 0; i < g_rounds; i++) {
        char name[32];
        servant_t here, far;

        snprintf(name, sizeof name, "round-%d", i);
        here = named_published(NULL, name, ROUND, 1);
        far = named(&here);
        far.number = i % 2 ? CUPOLA_READ_ONLY : 0;
        REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
        if (i % 3 == 0)
            REQUIRE(servant_tell(NULL, SERVANT_UNPUBLISH, &here) == CUDA_SUCCESS);
        REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
        REQUIRE(servant_tell(NULL, SERVANT_FREE, &here) == CUDA_SUCCESS);
        if (i != WARM)
            continue;
        held = softcuda_held_bytes();
        descriptors = servant_descriptors();
        far_descriptors = servant_ask(&there, SERVANT_DESCRIPTORS, "");
    }
    REQUIRE(softcuda_held_bytes() <= held + (16 << 20));
    REQUIRE(servant_descriptors() <= descriptors + 2);
    REQUIRE(servant_ask(&there, SERVANT_DESCRIPTORS, "") <= far_descriptors + 2);
    REQUIRE(servant_ask(&there, SERVANT_MAPPED, "") == 0);
    ipc_end(&there);
    REQUIRE(ipc_count_sockets(0) <= 3); /* this one's, its lock, and the name of the last */
    ipc_count("named_publishes", (unsigned)g_rounds);
}

/* Without the preload: each call says so, and does nothing. */
static void absent(void)
{
    cupola_block_t out = {.size_bytes = 7};
    size_t count = 7;

    REQUIRE(cupola_publish("a", 512, 0, CUPOLA_NO_GROUP) == CUPOLA_ABSENT);
    REQUIRE(cupola_open("a", 0, CUPOLA_MYSELF, &out) == CUPOLA_ABSENT && out.size_bytes == 7);
    REQUIRE(cupola_close(512) == CUPOLA_ABSENT && cupola_unpublish("a") == CUPOLA_ABSENT);
    REQUIRE(cupola_list(&out, 1, &count) == CUPOLA_ABSENT && count == 7);
}

#define CASE_LIST(X) \
    X(bytes)         \
    X(read_only)     \
    X(codes)         \
    X(bad_calls)     \
    X(listed)        \
    X(freed)         \
    X(unpublished)   \
    X(context_ends)  \
    X(owner_dies)    \
    X(reader_dies)   \
    X(owner_stops)   \
    X(growth)        \
    X(absent)

IPC_MAIN(CASE_LIST)
