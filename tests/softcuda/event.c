/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - a set of operations: one for a stream's record, the newest of every queue for a context's. An
 * interprocess event also has two words in a memfd: how many records were made, by whom ever, and the last
 * that is done; a record writes the second word when the stream comes to it, and who waits in another
 * process waits for that word. Records of one event by several processes at once are not told apart.
 */
#include "driver.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHARED_MAGIC 0x746e657665637366ull
#define SHARED_BYTES 4096
#define SHARED_NAME  "softcuda-event"

enum { RECORDED, DONE };

/* 64 bytes: what the driver's handle is to the program. */
typedef struct {
    uint64_t magic, inode;
    int32_t pid, fd;
} wire_t;

/* Takes the descriptor. The words stay for ever: operations in flight write them when the event is gone. */
static bool map_words(sc_event_t *event, int fd)
{
    void *words = fd < 0 ? MAP_FAILED : mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (words == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    event->shared = words;
    event->shared_fd = fd;
    return true;
}

static bool make_words(sc_event_t *event)
{
    int fd = memfd_create(SHARED_NAME, MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, SHARED_BYTES) != 0) {
        close(fd);
        fd = -1;
    }
    return map_words(event, fd);
}

static uint64_t load_word(const sc_event_t *event, int which)
{
    return __atomic_load_n(&event->shared[which], __ATOMIC_ACQUIRE);
}

/* Done here and wherever it was recorded. */
static bool are_words_done(const sc_event_t *event)
{
    return !event->shared || load_word(event, DONE) >= load_word(event, RECORDED);
}

sc_work_t sc_event_wait_work(const sc_event_t *event)
{
    return (sc_work_t){.kind = SC_WORK_WAIT_VALUE,
                       .value = {.addr = (uintptr_t)&event->shared[DONE],
                                 .value = load_word(event, RECORDED),
                                 .bytes = 8,
                                 .comparison = CU_STREAM_WAIT_VALUE_GEQ}};
}

static sc_event_t *new_event(unsigned flags)
{
    sc_event_t *made = sc.free_events;

    if (made)
        sc.free_events = made->next;
    else
        made = sc_new_handle(sizeof *made);
    *made = (sc_event_t){.is_live = true, .ctx = sc_ctx_root(sc_ctx_current()), .flags = flags};
    made->ctx_id = made->ctx->id;
    return made;
}

static void drop_event(sc_event_t *event)
{
    if (event->shared)
        close(event->shared_fd);
    event->is_live = false;
    event->next = sc.free_events;
    sc.free_events = event;
}

