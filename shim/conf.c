/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: every row is parsed the same way, three times over: the default, then CUPOLA_CONF, then the variable
 * itself. A value that does not parse leaves the one before it in place. No allocation; texts are cut at
 * CUP_CONF_TEXT_MAX with a complaint. Only cup_conf_load writes.
 */
#include "shim/conf.h"
#include <stdio.h>
#include <string.h>

#define NUMBER_MAX 1000000
#define PREFIX     "CUPOLA_"

const cup_conf_row_t cup_conf_rows[] = {
#define X(field, NAME, kind, fallback, values, meaning) \
    {#NAME, CUP_CONF_##kind, fallback, values, meaning, offsetof(cup_conf_t, field)},
    CUP_CONF_LIST(X)
#undef X
};
const size_t cup_conf_row_count = sizeof(cup_conf_rows) / sizeof(cup_conf_rows[0]);

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ASCII only: the C library's tolower follows the program's locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_name(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (lower(a[i]) != lower(b[i]))
            return false;
    return b[length] == '\0';
}

/* Index of text among "a|b|c", or -1. */
static int word_index(const char *words, const char *text)
{
    size_t length = strlen(text);
    int index = 0;

    for (const char *at = words; *at; index++) {
        size_t span = strcspn(at, "|");

        if (span == length && memcmp(at, text, length) == 0)
            return index;
        at += span;
        at += *at == '|';
    }
    return -1;
}

static bool parse_number(const char **at, uint64_t *out_number)
{
    uint64_t number = 0;

    if (!is_digit(**at))
        return false;
    for (; is_digit(**at); ++*at) {
        if (number > (UINT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (uint64_t)(**at - '0');
    }
    *out_number = number;
    return true;
}

/* ".5" in hundredths, what is finer cut off; 0 where there is no point. */
static uint64_t parse_decimals(const char **at)
{
    uint64_t hundredths = 0, scale = 10;

    if (**at == '.')
        for (++*at; is_digit(**at); ++*at, scale /= 10)
            hundredths += (uint64_t)(**at - '0') * scale;
    return hundredths;
}

static bool parse_hundredths(const char *text, uint64_t *out_hundredths)
{
    uint64_t whole, decimals;

    if (!parse_number(&text, &whole) || whole > NUMBER_MAX)
        return false;
    decimals = parse_decimals(&text);
    if (*text)
        return false;
    *out_hundredths = whole * 100 + decimals;
    return true;
}

/* "12.5%" in hundredths of a percent; at stands behind the whole part. */
static bool parse_percent(const char **at, uint64_t whole, struct cup_conf_amount *out)
{
    uint64_t hundredths = parse_decimals(at);

    if (**at != '%' || whole > 100)
        return false;
    ++*at;
    out->is_percent = true;
    out->amount = whole * 100 + hundredths;
    return out->amount <= 10000;
}

static bool parse_amount(const char **at, struct cup_conf_amount *out)
{
    static const char units[] = "kmgt";
    uint64_t number;
    const char *unit;
    unsigned shift = 0;

    if (!parse_number(at, &number))
        return false;
    if (**at == '%' || **at == '.')
        return parse_percent(at, number, out);
    unit = **at ? strchr(units, lower(**at)) : NULL;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        ++*at;
        *at += lower(**at) == 'b'; /* "2mb" */
    }
    if (number > UINT64_MAX >> shift)
        return false;
    out->is_percent = false;
    out->amount = number << shift;
    return true;
}

/* A list that names devices only leaves the others with what they had before. */
static void keep_fallback(const cup_conf_size_t *before, cup_conf_size_t *size)
{
    for (size_t i = 0; i < size->count; i++)
        if (size->item[i].device == -1)
            return;
    for (size_t i = 0; i < before->count && size->count < CUP_CONF_DEVICES_MAX; i++)
        if (before->item[i].device == -1)
            size->item[size->count++] = before->item[i];
}

/* [device=]amount[,[device=]amount…] */
static bool parse_size(const char *text, cup_conf_size_t *out_size)
{
    cup_conf_size_t size = {.count = 0};

    for (const char *at = text;; at++) {
        struct cup_conf_amount item = {.device = -1};
        const char *mark = at;
        uint64_t device;

        if (size.count == CUP_CONF_DEVICES_MAX)
            return false;
        if (parse_number(&mark, &device) && *mark == '=' && device < 1024) {
            item.device = (int)device;
            at = mark + 1;
        }
        if (!parse_amount(&at, &item))
            return false;
        size.item[size.count++] = item;
        if (*at == '\0')
            break;
        if (*at != ',')
            return false;
    }
    keep_fallback(out_size, &size);
    *out_size = size;
    return true;
}

static bool parse_value(const cup_conf_row_t *row, const char *text, cup_conf_value_t *value)
{
    if (strlen(text) >= sizeof(value->text))
        return false;
    switch (row->kind) {
    case CUP_CONF_BOOL:
    case CUP_CONF_WORD: {
        int word = word_index(row->values, text);

        if (word < 0)
            return false;
        value->word = word;
        break;
    }
    case CUP_CONF_SIZE:
        if (!parse_size(text, &value->size))
            return false;
        break;
    case CUP_CONF_NUMBER:
        if (!parse_hundredths(text, &value->hundredths))
            return false;
        break;
    case CUP_CONF_TEXT:
        break;
    }
    strcpy(value->text, text);
    return true;
}

static cup_conf_value_t *value_of(cup_conf_t *conf, const cup_conf_row_t *row)
{
    return (cup_conf_value_t *)((char *)conf + row->offset);
}

static const cup_conf_row_t *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < cup_conf_row_count; i++)
        if (same_name(name, cup_conf_rows[i].name, length))
            return &cup_conf_rows[i];
    return NULL;
}

