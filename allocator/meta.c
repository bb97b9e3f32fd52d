/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta - how: one jemalloc arena of our own, without thread caches, created inside the first allocation and
 * never at load.
 *
 * The embedded jemalloc (cmake/jemalloc.cmake) is deaf to the host's MALLOC_CONF and has no
 * constructor, no fork handlers and no public names. Its settings are the string below.
 *
 * No lock of ours: two threads, or a re-entered one, may both create an arena. The first to publish
 * wins and the other destroys its own, so nothing waits and nothing can deadlock in the start.
 *
 * Every call takes a lock of the arena: bookkeeping is allocated per slab and per chunk, not per
 * block, and a thread cache would leave memory behind in every thread of the host.
 */
#include "allocator/meta.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t live_bytes;

#ifdef CUP_SANITIZED
#include <stdlib.h>

static void *backing_alloc(size_t size_bytes)
{
    return calloc(1, size_bytes ? size_bytes : 1);
}

static void backing_free(void *memory, size_t size_bytes)
{
    free(memory);
}

uint64_t cup_meta_held_bytes(void)
{
    return cup_meta_live_bytes();
}

#else                          /* the embedded jemalloc */
#include <jemalloc/jemalloc.h> /* for the MALLOCX_ flags alone; the names that we call carry our prefix */

#pragma GCC visibility push(hidden)
void *cup_je_mallocx(size_t size_bytes, int flags);
void cup_je_sdallocx(void *memory, size_t size_bytes, int flags);
int cup_je_mallctl(const char *name, void *out_old, size_t *old_bytes, void *new_value, size_t new_bytes);
int cup_je_mallctlnametomib(const char *name, size_t *out_mib, size_t *mib_length);
int cup_je_mallctlbymib(const size_t *mib, size_t mib_length, void *out_old, size_t *old_bytes,
                        void *new_value, size_t new_bytes);
extern const char *cup_je_malloc_conf;
#pragma GCC visibility pop

/*
 * jemalloc's own `malloc_conf`. narenas:1 also silences its remark about CPUs that are not all online
 * (5.3.0). Memory goes back by munmap (retain) after a second; nothing of ours runs between the program's
 * calls (background_thread).
 */
const char *cup_je_malloc_conf =
    "narenas:1,tcache:false,background_thread:false,percpu_arena:disabled,dss:disabled,"
    "retain:false,dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0,"
    "thp:default,metadata_thp:disabled,abort:false,abort_conf:false,stats_print:false";

/*
 * From here on jemalloc zeroes: fresh pages stay untouched, but a used extent costs an madvise under the
 * process-wide mmap lock (3.2 million pairs of up to 40 KB by eight threads: 2.3 s by memset, over 60 s that
 * way).
 */
#define LAZY_ZERO_BYTES (256 * CUP_KIB)

#define NO_ARENA UINT32_MAX
static _Atomic uint32_t arena_index = NO_ARENA;

static void destroy_arena(unsigned arena)
{
    size_t mib[3], mib_length = 3;
    if (cup_je_mallctlnametomib("arena.0.destroy", mib, &mib_length) == 0) {
        mib[1] = arena;
        (void)cup_je_mallctlbymib(mib, mib_length, NULL, NULL, NULL, 0);
    }
}

/* NO_ARENA when jemalloc could not start; the next call tries again. */
static uint32_t create_arena(void)
{
    unsigned created = 0;
    size_t bytes = sizeof created;
    uint32_t published = NO_ARENA;
    if (cup_je_mallctl("arenas.create", &created, &bytes, NULL, 0) != 0)
        return NO_ARENA;
    if (atomic_compare_exchange_strong_explicit(&arena_index, &published, created, memory_order_acq_rel,
                                                memory_order_acquire))
        return created;
    destroy_arena(created);
    return published;
}

static int arena_flags(uint32_t arena)
{
    return (int)(MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
}

/* jemalloc's 8-byte class is the only one that is not 16-byte aligned. */
static size_t request_bytes(size_t size_bytes)
{
    return size_bytes < 16 ? 16 : size_bytes;
}

static void *backing_alloc(size_t size_bytes)
{
    uint32_t arena = atomic_load_explicit(&arena_index, memory_order_acquire);
    if (arena == NO_ARENA)
        arena = create_arena();
    if (arena == NO_ARENA)
        return NULL;
    if (size_bytes >= LAZY_ZERO_BYTES)
        return cup_je_mallocx(size_bytes, arena_flags(arena) | MALLOCX_ZERO);
    void *memory = cup_je_mallocx(request_bytes(size_bytes), arena_flags(arena));
    return memory != NULL ? memset(memory, 0, size_bytes) : NULL;
}

static void backing_free(void *memory, size_t size_bytes)
{
    uint32_t arena = atomic_load_explicit(&arena_index, memory_order_acquire);
    cup_je_sdallocx(memory, request_bytes(size_bytes), arena_flags(arena));
}

uint64_t cup_meta_held_bytes(void)
{
    int saved_errno = errno;
    size_t mib[4], mib_length = 4, resident = 0, bytes = sizeof resident;
    uint64_t epoch = 1; /* any write refreshes jemalloc's statistics */
    uint32_t arena = atomic_load_explicit(&arena_index, memory_order_acquire);
    if (arena != NO_ARENA && cup_je_mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0 &&
        cup_je_mallctlnametomib("stats.arenas.0.resident", mib, &mib_length) == 0) {
        mib[2] = arena;
        (void)cup_je_mallctlbymib(mib, mib_length, &resident, &bytes, NULL, 0);
    }
    errno = saved_errno;
    return resident;
}
#endif /* CUP_SANITIZED */

uint64_t cup_meta_live_bytes(void)
{
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}

#ifdef CUP_TESTING
static _Atomic uint64_t fail_countdown;

void cup_meta_fail_nth(uint64_t nth)
{
    atomic_store(&fail_countdown, nth);
}

static bool must_fail(void)
{
    uint64_t left = atomic_load(&fail_countdown);
    while (left != 0 && !atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
        ;
    return left == 1;
}
#else
static bool must_fail(void)
{
    return false;
}
#endif

void *cup_meta_alloc(size_t size_bytes)
{
    int saved_errno = errno;
    void *memory = must_fail() ? NULL : backing_alloc(size_bytes);
    if (memory != NULL)
        atomic_fetch_add_explicit(&live_bytes, size_bytes, memory_order_relaxed);
    errno = saved_errno;
    return memory;
}

void cup_meta_free(void *memory, size_t size_bytes)
{
    int saved_errno = errno;
    if (memory != NULL) {
        atomic_fetch_sub_explicit(&live_bytes, size_bytes, memory_order_relaxed);
        backing_free(memory, size_bytes);
    }
    errno = saved_errno;
}
