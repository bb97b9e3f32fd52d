/* SPDX-License-Identifier: Apache-2.0 */
/* test_stat - the report is JSON that a library reads, with every key of the LISTs and the counters' values.
 */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "shim/stat.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
    char text[16384];
    uint64_t value = 1000, keys = 4; /* pid, program, ipc_peers, meta_bytes */
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
#define X(field, meaning)                                      \
    CHECK(cJSON_IsArray(cJSON_GetObjectItem(object, #field))); \
    keys++;
    CUP_STAT_TIME_LIST(X);
#undef X
    CHECK_EQ(cJSON_GetArraySize(object), keys); /* and nothing that the pages in docs/ don't list */
    cJSON_Delete(object);
}

TEST(stat, each_report_appends_a_line)
{
    char text[16384], *second;

    number_all(1);
    report(2, text, sizeof(text));
    second = strchr(text, '\n') + 1;
    CHECK_EQ(strlen(second), strlen(text) / 2);
    CHECK(strncmp(text, second, strlen(second)) == 0);
}

/* Rows of processes are never taken back: whoever names some does it in a process of its own. */
static void in_a_child(void (*body)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        body();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void report_the_largest(void)
{
    char text[16384];
    cJSON *object;

#define X(field, meaning) atomic_store(&cup_stat.field, UINT64_MAX);
    CUP_STAT_LIST(X);
#undef X
#define X(field, meaning)                      \
    for (int i = 0; i < CUP_STAT_BUCKETS; i++) \
        atomic_store(&cup_stat_times.field[i], UINT64_MAX);
    CUP_STAT_TIME_LIST(X);
#undef X
    for (unsigned i = 0; i < CUP_STAT_PEERS; i++)
        cup_stat_peer_mapped(cup_stat_peer(1 + i, INT_MAX), UINT64_MAX);
    memset(&pools, 0xff, sizeof(pools));
    report(1, text, sizeof(text));
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    cJSON_Delete(object);
}

TEST(stat, the_largest_values_fit)
{
    in_a_child(report_the_largest);
}

static int bucket_at(const cJSON *object, const char *key, int i)
{
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i);

    return item ? (int)item->valuedouble : 0;
}

/* A start so many nanoseconds ago falls into the bucket of that power of two, or the next, should time pass. */
TEST(stat, calls_are_counted_by_the_power_of_two_of_their_time)
{
    static const int powers[] = {30, 31, 33, 40, 62};
    char text[16384];
    cJSON *object;

    memset(&cup_stat_times, 0, sizeof(cup_stat_times));
    for (size_t i = 0; i < sizeof(powers) / sizeof(powers[0]); i++)
        CUP_STAT_TIME(ipc_open_ns, cup_stat_now_ns() - (UINT64_C(1) << powers[i]));
    CUP_STAT_TIME(ipc_close_ns, cup_stat_now_ns());
    report(1, text, sizeof(text));
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(object, "ipc_open_ns")), CUP_STAT_BUCKETS);
    CHECK_EQ(bucket_at(object, "ipc_open_ns", 30), 1);
    CHECK_EQ(bucket_at(object, "ipc_open_ns", 31), 4); /* and all that took longer */
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(object, "ipc_get_ns")), 0);
    CHECK(cJSON_GetArraySize(cJSON_GetObjectItem(object, "ipc_close_ns")) <= 31);
    cJSON_Delete(object);
}

static uint64_t peer_figure(const cJSON *object, int i, const char *key)
{
    const cJSON *peer = cJSON_GetArrayItem(cJSON_GetObjectItem(object, "ipc_peers"), i);
    const cJSON *item = cJSON_GetObjectItem(peer, key);

    CHECK_MSG(cJSON_IsNumber(item), "peer %d has no %s", i, key);
    return (uint64_t)item->valuedouble;
}

static void name_peers(void)
{
    char text[16384];
    cJSON *object;
    unsigned first = cup_stat_peer(77, 1077), before = (unsigned)CUP_STAT_GET(ipc_mapped_bytes);

    CHECK_EQ(first, 0);
    CHECK_EQ(cup_stat_peer(77, 1077), first);
    cup_stat_peer_opened(first);
    cup_stat_peer_mapped(first, 600);
    cup_stat_peer_mapped(first, 400);
    cup_stat_peer_unmapped(first, 600);
    for (unsigned i = 1; i < CUP_STAT_PEERS + 3; i++) {
        unsigned row = cup_stat_peer(100 + i, (int)(2000 + i));

        CHECK_EQ(row, i < CUP_STAT_PEERS ? i : CUP_STAT_PEERS - 1);
        cup_stat_peer_opened(row);
    }
    report(1, text, sizeof(text));
    object = cJSON_Parse(text);
    CHECK_MSG(cJSON_IsObject(object), "%s", text);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(object, "ipc_peers")), CUP_STAT_PEERS);
    CHECK_EQ(peer_figure(object, 0, "pid"), 1077);
    CHECK_EQ(peer_figure(object, 0, "opens"), 1);
    CHECK_EQ(peer_figure(object, 0, "mapped_bytes"), 400);
    CHECK_EQ(peer_figure(object, 0, "mapped_peak_bytes"), 1000);
    CHECK_EQ(CUP_STAT_GET(ipc_mapped_bytes), before + 400);
    CHECK_EQ(peer_figure(object, CUP_STAT_PEERS - 1, "pid"), 0); /* several */
    CHECK_EQ(peer_figure(object, CUP_STAT_PEERS - 1, "opens"), 4);
    cJSON_Delete(object);
}

TEST(stat, processes_have_a_row_each)
{
    in_a_child(name_peers);
}

TEST(stat, any_program_name_is_valid_json)
{
    char name[] = "a\"b\\c\nd\te", text[16384], *before = program_invocation_short_name;
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
    char text[16384];

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