static void set_value(cup_conf_t *conf, const cup_conf_row_t *row, const char *text,
                      cup_conf_complain_t complain)
{
    cup_conf_value_t *value = value_of(conf, row);
    char line[CUP_CONF_TEXT_MAX + 256];

    if (parse_value(row, text, value)) {
        value->is_set = true;
        return;
    }
    snprintf(line, sizeof(line), PREFIX "%s=%.200s is not %s%s; using %.100s", row->name, text,
             row->kind == CUP_CONF_SIZE     ? "a size such as 64m, 2g, 25% or 0=8g: "
             : row->kind == CUP_CONF_NUMBER ? "a number such as 2 or 1.05: "
                                            : "one of ",
             row->values, value->text);
    complain(line);
}

/* name:value,name:value; a comma inside a SIZE is written as ';' there. */
static void load_many(cup_conf_t *conf, const char *text, cup_conf_complain_t complain)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        size_t name_length = strcspn(text, ":");
        char value[CUP_CONF_TEXT_MAX + 1],
            line[256]; /* one more than fits, so that too long is seen as such */
        const cup_conf_row_t *row = name_length < length ? find_row(text, name_length) : NULL;

        if (!row) {
            snprintf(line, sizeof(line), PREFIX "CONF: no option \"%.*s\"; write name:value,name:value",
                     (int)(length < 100 ? length : 100), text);
            complain(line);
        } else {
            size_t value_length = length - name_length - 1;

            if (value_length > sizeof(value) - 1)
                value_length = sizeof(value) - 1;
            memcpy(value, text + name_length + 1, value_length);
            value[value_length] = '\0';
            for (char *c = value; *c; c++)
                *c = *c == ';' ? ',' : *c;
            set_value(conf, row, value, complain);
        }
        text += length;
        text += *text == ',';
    }
}

static void load_single(cup_conf_t *conf, const char *entry, cup_conf_complain_t complain)
{
    size_t length = strcspn(entry, "=");
    const cup_conf_row_t *row;
    char line[256];

    if (entry[length] == '\0' || (length == 4 && memcmp(entry, "CONF", 4) == 0))
        return;
    row = find_row(entry, length);
    if (row && memcmp(entry, row->name, length) == 0) {
        set_value(conf, row, entry + length + 1, complain);
        return;
    }
    snprintf(line, sizeof(line), "unknown variable " PREFIX "%.*s is ignored; docs/options.md lists them",
             (int)(length < 100 ? length : 100), entry);
    complain(line);
}

void cup_conf_load(char *const *environment, cup_conf_complain_t complain, cup_conf_t *out_conf)
{
    const size_t prefix = sizeof(PREFIX) - 1;

    memset(out_conf, 0, sizeof(*out_conf));
    for (size_t i = 0; i < cup_conf_row_count; i++)
        parse_value(&cup_conf_rows[i], cup_conf_rows[i].fallback, value_of(out_conf, &cup_conf_rows[i]));
    for (char *const *entry = environment; entry && *entry; entry++)
        if (strncmp(*entry, PREFIX "CONF=", prefix + 5) == 0)
            load_many(out_conf, *entry + prefix + 5, complain);
    for (char *const *entry = environment; entry && *entry; entry++)
        if (strncmp(*entry, PREFIX, prefix) == 0)
            load_single(out_conf, *entry + prefix, complain);
}

uint64_t cup_conf_bytes(const cup_conf_size_t *size, int device, uint64_t total_bytes)
{
    const struct cup_conf_amount *chosen = NULL;

    for (size_t i = 0; i < size->count; i++)
        if (size->item[i].device == device || (size->item[i].device == -1 && !chosen))
            chosen = &size->item[i];
    if (!chosen)
        return 0;
    if (chosen->is_percent)
        return (uint64_t)((unsigned __int128)total_bytes * chosen->amount / 10000);
    return chosen->amount;
}

bool cup_conf_names(const char *list, const char *name)
{
    size_t length = strlen(name);

    while (*list) {
        size_t span = strcspn(list, ",");

        if (span == length && memcmp(list, name, length) == 0)
            return true;
        list += span;
        list += *list == ',';
    }
    return false;
}
