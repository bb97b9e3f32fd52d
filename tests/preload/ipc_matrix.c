/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_matrix - who can open what of whom: each kind of exporter, each kind of importer, blocks of every kind of size, at
 * their base and inside, as docs/ipc.md has it.
 * What:       right bytes both ways, or the code of the table below and, where the handle is not made, one line that says
 *             what to set. Bytes of a neighbour, or of before, would be another pattern.
 * Not here:   sizes up to 64 MiB, blocks that share a handle (ipc.c).
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"

/* The variables of a process. */
typedef enum { VMM, RAW, NATIVE } kind_t;

static const char *const *const g_env[] = {
    [VMM] = (const char *const[]){"CUPOLA_BACKING=vmm", NULL},
    [RAW] = (const char *const[]){"CUPOLA_BACKING=raw", NULL},
    [NATIVE] = (const char *const[]){"LD_PRELOAD=", NULL},
};

enum {
    OWN = 2 << 20
}; /* CUPOLA_DEDICATED: from here on a block is a driver allocation of its own under raw */

/* clang-format off */
/* X(exporter, importer, get of a block below OWN, open of it; get of a larger one, open; whose handles: the driver's (1), ours) */
#define MATRIX(X)                                                         \
    X(VMM,    VMM,    SUCCESS,       SUCCESS,       SUCCESS, SUCCESS,       0) \
    X(VMM,    RAW,    SUCCESS,       SUCCESS,       SUCCESS, SUCCESS,       0) \
    X(VMM,    NATIVE, SUCCESS,       INVALID_VALUE, SUCCESS, INVALID_VALUE, 0) \
    X(RAW,    VMM,    NOT_SUPPORTED, NONE,          SUCCESS, SUCCESS,       1) \
    X(RAW,    RAW,    NOT_SUPPORTED, NONE,          SUCCESS, SUCCESS,       1) \
    X(RAW,    NATIVE, NOT_SUPPORTED, NONE,          SUCCESS, SUCCESS,       1) \
    X(NATIVE, VMM,    SUCCESS,       SUCCESS,       SUCCESS, SUCCESS,       1) \
    X(NATIVE, RAW,    SUCCESS,       SUCCESS,       SUCCESS, SUCCESS,       1)
/* clang-format on */

enum {
    SUCCESS = CUDA_SUCCESS,
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE,
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED,
    NONE = -1 /* there is no handle */
};

typedef struct row {
    kind_t exporter, importer;
    int code[2][2]; /* small or large; get, open */
    unsigned is_drivers;
} row_t;

static const row_t g_matrix[] = {
#define X(exporter, importer, get, open, large_get, large_open, is_drivers) \
    {exporter, importer, {{get, open}, {large_get, large_open}}, is_drivers},
    MATRIX(X)
#undef X
};

static char g_log[sizeof g_folder + 8]; /* of the exporters */
static uint64_t g_seed = 1;

/* A process of that kind: it takes part in the pool or does not, by its own counters. */
static peer_t start(kind_t kind)
{
    static const char *const args[] = {IPC_SERVANT, NULL};
    servant_t probe = {.size = 4096};
    peer_t peer = peer_start_in(&(peer_world_t){.env = g_env[kind]}, args);

    REQUIRE(servant_tell(&peer, SERVANT_ALLOC, &probe) == CUDA_SUCCESS);
    REQUIRE((servant_ask(&peer, SERVANT_CALLS, "cuMemCreate") > 0) == (kind == VMM));
    for (int i = 0; i < 2; i++) {
        servant_t more = {.size = 4096};

        REQUIRE(servant_tell(&peer, SERVANT_ALLOC, &more) == CUDA_SUCCESS);
    }
    REQUIRE(servant_ask(&peer, SERVANT_CALLS, "cuMemAlloc_v2") == (kind == NATIVE ? 3 : kind == RAW ? 1 : 0));
    return peer;
}

