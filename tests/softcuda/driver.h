/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - what the files of the software driver share.
 * What:       its objects, its one lock, the frame of an entry point. One noun per .c file.
 * Invariants: operations of a queue start in order and are done in order, one at a time but for programmatic
 *             launches (queue.c); an operation starts only when all that it depends on is done. The unfinished
 *             list is in the order of submission.
 * Threads:    everything is guarded by sc.lock unless said; SC_ENTER takes it. No work runs under it.
 */
#ifndef SOFTCUDA_DRIVER_H
#define SOFTCUDA_DRIVER_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "softcuda.h"

#ifndef SOFTCUDA_VERSION
#define SOFTCUDA_VERSION 13000
#endif

#define SC_EXPORT            __attribute__((visibility("default")))
#define SC_DEVICES_MAX       8
#define SC_SLOT_BYTES        (2ull << 20)  /* the driver takes memory in blocks of this */
#define SC_RESERVATION_BYTES (64ull << 30) /* addresses of one device */
#define SC_SLOTS_MAX         (SC_RESERVATION_BYTES / SC_SLOT_BYTES)
#define SC_GRAIN_BYTES       512ull /* and cuts small allocations on this */
#define SC_GRAINS            (SC_SLOT_BYTES / SC_GRAIN_BYTES)
#define SC_QUEUE_DEPTH       1024 /* operations of one stream before a submission blocks: a launch queue */
#define SC_WAIT_CAP_S        60   /* nothing waits longer */

typedef struct CUctx_st sc_ctx_t;
typedef struct CUstream_st sc_stream_t;
typedef struct CUevent_st sc_event_t;
typedef struct CUgraph_st sc_graph_t;
typedef struct CUgraphNode_st sc_node_t;
typedef struct sc_op sc_op_t;
typedef struct sc_queue sc_queue_t;
typedef struct sc_capture sc_capture_t;

/* ---- entry points (procaddr.c, control.c) ---- */

/* What an entry point needs before its body runs: the last column of entry_list.h. */
enum {
    SC_FREE = 0,           /* nothing; takes no lock */
    SC_INIT = 1,           /* cuInit */
    SC_LIVE = 2 | SC_INIT, /* that the current context lives, if there is one */
    SC_CTX = 4 | SC_LIVE,  /* a current context */
    SC_STICKY = 8,         /* reports the current context's asynchronous error */
    SC_UNSAFE = 16         /* refused while capturing, by mode */
};

typedef enum {
#define SC_ENTRY(symbol, name, version, per_thread, needs) SC_ENTRY_##symbol,
#include "entry_list.h"
#undef SC_ENTRY
    SC_ENTRY_COUNT
} sc_entry_t;

/*
 * Counts the call; applies injected failures and needs. On success the lock is held, but for SC_FREE rows.
 */
CUresult sc_enter(sc_entry_t entry, bool *out_is_locked);
void sc_leave(const bool *is_locked);
bool sc_has_ended(void); /* the process is exiting: every call is refused, and writes nothing */

