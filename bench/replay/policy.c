/* SPDX-License-Identifier: Apache-2.0 */
/* How: see policy.h. */
#include "bench/replay/policy.h"

#include <string.h>

const policy_ops_t *policy_find(const char *name)
{
    static const policy_ops_t *const all[] = {&policy_pool, &policy_segments, &policy_classes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}

void pending_push(pending_t *pending, void *block, cup_point_t point)
{
    if (pending->head == pending->count)
        pending->head = pending->count = 0;
    pending->entries =
        replay_grow(pending->entries, pending->count, &pending->capacity, sizeof *pending->entries);
    pending->entries[pending->count++] = (struct pending_entry){block, point};
}

void *pending_pop(pending_t *pending, cup_point_t usable)
{
    if (pending->head == pending->count || pending->entries[pending->head].point > usable)
        return NULL;
    return pending->entries[pending->head++].block;
}