/* That say what to set. */
static uint64_t lines(void)
{
    FILE *log = fopen(g_log, "r");
    char line[1024];
    uint64_t count = 0;

    while (log && fgets(line, sizeof line, log))
        count += strstr(line, "set CUPOLA_BACKING=vmm ") && strstr(line, "CUPOLA_DEDICATED=1");
    if (log)
        fclose(log);
    return count;
}

/*
 * It is open: the bytes are the block's, both ways, and the driver there names its bounds; those of its driver allocation
 * under raw, which is a multiple of OWN.
 */
static void check_bytes(kind_t exporter, const peer_t *from, const peer_t *to, servant_t *block,
                        servant_t *far)
{
    uint64_t bounds = exporter == RAW ? (block->size + OWN - 1) / OWN * OWN : block->size;
    servant_t range = {.address = far->address + block->size - 1};

    REQUIRE(ipc_wrong(to, far, block->size, g_seed) == 0);
    REQUIRE(servant_tell(to, SERVANT_RANGE, &range) == CUDA_SUCCESS);
    REQUIRE(range.address == far->address && range.size == bounds);
    far->size = block->size;
    far->number = ++g_seed;
    REQUIRE(servant_tell(to, SERVANT_FILL, far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(from, block, block->size, g_seed) == 0);
    REQUIRE(servant_tell(to, SERVANT_CLOSE, far) == CUDA_SUCCESS);
}

/* The handle of an address inside the block by so much, opened or refused as the row says. */
static void try_one(const row_t *row, const peer_t *from, const peer_t *to, uint64_t size, uint64_t inside)
{
    const int get = row->code[size >= OWN][0], open = row->code[size >= OWN][1];
    servant_t block = {.size = size, .number = ++g_seed}, inner, far;
    uint64_t before = lines(), gets = servant_ask(from, SERVANT_CALLS, "cuIpcGetMemHandle");
    uint64_t mapped = servant_ask(to, SERVANT_MAPPED, "");

    REQUIRE(servant_tell(from, SERVANT_ALLOC, &block) == CUDA_SUCCESS);
    REQUIRE(servant_tell(from, SERVANT_FILL, &block) == CUDA_SUCCESS);
    inner = block;
    inner.address += inside;
    REQUIRE((int)servant_tell(from, SERVANT_GET, &inner) == get);
    REQUIRE(lines() - before == (get != SUCCESS));
    if (get == SUCCESS) {
        REQUIRE(servant_ask(from, SERVANT_CALLS, "cuIpcGetMemHandle") - gets == row->is_drivers);
        far = (servant_t){.handle = inner.handle};
        REQUIRE((int)servant_tell(to, SERVANT_OPEN, &far) == open);
        if (open == SUCCESS)
            check_bytes(row->exporter, from, to, &block, &far);
    }
    REQUIRE(servant_tell(from, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(row->is_drivers || servant_ask(to, SERVANT_MAPPED, "") == mapped);
}

static void try_row(const row_t *row)
{
    static const uint64_t sizes[] = {512, 100 << 10, OWN, 5 << 20};
    peer_t from = start(row->exporter), to = start(row->importer);

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        try_one(row, &from, &to, sizes[i], 0);
        try_one(row, &from, &to, sizes[i], sizes[i] / 2);
    }
    REQUIRE(peer_end(&to) == 0);
    REQUIRE(peer_end(&from) == 0);
}

static void matrix(void)
{
    char log[sizeof g_log + 32];

    snprintf(g_log, sizeof g_log, "%s.log", g_folder);
    snprintf(log, sizeof log, "CUPOLA_LOG=error:%s", g_log);
    REQUIRE(putenv(log) == 0);
    for (size_t i = 0; i < sizeof g_matrix / sizeof g_matrix[0]; i++)
        try_row(&g_matrix[i]);
    REQUIRE(unsetenv("CUPOLA_LOG") == 0);
    unlink(g_log);
}

#define CASE_LIST(X) X(matrix)

IPC_MAIN(CASE_LIST)
