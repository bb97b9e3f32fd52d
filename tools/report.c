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

static uint64_t figure(const cJSON *object, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);

    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 0x1p63
               ? (uint64_t)item->valuedouble
               : 0;
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
