/* SPDX-License-Identifier: Apache-2.0 */
/* test_parts - the parts of the tool that read what others wrote: programs and reports, broken ones too. */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "tests/support/rng.h"
#include "tools/elfscan.h"
#include "tools/report.h"
#include "tools/tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

void cup_tool_say(const char *format, ...)
{
    (void)format;
}

TEST(elfscan, this_program)
{
    cup_elf_t elf;

    cup_elf_scan("/proc/self/exe", &elf);
    CHECK_EQ(elf.kind, CUP_ELF_DYNAMIC);
    CHECK(!elf.is_script && !elf.is_privileged && !elf.needs_driver && !elf.exports_alloc_door);
    cup_elf_scan("sh", &elf);
    CHECK_EQ(elf.kind, CUP_ELF_DYNAMIC);
    CHECK(elf.path[0] == '/');
    cup_elf_scan("no-such-program-anywhere", &elf);
    CHECK_EQ(elf.kind, CUP_ELF_MISSING);
    cup_elf_scan("/", &elf);
    CHECK_EQ(elf.kind, CUP_ELF_MISSING);
    cup_elf_scan("/etc/passwd", &elf);
    CHECK_EQ(elf.kind, CUP_ELF_OTHER);
}

static size_t read_self(unsigned char **out_bytes)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    struct stat info;

    CHECK_EQ(fstat(fd, &info), 0);
    *out_bytes = malloc((size_t)info.st_size);
    CHECK(*out_bytes);
    CHECK_EQ(read(fd, *out_bytes, (size_t)info.st_size), info.st_size);
    close(fd);
    return (size_t)info.st_size;
}

/* The head, the tables that it names and the strings are where a wrong byte counts most. */
static void damage(cup_rng_t *rng, unsigned char *bytes, size_t size)
{
    for (uint64_t i = cup_rng_below(rng, 8); i > 0; i--) {
        size_t head = 1024 < size ? 1024 : size;
        size_t at = cup_rng_below(rng, 3) ? cup_rng_below(rng, head) : size - 1 - cup_rng_below(rng, head);

        bytes[at] = (unsigned char)cup_rng_next(rng);
    }
}

