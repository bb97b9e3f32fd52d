/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_law - random histories of named blocks, by several processes, against a model.
 * What:       named_law law [STEPS]: four processes publish, take back, free, open either way, close, read,
 *             write and are killed. Each answer is the model's; whoever has a block open reads what was last
 *             written to it, whatever became of its name, its owner's block and its owner.
 * Invariants: at the end all is closed: no process has anything mapped, nothing is in quarantine.
 */
#define _GNU_SOURCE
#include "tests/preload/named_bed.h"
#include "tests/support/rng.h"

enum { PROCESSES = 4, NAMES = 3, BLOCKS = 6, OPENS = 8, SIZE = 600 << 10 };

/* A block of the model, which lives on while somebody has it open. */
typedef struct memory {
    uint64_t seed; /* of its bytes */
    int owner, is_live;
    CUdeviceptr address; /* at its owner's */
} memory_t;

typedef struct opening {
    int memory; /* -1: free slot */
    int is_read_only;
    CUdeviceptr address;
} opening_t;

static cup_rng_t g_rng;
static peer_t g_peer[PROCESSES]; /* 0: this one */
static memory_t g_memory[100000];
static int g_memories;
static int g_block[PROCESSES][BLOCKS]; /* memory, or -1 */
static opening_t g_open[PROCESSES][OPENS];
static struct {
    int memory; /* -1: not published */
    int is_read_only;
    uint64_t generation;
} g_name[NAMES];
static uint64_t g_generation;
static unsigned g_published, g_opened; /* by this process */

static int draw(int count)
{
    return (int)cup_rng_below(&g_rng, (uint64_t)count);
}

static const peer_t *who(int process)
{
    return process == 0 ? NULL : &g_peer[process];
}

static void name_order(servant_t *order, int name)
{
    snprintf(order->name, sizeof order->name, "name-%d", name);
}

static uint64_t wrong_at(int process, CUdeviceptr address, uint64_t seed)
{
    servant_t order = {.address = address};

    return ipc_wrong(who(process), &order, SIZE, seed);
}

static void write_at(int process, CUdeviceptr address, memory_t *memory)
{
    servant_t order = {.address = address, .size = SIZE, .number = ++memory->seed + 1000000};

    memory->seed = order.number;
    REQUIRE(servant_tell(who(process), SERVANT_FILL, &order) == CUDA_SUCCESS);
}

/* ---- steps ---- */

/* Its names go with it. */
static void end_memory(int index)
{
    g_memory[index].is_live = 0;
    for (int name = 0; name < NAMES; name++)
        if (g_name[name].memory == index)
            g_name[name].memory = -1;
}

static void step_block(int process)
{
    int slot = draw(BLOCKS), index = g_block[process][slot];
    servant_t order = {.size = SIZE};

    if (index >= 0) {
        order.address = g_memory[index].address;
        REQUIRE(servant_tell(who(process), SERVANT_FREE, &order) == CUDA_SUCCESS);
        end_memory(index);
        g_block[process][slot] = -1;
        return;
    }
    REQUIRE(servant_tell(who(process), SERVANT_ALLOC, &order) == CUDA_SUCCESS);
    index = g_memories++;
    g_memory[index] = (memory_t){.owner = process, .is_live = 1, .address = order.address};
    write_at(process, order.address, &g_memory[index]);
    g_block[process][slot] = index;
}

static void step_publish(int process)
{
    int name = draw(NAMES), index = g_block[process][draw(BLOCKS)], is_read_only = draw(4) == 0;
    servant_t order = {.number = is_read_only ? CUPOLA_READ_ONLY : 0};
    CUresult result;

    if (index < 0)
        return;
    name_order(&order, name);
    order.address = g_memory[index].address;
    result = servant_tell(who(process), SERVANT_PUBLISH, &order);
    if (g_name[name].memory >= 0) {
        REQUIRE(result == (CUresult)CUPOLA_TAKEN);
        return;
    }
    REQUIRE(result == CUDA_SUCCESS);
    g_published += process == 0;
    g_name[name].memory = index;
    g_name[name].is_read_only = is_read_only;
    g_name[name].generation = ++g_generation;
}

static void step_unpublish(int process)
{
    int name = draw(NAMES), index = g_name[name].memory;
    servant_t order = {.size = 0};
    CUresult result;

    name_order(&order, name);
    result = servant_tell(who(process), SERVANT_UNPUBLISH, &order);
    if (index >= 0 && g_memory[index].owner == process) {
        REQUIRE(result == CUDA_SUCCESS);
        g_name[name].memory = -1;
    } else {
        REQUIRE(result == (CUresult)CUPOLA_NOT_FOUND);
    }
}

