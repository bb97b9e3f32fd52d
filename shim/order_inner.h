/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_inner - what the files of the order points share: the struct, a point, what a point must cover.
 * What:       order.c has the protocol, contexts, frees and captures; order_record.c how a point is recorded; order_ring.c
 *             the points that are closed, and the clock; order_pass.c who runs after them, and who is busy; order_host.c
 *             host memory that operations touch.
 * Not here:   anything for others (order.h).
 * Invariants: cup_point_..._locked: with the order's lock held.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_ORDER_INNER_H
#define CUP_SHIM_ORDER_INNER_H
#include "allocator/lock.h"
#include "shim/order.h"
#include "shim/stream_set.h"

#define CUP_ORDER_RING          64
#define CUP_ORDER_PATIENT_TRIES 200 /* of cup_order_rest(), where nothing is lost by giving up */

/* One closed point. */
typedef struct cup_point_entry {
    cup_point_t number;
    CUevent event;       /* made when first needed */
    cup_stream_t *owner; /* whose stream it was recorded on, or NULL */
    bool is_settled;     /* the host saw it complete when it was closed; the event means nothing */
    bool is_loose;
} cup_point_entry_t;

/* An event behind operations that touch host memory, of a stream that is gone. NULL once it is known complete. */
typedef struct cup_orphan {
    struct cup_orphan *next;
    _Atomic(CUevent) event;
} cup_orphan_t;

/* A context that a call is ending: what its frees had waited for is complete, and its handles are not named any more. */
typedef enum { CUP_ORDER_LIVE, CUP_ORDER_ENDING, CUP_ORDER_ENDED } cup_order_life_t;

struct cup_order {
    cup_order_t *before; /* that had the slot: reachable, for leak checkers and debuggers */
    CUcontext ctx;
    int slot;
    cup_order_mode_t mode;
    bool has_record;    /* the driver can record on a context */
    bool is_distrusted; /* somebody submits work that we don't see; the lock's */
    cup_stream_t *legacy;
    _Atomic cup_order_life_t life;
    _Atomic int dirty;           /* 0; 1: a free has marked; 2: a close is under way */
    _Atomic cup_point_t open;    /* the number that the next close will have */
    _Atomic cup_point_t point;   /* the newest that is closed */
    _Atomic cup_point_t due;     /* exact: the newest that submissions must have passed, closed for a mark */
    _Atomic cup_point_t need;    /* overlap: likewise, but only what was handed out early */
    _Atomic cup_point_t settled; /* of these, what the host saw complete for a call that nobody knows */
    cup_stream_set_t busy;
    _Atomic(cup_stream_t *)
        hosted; /* streams that had operations that touch host memory: a list that only grows */
    _Atomic uint64_t host_made, host_paid;
    _Atomic(cup_orphan_t *) orphans; /* a list that only grows */
    _Atomic uint64_t orphans_made,
        orphans_paid;           /* such operations that no stream and event tell of any more */
    _Atomic bool is_awaited;    /* blocks were stamped with the open point and not marked */
    _Atomic bool is_open_loose; /* overlap: and work was submitted since */

    cup_lock_t lock; /* guards everything below, and closing */
    int captures;
    cup_point_t completed;
    unsigned freed_count; /* not marked, since the last close */
    uint64_t freed_bytes;
    unsigned head, count; /* the ring's oldest entry that is not known complete, and how many there are */
    cup_point_entry_t ring[CUP_ORDER_RING];
    cup_point_entry_t
        spare[2]; /* where a point is recorded that must not touch what is in the ring, or in `must` */
    cup_stream_t *joiner; /* of ours: how several streams become one point without a context record */
    CUevent join_event;
    _Atomic CUdeviceptr byte; /* the driver's own, to be freed where nothing but such a free waits; 0: none */
    unsigned unaudited;       /* points on one stream since the last audit began */
    struct {
        cup_point_t number; /* of the point that was recorded on the context as well; 0: no audit is open */
        CUevent event;
        unsigned misses;
    } audit;
    cup_point_entry_t must; /* what is passed: `due`, or the newest tight one */
};

/* What a point must cover. */
typedef struct cup_work {
    cup_stream_t *stream[2 * CUP_STREAM_SET_MAX];
    int count;
    bool is_several;
    bool is_settled; /* a stream that had passed the newest point is idle: what that covers is done */
} cup_work_t;

/* As {0}, which would zero half a KiB. */
static inline void cup_work_clear(cup_work_t *work)
{
    work->count = 0;
    work->is_several = work->is_settled = false;
}

/* By slot; as many as ever were used. */
extern _Atomic(cup_order_t *) cup_orders[CUP_ORDERS_MAX];
extern _Atomic int cup_order_slots;