#define SC_ENTER(symbol)                                              \
    bool sc_is_locked __attribute__((cleanup(sc_leave))) = false;     \
    CUresult sc_refusal = sc_enter(SC_ENTRY_##symbol, &sc_is_locked); \
    if (sc_refusal != CUDA_SUCCESS)                                   \
    return sc_refusal

/* Which stream handle 0 means. */
typedef enum { SC_LEGACY, SC_PER_THREAD } sc_null_t;

/* Defines an entry point and its per-thread twin (suffix _ptsz or _ptds): what follows is the body of both,
 * with `null`. */
#define SC_LIST(...) __VA_ARGS__
#define SC_TWINS(symbol, suffix, params, args)                     \
    static CUresult symbol##_body(sc_null_t null, SC_LIST params); \
    SC_EXPORT CUresult symbol(SC_LIST params)                      \
    {                                                              \
        SC_ENTER(symbol);                                          \
        return symbol##_body(SC_LEGACY, SC_LIST args);             \
    }                                                              \
    SC_EXPORT CUresult symbol##suffix(SC_LIST params)              \
    {                                                              \
        SC_ENTER(symbol##suffix);                                  \
        return symbol##_body(SC_PER_THREAD, SC_LIST args);         \
    }                                                              \
    static CUresult symbol##_body(sc_null_t null, SC_LIST params)

/* ---- memory (heap.c, host.c) ---- */

typedef enum { SC_MEM_DEVICE, SC_MEM_MANAGED, SC_MEM_ASYNC, SC_MEM_IPC } sc_mem_kind_t;

typedef struct sc_alloc {
    uint64_t base;
    uint64_t size; /* as asked for */
    uint64_t id;   /* BUFFER_ID: unique in the process */
    sc_ctx_t *ctx;
    int device;
    sc_mem_kind_t kind;
    bool is_sync_memops;
    bool is_freeing;  /* cuMemFreeAsync is queued */
    bool is_variable; /* of a module: no call frees it */
} sc_alloc_t;

CUresult sc_heap_alloc(int device, sc_ctx_t *ctx, uint64_t size, sc_mem_kind_t kind, uint64_t *out_base);
sc_alloc_t *sc_heap_find(uint64_t addr); /* interior addresses too; NULL */
void sc_heap_free(sc_alloc_t *alloc);
void sc_heap_free_context(sc_ctx_t *ctx);
bool sc_heap_holds(uint64_t addr, uint64_t size); /* the whole range lies in one live allocation */
bool sc_heap_owns(uint64_t addr);                 /* live or not */
bool sc_heap_charge(int device, uint64_t slots);  /* memory without addresses; false when there is none */
void sc_heap_uncharge(int device, uint64_t slots);
void sc_heap_info(int device, uint64_t *out_free, uint64_t *out_total);
/* The bytes of a descriptor that end at offset + size; the allocation is what begins at offset. NULL: no room. */
sc_alloc_t *sc_heap_map(int device, sc_ctx_t *ctx, int fd, uint64_t offset, uint64_t size);
/* The slots that the allocation is in; false for memory that can't be shared. */
bool sc_heap_place(const sc_alloc_t *alloc, uint64_t *out_base, uint64_t *out_bytes);
uint64_t sc_heap_physical_id(const sc_alloc_t *alloc); /* MEMORY_BLOCK_ID: of those slots */

/* Legacy IPC (ipc.c): an allocation goes; the slots from base on go. */
void sc_ipc_drop(const sc_alloc_t *alloc);
void sc_ipc_drop_slots(uint64_t base);

typedef struct sc_host {
    struct sc_host *next;
    uint64_t base;
    uint64_t size;
    uint64_t id;
    sc_ctx_t *ctx;
    unsigned flags;
    bool is_registered; /* the program's own memory */
} sc_host_t;

sc_host_t *sc_host_find(uint64_t addr);
void sc_host_free_context(sc_ctx_t *ctx);

/* ---- virtual memory management (handle.c, range.c) ---- */

typedef struct sc_memory sc_memory_t;

/* What cuMemCreate gives: alive while it is referred to or mapped. */
typedef struct sc_handle {
    uint64_t key; /* as the program knows it */
    sc_memory_t *memory;
    int fd;
    uint64_t size;
    CUmemAllocationProp prop;
    unsigned refs; /* create, import, retain, less release */
    unsigned mappings;
} sc_handle_t;

/* A handle at an address: always whole. */
typedef struct sc_mapping {
    uint64_t base, size;
    uint64_t id;        /* BUFFER_ID */
    uint32_t access;    /* bit per device */
    uint32_t read_only; /* of these: told to who asks, not enforced */
    sc_handle_t *handle;
} sc_mapping_t;

sc_handle_t *sc_handle_find(uint64_t key); /* NULL when it was released */
void sc_handle_put(sc_handle_t *handle);   /* frees it when nothing refers to it */
bool sc_range_holds(uint64_t addr);        /* reserved, mapped or not */
bool sc_range_find(uint64_t addr, uint64_t *out_base, uint64_t *out_size); /* of that reservation */
sc_mapping_t *sc_mapping_find(uint64_t addr);
/* Everything is mapped and the device has access; device -1: some device has. */
bool sc_mapping_holds(uint64_t addr, uint64_t size, int device);
bool sc_mapping_writable(uint64_t addr, uint64_t size, int device); /* no part of it is read-only there */
bool sc_range_lingers(void);
void sc_range_settle(void); /* an operation has ended */

/* Addresses of the device, of both kinds (pointer.c). */
bool sc_is_device_address(uint64_t addr);
bool sc_is_usable(uint64_t addr, uint64_t size, int device);   /* as sc_mapping_holds */
bool sc_is_writable(uint64_t addr, uint64_t size, int device); /* no mapping of it is read-only there */

/* ---- work: what an operation or a graph node does (work.c, kernel.c) ---- */

typedef struct sc_kernel sc_kernel_t;
#define SC_ARGS_MAX   6
#define SC_RANGES_MAX 4

typedef struct sc_range {
    uint64_t base;
    uint64_t size;
    uint64_t generation; /* of the range when the operation was submitted */
    bool is_written;
} sc_range_t;

typedef enum {
    SC_WORK_MARK,
    SC_WORK_COPY,
    SC_WORK_SET,
    SC_WORK_KERNEL,
    SC_WORK_HOST,
    SC_WORK_FREE,
    SC_WORK_WRITE_VALUE,
    SC_WORK_WAIT_VALUE,
    SC_WORK_PREFETCH
} sc_work_kind_t;

/* The two sides of a copy of depth x height x width bytes: row after row, slice after slice. */
typedef struct sc_side {
    uint64_t base;
    size_t pitch, slice; /* bytes from one row, and from one slice, to the next */
} sc_side_t;

typedef struct sc_work {
    sc_work_kind_t kind;
    union {
        struct {
            sc_side_t dst, src;
            size_t width, height, depth;
        } copy;
        struct {
            uint64_t dst;
            size_t pitch, width, height; /* width in elements */
            uint32_t value;
            unsigned element; /* bytes: 1, 2, 4 */
        } set;
        struct {
            const sc_kernel_t *kernel;
            CUfunction function;
            unsigned shape[6]; /* grid and block */
            unsigned shared_bytes;
            bool is_programmatic; /* may begin before the kernel in front of it has ended */
            uint64_t args[SC_ARGS_MAX];
        } kernel;
        struct {
            CUhostFn fn;
            CUstreamCallback callback; /* instead of fn */
            CUstream stream;
            void *user;
        } host;
        struct {
            uint64_t addr, value;
            unsigned bytes;      /* 4, 8 */
            unsigned comparison; /* of a wait: CU_STREAM_WAIT_VALUE_* */
        } value;
        uint64_t free_base;
    };
    void *staged; /* owned copy of pageable source bytes; freed with the operation */
    sc_range_t ranges[SC_RANGES_MAX];
    unsigned range_count;
} sc_work_t;

void sc_work_touch(sc_work_t *work, uint64_t base, uint64_t size); /* ignores host memory */
void sc_work_write(sc_work_t *work, uint64_t base, uint64_t size); /* likewise */
bool sc_work_is_legal(const sc_work_t *work, const sc_ctx_t *ctx); /* what it touches is there */
CUresult sc_work_run(sc_work_t *work);                             /* without the lock */
const char *sc_work_name(const sc_work_t *work);

const sc_kernel_t *sc_kernel_find(const char *name);
const char *sc_kernel_name(const sc_kernel_t *kernel);
CUresult sc_kernel_plan(const sc_kernel_t *kernel, void **params, sc_work_t *out_work);
CUresult sc_kernel_run(const sc_kernel_t *kernel, const uint64_t *args); /* without the lock */

/* ---- operations, queues (queue.c) ---- */

struct sc_op {
    sc_op_t *next;          /* in its queue */
    sc_op_t *older, *newer; /* in sc.unfinished */
    sc_op_t **deps;         /* references; dropped when it starts */
    unsigned dep_count;
    unsigned refs;
    bool is_begun;     /* it runs, and touches its ranges */
    bool may_be_early; /* drawn for a programmatic launch */
    bool is_early;     /* started beside the kernel in front of it, on a thread of its own */
    bool has_run;      /* an early one */
    CUresult status;   /* of its run */
    bool is_done;
    uint64_t number;  /* order of submission, from 1 */
    uint64_t clock;   /* claims made before the submission */
    uint64_t done_ns; /* CLOCK_MONOTONIC */
    sc_queue_t *queue;
    sc_work_t work;
};

/* The FIFO behind a stream. Outlives the stream's handle until it is drained. */
struct sc_queue {
    sc_queue_t *next; /* in its context */
    sc_ctx_t *ctx;
    sc_op_t *head;
    sc_op_t *last; /* reference to the newest operation, done or not; NULL at first */
    unsigned length;
    bool is_legacy; /* synchronises with the blocking ones */
    bool is_blocking;
    bool is_closed; /* no handle leads here any more */
    bool has_thread;
    bool is_stuck;             /* its head waits: for dependencies, or to be released */
    unsigned early_count;      /* queued operations that may begin early and have not */
    const sc_stream_t *holder; /* softcuda_hold by this handle: no operation starts; NULL */
    uint64_t held_ns;          /* since when */
    uint64_t random;
    pthread_cond_t wake;
};

/* A set of operations: done when all are. What an event holds. */
typedef struct sc_marks {
    sc_op_t **ops;
    unsigned count;
} sc_marks_t;

sc_queue_t *sc_queue_create(sc_ctx_t *ctx, bool is_legacy, bool is_blocking);
void sc_queue_close(sc_queue_t *queue);
bool sc_queue_is_idle(const sc_queue_t *queue);
/* Appends; may block while the queue is full. deps (may be NULL) are copied. Returns the operation, borrowed.
 */
sc_op_t *sc_queue_push(sc_queue_t *queue, const sc_work_t *work, const sc_marks_t *deps);

bool sc_marks_are_done(const sc_marks_t *marks);
void sc_marks_add(sc_marks_t *marks, sc_op_t *op); /* done operations are left out */
void sc_marks_clear(sc_marks_t *marks);
uint64_t sc_marks_done_ns(const sc_marks_t *marks);
CUresult
sc_marks_wait(const sc_marks_t *marks); /* releases the lock while it waits; LAUNCH_TIMEOUT past the cap */
void sc_ctx_mark(sc_ctx_t *ctx, sc_marks_t *marks); /* everything submitted to the context so far */
CUresult sc_ctx_drain(sc_ctx_t *ctx);
CUresult sc_op_wait(sc_op_t *op);
uint64_t sc_now_ns(void);

/* ---- contexts, streams, events ---- */

/* A pair of cuCtxEnablePeerAccess. The other context may have ended since, and another one may have its handle. */
typedef struct sc_peer {
    struct sc_peer *next;
    const sc_ctx_t *ctx;
    uint64_t id;
} sc_peer_t;

/* Whether ctx has been given access to the peer's memory. */
bool sc_ctx_reaches(const sc_ctx_t *ctx, const sc_ctx_t *peer);
/* Whether that memory is within its reach: its device's own, a peer's plain one, managed memory. */
bool sc_ctx_may_use(const sc_ctx_t *ctx, const sc_alloc_t *alloc);
void sc_ctx_drop_peers(sc_ctx_t *ctx, const sc_ctx_t *peer); /* that one; NULL: all */

struct CUctx_st {
    sc_ctx_t *next; /* in sc.contexts; never freed, so that a stale handle is told apart */
    bool is_alive;
    bool is_primary;
    int device;
    sc_ctx_t *root;   /* of a green context: the primary one, whose its memory and events are; NULL */
    unsigned retains; /* of a primary context */
    unsigned uses;    /* of another: cuCtxAttach */
    unsigned flags;
    uint64_t id;
    CUresult sticky;
    sc_queue_t *queues;
    sc_stream_t *legacy;
    sc_stream_t *streams; /* live ones, per-thread ones included */
    sc_peer_t *peers;     /* contexts whose memory its kernels may use */
    sc_marks_t barrier;   /* cuCtxWaitEvent: every later operation depends on these */
};

struct CUstream_st {
    sc_stream_t *next; /* in its context, or in sc.free_streams */
    bool is_live;
    sc_ctx_t *ctx;
    sc_queue_t *queue;
    unsigned flags;
    int priority;
    uint64_t id;
    uint64_t thread; /* of a per-thread stream; 0 */
    sc_capture_t *capture;
    sc_node_t **tails; /* nodes that its next captured node follows; owned */
    unsigned tail_count;
};

struct CUevent_st {
    sc_event_t *next; /* in sc.free_events */
    bool is_live;
    bool is_recorded;
    sc_ctx_t *ctx;
    uint64_t ctx_id; /* a primary context comes back under its old handle, its events do not */
    unsigned flags;
    sc_marks_t marks;
    uint64_t done_ns;    /* once known */
    uint64_t capture_id; /* recorded in that capture; 0 */
    sc_node_t **tails;
    unsigned tail_count;
    uint64_t *shared; /* of an interprocess one: records made, records done; in a memfd; NULL */
    int shared_fd;
};

/* The work of a wait for an interprocess event, as it was recorded last by anybody. */
sc_work_t sc_event_wait_work(const sc_event_t *event);

sc_ctx_t *sc_ctx_current(void);
sc_ctx_t *sc_ctx_root(sc_ctx_t *ctx);    /* itself, or a green one's primary */
sc_ctx_t *sc_ctx_make_green(int device); /* with a reference on the primary context */
CUresult sc_ctx_end_green(sc_ctx_t *ctx);
CUresult sc_ctx_find(CUcontext handle, sc_ctx_t **out_ctx); /* NULL: the current one */
CUresult sc_stream_find(CUstream handle, sc_null_t null, sc_stream_t **out_stream);
sc_stream_t *sc_stream_create(sc_ctx_t *ctx, unsigned flags, int priority);
void sc_stream_destroy(sc_stream_t *stream);
/* Submits to a stream or, while it captures, adds a node. out_op may be NULL; it is NULL for a captured one.
 */
CUresult sc_stream_submit(sc_stream_t *stream, const sc_work_t *work, sc_op_t **out_op);

/* ---- capture and graphs (capture.c, graph.c, node.c) ---- */

struct CUgraphNode_st {
    sc_graph_t *graph;
    unsigned index; /* in its graph */
    sc_work_t work;
    sc_node_t **deps; /* owned */
    unsigned dep_count;
    sc_graph_t *child;         /* owned: the node is that graph, and its work a mark; NULL */
    void *params[SC_ARGS_MAX]; /* into work: what the program sees as kernelParams */
};

struct CUgraph_st {
    uint64_t id;
    sc_node_t **nodes; /* in the order in which they were added */
    unsigned count;
};

/* A copy of a graph, its nodes in an order that respects their dependencies. */
struct CUgraphExec_st {
    sc_graph_t *graph;  /* owned */
    uint64_t source_id; /* of the graph that it was made from */
    unsigned *places;   /* source node's index -> index in graph; owned */
    sc_marks_t last;    /* its newest launch: the next one runs after it */
};

struct sc_capture {
    sc_capture_t *next; /* in sc.captures */
    sc_graph_t *graph;
    bool is_graph_borrowed; /* cuStreamBeginCaptureToGraph */
    bool is_invalid;
    CUstreamCaptureMode mode;
    uint64_t thread; /* that began it */
    uint64_t id;
    sc_stream_t *origin;
};

CUresult sc_capture_check_unsafe(void); /* of the calling thread; invalidates what it may not disturb */
/* An act on the whole context (record, synchronise): UNSUPPORTED, and invalidated, while any of its streams
 * captures. */
CUresult sc_capture_check_context(const sc_ctx_t *ctx);
/* An act on the legacy stream: IMPLICIT, and invalidated, while a blocking stream of the context captures. */
CUresult sc_capture_check_legacy(const sc_ctx_t *ctx);
/* An act on a stream that can't be captured (query, synchronise, a synchronous copy). */
CUresult sc_capture_check_stream(const sc_stream_t *stream);
CUresult sc_capture_add(sc_stream_t *stream, const sc_work_t *work);
CUresult sc_capture_record(const sc_stream_t *stream, sc_event_t *event);
/* A wait of a capturing stream, or for a captured event. */
CUresult sc_capture_wait(sc_stream_t *stream, const sc_event_t *event);
void sc_capture_drop(sc_stream_t *stream); /* the stream goes */
sc_graph_t *sc_graph_create(void);
void sc_graph_destroy(sc_graph_t *graph);
sc_graph_t *sc_graph_clone(const sc_graph_t *graph);
sc_node_t *sc_graph_append(sc_graph_t *graph, const sc_work_t *work, sc_node_t *const *deps,
                           size_t dep_count);
/* The twin of the graph's node in an executable made from that graph; NULL. */
sc_node_t *sc_exec_find(CUgraphExec exec, const sc_node_t *node);
/* The node of an executable does what this graph does, if it has the same nodes. */
CUresult sc_exec_set_child(sc_node_t *node, const sc_graph_t *child);

/* What a node or a call does, checked and with its ranges; ctx NULL: the current one (copy.c, module.c). */
CUresult sc_copy_plan(const CUDA_MEMCPY3D *copy, sc_work_t *out_work);
CUresult sc_set_plan(const CUDA_MEMSET_NODE_PARAMS *set, sc_work_t *out_work);
CUresult sc_launch_plan(CUfunction function, const unsigned shape[6], unsigned shared_bytes, void **params,
                        sc_work_t *out_work);

/* ---- the overlap detector (overlap.c) ---- */

void sc_overlap_stamp(sc_op_t *op);       /* at submission */
void sc_overlap_check(const sc_op_t *op); /* when it begins */
/* The range is taken away from these devices: a violation while an unfinished operation of theirs
 * touches it. */
void sc_overlap_unmap(uint64_t base, uint64_t size, uint32_t devices);
bool sc_overlap_is_running(uint64_t base, uint64_t size); /* an operation that has begun touches it */
void sc_overlap_reset(void);

/* ---- the latency model (latency.c); nothing unless SOFTCUDA_LATENCY is set ---- */

typedef enum {
#define SC_TIME(name, ...) SC_TIME_##name,
#include "latency_list.h"
#undef SC_TIME
    SC_TIME_COUNT
} sc_time_t;

uint64_t sc_time_cost_ns(sc_time_t kind, uint64_t size_bytes);
void sc_time_enter(void);
void sc_time_take(sc_time_t kind, uint64_t size_bytes);      /* the call will have taken that longer */
void sc_time_waited(void);                                   /* its own time begins now */
void sc_time_leave(void);                                    /* without the lock */
void sc_time_work(const sc_work_t *work, uint64_t begun_ns); /* without the lock */

/* ---- per-thread and global state (control.c) ---- */

#define SC_CTX_STACK 32
typedef struct sc_thread {
    uint64_t number; /* never reused, from 1 */
    sc_ctx_t *stack[SC_CTX_STACK];
    unsigned depth;
    CUstreamCaptureMode capture_mode; /* as exchanged */
    bool is_in_host_fn;
    uint64_t entered_ns, owed_ns; /* latency.c */
} sc_thread_t;

sc_thread_t *sc_thread(void);

typedef struct sc_state {
    pthread_mutex_t lock;
    pthread_cond_t done; /* an operation finished, or a queue has room */
    bool is_init;        /* read without the lock too: atomic */
    int pid;             /* of the process that called cuInit */
    int device_count;
    uint64_t memory; /* bytes of a device */
    uint64_t seed;
    uint64_t delay_us;
    uint64_t stall_each; /* calls; 0: none stalls */
    bool has_latency;    /* set by cuInit */
    sc_ctx_t *contexts;
    sc_ctx_t *primaries[SC_DEVICES_MAX];
    sc_stream_t *free_streams;
    sc_event_t *free_events;
    sc_op_t *oldest, *newest; /* unfinished operations */
    uint64_t unfinished;
    uint64_t op_numbers;
    uint64_t ids; /* contexts, streams, buffers, captures */
    sc_capture_t *captures;
} sc_state_t;

extern sc_state_t sc;

uint64_t sc_next_id(void);
bool sc_is_hidden(const char *name); /* SOFTCUDA_MISSING */
CUresult sc_read_env(void);
void *sc_zalloc(size_t size);     /* zeroed; ends the program when there is none */
void *sc_new_handle(size_t size); /* as sc_zalloc; a program that forgets it is no leak of ours */
void *sc_grow(void *array, size_t count, size_t element);

#endif /* SOFTCUDA_DRIVER_H */