SC_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    SC_ENTER(cuEventCreate);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

    if (!event || (flags & ~known) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sc_event_t *made = new_event(flags);
    if ((flags & CU_EVENT_INTERPROCESS) && !make_words(made)) {
        drop_event(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *event = made;
    return CUDA_SUCCESS;
}

/* The handle is good and its context lives. */
static CUresult check_handle(const sc_event_t *event)
{
    if (!event || !event->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    return event->ctx->is_alive && event->ctx->id == event->ctx_id ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Forgets what was recorded. */
static void clear(sc_event_t *event)
{
    sc_marks_clear(&event->marks);
    free(event->tails);
    event->tails = NULL;
    event->tail_count = 0;
    event->capture_id = 0;
    event->done_ns = 0;
}

static CUresult destroy(CUevent event)
{
    if (!event || !event->is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    clear(event);
    drop_event(event);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuEventDestroy(CUevent event)
{
    SC_ENTER(cuEventDestroy);
    return destroy(event);
}

SC_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    SC_ENTER(cuEventDestroy_v2);
    return destroy(event);
}

static sc_work_t record_work(const sc_event_t *event)
{
    return (sc_work_t){.kind = SC_WORK_WRITE_VALUE,
                       .value = {.addr = (uintptr_t)&event->shared[DONE],
                                 .value = load_word(event, RECORDED) + 1,
                                 .bytes = 8}};
}

static CUresult record(CUevent event, CUstream handle, sc_null_t null)
{
    sc_work_t mark = {.kind = SC_WORK_MARK};
    sc_stream_t *stream;
    sc_op_t *op;
    CUresult status = sc_stream_find(handle, null, &stream);

    if (status != CUDA_SUCCESS)
        return status;
    status = check_handle(event);
    if (status != CUDA_SUCCESS)
        return status;
    if (event->ctx != sc_ctx_root(stream->ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        clear(event);
        return sc_capture_record(stream, event);
    }
    if (event->shared)
        mark = record_work(event);
    status = sc_stream_submit(stream, &mark, &op);
    if (status != CUDA_SUCCESS)
        return status;
    if (event->shared)
        __atomic_store_n(&event->shared[RECORDED], mark.value.value, __ATOMIC_RELEASE);
    clear(event);
    sc_marks_add(&event->marks, op);
    event->is_recorded = true;
    sc_time_take(SC_TIME_RECORD, 0);
    return CUDA_SUCCESS;
}

SC_TWINS(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))
{
    return record(event, stream, null);
}

SC_TWINS(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
         (event, stream, flags))
{
    return flags <= CU_EVENT_RECORD_EXTERNAL ? record(event, stream, null) : CUDA_ERROR_INVALID_VALUE;
}

/* Covers everything submitted to the context so far, on every stream, destroyed ones included. */
SC_EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    SC_ENTER(cuCtxRecordEvent);
    sc_ctx_t *ctx;
    CUresult status = sc_ctx_find(handle, &ctx);

    if (status != CUDA_SUCCESS)
        return status;
    status = check_handle(event);
    if (status == CUDA_SUCCESS && event->ctx != sc_ctx_root(ctx))
        status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS)
        status = sc_capture_check_context(ctx);
    if (status == CUDA_SUCCESS)
        status = ctx->sticky;
    if (status != CUDA_SUCCESS)
        return status;
    clear(event);
    sc_ctx_mark(ctx, &event->marks);
    event->done_ns = event->marks.count ? 0 : sc_now_ns();
    event->is_recorded = true;
    sc_time_take(SC_TIME_RECORD_CONTEXT, 0);
    return CUDA_SUCCESS;
}

/* Orders all later work of the context, on streams yet to be created too, behind the event. */
SC_EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    SC_ENTER(cuCtxWaitEvent);
    sc_ctx_t *ctx;
    sc_marks_t pending = {0};
    CUresult status = sc_ctx_find(handle, &ctx);

    if (status != CUDA_SUCCESS)
        return status;
    if (!event || !event->is_live || event->capture_id != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    status = sc_capture_check_context(ctx);
    if (status != CUDA_SUCCESS)
        return status;
    for (unsigned i = 0; i < ctx->barrier.count; i++)
        sc_marks_add(&pending, ctx->barrier.ops[i]);
    for (unsigned i = 0; i < event->marks.count; i++)
        sc_marks_add(&pending, event->marks.ops[i]);
    sc_marks_clear(&ctx->barrier);
    ctx->barrier = pending;
    sc_time_take(SC_TIME_WAIT_CONTEXT, 0);
    return CUDA_SUCCESS;
}

static CUresult check(CUevent event)
{
    CUresult status = check_handle(event);

    if (status != CUDA_SUCCESS)
        return status;
    return event->capture_id != 0 ? CUDA_ERROR_CAPTURED_EVENT : event->ctx->sticky;
}

/* True when all is done; then the time is kept and the operations are let go. */
static bool is_done(sc_event_t *event)
{
    if (!sc_marks_are_done(&event->marks) || !are_words_done(event))
        return false;
    if (event->done_ns == 0) {
        event->done_ns = event->marks.count ? sc_marks_done_ns(&event->marks) : sc_now_ns();
        sc_marks_clear(&event->marks);
    }
    return true;
}

SC_EXPORT CUresult cuEventQuery(CUevent event)
{
    SC_ENTER(cuEventQuery);
    CUresult status = check(event);

    sc_time_take(SC_TIME_QUERY, 0);
    if (status == CUDA_SUCCESS && !is_done(event))
        status = CUDA_ERROR_NOT_READY;
    return status;
}

/* The lock is released meanwhile; the event stays readable when it is destroyed. */
static CUresult wait_for_words(const sc_event_t *event)
{
    const struct timespec pause = {.tv_nsec = 50000};
    uint64_t end_ns = sc_now_ns() + SC_WAIT_CAP_S * 1000000000ull;

    while (event->is_live && !are_words_done(event)) {
        if (sc_now_ns() > end_ns) {
            fputs("softcuda: TIMEOUT of a wait for an interprocess event\n", stderr);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        pthread_mutex_unlock(&sc.lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&sc.lock);
    }
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    SC_ENTER(cuEventSynchronize);
    CUresult status = check(event);

    if (status == CUDA_SUCCESS)
        status = sc_marks_wait(&event->marks);
    if (status == CUDA_SUCCESS)
        status = wait_for_words(event);
    return status == CUDA_SUCCESS ? event->ctx->sticky : status;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    CUresult status = check(start);

    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        status = check(end);
    if (status != CUDA_SUCCESS)
        return status;
    if (!start->is_recorded || !end->is_recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(start) || !is_done(end))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->done_ns - start->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    SC_ENTER(cuEventElapsedTime);
    return elapsed(ms, start, end);
}

SC_EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    SC_ENTER(cuEventElapsedTime_v2);
    return elapsed(ms, start, end);
}

/* ---- between processes ---- */

SC_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SC_ENTER(cuIpcGetEventHandle);
    CUresult status = check_handle(event);
    struct stat stat;

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS)
        return status;
    if (!event->shared)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fstat(event->shared_fd, &stat) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    const wire_t wire = {SHARED_MAGIC, stat.st_ino, (int32_t)getpid(), event->shared_fd};
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &wire, sizeof wire);
    return CUDA_SUCCESS;
}

/* The descriptor of an event that lives; -1. */
static int open_words(const wire_t *wire)
{
    char path[64], target[64];
    struct stat stat;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", wire->pid, wire->fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    int fd = strncmp(target, "/memfd:" SHARED_NAME, strlen("/memfd:" SHARED_NAME)) == 0
                 ? open(path, O_RDWR | O_CLOEXEC)
                 : -1;
    if (fd >= 0 && (fstat(fd, &stat) != 0 || stat.st_ino != wire->inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Codes as for memory (nonsense: INVALID_VALUE, the process itself: INVALID_CONTEXT); not measured. */
SC_EXPORT CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    SC_ENTER(cuIpcOpenEventHandle);
    wire_t wire;

    memcpy(&wire, handle.reserved, sizeof wire);
    if (!event || wire.magic != SHARED_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (wire.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    sc_event_t *made = new_event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (!map_words(made, open_words(&wire))) {
        drop_event(made);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    made->is_recorded = true;
    *event = made;
    return CUDA_SUCCESS;
}
