/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - the frame of every entry point, and what tests hold: counts, injected failures, limits. The
 * order of the checks: the end of the process, injected failures, cuInit and fork (nothing may be touched
 * then), host functions, the context, its sticky error, captures.
 *
 * Locks: SC_FREE rows take none, so that they answer in a forked child and inside a loader.
 */
#include "driver.h"
#include "stubs.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#define STALL_US 30000

/* As the driver's own, for a debugger to write to. */
SC_EXPORT uint32_t cudbgIpcFlag;

sc_state_t sc = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

typedef struct {
    const char *symbol;
    unsigned needs;
    _Atomic uint64_t calls;
    _Atomic uint64_t fail_at; /* the call number that fails; 0: none */
    _Atomic int fail_code;
} entry_state_t;

static entry_state_t entries[SC_ENTRY_COUNT] = {
#define SC_ENTRY(symbol, name, version, per_thread, needs) {#symbol, needs, 0, 0, 0},
#include "entry_list.h"
#undef SC_ENTRY
};

static _Atomic bool is_deinit;
static _Atomic uint64_t thread_numbers;
static __thread sc_thread_t this_thread;

void *sc_zalloc(size_t size)
{
    void *memory = calloc(1, size ? size : 1);

    if (!memory) {
        fputs("softcuda: out of host memory\n", stderr);
        abort();
    }
    return memory;
}

void *sc_new_handle(size_t size)
{
    void *memory = sc_zalloc(size);

#ifdef __SANITIZE_ADDRESS__
    __lsan_ignore_object(memory);
#endif
    return memory;
}

void *sc_grow(void *array, size_t count, size_t element)
{
    void *memory = realloc(array, (count ? count : 1) * element);

    if (!memory) {
        fputs("softcuda: out of host memory\n", stderr);
        abort();
    }
    return memory;
}

uint64_t sc_next_id(void)
{
    return ++sc.ids;
}

sc_thread_t *sc_thread(void)
{
    if (this_thread.number == 0)
        this_thread.number = atomic_fetch_add(&thread_numbers, 1) + 1;
    return &this_thread;
}

/* Injected failure of this call, or success. */
static CUresult count_call(entry_state_t *entry)
{
    uint64_t call = atomic_fetch_add(&entry->calls, 1) + 1;

    if (atomic_load(&entry->fail_at) != call)
        return CUDA_SUCCESS;
    atomic_store(&entry->fail_at, 0);
    return atomic_load(&entry->fail_code);
}