TEST(elfscan, law_damaged_programs_are_survived)
{
    uint64_t seed = cup_rng_seed(99);
    cup_rng_t rng = {seed};
    unsigned char *bytes, *damaged;
    size_t size = read_self(&bytes);
    char path[64];
    int fd = memfd_create("program", 0), kinds[CUP_ELF_DYNAMIC + 1] = {0};

    printf("seed %llu\n", (unsigned long long)seed);
    damaged = malloc(size);
    CHECK(damaged && fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (int round = 0; round < 300; round++) {
        size_t length = cup_rng_below(&rng, 4) ? size : cup_rng_below(&rng, size) + 1;
        cup_elf_t elf;

        memcpy(damaged, bytes, size);
        damage(&rng, damaged, size);
        CHECK_EQ(ftruncate(fd, 0), 0);
        CHECK_EQ(pwrite(fd, damaged, length, 0), length);
        cup_elf_scan(path, &elf);
        kinds[elf.kind]++;
    }
    CHECK(kinds[CUP_ELF_DYNAMIC] > 0 &&
          kinds[CUP_ELF_OTHER] + kinds[CUP_ELF_FOREIGN] > 0); /* both were tried */
    free(bytes);
    free(damaged);
    close(fd);
}

TEST(report, figures_are_added_up)
{
    cup_figures_t sum;

    CHECK(cup_figures_add_up("", &sum));
    CHECK_EQ(sum.processes, 0);
    CHECK(cup_figures_add_up("{\"allocs\":5,\"pool_allocs\":3,\"live_bytes\":4294967296}\n"
                             "{\"pool_allocs\":4,\"allocs\":6,\"of_a_later_version\":1}\n",
                             &sum));
    CHECK_EQ(sum.processes, 2);
    CHECK_EQ(sum.allocs, 11);
    CHECK_EQ(sum.pool_allocs, 7);
    CHECK_EQ(sum.live_bytes, UINT64_C(4294967296));
    CHECK_EQ(sum.frees, 0);
}

TEST(report, arrays_are_added_up_by_element_and_processes_by_id)
{
    cup_figures_t sum;

    CHECK(cup_figures_add_up("{\"pool_allocs\":1,\"ipc_open_ns\":[1,2,3],\"ipc_peers\":["
                             "{\"pid\":7,\"opens\":2,\"mapped_bytes\":10,\"mapped_peak_bytes\":20}]}\n"
                             "{\"pool_allocs\":1,\"ipc_open_ns\":[0,5],\"ipc_peers\":["
                             "{\"pid\":8,\"opens\":1},{\"pid\":7,\"opens\":3,\"mapped_bytes\":1},8]}\n",
                             &sum));
    CHECK_EQ(sum.ipc_open_ns[0], 1);
    CHECK_EQ(sum.ipc_open_ns[1], 7);
    CHECK_EQ(sum.ipc_open_ns[2], 3);
    CHECK_EQ(sum.ipc_close_ns[0], 0);
    CHECK_EQ(sum.peer_count, 2);
    CHECK_EQ(sum.peers[0].pid, 7);
    CHECK_EQ(sum.peers[0].opens, 5);
    CHECK_EQ(sum.peers[0].mapped_bytes, 11);
    CHECK_EQ(sum.peers[0].mapped_peak_bytes, 20);
    CHECK_EQ(sum.peers[1].opens, 1);
}

/* More elements than there are buckets, more processes than rows: nothing is written behind the last one. */
TEST(report, long_arrays_are_survived)
{
    char text[8192] = "{\"pool_allocs\":1,\"ipc_close_ns\":[1";
    cup_figures_t sum;

    for (int i = 0; i < 100; i++)
        strcat(text, ",1");
    strcat(text, "],\"ipc_peers\":[{\"pid\":1,\"opens\":1}");
    for (int i = 2; i <= 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",{\"pid\":%d,\"opens\":1}", i);
    strcat(text, "]}\n");
    CHECK(cup_figures_add_up(text, &sum));
    CHECK_EQ(sum.ipc_close_ns[CUP_STAT_BUCKETS - 1], 1);
    CHECK_EQ(sum.peer_count, CUP_STAT_PEERS);
    CHECK_EQ(sum.peers[CUP_STAT_PEERS - 1].pid, 0);
    CHECK_EQ(sum.peers[CUP_STAT_PEERS - 1].opens, 40 - (CUP_STAT_PEERS - 1));
}

TEST(report, foreign_lines_are_told)
{
    static const char *const foreign[] = {"text", "{}", "[1]", "{\"pool_allocs\":", "{\"pool_alloc\":1}",
                                          "7"};
    cup_figures_t sum;

    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        char text[128];

        snprintf(text, sizeof(text), "%s\n{\"pool_allocs\":2}\n", foreign[i]);
        CHECK_MSG(!cup_figures_add_up(text, &sum), "%s", foreign[i]);
        CHECK_EQ(sum.pool_allocs, 2); /* what is ours counts all the same */
    }
    CHECK(cup_figures_add_up("{\"pool_allocs\":\"text\",\"allocs\":-1}\n", &sum));
    CHECK_EQ(sum.pool_allocs, 0);
    CHECK_EQ(sum.allocs, 0);
}

TEST(report, text_of_any_length)
{
    cup_report_t report;
    char *text;

    CHECK(cup_report_open(&report));
    text = cup_report_text(report.fd);
    CHECK(text && text[0] == '\0');
    free(text);
    for (int i = 0; i < 5000; i++)
        CHECK_EQ(write(report.fd, "line\n", 5), 5);
    text = cup_report_text(report.fd);
    CHECK_EQ(strlen(text), 25000);
    free(text);
    CHECK_EQ(access(report.path, W_OK), 0);
    cup_report_close(&report);
}
