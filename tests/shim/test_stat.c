/* SPDX-License-Identifier: Apache-2.0 */
/* test_stat - the report is JSON that a library reads, with every key of the LISTs and the counters' values.
 */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "shim/stat.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static cup_pool_stat_t pools;

/* A value of its own for each counter, so that a swapped pair shows. */
static void number_all(uint64_t first)
{
#define X(field, meaning) atomic_store(&cup_stat.field, first++);
    CUP_STAT_LIST(X);
#undef X
#define X(field, meaning) pools.field = first++;
    CUP_STAT_POOL_LIST(X);
#undef X
}

/* Reports count times into a file in memory. */
static void report(int count, char *out, size_t capacity)
{
    int fd = memfd_create("stats", 0);
    char path[64];
    ssize_t length;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (int i = 0; i < count; i++)
        cup_stat_report(path, &pools);
    length = pread(fd, out, capacity - 1, 0);
    CHECK(length >= 0);
    out[length] = '\0';
    close(fd);
}

static void check_number(const cJSON *object, const char *key, uint64_t expected)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    CHECK_MSG(cJSON_IsNumber(item), "no number %s", key);
    CHECK_MSG((uint64_t)item->valuedouble == expected, "%s is %f", key, item->valuedouble);
}

TEST(stat, one_line_of_json_with_every_key)
{
    char text[8192];
    uint64_t value = 1000, keys = 3; /* pid, program, meta_bytes */
    cJSON *object;

    number_all(value);
    report(1, text, sizeof(text));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    check_number(object, "pid", (uint64_t)getpid());
    CHECK(strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(object, "program")),
                 program_invocation_short_name) == 0);
    CHECK(cJSON_IsNumber(cJSON_GetObjectItem(object, "meta_bytes")));
#define X(field, meaning)                  \
    check_number(object, #field, value++); \
    keys++;
    CUP_STAT_LIST(X);
    CUP_STAT_POOL_LIST(X);
#undef X
    CHECK_EQ(cJSON_GetArraySize(object), keys); /* and nothing that the pages in docs/ don't list */
    cJSON_Delete(object);
}

TEST(stat, each_report_appends_a_line)
{
    char text[8192], *second;

    number_all(1);
    report(2, text, sizeof(text));
    second = strchr(text, '\n') + 1;
    CHECK_EQ(strlen(second), strlen(text) / 2);
    CHECK(strncmp(text, second, strlen(second)) == 0);
}

TEST(stat, the_largest_values_fit)
{
    char text[8192];
    cJSON *object;

#define X(field, meaning) atomic_store(&cup_stat.field, UINT64_MAX);
    CUP_STAT_LIST(X);
#undef X
    memset(&pools, 0xff, sizeof(pools));
    report(1, text, sizeof(text));
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    cJSON_Delete(object);
}

TEST(stat, any_program_name_is_valid_json)
{
    char name[] = "a\"b\\c\nd\te", text[8192], *before = program_invocation_short_name;
    cJSON *object;

    program_invocation_short_name = name;
    report(1, text, sizeof(text));
    program_invocation_short_name = before;
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    CHECK(strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(object, "program")), "a_b_c_d_e") == 0);
    cJSON_Delete(object);
}

/* What cup_stat_report says on stderr; it must leave stdout alone. */
static void report_to(const char *where, char *out, size_t capacity)
{
    int out_fd = memfd_create("out", 0), err_fd = memfd_create("err", 0), status;
    pid_t child = fork();
    ssize_t length;

    if (child == 0) {
        dup2(out_fd, 1);
        dup2(err_fd, 2);
        cup_stat_report(where, &pools);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(lseek(out_fd, 0, SEEK_END), 0);
    length = pread(err_fd, out, capacity - 1, 0);
    CHECK(length >= 0);
    out[length] = '\0';
    close(out_fd);
    close(err_fd);
}

TEST(stat, where_it_goes)
{
    char text[8192];

    number_all(4000);
    report_to("0", text, sizeof(text));
    CHECK_MSG(text[0] == '\0', "%s", text);
    report_to("1", text, sizeof(text));
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        CHECK_MSG(strncmp(line, "cupola: ", 8) == 0, "%s", line);
    CHECK_MSG(strstr(text, "4002 of 4000 allocations"), "%s", text); /* pool_allocs, allocs */
    report_to("/nonexistent/stats", text, sizeof(text));
    CHECK_MSG(strstr(text, "/nonexistent/stats"), "%s", text);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
}
