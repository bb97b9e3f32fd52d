/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_bed - what the cases of named blocks share, beyond ipc_bed.h: a block that is published, and asking
 * for a name.
 */
#ifndef CUP_TESTS_PRELOAD_NAMED_BED_H
#define CUP_TESTS_PRELOAD_NAMED_BED_H
#include "tests/preload/ipc_bed.h"

/* An order about the same name. */
static inline servant_t named(const servant_t *block)
{
    servant_t order = {.size = 0};

    snprintf(order.name, sizeof order.name, "%s", block->name);
    return order;
}

/* A pooled block full of the pattern of seed, under this name. */
static inline servant_t named_published(const peer_t *where, const char *name, uint64_t size, uint64_t seed)
{
    servant_t block = ipc_filled(where, size, seed);

    snprintf(block.name, sizeof block.name, "%s", name);
    block.number = 0;
    REQUIRE(servant_tell(where, SERVANT_PUBLISH, &block) == CUDA_SUCCESS);
    return block;
}

static inline int named_publish_code(const char *name, CUdeviceptr address, unsigned flags)
{
    return cupola_publish(name, address, flags, CUPOLA_NO_GROUP);
}

/* Openings of a name that is listed. */
static inline uint32_t named_readers(const char *name)
{
    cupola_block_t block[64];
    size_t count;

    REQUIRE(cupola_list(block, 64, &count) == CUPOLA_OK && count <= 64);
    for (size_t i = 0; i < count; i++)
        if (strcmp(block[i].name, name) == 0)
            return block[i].readers;
    REQUIRE(!"the name is listed");
    return 0;
}

/* Waits until nobody has it open: a close is told, not asked, and the dead count for a second. */
static inline void named_unread(const char *name)
{
    for (int tries = 0; named_readers(name) > 0; tries++) {
        REQUIRE(tries < 200);
        ipc_pause(25000);
    }
}

static inline void named_kill(const peer_t *peer)
{
    g_has_killed = 1;
    kill(peer->pid, SIGKILL);
    REQUIRE(peer_end(peer) == 128 + SIGKILL);
}

#endif /* CUP_TESTS_PRELOAD_NAMED_BED_H */
