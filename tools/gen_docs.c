/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gen_docs - prints docs/options.md, docs/stats.md or docs/interception.md from the LISTs, so that they can't say
 * what the code does not.
 * How:        one function a page: the head in prose here, the table from the rows. The pages are committed;
 *             a test compares.
 */
#include "tools/gen_docs.h"
#include "shim/conf.h"
#include "shim/stat_list.h"
#include <stdio.h>
#include <string.h>

static const char OPTIONS_HEAD[] =
    "<!-- Made by tools/gen_docs.c from shim/conf_list.h: change that, then build the target docs. -->\n"
    "# Options\n"
    "\n"
    "cupola needs none of these. They are environment variables, read once, when the program makes its first "
    "device\n"
    "allocation; changing them later has no effect. An unknown `CUPOLA_` variable or a value that can't be "
    "read is one\n"
    "line on stderr, and what was in force before it stays: the program always runs.\n"
    "\n"
    "| variable | default | values | meaning |\n"
    "|---|---|---|---|\n";

static const char OPTIONS_TAIL[] =
    "\n"
    "`cupola doctor` shows which are set and what is wrong with them.\n"
    "\n"
    "## Many at once\n"
    "\n"
    "`CUPOLA_CONF` sets several: `CUPOLA_CONF=\"free:sync,stats:1\"`. A key is the variable's name without "
    "`CUPOLA_`, in\n"
    "either case. Entries are separated by commas; where a value itself needs a comma, write a semicolon:\n"
    "`CUPOLA_CONF=\"dedicated:2m;1=4m,free:sync\"`.\n"
    "\n"
    "Precedence: a variable of its own wins over `CUPOLA_CONF`, that wins over the default; within "
    "`CUPOLA_CONF` the\n"
    "last entry wins.\n"
    "\n"
    "## Sizes\n"
    "\n"
    "A size is a whole number of bytes, or a number with `k`, `m`, `g` or `t` (powers of 1024, either case, "
    "`2mb` is\n"
    "`2m`), or a part of the device's memory: `25%`, `12.5%` (up to two digits behind the point).\n"
    "\n"
    "Devices can have values of their own: `2g,1=4g` is 4 GiB on device 1 and 2 GiB on all others. A list "
    "that names\n"
    "devices only, such as `0=8g`, leaves the others as they were. Devices are numbered as the program sees "
    "them, after\n"
    "`CUDA_VISIBLE_DEVICES`.\n"
    "\n"
    "| written | on a device with 80 GiB |\n"
    "|---|---|\n";

static const char OPTIONS_FILES[] =
    "\n"
    "## File names\n"
    "\n"
    "Wherever a file can be named, these are replaced, so that the processes of one job don't share a file "
    "by accident:\n"
    "\n"
    "| written | becomes |\n"
    "|---|---|\n"
    "| `%p` | the process id |\n"
    "| `%h` | the host name |\n"
    "| `%q{VAR}` | the value of the environment variable VAR, nothing if it is not set |\n"
    "| `%%` | `%` |\n"
    "\n"
    "`CUPOLA_STATS=stats.%q{SLURM_PROCID}.%p.json`, for example. Files are appended to, and created for "
    "their owner only\n"
    "(mode 0600). Nothing ever goes to the program's stdout.\n";

static const char STATS_HEAD[] =
    "<!-- Made by tools/gen_docs.c from shim/stat_list.h: change that, then build the target docs. -->\n"
    "# Statistics\n"
    "\n"
    "`CUPOLA_STATS=1` prints a summary on stderr when the program exits. `CUPOLA_STATS=FILE` appends one "
    "line to FILE, a\n"
    "JSON object with the keys below; FILE may hold `%p` and the like (options.md). Counting never calls the "
    "driver,\n"
    "nor does the report. A process that makes no device allocation, or that ends by `_exit` or a signal, "
    "reports\n"
    "nothing.\n"
    "\n"
    "`cupola run -- app` shows the most important of them; `cupola stat FILE` prints all, summed over the "
    "lines of FILE.\n"
    "\n"
    "## The process\n"
    "\n"
    "| key | meaning |\n"
    "|---|---|\n"
    "| `pid` | process id |\n"
    "| `program` | name of the executable; a byte that JSON would have to escape is `_` |\n"
    "| `meta_bytes` | host memory that the bookkeeping holds |\n"
    "\n"
    "## Counters, since the first allocation\n"
    "\n"
    "| key | meaning |\n"
    "|---|---|\n";