static inline bool cup_order_follows(const cup_order_t *order)
{
    return order->mode == CUP_ORDER_EXACT || order->mode == CUP_ORDER_OVERLAP;
}

static inline bool cup_order_is_live(cup_order_t *order)
{
    return atomic_load_explicit(&order->life, memory_order_acquire) == CUP_ORDER_LIVE;
}

static inline bool cup_order_is_busy(cup_order_t *order, const cup_stream_t *stream)
{
    for (int i = 0; i < CUP_STREAM_SET_MAX; i++)
        if (atomic_load(&order->busy.member[i]) == stream)
            return true;
    return false;
}

static inline bool cup_order_has_passed(const cup_order_t *order, cup_stream_t *stream, cup_point_t point)
{
    return atomic_load_explicit(&stream->passed[order->slot], memory_order_acquire) >= point;
}

/* Which streams are busy is known, and each can be recorded on by whoever comes next. */
static inline bool cup_order_is_busy_known(cup_order_t *order)
{
    if (!order->joiner)
        return false;
    return !order->is_distrusted && !atomic_load(&order->busy.is_several);
}

/*
 * An event is behind all that is on the stream: of another thread's per-thread stream, after each of its calls while a
 * capture is in progress; of one that goes on to capture, from before that.
 */
static inline bool cup_point_has_tail(cup_stream_t *stream)
{
    uint64_t tailed = atomic_load(&stream->tailed);

    return tailed > 0 && tailed == atomic_load(&stream->begun);
}

/* Runs the call with the context current, whichever the program has. */
CUresult cup_point_in_context(CUcontext ctx, CUresult (*call)(void *), void *arg);

/* On the host, for all that was submitted to the context; beside a capture as natively. */
CUresult cup_point_wait_all(cup_order_t *order);

/*
 * As the driver's own free, which waits for what was submitted to the context before it, and leaves captures alone
 * (docs/captures.md).
 */
CUresult cup_point_wait_natively(cup_order_t *order);

/* ---- recording (order_record.c) ---- */

#define CUP_POINT_NOT_NOW CUDA_ERROR_NOT_READY /* a point that a capture keeps open; no record answers so */

void cup_work_include(cup_work_t *work, cup_stream_t *stream);

CUresult cup_point_need_event(cup_order_t *order, CUevent *event);
void cup_point_need_joiner_locked(cup_order_t *order);

/* Another thread's per-thread stream can't be named; under captures the driver says which stream must be left alone. */
bool cup_point_can_record_on(const cup_order_t *order, const cup_thread_t *self, const cup_stream_t *stream);
CUresult cup_point_record_on(cup_order_t *order, CUevent event, const cup_stream_t *stream);

/* Makes later work of the stream run after the point. Not recorded on it. */
CUresult cup_point_wait_for(const cup_point_entry_t *point, CUstream stream);

/* Steps b and c. may_wait: where no event can cover all that, the host waits for it; else CUP_POINT_NOT_NOW. */
void cup_point_gather_locked(cup_order_t *order, const cup_thread_t *self, cup_work_t *out_work,
                             cup_work_t *out_calls);
CUresult cup_point_record_locked(cup_order_t *order, const cup_thread_t *self, const cup_work_t *work,
                                 cup_point_entry_t *point, cup_point_t number, bool may_wait);
CUresult cup_point_record_nothing(cup_order_t *order, cup_point_entry_t *point);
void cup_point_give_back(cup_order_t *order, const cup_work_t *work);

/* Of a stream that goes: what it has is busy work of our own stream from now on. NOT_NOW: no event can be behind it. */
CUresult cup_point_take_over_locked(cup_order_t *order, cup_stream_t *stream);

/* ---- the ring (order_ring.c) ---- */

/* Also when it is complete: its event is still the newest one. */
cup_point_entry_t *cup_point_newest_locked(cup_order_t *order);
CUresult cup_point_poll_locked(cup_order_t *order);

/*
 * Steps a to d. self: the thread that submits, or NULL. is_loose: loose, if no mark asks for it. On
 * an error the point stays open, under the next number.
 */
CUresult cup_point_close_locked(cup_order_t *order, const cup_thread_t *self, bool is_loose, bool may_wait);

/* Waits on the host until the point is complete. Not with a lock held. */
CUresult cup_point_settle(const cup_point_entry_t *point);

/* ---- others ---- */

/* Until something may have changed (order_pass.c). self, out of its call meanwhile, or two that rest would wait for each other. */
void cup_order_rest(cup_thread_t *self);

/* The stream is about to end: what operations on it do to host memory is the order's to know (order_host.c). */
void cup_order_orphan_locked(cup_order_t *order, cup_stream_t *stream);

#endif /* CUP_SHIM_ORDER_INNER_H */
