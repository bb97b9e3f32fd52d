/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a line is cut into fields and turned by its format's parser into a record (time, what, key, bytes);
 * the record becomes an event if it agrees with what is live. Keys are ids (ours) or pointers (RMM's),
 * which come again: live maps a key to its block + 1.
 */
#define _GNU_SOURCE /* pipe2 */
#include "bench/replay/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/replay/table.h"

#define FIELDS_MAX    8
#define PROBLEMS_SAID 10
#define BYTES_MAX     ((uint64_t)1 << 50) /* no GPU has that much: the number is broken */
#define DAY_US        (24 * 3600e6)
#define BLOCKS_MAX    UINT32_MAX

extern char **environ;

typedef enum { RECORD_ALLOC, RECORD_FREE, RECORD_NOTHING } record_kind_t;

typedef struct record {
    double time_us;
    record_kind_t kind;
    uint64_t key, bytes;
} record_t;

typedef struct reader {
    trace_t *trace;
    const char *path;
    size_t line;
    double time_us; /* of the newest event */
    double day_us;  /* RMM logs the time of day: what passed midnights add */
    table_t live;   /* key → block + 1 */
    uint64_t *bytes;
    size_t bytes_capacity;
    uint64_t live_bytes;
} reader_t;

/* ---- files ---- */

typedef struct source {
    FILE *file;
    pid_t xz; /* 0: a plain file */
} source_t;

static bool is_xz(const char *path)
{
    static const unsigned char magic[6] = {0xFD, '7', 'z', 'X', 'Z', 0};
    unsigned char head[sizeof magic];
    FILE *file = fopen(path, "rb");
    if (!file)
        replay_die("%s: %s", path, strerror(errno));
    bool is_magic = fread(head, 1, sizeof head, file) == sizeof head && !memcmp(head, magic, sizeof head);
    fclose(file);
    return is_magic;
}

static void open_xz(source_t *source, const char *path)
{
    char *arguments[] = {"xz", "-dcqq", "--", (char *)path, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        replay_die("%s: %s", path, strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int error = posix_spawnp(&source->xz, "xz", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        replay_die("%s: cannot start xz: %s", path, strerror(error));
    close(ends[1]);
    source->file = fdopen(ends[0], "r");
}

static void open_source(source_t *source, const char *path)
{
    *source = (source_t){0};
    if (is_xz(path))
        open_xz(source, path);
    else
        source->file = fopen(path, "r");
    if (!source->file)
        replay_die("%s: %s", path, strerror(errno));
}

/* Returns whether everything could be read. */
static bool close_source(source_t *source)
{
    int status = 0;
    bool is_whole = !ferror(source->file);
    fclose(source->file);
    if (source->xz && (waitpid(source->xz, &status, 0) != source->xz || status != 0))
        is_whole = false;
    return is_whole;
}

/* ---- one line ---- */

static void note_problem(reader_t *reader, const char *text)
{
    if (++reader->trace->problems <= PROBLEMS_SAID)
        fprintf(stderr, "replay: %s:%zu: %s; left out\n", reader->path, reader->line, text);
}

/* Cuts the line up in place. */
static size_t split_fields(char *line, char *fields[FIELDS_MAX])
{
    size_t count = 0;
    for (char *rest = line; count < FIELDS_MAX && (fields[count] = strsep(&rest, ","));)
        count++;
    return count;
}

static bool parse_number(const char *text, int base, uint64_t *out_number)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, base);
    if (end == text || *end || errno || strchr(text, '-'))
        return false;
    *out_number = number;
    return true;
}

/* Both formats' last step. Returns what is wrong, or NULL. */
static const char *parse_bytes(const char *text, record_t *record)
{
    if (!parse_number(text, 10, &record->bytes))
        return "the size is not a number";
    return record->bytes > BYTES_MAX ? "the size is larger than any GPU" : NULL;
}

/* time_us,thread,op,id,bytes; a free has no bytes. */
static const char *parse_ours(reader_t *reader, char *fields[], size_t count, record_t *record)
{
    char *end;
    (void)reader;
    if (count < 4)
        return "not time_us,thread,op,id,bytes";
    record->time_us = strtod(fields[0], &end);
    if (end == fields[0] || *end || !isfinite(record->time_us))
        return "the time is not a number";
    if (!parse_number(fields[3], 10, &record->key))
        return "the id is not a number";
    if (!strcmp(fields[2], "free")) {
        record->kind = RECORD_FREE;
        return NULL;
    }
    if (strcmp(fields[2], "alloc"))
        return "neither alloc nor free";
    record->kind = RECORD_ALLOC;
    return count < 5 ? "an alloc without its size" : parse_bytes(fields[4], record);
}

/* 10:11:12.345678, and with a colon before the fraction as older versions wrote. */
static bool parse_day_time(reader_t *reader, const char *text, double *out_us)
{
    unsigned hour, minute, second, us;
    char mark, end;
    if (sscanf(text, "%2u:%2u:%2u%c%6u%c", &hour, &minute, &second, &mark, &us, &end) != 5 ||
        (mark != ':' && mark != '.'))
        return false;
    double day_us = ((hour * 60.0 + minute) * 60 + second) * 1e6 + us;
    if (reader->day_us + day_us < reader->time_us - DAY_US / 2)
        reader->day_us += DAY_US;
    *out_us = reader->day_us + day_us;
    return true;
}

/* Thread,Time,Action,Pointer,Size,Stream */
static const char *parse_rmm(reader_t *reader, char *fields[], size_t count, record_t *record)
{
    if (count < 5)
        return "not Thread,Time,Action,Pointer,Size,Stream";
    if (!parse_day_time(reader, fields[1], &record->time_us))
        return "the time is not HH:MM:SS.ffffff";
    record->kind = RECORD_NOTHING;
    if (!strcmp(fields[2], "allocate failure"))
        return NULL;
    if (strcmp(fields[2], "allocate") && strcmp(fields[2], "free"))
        return "neither allocate, allocate failure nor free";
    bool is_null = !strcmp(fields[3], "(nil)");
    if (!is_null && !parse_number(fields[3], 16, &record->key))
        return "the pointer is not a number";
    if (is_null || record->key == 0) /* 0 bytes */
        return NULL;
    record->kind = fields[2][0] == 'f' ? RECORD_FREE : RECORD_ALLOC;
    return parse_bytes(fields[4], record);
}

typedef const char *(*parse_line_t)(reader_t *reader, char *fields[], size_t count, record_t *record);

static const struct {
    const char *header;
    parse_line_t parse;
} formats[] = {
    {"time_us,thread,op,id,bytes", parse_ours},
    {"Thread,Time,Action,Pointer,Size,Stream", parse_rmm},
};

static parse_line_t find_format(const char *header)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(header, formats[i].header))
            return formats[i].parse;
    return NULL;
}

