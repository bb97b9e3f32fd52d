/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_conf - the first byte is a capacity, the rest an environment: entries with a zero byte between. Laws:
 * whatever a row holds, the row takes it again, as the same; a file name is expanded inside its capacity.
 */
#include "shim/conf.h"
#include "shim/outfile.h"
#include "tests/fuzz/seeds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 32

static unsigned complaints;

static void complain(const char *line)
{
    complaints++;
    FUZZ_CHECK(strlen(line) < 1024, "a line of %zu bytes", strlen(line));
}

static void check_row(const cup_conf_t *conf, const cup_conf_row_t *row)
{
    static cup_conf_t again;
    const cup_conf_value_t *value = (const void *)((const char *)conf + row->offset);
    const cup_conf_value_t *other = (const void *)((const char *)&again + row->offset);
    char entry[CUP_CONF_TEXT_MAX + 64];
    char *environment[] = {entry, NULL};

    snprintf(entry, sizeof(entry), "CUPOLA_%s=%s", row->name, value->text);
    complaints = 0;
    cup_conf_load(environment, complain, &again);
    FUZZ_CHECK(complaints == 0, "%s holds \"%s\", which it does not take", row->name, value->text);
    FUZZ_CHECK(other->word == value->word && other->hundredths == value->hundredths &&
                   strcmp(other->text, value->text) == 0,
               "%s=\"%s\" became \"%s\"", row->name, value->text, other->text);
    if (row->kind == CUP_CONF_SIZE)
        for (int device = -1; device < 3; device++)
            (void)cup_conf_bytes(&value->size, device, UINT64_MAX);
}

static void check_expansion(const char *pattern, size_t capacity)
{
    char out[256 + 1];

    memset(out, '#', sizeof(out));
    (void)cup_outfile_expand(pattern, out, capacity);
    FUZZ_CHECK(out[capacity] == '#', "\"%s\" left its %zu bytes", pattern, capacity);
    FUZZ_CHECK(capacity == 0 || memchr(out, '\0', capacity), "\"%s\" has no end in %zu bytes", pattern,
               capacity);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cup_conf_t conf;
    char *text, *environment[ENTRIES_MAX + 1];
    size_t entries = 0, capacity;

    if (size < 2)
        return 0;
    capacity = data[0];
    text = malloc(size); /* of exact size, so that a read behind it is seen */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    for (char *at = text; at < text + size && entries < ENTRIES_MAX; at += strlen(at) + 1)
        environment[entries++] = at;
    environment[entries] = NULL;
    cup_conf_load(environment, complain, &conf);
    for (size_t i = 0; i < cup_conf_row_count; i++)
        check_row(&conf, &cup_conf_rows[i]);
    check_expansion(text, capacity);
    free(text);
    return 0;
}

/* Each row with its default, alone and in CUPOLA_CONF; then some that know the grammar of sizes and escapes.
 */
size_t cup_fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const char *const more[] = {"CUPOLA_CACHE=2g,1=4g,2=12.5%",
                                       "CUPOLA_CONF=cache:0=8g;1=10%,free:sync", "/tmp/%h.%p.%q{HOME}%%.json",
                                       "CUPOLA_LOG=info:%q{HOME"};
    const cup_conf_row_t *row = &cup_conf_rows[index / 2 % cup_conf_row_count];
    int length;

    if (index < 2 * cup_conf_row_count)
        length = snprintf((char *)out, capacity, index % 2 ? "@CUPOLA_CONF=%s:%s" : "@CUPOLA_%s=%s",
                          row->name, row->fallback);
    else if (index - 2 * cup_conf_row_count < sizeof(more) / sizeof(more[0]))
        length = snprintf((char *)out, capacity, "@%s", more[index - 2 * cup_conf_row_count]);
    else
        return 0;
    return (size_t)length;
}
