/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_bed - what the cases of IPC share: a folder for the sockets, a second process, a block exported and
 * opened.
 * What:       IPC_MAIN(list) is main(): PROGRAM CASE [rounds]. At its end the folder must be empty: whoever
 *             ends by itself leaves no socket behind.
 */
#ifndef CUP_TESTS_PRELOAD_IPC_BED_H
#define CUP_TESTS_PRELOAD_IPC_BED_H
#include "tests/preload/servant.h"
#include <sys/mman.h>
#include <time.h>

#define IPC_SERVANT "servant"

static int g_rounds = 1000;
static char g_folder[64];
static int g_has_killed; /* the dead leave their sockets */

static inline peer_t ipc_peer(void)
{
    const char *const args[] = {IPC_SERVANT, NULL};

    return peer_start(args);
}

/* It has ended by itself, and the driver has seen no legacy handle in either process. */
static inline void ipc_end(const peer_t *there)
{
    REQUIRE(softcuda_calls("cuIpcGetMemHandle") <= 1); /* a null pointer's, of codes */
    REQUIRE(servant_ask(there, SERVANT_CALLS, "cuIpcOpenMemHandle_v2") == 0);
    REQUIRE(softcuda_violations() == 0);
    REQUIRE(peer_end(there) == 0);
}

/* A block full of the pattern of seed: of the pool, by the driver's counters. */
static inline servant_t ipc_filled(const peer_t *where, uint64_t size, uint64_t seed)
{
    servant_t block = {.size = size};

    REQUIRE(servant_tell(where, SERVANT_ALLOC, &block) == CUDA_SUCCESS);
    block.number = seed;
    REQUIRE(servant_tell(where, SERVANT_FILL, &block) == CUDA_SUCCESS);
    REQUIRE(servant_ask(where, SERVANT_CALLS, "cuMemAlloc_v2") == 0);
    return block;
}

static inline servant_t ipc_exported(const peer_t *where, uint64_t size, uint64_t seed)
{
    servant_t block = ipc_filled(where, size, seed);

    REQUIRE(servant_tell(where, SERVANT_GET, &block) == CUDA_SUCCESS);
    return block;
}

static inline servant_t ipc_opened(const peer_t *where, const servant_t *block)
{
    servant_t opened = {.handle = block->handle};

    REQUIRE(servant_tell(where, SERVANT_OPEN, &opened) == CUDA_SUCCESS);
    return opened;
}

static inline uint64_t ipc_wrong(const peer_t *where, const servant_t *block, uint64_t size, uint64_t seed)
{
    servant_t copy = *block;

    copy.size = size;
    copy.number = seed;
    servant_tell(where, SERVANT_VERIFY, &copy);
    return copy.number;
}

static inline void ipc_pause(long us)
{
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&pause, NULL);
}

/*
 * Whether an allocation of this size there gets this address within some seconds. Those that do not are
 * kept until then: a pool that has other free memory need not look what else has come back.
 */
static inline int ipc_comes_back_to(const peer_t *where, CUdeviceptr address, uint64_t size)
{
    enum { TRIES = 200 };
    servant_t block[TRIES];
    int tries = 0, is_back = 0;

    for (; tries < TRIES && !is_back; tries++) {
        block[tries] = (servant_t){.size = size};
        REQUIRE(servant_tell(where, SERVANT_ALLOC, &block[tries]) == CUDA_SUCCESS);
        is_back = block[tries].address == address;
        if (!is_back)
            ipc_pause(25000);
    }
    while (tries > 0)
        REQUIRE(servant_tell(where, SERVANT_FREE, &block[--tries]) == CUDA_SUCCESS);
    return is_back;
}

static inline int ipc_comes_back(CUdeviceptr address, uint64_t size)
{
    return ipc_comes_back_to(NULL, address, size);
}

/* What this process says on stderr between the two is listened to: whether some line has this text. */
static inline int ipc_listen(void)
{
    int before = dup(2), said = memfd_create("said", 0);

    REQUIRE(before >= 0 && said >= 0 && dup2(said, 2) == 2 && close(said) == 0);
    return before;
}

static inline int ipc_has_said(int before, const char *text)
{
    char said[8192];
    ssize_t length = pread(2, said, sizeof said - 1, 0);

    REQUIRE(length >= 0 && dup2(before, 2) == 2 && close(before) == 0);
    said[length] = 0;
    fputs(said, stderr);
    return strstr(said, text) != NULL;
}

/* For counted.sh: what this process must have counted at its exit. */
static inline void ipc_count(const char *counter, unsigned value)
{
    printf("%s %u %u\n", counter, value, value);
}

typedef struct ipc_case {
    const char *name;
    void (*run)(void);
} ipc_case_t;

/* The first call: CUDA is not there yet. */
static inline void ipc_make_folder(void)
{
    snprintf(g_folder, sizeof g_folder, "%s", "/tmp/cupola-test-XXXXXX");
    REQUIRE(mkdtemp(g_folder) != NULL);
    REQUIRE(setenv("CUPOLA_SOCKET_DIR", g_folder, 1) == 0);
}

/* Sockets of processes that were killed. */
static inline int ipc_count_sockets(int must_remove)
{
    DIR *folder = opendir(g_folder);
    struct dirent *entry;
    int count = 0;

    REQUIRE(folder != NULL);
    while ((entry = readdir(folder))) {
        count += entry->d_name[0] != '.';
        if (must_remove)
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    return count;
}

/* After the exit handlers of the library, which came later. */
static void ipc_remove_folder(void)
{
    char lock[sizeof g_folder + 32];

    snprintf(lock, sizeof lock, "%s/cupola-names-%u", g_folder, (unsigned)geteuid());
    unlink(lock); /* stays when names have gone: it counts */
    if (g_has_killed)
        ipc_count_sockets(1);
    if (rmdir(g_folder) != 0) {
        fprintf(stderr, "a socket was left in %s\n", g_folder);
        _exit(1);
    }
}

/* The other processes don't report their counters: this one's are looked at. */
static inline void ipc_start(void)
{
    servant_t first = {.size = 4096};

    servant_open();
    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &first) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &first) == CUDA_SUCCESS);
    REQUIRE(unsetenv("CUPOLA_STATS") == 0);
    softcuda_reset_counters();
}

static inline int ipc_main(int argc, char **argv, const ipc_case_t *cases, size_t count)
{
    if (argc == 3 && strcmp(argv[1], IPC_SERVANT) == 0)
        return servant_run(atoi(argv[2]));
    if (argc == 3)
        g_rounds = atoi(argv[2]);
    for (size_t i = 0; argc >= 2 && i < count; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        ipc_make_folder();
        atexit(ipc_remove_folder);
        ipc_start();
        cases[i].run();
        return 0;
    }
    return 2;
}

#define IPC_CASE(name) {#name, name},
#define IPC_MAIN(list)                                                      \
    int main(int argc, char **argv)                                         \
    {                                                                       \
        static const ipc_case_t cases[] = {list(IPC_CASE)};                 \
        return ipc_main(argc, argv, cases, sizeof cases / sizeof cases[0]); \
    }

#endif /* CUP_TESTS_PRELOAD_IPC_BED_H */
