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
#include <unistd.h>

cup_stat_t cup_stat;

typedef struct text {
    char out[4096];
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
    add(text, ",\"meta_bytes\":%llu}\n", (unsigned long long)cup_meta_held_bytes());
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