static CUresult check_context(unsigned needs)
{
    sc_ctx_t *ctx = sc_ctx_current();

    if ((needs & SC_CTX) == SC_CTX && !ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if ((needs & SC_LIVE) == SC_LIVE && ctx && !ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if ((needs & SC_STICKY) && ctx && ctx->sticky != CUDA_SUCCESS)
        return ctx->sticky;
    return needs & SC_UNSAFE ? sc_capture_check_unsafe() : CUDA_SUCCESS;
}

bool sc_has_ended(void)
{
    return atomic_load(&is_deinit);
}

/* As if the thread had lost its processor in the call. */
static void stall_now_and_then(void)
{
    static _Atomic uint64_t calls;

    if (sc.stall_each > 0 && atomic_fetch_add(&calls, 1) % sc.stall_each == sc.stall_each - 1)
        usleep(STALL_US);
}

CUresult sc_enter(sc_entry_t index, bool *out_is_locked)
{
    entry_state_t *entry = &entries[index];
    CUresult status = count_call(entry);

    if (entry->needs == SC_FREE)
        return status;
    if (atomic_load(&is_deinit))
        return CUDA_ERROR_DEINITIALIZED;
    if (status != CUDA_SUCCESS)
        return status;
    if (!__atomic_load_n(&sc.is_init, __ATOMIC_ACQUIRE) || sc.pid != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sc_thread()->is_in_host_fn)
        return CUDA_ERROR_NOT_PERMITTED;
    stall_now_and_then();
    sc_time_enter();
    pthread_mutex_lock(&sc.lock);
    status = check_context(entry->needs);
    if (status != CUDA_SUCCESS)
        pthread_mutex_unlock(&sc.lock);
    *out_is_locked = status == CUDA_SUCCESS;
    return status;
}

void sc_leave(const bool *is_locked)
{
    if (!*is_locked)
        return;
    pthread_mutex_unlock(&sc.lock);
    sc_time_leave();
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void report_at_exit(void)
{
    if (softcuda_violations() > 0)
        fprintf(stderr, "softcuda: %llu overlap violations\n", (unsigned long long)softcuda_violations());
}

CUresult sc_read_env(void)
{
    uint64_t devices = env_number("SOFTCUDA_DEVICES", 1);
    uint64_t memory = env_number("SOFTCUDA_MEMORY", 4ull << 30);
    const char *latency = getenv("SOFTCUDA_LATENCY");

    sc.device_count = (int)(devices < SC_DEVICES_MAX ? devices : SC_DEVICES_MAX);
    if (sc.memory == 0) /* softcuda_set_memory may have come first */
        sc.memory = memory;
    sc.seed = env_number("SOFTCUDA_SEED", 1);
    sc.has_latency = strcmp(latency ? latency : "", "h200") == 0;
    sc.delay_us = env_number("SOFTCUDA_DELAY_US", sc.has_latency ? 0 : 200);
    sc.stall_each = env_number("SOFTCUDA_STALL_EACH", 0);
    if (env_number("SOFTCUDA_STRICT", 0) == 1)
        atexit(report_at_exit);
    atexit(softcuda_deinit); /* what was there before cuInit comes later, and is refused (measured) */
    return CUDA_SUCCESS;
}

/* True when name is an item of the comma-separated list. */
static bool is_in_list(const char *list, const char *name)
{
    size_t length = strlen(name);

    while (list && *list) {
        size_t item = strcspn(list, ",");
        if (item == length && memcmp(list, name, length) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

bool sc_is_hidden(const char *name)
{
#ifdef SOFTCUDA_HIDDEN
    if (is_in_list(SOFTCUDA_HIDDEN, name))
        return true;
#endif
    return is_in_list(getenv("SOFTCUDA_MISSING"), name);
}

static entry_state_t *find_entry(const char *symbol)
{
    for (int i = 0; i < SC_ENTRY_COUNT; i++)
        if (strcmp(entries[i].symbol, symbol) == 0)
            return &entries[i];
    return NULL;
}

SC_EXPORT uint64_t softcuda_calls(const char *symbol)
{
    entry_state_t *entry = find_entry(symbol);

    return entry ? atomic_load(&entry->calls) : sc_stub_calls(symbol);
}

SC_EXPORT uint64_t softcuda_total_calls(void)
{
    uint64_t total = 0;

    for (int i = 0; i < SC_ENTRY_COUNT; i++)
        total += atomic_load(&entries[i].calls);
    return total;
}

SC_EXPORT void softcuda_reset_counters(void)
{
    for (int i = 0; i < SC_ENTRY_COUNT; i++) {
        atomic_store(&entries[i].fail_at, 0);
        atomic_store(&entries[i].calls, 0);
    }
    sc_stub_reset_counters();
    sc_overlap_reset();
}

SC_EXPORT int softcuda_fail_nth(const char *symbol, uint64_t nth, int code)
{
    entry_state_t *entry = find_entry(symbol);

    if (!entry)
        return -1;
    atomic_store(&entry->fail_code, code);
    atomic_store(&entry->fail_at, nth ? atomic_load(&entry->calls) + nth : 0);
    return 0;
}

SC_EXPORT void softcuda_set_memory(uint64_t bytes)
{
    pthread_mutex_lock(&sc.lock);
    sc.memory = bytes;
    pthread_mutex_unlock(&sc.lock);
}

SC_EXPORT void softcuda_deinit(void)
{
    atomic_store(&is_deinit, true);
}

SC_EXPORT void softcuda_stick(void *context, int code)
{
    sc_ctx_t *ctx = context ? context : sc_ctx_current();

    pthread_mutex_lock(&sc.lock);
    if (ctx)
        ctx->sticky = code;
    pthread_mutex_unlock(&sc.lock);
}

SC_EXPORT int softcuda_heal(void *context)
{
    sc_ctx_t *ctx = context;

    pthread_mutex_lock(&sc.lock);
    sc_ctx_drain(ctx);
    int code = ctx->sticky;
    ctx->sticky = CUDA_SUCCESS;
    pthread_mutex_unlock(&sc.lock);
    return code;
}

SC_EXPORT uint64_t softcuda_unfinished(void)
{
    pthread_mutex_lock(&sc.lock);
    uint64_t unfinished = sc.unfinished;
    pthread_mutex_unlock(&sc.lock);
    return unfinished;
}
