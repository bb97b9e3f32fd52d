/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit - what happens around every call that submits work (order.h has the protocol).
 * What:       begin finds the stream's entry, publishes "in a call on it", closes and passes order points; end takes the
 *             word back and notes what the call leaves: work on the stream, host memory that it reads or writes.
 * Not here:   which calls submit, and where (submit_list.h); the protocol itself (order.c).
 * Manners:    errno and the current context stay as they are. A process in which nothing was pooled pays one load.
 * Threads:    any thread. Between begin and end the thread holds nothing but its call word.
 */
#ifndef CUP_SHIM_SUBMIT_H
#define CUP_SHIM_SUBMIT_H
#include "shim/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

/* Where a call puts its work. A null stream is the legacy one, or in the entry points of per-thread builds the thread's. */
typedef struct cup_place {
    CUstream stream;
    bool is_null_per_thread;
    bool is_nowhere; /* this call submits nothing after all */
} cup_place_t;

#define CUP_ON(handle)      ((cup_place_t){.stream = (handle)})
#define CUP_ON_PTSZ(handle) ((cup_place_t){.stream = (handle), .is_null_per_thread = true})
#define CUP_ON_NOTHING      ((cup_place_t){.is_nowhere = true})

/* What a row of the list says about its call, or-ed. */
enum {
    CUP_SUBMIT_PLAIN = 0,
    CUP_SUBMIT_HOST = 1,         /* goes on asynchronously and may read or write memory of the host */
    CUP_SUBMIT_EVERYWHERE = 2,   /* may touch any context: graph launches, copies between contexts */
    CUP_SUBMIT_PROGRAMMATIC = 4, /* this launch may start before the one in front of it has ended */
    CUP_SUBMIT_BLOCKING = 8,     /* returns when its own work is done */
    CUP_SUBMIT_MARK = 16,        /* an event: programmatic launches overlap across it */
};

struct cup_stream;

/* One call, on the caller's stack. */
typedef struct cup_call {
    struct cup_stream *stream; /* NULL: not followed */
    struct cup_thread *thread;
    unsigned rule;
    uint64_t fenced; /* points that the stream has passed */
    uint64_t begun;  /* blocking calls: as in idle.h */
    bool is_alone;
    bool is_unseen;     /* to no stream that is known: any may be busy after it, too */
    bool must_be_plain; /* a programmatic launch must go without that attribute this time */
} cup_call_t;

void cup_submit_begin(cup_call_t *call, cup_place_t place, unsigned rule);
void cup_submit_end(cup_call_t *call, CUresult result);

/* For a submission of our own, to a stream of ours, inside the gate. Ends as the others; without call->stream it is not
 * followed. */
void cup_submit_begin_own(cup_call_t *call, CUstream stream);

/*
 * exact: what was freed before becomes complete, as the native frees had waited for it. False: nothing was open. For calls
 * that notice (collect_list.h).
 */
bool cup_submit_collect(void);

/* Before a call that waits for a stream: what can be said of it afterwards (idle.h). */
struct cup_idle cup_submit_look(cup_place_t place);

/* The same for all streams of a context, NULL: the current one, that are known to be busy. Returns how many. */
int cup_submit_look_at_context(CUcontext ctx, struct cup_idle *out_idle);

/* Before a Begin on the stream, or a wait that may make it a part of a capture: then nothing can be recorded on it. */
void cup_submit_before_join(cup_place_t place);

/* There is managed memory, which the CPU uses without a call: frees wait from now on, under exact. */
void cup_submit_note_managed(void);

/* The address of a module's variable: it may be managed. */
void cup_submit_note_global(CUdeviceptr pointer);

/* Before the real destroy of a stream. */
void cup_submit_destroyed(CUstream stream);

/* Whether a pointer of a copy is, or may be, memory of the host. Our own blocks: no, without a driver call. */
bool cup_submit_is_host(CUdeviceptr pointer);

/*
 * A call may run ahead of what a stream was made to wait for: what was freed before becomes complete first, as after native
 * frees, and every context counts as "several busy".
 */
void cup_submit_doubt(void);

/* An entry point that nobody has classified is about to run: the same, and nobody sees what it submits, or when. */
void cup_submit_unknown(void);

#endif /* CUP_SHIM_SUBMIT_H */