/* ---- what is live ---- */

static uint64_t round_bytes(uint64_t bytes)
{
    return (bytes + TRACE_ROUND_BYTES - 1) / TRACE_ROUND_BYTES * TRACE_ROUND_BYTES;
}

static void add_event(reader_t *reader, const record_t *record, size_t block)
{
    trace_t *trace = reader->trace;
    double gap_us = trace->count ? record->time_us - reader->time_us : 0;
    trace->events = replay_grow(trace->events, trace->count, &trace->capacity, sizeof *trace->events);
    trace->events[trace->count++] = (trace_event_t){.gap_us = gap_us > 0 ? gap_us : 0,
                                                    .bytes = reader->bytes[block],
                                                    .block = (uint32_t)block,
                                                    .is_alloc = record->kind == RECORD_ALLOC};
    if (gap_us > 0 || trace->count == 1)
        reader->time_us = record->time_us;
}

static const char *note_alloc(reader_t *reader, const record_t *record)
{
    trace_t *trace = reader->trace;
    uint64_t *live = table_at(&reader->live, record->key);
    if (*live)
        return "allocated already and not freed since";
    if (record->bytes == 0 || trace->blocks == BLOCKS_MAX)
        return NULL;
    reader->bytes = replay_grow(reader->bytes, trace->blocks, &reader->bytes_capacity, sizeof *reader->bytes);
    reader->bytes[trace->blocks] = record->bytes;
    *live = trace->blocks + 1;
    reader->live_bytes += round_bytes(record->bytes);
    if (trace->peak_live_bytes < reader->live_bytes)
        trace->peak_live_bytes = reader->live_bytes;
    add_event(reader, record, trace->blocks++);
    return NULL;
}

static const char *note_free(reader_t *reader, const record_t *record)
{
    uint64_t *live = table_at(&reader->live, record->key);
    if (!*live)
        return "a free of what is not allocated";
    size_t block = *live - 1;
    *live = 0;
    reader->live_bytes -= round_bytes(reader->bytes[block]);
    add_event(reader, record, block);
    return NULL;
}

static void read_line(reader_t *reader, parse_line_t parse, char *line)
{
    char *fields[FIELDS_MAX];
    record_t record = {0};
    const char *problem = parse(reader, fields, split_fields(line, fields), &record);
    if (!problem && record.kind == RECORD_ALLOC)
        problem = note_alloc(reader, &record);
    else if (!problem && record.kind == RECORD_FREE)
        problem = note_free(reader, &record);
    if (problem)
        note_problem(reader, problem);
}

static void read_lines(reader_t *reader, FILE *file)
{
    parse_line_t parse = NULL;
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) >= 0) {
        reader->line++;
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (parse)
            read_line(reader, parse, line);
        else if (!(parse = find_format(line)))
            replay_die("%s:%zu: not a trace: neither our header nor RMM's", reader->path, reader->line);
    }
    free(line);
}

void trace_read(trace_t *trace, const char *path)
{
    reader_t reader = {.trace = trace, .path = path};
    source_t source;
    *trace = (trace_t){0};
    open_source(&source, path);
    read_lines(&reader, source.file);
    if (!close_source(&source))
        replay_die("%s: cannot be read to its end", path);
    if (trace->problems > PROBLEMS_SAID)
        fprintf(stderr, "replay: %s: and %zu more such lines\n", path, trace->problems - PROBLEMS_SAID);
    if (trace->count == 0)
        replay_die("%s: nothing to replay", path);
    table_fini(&reader.live);
    free(reader.bytes);
}

/* Bytes leave lag events after their free, before the event of that number: two cursors over the events. */
uint64_t trace_least_bytes(const trace_t *trace, uint64_t lag)
{
    uint64_t bytes = 0, least_bytes = 0;
    for (size_t i = 0, left = 0; i < trace->count; i++) {
        for (; left < i && i - left >= lag; left++)
            if (!trace->events[left].is_alloc)
                bytes -= round_bytes(trace->events[left].bytes);
        if (trace->events[i].is_alloc)
            bytes += round_bytes(trace->events[i].bytes);
        if (least_bytes < bytes)
            least_bytes = bytes;
    }
    return least_bytes;
}

void trace_fini(trace_t *trace)
{
    free(trace->events);
    *trace = (trace_t){0};
}
