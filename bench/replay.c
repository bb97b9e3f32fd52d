/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - a recorded trace through the allocator, without a GPU: what would the driver hold?
 * What:       reads a trace, replays it through a policy (replay/policy.h) over a driver of numbers, prints
 *             what came of it; the last line is for scripts. Everything is simulated and repeatable: the
 *             same command gives the same line.
 * Not here:   the models: of memory (replay/driver.h), of time (replay/timeline.h).
 * Invariants: exit 0 means that the laws held at the end (replay/run.h); 1 that one broke; 2 that there was
 *             nothing to replay.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/replay/run.h"

#define LIMIT_MAX (1024 * CUP_GIB)
#define SLACK_MAX 10000

typedef enum { KIND_TEXT, KIND_BYTES, KIND_COUNT, KIND_REAL, KIND_LAG, KIND_WORD } kind_t;

/*
 * X(name, field, kind, default, values, meaning): each is an option, a line of the help and a column of the
 * CSV.
 */
#define OPTION_LIST(X)                                                                                       \
    X(policy, policy, KIND_WORD, "pool", "pool|segments|classes", "what is replayed")                        \
    X(backing, backing, KIND_WORD, "vmm", "vmm|raw", "of the pool: one range that grows, or chunks")         \
    X(lag, lag, KIND_LAG, "0", "N|time", "events until a freed block is handed out; time: the modelled GPU") \
    X(movable, movable, KIND_LAG, "200", "N|time", "events until its memory may be unmapped")                \
    X(wait, may_wait, KIND_COUNT, "1", "1|0", "past the slack, wait for frees before growing")               \
    X(slack, slack_percent, KIND_COUNT, "105", "PERCENT", "of the live peak: may be held without more ado")  \
    X(floor, floor_bytes, KIND_BYTES, "64m", "BYTES", "likewise, whatever the live peak")                    \
    X(handle, handle_bytes, KIND_BYTES, "0", "BYTES", "vmm: of one handle; 0: by the size of the arena")     \
    X(dedicated, dedicated_bytes, KIND_BYTES, "2m", "BYTES", "raw: from here on a driver allocation each")   \
    X(limit, limit_bytes, KIND_BYTES, "141g", "BYTES", "of the device")                                      \
    X(rate, timeline.rate, KIND_REAL, "1.0", "R", "GPU work, in times of the host's")                        \
    X(cap, timeline.cap_us, KIND_REAL, "1000", "US", "longest pause between events that is kept")            \
    X(queue, timeline.queue, KIND_COUNT, "1000", "N", "events that the host may be ahead of the GPU")        \
    X(seed, timeline.seed, KIND_COUNT, "1", "N", "of the GPU's work")                                        \
    X(check, check_every, KIND_COUNT, "0", "N", "walk all invariants every N events")                        \
    X(csv, csv_path, KIND_TEXT, "", "FILE", "append a row with all parameters")

typedef struct option_row {
    const char *name, *otherwise, *values, *meaning;
    kind_t kind;
} option_row_t;

static const option_row_t rows[] = {
#define X(name, field, kind, otherwise, values, meaning) {#name, otherwise, values, meaning, kind},
    OPTION_LIST(X)
#undef X
};

#define OPTION_COUNT (sizeof rows / sizeof *rows)

/* ---- options ---- */

static void print_help(void)
{
    puts("replay [options] TRACE: a trace (our CSV or RMM's log, also as .xz) through the allocator, "
         "simulated");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", rows[i].name, rows[i].values);
        printf("  %-32s %s (%s)\n", left, rows[i].meaning, *rows[i].otherwise ? rows[i].otherwise : "none");
    }
    puts("last line: footprint_ratio (peak held by the driver / peak live, requests rounded to 512 bytes), "
         "waits,\n"
         "moves, driver_calls, time_ratio (against nothing waiting and calls that cost nothing)");
}

static void refuse(const option_row_t *row, const char *text)
{
    replay_die("--%s %s: not %s", row->name, text, row->values);
}

static uint64_t parse_count(const option_row_t *row, const char *text, bool has_unit)
{
    static const char units[] = "kmgt";
    char *end;
    uint64_t number = strtoull(text, &end, 10), unit = 1;
    bool is_number = end != text && text[0] != '-';
    const char *mark = has_unit && *end ? strchr(units, *end) : NULL;
    if (mark) {
        unit = CUP_KIB << (10 * (mark - units));
        end++;
    }
    if (!is_number || *end || __builtin_mul_overflow(number, unit, &number))
        refuse(row, text);
    return number;
}

static double parse_real(const option_row_t *row, const char *text)
{
    char *end;
    double real = strtod(text, &end);
    if (end == text || *end || !isfinite(real) || real < 0)
        refuse(row, text);
    return real;
}

/* One of the words between bars. */
static const char *parse_word(const option_row_t *row, const char *text)
{
    size_t length = strlen(text);
    for (const char *word = row->values; word; word = strchr(word, '|')) {
        word += *word == '|';
        if (length && strcspn(word, "|") == length && !strncmp(word, text, length))
            return text;
    }
    refuse(row, text);
    return NULL;
}

static void store(const option_row_t *row, void *field, const char *text)
{
    switch (row->kind) {
    case KIND_TEXT:
        *(const char **)field = *text ? text : NULL;
        break;
    case KIND_WORD:
        *(const char **)field = parse_word(row, text);
        break;
    case KIND_LAG: {
        bool is_time = !strcmp(text, "time");
        *(replay_lag_t *)field = (replay_lag_t){is_time, is_time ? 0 : parse_count(row, text, false)};
        break;
    }
    case KIND_REAL:
        *(double *)field = parse_real(row, text);
        break;
    default:
        *(uint64_t *)field = parse_count(row, text, row->kind == KIND_BYTES);
    }
}

