/* SPDX-License-Identifier: Apache-2.0 */
/* test_outfile - each escape, what does not fit, what is broken; files as they are promised. */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "shim/outfile.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPANDS(pattern, expected)                                             \
    do {                                                                       \
        char out_[256];                                                        \
        CHECK(cup_outfile_expand(pattern, out_, sizeof(out_)));                \
        CHECK_MSG(strcmp(out_, expected) == 0, "%s became %s", pattern, out_); \
    } while (0)

TEST(outfile, escapes)
{
    char pid[32], host[HOST_NAME_MAX + 1] = "", expected[512];

    setenv("CUP_TEST_RANK", "12", 1);
    unsetenv("CUP_TEST_UNSET");
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    gethostname(host, sizeof(host) - 1);
    EXPANDS("", "");
    EXPANDS("plain.json", "plain.json");
    EXPANDS("%p", pid);
    EXPANDS("%h", host);
    EXPANDS("%%", "%");
    EXPANDS("%%p", "%p");
    EXPANDS("%q{CUP_TEST_RANK}", "12");
    EXPANDS("a%q{CUP_TEST_UNSET}b", "ab");
    EXPANDS("%q{}", "");
    EXPANDS("%x%q%z{", "%x%q%z{");
    snprintf(expected, sizeof(expected), "/tmp/%s.12.%s%%", host, pid);
    EXPANDS("/tmp/%h.%q{CUP_TEST_RANK}.%p%%", expected);
}

TEST(outfile, broken_escapes)
{
    char out[256], name[256];

    CHECK(!cup_outfile_expand("a%", out, sizeof(out)));
    CHECK(!cup_outfile_expand("%q{", out, sizeof(out)));
    CHECK(!cup_outfile_expand("%q{HOME", out, sizeof(out)));
    memset(name, 'N', sizeof(name));
    memcpy(name, "%q{", 3);
    strcpy(name + 200, "}");
    CHECK(!cup_outfile_expand(name, out, sizeof(out))); /* no variable has such a name */
}

TEST(outfile, too_long_at_every_capacity)
{
    static const char pattern[] = "abc%%def%q{CUP_TEST_TEXT}";
    const char *expected = "abc%defghij";

    setenv("CUP_TEST_TEXT", "ghij", 1);
    for (size_t capacity = 0; capacity <= strlen(expected) + 2; capacity++) {
        char out[32];
        bool is_whole;

        memset(out, '#', sizeof(out));
        is_whole = cup_outfile_expand(pattern, out, capacity);
        CHECK_EQ(is_whole, capacity > strlen(expected));
        CHECK(out[capacity] == '#');
        CHECK(capacity == 0 || memchr(out, '\0', capacity));
        CHECK(!is_whole || strcmp(out, expected) == 0);
    }
}

static void make_folder(char out[64])
{
    strcpy(out, "/tmp/cup_outfile_XXXXXX");
    CHECK(mkdtemp(out));
}

TEST(outfile, opens_for_appending)
{
    char folder[64], pattern[128], path[128], text[64] = "";
    struct stat info;
    mode_t before = umask(0);
    int fd;

    make_folder(folder);
    snprintf(pattern, sizeof(pattern), "%s/log.%%p", folder);
    snprintf(path, sizeof(path), "%s/log.%d", folder, (int)getpid());
    errno = 4711;
    for (int i = 0; i < 2; i++) {
        fd = cup_outfile_open(pattern);
        CHECK(fd >= 0);
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        cup_outfile_write(fd, "line\n", 5);
        close(fd);
    }
    CHECK_EQ(errno, 4711);
    umask(before);
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(info.st_mode & 07777, 0600);
    fd = open(path, O_RDONLY);
    CHECK_EQ(read(fd, text, sizeof(text)), 10);
    CHECK(strcmp(text, "line\nline\n") == 0);
    close(fd);
    unlink(path);
    rmdir(folder);
}

TEST(outfile, failures_keep_errno)
{
    char endless[PATH_MAX + 10];

    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    errno = 4711;
    CHECK_EQ(cup_outfile_open("/nonexistent/file"), -1);
    CHECK_EQ(cup_outfile_open("broken%"), -1);
    CHECK_EQ(cup_outfile_open(endless), -1);
    cup_outfile_write(-1, "text", 4);
    CHECK_EQ(errno, 4711);
}