static const char STATS_POOLS[] = "\n"
                                  "## Pools, added up over all contexts, at exit\n"
                                  "\n"
                                  "| key | meaning |\n"
                                  "|---|---|\n";

static const char STATS_TIMES[] =
    "\n"
    "## What calls took\n"
    "\n"
    "Arrays of numbers of calls: element *i*, from 0, counts those that took 2^*i* nanoseconds or more, and "
    "less than\n"
    "2^(*i*+1); what is behind the last element is 0. Calls that failed are not in them.\n"
    "\n"
    "| key | meaning |\n"
    "|---|---|\n";

static const char STATS_PEERS[] =
    "\n"
    "## Processes that blocks were opened of\n"
    "\n"
    "`ipc_peers` is an array of objects, one for each of the first 15 such processes; a sixteenth adds up "
    "all "
    "further ones\n"
    "(`pid` 0 if they are several). `mapped_bytes` of all of them make `ipc_mapped_bytes`.\n"
    "\n"
    "| key | meaning |\n"
    "|---|---|\n"
    "| `pid` | process id, in its own namespace |\n";

/* In a table cell a bar would end the cell. */
static void print_cell(const char *text)
{
    for (; *text; text++)
        fputs(*text == '|' ? "\\|" : (const char[]){*text, 0}, stdout);
}

/* An example is worked out by the code that it describes. */
static void print_size(const char *text)
{
    char entry[64] = "CUPOLA_CACHE=";
    char *environment[] = {entry, NULL};
    static cup_conf_t conf;
    const uint64_t total = (uint64_t)80 << 30;

    strncat(entry, text, sizeof(entry) - strlen(entry) - 1);
    cup_conf_load(environment, NULL, &conf);
    printf("| `%s` | device 0: %llu MiB, device 1: %llu MiB |\n", text,
           (unsigned long long)(cup_conf_bytes(&conf.cache.size, 0, total) >> 20),
           (unsigned long long)(cup_conf_bytes(&conf.cache.size, 1, total) >> 20));
}

static void print_options(void)
{
    static const char *const sizes[] = {"64m", "2g", "12.5%", "2g,1=4g", "0=10%"};

    fputs(OPTIONS_HEAD, stdout);
    for (size_t i = 0; i < cup_conf_row_count; i++) {
        const cup_conf_row_t *row = &cup_conf_rows[i];

        printf("| `CUPOLA_%s` | %s%s%s | ", row->name, row->fallback[0] ? "`" : "",
               row->fallback[0] ? row->fallback : "none", row->fallback[0] ? "`" : "");
        print_cell(row->values);
        printf(" | ");
        print_cell(row->meaning);
        printf(" |\n");
    }
    fputs(OPTIONS_TAIL, stdout);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        print_size(sizes[i]);
    fputs(OPTIONS_FILES, stdout);
}

static void print_stats(void)
{
    fputs(STATS_HEAD, stdout);
#define X(field, meaning)        \
    printf("| `" #field "` | "); \
    print_cell(meaning);         \
    printf(" |\n");
    CUP_STAT_LIST(X);
    fputs(STATS_POOLS, stdout);
    CUP_STAT_POOL_LIST(X);
    fputs(STATS_TIMES, stdout);
    CUP_STAT_TIME_LIST(X);
    fputs(STATS_PEERS, stdout);
    CUP_STAT_PEER_LIST(X);
#undef X
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "options") == 0)
        print_options();
    else if (argc == 2 && strcmp(argv[1], "stats") == 0)
        print_stats();
    else if (argc == 2 && strcmp(argv[1], "interception") == 0)
        return print_interception() && fflush(stdout) == 0 ? 0 : 1;
    else
        return fputs("usage: gen_docs options|stats|interception\n", stderr), 2;
    return fflush(stdout) == 0 ? 0 : 1;
}