static void set_option(replay_conf_t *conf, size_t index, const char *text)
{
    void *const fields[] = {
#define X(name, field, kind, otherwise, values, meaning) &conf->field,
        OPTION_LIST(X)
#undef X
    };
    store(&rows[index], fields[index], text);
}

static void parse_options(replay_conf_t *conf, const char *texts[], int argc, char **argv)
{
    struct option options[OPTION_COUNT + 2] = {[OPTION_COUNT] = {"help", no_argument, NULL, 'h'}};
    int index, found;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        options[i] = (struct option){rows[i].name, required_argument, NULL, 'o'};
        texts[i] = rows[i].otherwise;
    }
    while ((found = getopt_long(argc, argv, "h", options, &index)) != -1) {
        if (found == 'h') {
            print_help();
            exit(0);
        }
        if (found != 'o')
            replay_die("--help lists the options");
        texts[index] = optarg;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++)
        set_option(conf, i, texts[i]);
    if (optind + 1 != argc)
        replay_die("one TRACE, please; --help lists the options");
    conf->trace_path = argv[optind];
    if (conf->limit_bytes > LIMIT_MAX || conf->slack_percent > SLACK_MAX)
        replay_die("--limit up to 1t, --slack up to %d", SLACK_MAX);
    if (conf->timeline.queue == 0)
        replay_die("--queue 0: the host could submit nothing");
}

/* ---- what came of it ---- */

static double footprint_ratio(const trace_t *trace, const replay_result_t *result)
{
    return (double)result->footprint_bytes / (double)trace->peak_live_bytes;
}

static double time_ratio(const replay_result_t *result)
{
    return result->ideal_us > 0 ? result->end_us / result->ideal_us : 1;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)CUP_MIB;
}

/* In the ratio of the last line; 0 where time decides. */
static double least_ratio(const replay_conf_t *conf, const trace_t *trace)
{
    uint64_t least_bytes = conf->lag.is_time ? 0 : trace_least_bytes(trace, conf->lag.events);
    return (double)least_bytes / (double)trace->peak_live_bytes;
}

static void print_result(const replay_conf_t *conf, const trace_t *trace, const replay_result_t *result)
{
    printf("trace: %zu events, %zu blocks, peak live %.1f MiB (requests rounded to %d), %zu lines left out\n",
           trace->count, trace->blocks, mib(trace->peak_live_bytes), TRACE_ROUND_BYTES, trace->problems);
    printf("held by the driver: peak %.1f MiB, at the end %.1f MiB; allocations that failed: %llu\n",
           mib(result->footprint_bytes), mib(result->end_bytes), (unsigned long long)result->failed);
    if (!conf->lag.is_time)
        printf("without any waiting this lag needs at least %.4f x peak live\n", least_ratio(conf, trace));
    printf("calls:");
    driver_print_calls(result->calls);
    printf("time, simulated: %.3f s; nothing waiting, calls free of cost: %.3f s\n", result->end_us / 1e6,
           result->ideal_us / 1e6);
    if (result->broken)
        printf("broken: %s\n", result->broken);
    printf("footprint_ratio=%.4f waits=%llu moves=%llu driver_calls=%llu time_ratio=%.4f\n",
           footprint_ratio(trace, result), (unsigned long long)result->waits,
           (unsigned long long)result->calls[DRIVER_MOVE], (unsigned long long)result->driver_calls,
           time_ratio(result));
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A column each for the trace, the options but for csv, the results. */
static void append_row(const replay_conf_t *conf, const char *texts[], const trace_t *trace,
                       const replay_result_t *result)
{
    FILE *file = fopen(conf->csv_path, "a");
    if (!file)
        replay_die("%s: cannot be written", conf->csv_path);
    fseek(file, 0, SEEK_END);
    if (ftell(file) == 0) {
        fputs("trace", file);
        for (size_t i = 0; i + 1 < OPTION_COUNT; i++)
            fprintf(file, ",%s", rows[i].name);
        fputs(",peak_live_bytes,peak_held_bytes,failed,least_ratio,footprint_ratio,waits,moves,driver_calls,"
              "time_ratio\n",
              file);
    }
    fputs(file_name(conf->trace_path), file);
    for (size_t i = 0; i + 1 < OPTION_COUNT; i++)
        fprintf(file, ",%s", texts[i]);
    fprintf(file, ",%llu,%llu,%llu,%.4f,%.4f,%llu,%llu,%llu,%.4f\n",
            (unsigned long long)trace->peak_live_bytes, (unsigned long long)result->footprint_bytes,
            (unsigned long long)result->failed, least_ratio(conf, trace), footprint_ratio(trace, result),
            (unsigned long long)result->waits, (unsigned long long)result->calls[DRIVER_MOVE],
            (unsigned long long)result->driver_calls, time_ratio(result));
    if (fclose(file))
        replay_die("%s: cannot be written", conf->csv_path);
}

int main(int argc, char **argv)
{
    const char *texts[OPTION_COUNT];
    replay_conf_t conf = {0};
    replay_result_t result;
    trace_t trace;
    parse_options(&conf, texts, argc, argv);
    trace_read(&trace, conf.trace_path);
    replay_run(&conf, policy_find(conf.policy), &trace, &result);
    if (conf.csv_path)
        append_row(&conf, texts, &trace, &result);
    print_result(&conf, &trace, &result);
    trace_fini(&trace);
    return result.broken ? 1 : 0;
}
