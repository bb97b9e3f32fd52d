/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_provider - how: chunks and ranges are cut from a process-wide space that only grows; a released one
 * is reused for the next request of its size. Guard gaps between them make a chunk's end an address of
 * nobody.
 */
#include "tests/support/fake_provider.h"

#include <stdatomic.h>
#include <string.h>

#define SPACE_START UINT64_C(0x7f0000000000) /* where drivers put device memory */
#define RANGE_ALIGN (32 * CUP_MIB)

static _Atomic uint64_t space_next = SPACE_START;

void cup_fake_init(cup_fake_provider_t *fake, uint64_t limit_bytes)
{
    memset(fake, 0, sizeof *fake);
    pthread_mutex_init(&fake->mutex, NULL);
    fake->limit_bytes = limit_bytes;
}

/* Each call of the interface begins with it and ends with leave(). */
static cup_fake_provider_t *enter(void *self)
{
    cup_fake_provider_t *fake = self;
    if (fake->on_call)
        fake->on_call(fake->on_call_argument);
    pthread_mutex_lock(&fake->mutex);
    return fake;
}

static void leave(cup_fake_provider_t *fake)
{
    pthread_mutex_unlock(&fake->mutex);
}

static bool must_fail(cup_fake_provider_t *fake)
{
    return fake->fail_nth && --fake->fail_nth == 0;
}

/* ---- chunks and ranges ---- */

static cup_fake_range_t *find_range(cup_fake_provider_t *fake, uint64_t size_bytes, bool is_addresses)
{
    uint64_t align = is_addresses ? RANGE_ALIGN : CUP_CHUNK_ALIGN;
    for (size_t i = 0; i < fake->ranges; i++) {
        cup_fake_range_t *range = &fake->range[i];
        if (!range->is_held && range->size_bytes == size_bytes && range->is_addresses == is_addresses)
            return range;
    }
    if (fake->ranges == CUP_FAKE_RANGES_MAX)
        return NULL;
    cup_fake_range_t *range = &fake->range[fake->ranges++];
    range->base = atomic_fetch_add(&space_next, size_bytes + align) + align - 1;
    range->base -= range->base % align;
    range->size_bytes = size_bytes;
    range->is_addresses = is_addresses;
    return range;
}

static bool has_memory(const cup_fake_provider_t *fake, uint64_t size_bytes)
{
    return size_bytes <= fake->limit_bytes && fake->held_bytes <= fake->limit_bytes - size_bytes;
}

static cup_status_t reserve_held(cup_fake_provider_t *fake, uint64_t size_bytes, bool is_addresses,
                                 cup_addr_t *out_base)
{
    fake->reserves++;
    fake->faults += size_bytes == 0 || size_bytes % CUP_CHUNK_ALIGN != 0;
    if (must_fail(fake))
        return CUP_ERR_DRIVER;
    if (!is_addresses && !has_memory(fake, size_bytes))
        return CUP_ERR_OOM;
    cup_fake_range_t *range = find_range(fake, size_bytes, is_addresses);
    if (!range)
        return CUP_ERR_OOM;
    range->is_held = true;
    fake->held_bytes += is_addresses ? 0 : size_bytes;
    fake->held_ranges += !is_addresses;
    fake->held_addresses += is_addresses;
    *out_base = range->base;
    return CUP_OK;
}

static bool overlaps_handle(const cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes)
{
    for (size_t i = 0; i < fake->handles; i++)
        if (addr < fake->handle[i].addr + fake->handle[i].size_bytes &&
            fake->handle[i].addr < addr + size_bytes)
            return true;
    return false;
}

static void release_held(cup_fake_provider_t *fake, cup_addr_t base, uint64_t size_bytes, bool is_addresses)
{
    bool is_known = false;
    for (size_t i = 0; i < fake->ranges && !is_known; i++) {
        cup_fake_range_t *range = &fake->range[i];
        is_known = range->is_held && range->base == base && range->size_bytes == size_bytes &&
                   range->is_addresses == is_addresses;
        if (is_known)
            range->is_held = false;
    }
    fake->faults += !is_known || (is_addresses && overlaps_handle(fake, base, size_bytes));
    if (!is_known)
        return;
    fake->held_bytes -= is_addresses ? 0 : size_bytes;
    fake->held_ranges -= !is_addresses;
    fake->held_addresses -= is_addresses;
}

void cup_fake_release(cup_fake_provider_t *fake, cup_addr_t base, uint64_t size_bytes)
{
    pthread_mutex_lock(&fake->mutex);
    release_held(fake, base, size_bytes, false);
    pthread_mutex_unlock(&fake->mutex);
}

void cup_fake_release_all(cup_fake_provider_t *fake)
{
    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->ranges; i++)
        fake->range[i].is_held = false;
    fake->handles = 0;
    fake->held_bytes = fake->held_ranges = fake->held_addresses = 0;
    pthread_mutex_unlock(&fake->mutex);
}

