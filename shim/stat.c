/* SPDX-License-Identifier: Apache-2.0 */
/* How: text is built in one stack buffer and written at once; a line of JSON stays whole among other
 * processes'. */
#define _GNU_SOURCE
#include "shim/stat.h"
#include "allocator/meta.h"
#include "shim/log.h"
#include "shim/outfile.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

cup_stat_t cup_stat;
cup_stat_times_t cup_stat_times;

/* name 0: free. Written by one thread at a time, read by the report whenever it comes. */
typedef struct peer {
    uint64_t name;
    _Atomic int pid;
#define X(field, meaning) _Atomic uint64_t field;
    CUP_STAT_PEER_LIST(X)
#undef X
} peer_t;

static peer_t g_peers[CUP_STAT_PEERS];
static _Atomic unsigned g_peer_count;

typedef struct text {
    char out[8192];
    size_t length;
} text_t;

__attribute__((format(printf, 2, 3))) static void add(text_t *text, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text->out + text->length, sizeof(text->out) - text->length, format, args);
    va_end(args);
    if (length > 0)
        text->length += (size_t)length;
    if (text->length >= sizeof(text->out))
        text->length = sizeof(text->out) - 1;
}

/* Up to the last bucket that is not empty. */
static void add_times(text_t *text, const char *field, const _Atomic uint64_t *buckets)
{
    unsigned count = CUP_STAT_BUCKETS;

    while (count > 0 && atomic_load_explicit(&buckets[count - 1], memory_order_relaxed) == 0)
        count--;
    add(text, ",\"%s\":[", field);
    for (unsigned i = 0; i < count; i++)
        add(text, "%s%llu", i ? "," : "",
            (unsigned long long)atomic_load_explicit(&buckets[i], memory_order_relaxed));
    add(text, "]");
}

static void add_peers(text_t *text)
{
    unsigned count = atomic_load_explicit(&g_peer_count, memory_order_acquire);

    add(text, ",\"ipc_peers\":[");
    for (unsigned i = 0; i < count; i++) {
        peer_t *peer = &g_peers[i];

        add(text, "%s{\"pid\":%d", i ? "," : "", atomic_load_explicit(&peer->pid, memory_order_relaxed));
#define X(field, meaning)             \
    add(text, ",\"" #field "\":%llu", \
        (unsigned long long)atomic_load_explicit(&peer->field, memory_order_relaxed));
        CUP_STAT_PEER_LIST(X)
#undef X
        add(text, "}");
    }
    add(text, "]");
}

static void add_json(text_t *text, const cup_pool_stat_t *pools)
{
    add(text, "{\"pid\":%d,\"program\":\"", (int)getpid());
    for (const char *c = program_invocation_short_name; *c; c++) /* a name may hold any byte */
        add(text, "%c", *c == '"' || *c == '\\' || *c < 0x20 || *c > 0x7e ? '_' : *c);
    add(text, "\"");
#define X(field, meaning) add(text, ",\"" #field "\":%llu", (unsigned long long)CUP_STAT_GET(field));
    CUP_STAT_LIST(X)
#undef X
#define X(field, meaning) add(text, ",\"" #field "\":%llu", (unsigned long long)pools->field);
    CUP_STAT_POOL_LIST(X)
#undef X
#define X(field, meaning) add_times(text, #field, cup_stat_times.field);
    CUP_STAT_TIME_LIST(X)
#undef X
    add_peers(text);
    add(text, ",\"meta_bytes\":%llu}\n", (unsigned long long)cup_meta_held_bytes());
}

uint64_t cup_stat_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void cup_stat_time(_Atomic uint64_t *buckets, uint64_t start_ns)
{
    uint64_t ns = cup_stat_now_ns() - start_ns;
    unsigned bucket = 63 - (unsigned)__builtin_clzll(ns | 1);

    if (bucket >= CUP_STAT_BUCKETS)
        bucket = CUP_STAT_BUCKETS - 1;
    atomic_fetch_add_explicit(&buckets[bucket], 1, memory_order_relaxed);
}

unsigned cup_stat_peer(uint64_t name, int pid)
{
    unsigned count = atomic_load_explicit(&g_peer_count, memory_order_relaxed), i = 0;

    while (i < count && g_peers[i].name != name)
        i++;
    if (i < count)
        return i;
    if (count == CUP_STAT_PEERS) {
        atomic_store_explicit(&g_peers[count - 1].pid, 0, memory_order_relaxed); /* of several */
        return count - 1;
    }
    g_peers[i].name = name;
    atomic_store_explicit(&g_peers[i].pid, pid, memory_order_relaxed);
    atomic_store_explicit(&g_peer_count, count + 1, memory_order_release);
    return i;
}

void cup_stat_peer_opened(unsigned peer)
{
    atomic_fetch_add_explicit(&g_peers[peer].opens, 1, memory_order_relaxed);
}

void cup_stat_peer_mapped(unsigned peer, uint64_t bytes)
{
    uint64_t now =
        atomic_fetch_add_explicit(&g_peers[peer].mapped_bytes, bytes, memory_order_relaxed) + bytes;

    if (now > atomic_load_explicit(&g_peers[peer].mapped_peak_bytes, memory_order_relaxed))
        atomic_store_explicit(&g_peers[peer].mapped_peak_bytes, now, memory_order_relaxed);
    CUP_STAT_ADD(ipc_mapped_bytes, bytes);
}

void cup_stat_peer_unmapped(unsigned peer, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&g_peers[peer].mapped_bytes, bytes, memory_order_relaxed);
    CUP_STAT_ADD(ipc_mapped_bytes, -bytes);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)CUP_MIB;
}

static void add_summary(text_t *text, const cup_pool_stat_t *pools)
{
    unsigned long long asked = CUP_STAT_GET(allocs), served = CUP_STAT_GET(pool_allocs);

    add(text, "cupola: %llu of %llu allocations and %llu of %llu frees served from the pool\n", served, asked,
        (unsigned long long)CUP_STAT_GET(pool_frees), (unsigned long long)CUP_STAT_GET(frees));
    add(text, "cupola: driver calls: %llu allocations, %llu frees\n",
        (unsigned long long)CUP_STAT_GET(driver_allocs), (unsigned long long)CUP_STAT_GET(driver_frees));
    add(text,
        "cupola: peak %.1f MiB held for %.1f MiB live; now %.1f MiB held, %.1f MiB live in %llu blocks\n",
        mib(pools->footprint_peak_bytes), mib(pools->live_peak_bytes), mib(pools->footprint_bytes),
        mib(pools->live_bytes), (unsigned long long)pools->live_blocks);
}

void cup_stat_report(const char *where, const cup_pool_stat_t *pools)
{
    text_t text = {.length = 0};
    int fd = 2;

    if (strcmp(where, "0") == 0)
        return;
    if (strcmp(where, "1") == 0) {
        add_summary(&text, pools);
    } else {
        fd = cup_outfile_open(where);
        if (fd < 0) {
            cup_log(CUP_LOG_ERROR, "CUPOLA_STATS: can't open %s", where);
            return;
        }
        add_json(&text, pools);
    }
    cup_outfile_write(fd, text.out, text.length);
    if (fd != 2)
        close(fd);
}
