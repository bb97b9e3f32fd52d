/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_set - a small set of streams that many threads add to and one at a time empties.
 * What:       up to CUP_STREAM_SET_MAX entries; past that, "several": any stream may be meant.
 * Invariants: an entry that was added stays until somebody takes it: no store ever covers another thread's. `used` rises
 *             before a member is filled. A stream may be in twice.
 * Threads:    adding from any thread, without a lock: one load where the stream is there already. Taking under the
 *             owner's lock.
 */
#ifndef CUP_SHIM_STREAM_SET_H
#define CUP_SHIM_STREAM_SET_H
#include "shim/stream.h"

#define CUP_STREAM_SET_MAX 32

typedef struct cup_stream_set {
    _Atomic(cup_stream_t *) member[CUP_STREAM_SET_MAX]; /* filled from the front */
    _Atomic int used;                                   /* members ever filled: behind these there was none */
    _Atomic bool is_several;
} cup_stream_set_t;

static inline void cup_stream_set_add(cup_stream_set_t *set, cup_stream_t *stream)
{
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *member = atomic_load(&set->member[i]);

        if (member == stream)
            return;
        if (member)
            continue;
        for (int used = atomic_load(&set->used); used <= i;)
            if (atomic_compare_exchange_weak(&set->used, &used, i + 1))
                break;
        if (atomic_compare_exchange_strong(&set->member[i], &member, stream) || member == stream)
            return;
    }
    atomic_store(&set->is_several, true);
}

/* Takes everything out. Members are taken one by one: what is added meanwhile is either taken or stays. */
static inline bool cup_stream_set_take(cup_stream_set_t *set, cup_stream_t **out_member, int *out_count)
{
    int count = 0, used = atomic_load(&set->used);

    for (int i = 0; i < used; i++) {
        cup_stream_t *member = atomic_load(&set->member[i]);

        if (member)
            member = atomic_exchange(&set->member[i], NULL);

        if (member)
            out_member[count++] = member;
    }
    *out_count = count;
    return atomic_load(&set->is_several) && atomic_exchange(&set->is_several, false);
}

/* Of a stream that goes. It leaves a hole: the next to be added fills it, be it there already or not. */
static inline void cup_stream_set_remove(cup_stream_set_t *set, cup_stream_t *stream)
{
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++) {
        cup_stream_t *member = stream;

        atomic_compare_exchange_strong(&set->member[i], &member, NULL);
    }
}

#endif /* CUP_SHIM_STREAM_SET_H */