static int model_of_open(int process, int name, int is_read_only)
{
    int index = g_name[name].memory;

    if (index < 0)
        return CUPOLA_NOT_FOUND;
    if (g_name[name].is_read_only && !is_read_only)
        return CUPOLA_NOT_PERMITTED;
    return g_memory[index].owner == process ? CUPOLA_NO_CONTEXT : CUPOLA_OK;
}

static void step_open(int process)
{
    int name = draw(NAMES), is_read_only = draw(2), expected = model_of_open(process, name, is_read_only);
    opening_t *slot = &g_open[process][draw(OPENS)];
    servant_t order = {.number = is_read_only ? CUPOLA_READ_ONLY : 0};

    if (slot->memory >= 0)
        return;
    name_order(&order, name);
    REQUIRE((int)servant_tell(who(process), SERVANT_NAMED_OPEN, &order) == expected);
    if (expected != CUPOLA_OK)
        return;
    g_opened += process == 0;
    REQUIRE(order.size == SIZE && order.generation == g_name[name].generation);
    for (int i = 0; i < OPENS; i++) /* the same memory the same way: the same address */
        if (g_open[process][i].memory == g_name[name].memory)
            REQUIRE((g_open[process][i].address == order.address) ==
                    (g_open[process][i].is_read_only == is_read_only));
    *slot = (opening_t){g_name[name].memory, is_read_only, order.address};
}

static void step_use(int process)
{
    const opening_t *slot = &g_open[process][draw(OPENS)];

    if (slot->memory < 0)
        return;
    REQUIRE(wrong_at(process, slot->address, g_memory[slot->memory].seed) == 0);
    if (!slot->is_read_only && draw(2))
        write_at(process, slot->address, &g_memory[slot->memory]);
}

static void close_slot(int process, opening_t *slot)
{
    servant_t order = {.address = slot->address};

    if (slot->memory < 0)
        return;
    REQUIRE(servant_tell(who(process), SERVANT_NAMED_CLOSE, &order) == CUDA_SUCCESS);
    slot->memory = -1;
}

static void start_process(int process)
{
    if (process > 0)
        g_peer[process] = ipc_peer();
    for (int i = 0; i < BLOCKS; i++)
        g_block[process][i] = -1;
    for (int i = 0; i < OPENS; i++)
        g_open[process][i].memory = -1;
}

/* Not this one. */
static void step_kill(int process)
{
    if (process == 0)
        return;
    named_kill(&g_peer[process]);
    for (int i = 0; i < BLOCKS; i++)
        if (g_block[process][i] >= 0)
            end_memory(g_block[process][i]);
    start_process(process);
}

static void check_list(int process)
{
    uint64_t count = 0;

    for (int name = 0; name < NAMES; name++)
        count += g_name[name].memory >= 0;
    REQUIRE(servant_ask(who(process), SERVANT_NAMED_COUNT, "") == count);
}

static void step(void)
{
    int process = draw(PROCESSES), kind = draw(100);

    if (kind < 20)
        step_block(process);
    else if (kind < 35)
        step_publish(process);
    else if (kind < 42)
        step_unpublish(process);
    else if (kind < 65)
        step_open(process);
    else if (kind < 80)
        step_use(process);
    else if (kind < 95)
        close_slot(process, &g_open[process][draw(OPENS)]);
    else if (kind < 99)
        check_list(process);
    else
        step_kill(process);
}

static void law(void)
{
    uint64_t seed = cup_rng_seed(1);

    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    g_rng.state = seed;
    for (int i = 0; i < NAMES; i++)
        g_name[i].memory = -1;
    for (int i = 0; i < PROCESSES; i++)
        start_process(i);
    for (int i = 0; i < g_rounds; i++)
        step();
    for (int process = 0; process < PROCESSES; process++)
        for (int i = 0; i < OPENS; i++)
            close_slot(process, &g_open[process][i]);
    for (int process = 1; process < PROCESSES; process++)
        REQUIRE(servant_ask(who(process), SERVANT_VIOLATIONS, "") == 0);
    g_has_killed = 1;
    for (int process = PROCESSES - 1; process > 0; process--)
        named_kill(&g_peer[process]);
    ipc_pause(1500000); /* what the dead had on loan has come back */
    REQUIRE(softcuda_violations() == 0);
    ipc_count("named_publishes", g_published);
    ipc_count("named_opens", g_opened);
    ipc_count("ipc_mapped_bytes", 0);
    ipc_count("quarantined_bytes", 0);
}

#define CASE_LIST(X) X(law)

IPC_MAIN(CASE_LIST)
