/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_provider - how: ranges are cut from a process-wide space that only grows; a released one is reused
 * for the next request of its size. Guard gaps between ranges make a chunk's end an address of nobody.
 */
#include "tests/support/fake_provider.h"

#include <stdatomic.h>
#include <string.h>

#define SPACE_START UINT64_C(0x7f0000000000) /* where drivers put device memory */

static _Atomic uint64_t space_next = SPACE_START;

void cup_fake_init(cup_fake_provider_t *fake, uint64_t limit_bytes)
{
    memset(fake, 0, sizeof *fake);
    pthread_mutex_init(&fake->mutex, NULL);
    fake->limit_bytes = limit_bytes;
}

static cup_fake_range_t *find_range(cup_fake_provider_t *fake, uint64_t size_bytes)
{
    for (size_t i = 0; i < fake->ranges; i++)
        if (!fake->range[i].is_held && fake->range[i].size_bytes == size_bytes)
            return &fake->range[i];
    if (fake->ranges == CUP_FAKE_RANGES_MAX)
        return NULL;
    cup_fake_range_t *range = &fake->range[fake->ranges++];
    range->base = atomic_fetch_add(&space_next, size_bytes + CUP_CHUNK_ALIGN);
    range->size_bytes = size_bytes;
    return range;
}

static cup_status_t reserve_held(cup_fake_provider_t *fake, uint64_t size_bytes, cup_addr_t *out_base)
{
    fake->reserves++;
    fake->faults += size_bytes == 0 || size_bytes % CUP_CHUNK_ALIGN != 0;
    if (fake->fail_nth && --fake->fail_nth == 0)
        return CUP_ERR_DRIVER;
    if (size_bytes > fake->limit_bytes || fake->held_bytes > fake->limit_bytes - size_bytes)
        return CUP_ERR_OOM;
    cup_fake_range_t *range = find_range(fake, size_bytes);
    if (!range)
        return CUP_ERR_OOM;
    range->is_held = true;
    fake->held_bytes += size_bytes;
    fake->held_ranges++;
    *out_base = range->base;
    return CUP_OK;
}

static cup_status_t fake_reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    cup_fake_provider_t *fake = self;
    if (fake->on_call)
        fake->on_call(fake->on_call_argument);
    pthread_mutex_lock(&fake->mutex);
    cup_status_t status = reserve_held(fake, size_bytes, out_base);
    pthread_mutex_unlock(&fake->mutex);
    return status;
}

void cup_fake_release(cup_fake_provider_t *fake, cup_addr_t base, uint64_t size_bytes)
{
    bool is_known = false;
    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->ranges && !is_known; i++) {
        cup_fake_range_t *range = &fake->range[i];
        is_known = range->is_held && range->base == base && range->size_bytes == size_bytes;
        if (is_known)
            range->is_held = false;
    }
    fake->held_bytes -= is_known ? size_bytes : 0;
    fake->held_ranges -= is_known;
    fake->faults += !is_known;
    pthread_mutex_unlock(&fake->mutex);
}

static void fake_release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    cup_fake_provider_t *fake = self;
    if (fake->on_call)
        fake->on_call(fake->on_call_argument);
    pthread_mutex_lock(&fake->mutex);
    fake->releases++;
    pthread_mutex_unlock(&fake->mutex);
    cup_fake_release(fake, base, size_bytes);
}

cup_provider_t cup_fake_ops(cup_fake_provider_t *fake)
{
    return (cup_provider_t){fake_reserve, fake_release, fake};
}