static cup_status_t fake_reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    cup_fake_provider_t *fake = enter(self);
    cup_status_t status = reserve_held(fake, size_bytes, false, out_base);
    leave(fake);
    return status;
}

static void fake_release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    cup_fake_provider_t *fake = enter(self);
    fake->releases++;
    release_held(fake, base, size_bytes, false);
    leave(fake);
}

static cup_status_t fake_range_reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    cup_fake_provider_t *fake = enter(self);
    cup_status_t status = reserve_held(fake, size_bytes, true, out_base);
    leave(fake);
    return status;
}

static void fake_range_release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    cup_fake_provider_t *fake = enter(self);
    fake->releases++;
    release_held(fake, base, size_bytes, true);
    leave(fake);
}

/* ---- handles ---- */

/* Inside a range, aligned, over nothing that is mapped. */
static bool may_map(const cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes)
{
    bool is_inside = false;
    for (size_t i = 0; i < fake->ranges; i++) {
        const cup_fake_range_t *range = &fake->range[i];
        is_inside |= range->is_held && range->is_addresses && addr >= range->base &&
                     addr + size_bytes <= range->base + range->size_bytes;
    }
    return is_inside && size_bytes > 0 && size_bytes % CUP_CHUNK_ALIGN == 0 && addr % CUP_CHUNK_ALIGN == 0 &&
           !overlaps_handle(fake, addr, size_bytes);
}

/* The whole handle, exactly as it is mapped. */
static cup_fake_handle_t *find_handle(cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes,
                                      uint64_t id)
{
    for (size_t i = 0; i < fake->handles; i++) {
        cup_fake_handle_t *handle = &fake->handle[i];
        if (handle->id == id && handle->addr == addr && handle->size_bytes == size_bytes)
            return handle;
    }
    fake->faults++;
    return NULL;
}

static cup_status_t commit_held(cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes,
                                uint64_t *out_handle)
{
    fake->commits++;
    if (must_fail(fake))
        return CUP_ERR_DRIVER;
    if (!has_memory(fake, size_bytes) || fake->handles == CUP_FAKE_HANDLES_MAX)
        return CUP_ERR_OOM;
    fake->faults += !may_map(fake, addr, size_bytes);
    fake->handle[fake->handles++] = (cup_fake_handle_t){addr, size_bytes, ++fake->last_id};
    fake->held_bytes += size_bytes;
    *out_handle = fake->last_id;
    return CUP_OK;
}

static cup_status_t fake_commit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t *out_handle)
{
    cup_fake_provider_t *fake = enter(self);
    cup_status_t status = commit_held(fake, addr, size_bytes, out_handle);
    leave(fake);
    return status;
}

static void fake_decommit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t id)
{
    cup_fake_provider_t *fake = enter(self);
    cup_fake_handle_t *handle = find_handle(fake, addr, size_bytes, id);
    fake->decommits++;
    if (handle) {
        *handle = fake->handle[--fake->handles];
        fake->held_bytes -= size_bytes;
    }
    leave(fake);
}

static cup_status_t fake_move(void *self, cup_addr_t from, cup_addr_t to, uint64_t size_bytes, uint64_t id)
{
    cup_fake_provider_t *fake = enter(self);
    cup_fake_handle_t *handle = find_handle(fake, from, size_bytes, id);
    cup_status_t status = must_fail(fake) || !handle ? CUP_ERR_DRIVER : CUP_OK;
    fake->moves++;
    fake->faults += !may_map(fake, to, size_bytes);
    if (status == CUP_OK)
        handle->addr = to;
    leave(fake);
    return status;
}

static bool fake_may_move(void *self)
{
    return !((cup_fake_provider_t *)self)->is_pinned;
}

uint64_t cup_fake_mark(cup_fake_provider_t *fake, cup_addr_t addr, uint64_t size_bytes)
{
    uint64_t mark = 0, covered_bytes = 0;
    cup_addr_t end = addr + size_bytes;
    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->handles; i++) {
        const cup_fake_handle_t *handle = &fake->handle[i];
        cup_addr_t from = handle->addr > addr ? handle->addr : addr;
        cup_addr_t handle_end = handle->addr + handle->size_bytes, to = handle_end < end ? handle_end : end;
        if (from >= to)
            continue;
        covered_bytes += to - from;
        mark += (handle->id << 20) ^ handle->addr; /* a sum: the order of the table does not matter */
    }
    pthread_mutex_unlock(&fake->mutex);
    return covered_bytes == size_bytes ? mark : 0;
}

cup_provider_t cup_fake_ops(cup_fake_provider_t *fake)
{
    return (cup_provider_t){.reserve = fake_reserve, .release = fake_release, .self = fake};
}

cup_provider_t cup_fake_range_ops(cup_fake_provider_t *fake)
{
    cup_provider_t ops = cup_fake_ops(fake);
    ops.range_reserve = fake_range_reserve;
    ops.range_release = fake_range_release;
    ops.commit = fake_commit;
    ops.decommit = fake_decommit;
    ops.move = fake_move;
    ops.may_move = fake_may_move;
    return ops;
}
