/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a class is its rounded size; free blocks of a class are a stack. Small blocks are driver allocations
 * too; driver.c counts them by their bytes, which flatters this policy.
 */
#include <stdlib.h>

#include "bench/replay/policy.h"

#define STEP_BYTES 512

typedef struct class_block {
    struct class_block *below; /* in the stack of its class */
    cup_addr_t addr;
    uint64_t bytes;
} class_block_t;

typedef struct classes {
    host_t *host;
    cup_provider_t driver;
    table_t cached;   /* class bytes → the stack's top */
    table_t block_at; /* address → class_block_t, of what the program holds */
    pending_t pending;
    uint64_t cached_bytes, used_bytes;
} classes_t;

static void *create(host_t *host)
{
    classes_t *self = replay_alloc(1, sizeof *self);
    self->host = host;
    self->driver = driver_ops(host->driver, true);
    return self;
}

/* Eighths of the power of two below, in steps of at least 512. */
static uint64_t class_bytes(uint64_t bytes)
{
    uint64_t step = STEP_BYTES;
    while (bytes > 16 * step)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

static class_block_t *pop_cached(classes_t *self, uint64_t bytes)
{
    uint64_t *top = table_at(&self->cached, bytes);
    class_block_t *block = (class_block_t *)(uintptr_t)*top;
    if (!block)
        return NULL;
    *top = (uint64_t)(uintptr_t)block->below;
    self->cached_bytes -= bytes;
    return block;
}

static void push_cached(classes_t *self, class_block_t *block)
{
    uint64_t *top = table_at(&self->cached, block->bytes);
    block->below = (class_block_t *)(uintptr_t)*top;
    *top = (uint64_t)(uintptr_t)block;
    self->cached_bytes += block->bytes;
}

static class_block_t *reserve_block(classes_t *self, uint64_t bytes)
{
    cup_addr_t addr;
    if (self->driver.reserve(self->driver.self, bytes, &addr) != CUP_OK)
        return NULL;
    class_block_t *block = replay_alloc(1, sizeof *block);
    *block = (class_block_t){.addr = addr, .bytes = bytes};
    return block;
}

static void release_cached(classes_t *self)
{
    for (size_t i = 0; i < self->cached.capacity; i++) {
        class_block_t *block;
        if (!self->cached.slots[i].is_used)
            continue;
        while ((block = pop_cached(self, self->cached.slots[i].key))) {
            self->driver.release(self->driver.self, block->addr, block->bytes);
            free(block);
        }
    }
}

static class_block_t *reserve_block_slow(classes_t *self, uint64_t bytes)
{
    self->host->waits++;
    host_wait(self->host, CUP_POINT_MAX);
    policy_classes.complete(self);
    class_block_t *block = pop_cached(self, bytes);
    if (block)
        return block;
    release_cached(self);
    return reserve_block(self, bytes);
}

static bool alloc(void *policy, uint64_t bytes, cup_addr_t *out_addr)
{
    classes_t *self = policy;
    bytes = class_bytes(bytes);
    class_block_t *block = pop_cached(self, bytes);
    if (!block)
        block = reserve_block(self, bytes);
    if (!block)
        block = reserve_block_slow(self, bytes);
    if (!block)
        return false;
    self->used_bytes += bytes;
    *table_at(&self->block_at, block->addr) = (uint64_t)(uintptr_t)block;
    *out_addr = block->addr;
    return true;
}

static void free_block(void *policy, cup_addr_t addr, cup_point_t point)
{
    classes_t *self = policy;
    uint64_t *slot = table_at(&self->block_at, addr);
    pending_push(&self->pending, (void *)(uintptr_t)*slot, point);
    *slot = 0;
}

static void complete(void *policy)
{
    classes_t *self = policy;
    class_block_t *block;
    while ((block = pending_pop(&self->pending, self->host->usable))) {
        self->used_bytes -= block->bytes;
        push_cached(self, block);
    }
}

static const char *check(void *policy)
{
    classes_t *self = policy;
    bool is_exact = self->cached_bytes + self->used_bytes == self->host->driver->held_bytes;
    return is_exact ? NULL : "classes: cached and used bytes are not what the driver holds";
}

static const char *check_empty(void *policy)
{
    classes_t *self = policy;
    return self->used_bytes ? "classes: something is used" : NULL;
}

static void destroy(void *policy)
{
    classes_t *self = policy;
    release_cached(self);
    table_fini(&self->cached);
    table_fini(&self->block_at);
    free(self->pending.entries);
    free(self);
}

const policy_ops_t policy_classes = {"classes", create, alloc,       free_block,
                                     complete,  check,  check_empty, destroy};
