/* SPDX-License-Identifier: Apache-2.0 */
/* How: memfd_create, read back with pread; cJSON for the lines. A counter that a line lacks counts as 0. */
#define _GNU_SOURCE
#include "tools/report.h"
#include "tools/tool.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool cup_report_open(cup_report_t *out_report)
{
    int fd = memfd_create("cupola", MFD_CLOEXEC);

    if (fd < 0) {
        cup_tool_say("memfd_create: %s", strerror(errno));
        return false;
    }
    out_report->fd = fd;
    snprintf(out_report->path, sizeof(out_report->path), "/proc/%d/fd/%d", (int)getpid(), fd);
    return true;
}

void cup_report_close(cup_report_t *report)
{
    close(report->fd);
}

char *cup_report_text(int fd)
{
    size_t capacity = 4096, length = 0;
    char *text = malloc(capacity + 1);

    while (text) {
        ssize_t got = pread(fd, text + length, capacity - length, (off_t)length);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            text[length] = '\0';
            return text;
        }
        length += (size_t)got;
        if (length == capacity) {
            char *larger = realloc(text, 2 * capacity + 1);

            if (!larger)
                free(text);
            text = larger;
            capacity *= 2;
        }
    }
    return NULL;
}

static uint64_t value_of(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 0x1p63
               ? (uint64_t)item->valuedouble
               : 0;
}

static uint64_t figure(const cJSON *object, const char *field)
{
    return value_of(cJSON_GetObjectItemCaseSensitive(object, field));
}

static void add_times(const cJSON *object, const char *field, uint64_t *buckets)
{
    const cJSON *item;
    unsigned i = 0;

    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, field))
    {
        if (i < CUP_STAT_BUCKETS)
            buckets[i++] += value_of(item);
    }
}

/* Where there are more processes than rows, the last row stands for all that came later. */
static cup_peer_figures_t *find_peer(cup_figures_t *figures, uint64_t pid)
{
    for (unsigned i = 0; i < figures->peer_count; i++)
        if (figures->peers[i].pid == pid)
            return &figures->peers[i];
    if (figures->peer_count == CUP_STAT_PEERS) {
        figures->peers[CUP_STAT_PEERS - 1].pid = 0;
        return &figures->peers[CUP_STAT_PEERS - 1];
    }
    figures->peers[figures->peer_count].pid = pid;
    return &figures->peers[figures->peer_count++];
}

static void add_peers(const cJSON *object, cup_figures_t *figures)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "ipc_peers"))
    {
        cup_peer_figures_t *peer = cJSON_IsObject(item) ? find_peer(figures, figure(item, "pid")) : NULL;

        if (!peer)
            continue;
#define X(field, meaning) peer->field += figure(item, #field);
        CUP_STAT_PEER_LIST(X);
#undef X
    }
}

static bool add_line(const char *line, size_t length, cup_figures_t *figures)
{
    cJSON *object = cJSON_ParseWithLength(line, length);
    bool is_ours = cJSON_IsObject(object) && cJSON_HasObjectItem(object, "pool_allocs");

    if (is_ours) {
        figures->processes++;
#define X(field, meaning) figures->field += figure(object, #field);
        CUP_STAT_LIST(X);
        CUP_STAT_POOL_LIST(X);
#undef X
#define X(field, meaning) add_times(object, #field, figures->field);
        CUP_STAT_TIME_LIST(X);
#undef X
        add_peers(object, figures);
    }
    cJSON_Delete(object);
    return is_ours;
}

bool cup_figures_add_up(const char *text, cup_figures_t *out_figures)
{
    bool is_good = true;

    memset(out_figures, 0, sizeof(*out_figures));
    while (*text) {
        size_t length = strcspn(text, "\n");

        if (length > 0)
            is_good &= add_line(text, length, out_figures);
        text += length;
        text += *text == '\n';
    }
    return is_good;
}
