/* SPDX-License-Identifier: Apache-2.0 */
/* test_conf - every row of the options LIST by the same examples, sizes by a table, and the parser under
 * random text. */
#include "tests/support/unit.h"
#include "shim/conf.h"
#include "tests/support/rng.h"
#include <stdio.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)

static unsigned complaints;
static char last_complaint[1024];
static cup_conf_t conf;

static void complain(const char *line)
{
    complaints++;
    snprintf(last_complaint, sizeof(last_complaint), "%s", line);
}

/* Loads up to two entries (NULL: none) into conf; complaints counts those of this load. */
static void load(const char *first, const char *second)
{
    char *environment[] = {(char *)first, (char *)second, NULL};

    complaints = 0;
    cup_conf_load(environment, complain, &conf);
}

static const cup_conf_value_t *value_of(const cup_conf_row_t *row)
{
    return (const void *)((const char *)&conf + row->offset);
}

/* A value of the row that is not its default. */
static void pick_good(const cup_conf_row_t *row, char *out, size_t capacity)
{
    const char *last = strrchr(row->values, '|');

    switch (row->kind) {
    case CUP_CONF_BOOL:
        snprintf(out, capacity, "%s", strcmp(row->fallback, "1") == 0 ? "0" : "1");
        break;
    case CUP_CONF_WORD:
        snprintf(out, capacity, "%s", last + 1);
        if (strcmp(out, row->fallback) == 0)
            snprintf(out, capacity, "%.*s", (int)strcspn(row->values, "|"), row->values);
        break;
    case CUP_CONF_SIZE:
        snprintf(out, capacity, "3m");
        break;
    case CUP_CONF_NUMBER:
        snprintf(out, capacity, "1.07");
        break;
    case CUP_CONF_TEXT:
        snprintf(out, capacity, "text-of-%s", row->name);
        break;
    }
}

/* A value that the row can't take. */
static void pick_bad(const cup_conf_row_t *row, char *out, size_t capacity)
{
    memset(out, 0, capacity);
    if (row->kind == CUP_CONF_TEXT)
        memset(out, 'x', CUP_CONF_TEXT_MAX);
    else
        snprintf(out, capacity, "%s", row->kind == CUP_CONF_SIZE ? "12q" : "nonsense");
}

static void check_default(const cup_conf_row_t *row)
{
    const cup_conf_value_t *value = value_of(row);

    CHECK_MSG(strcmp(value->text, row->fallback) == 0, "%s is \"%s\"", row->name, value->text);
    CHECK_MSG(!value->is_set, "%s counts as set", row->name);
}

TEST(conf, defaults)
{
    load("PATH=/bin", "CUPOLA=1");
    CHECK_EQ(complaints, 0);
    for (size_t i = 0; i < cup_conf_row_count; i++)
        check_default(&cup_conf_rows[i]);
    CHECK_EQ(conf.disable.word, 0);
    CHECK_EQ(conf.free_mode.word, CUP_FREE_EXACT);
    CHECK_EQ(conf.backing.word, CUP_BACKING_AUTO);
    CHECK_EQ(cup_conf_bytes(&conf.dedicated.size, 0, 80 * GIB), 2 << 20);
}

TEST(conf, indices_follow_the_rows)
{
    load("CUPOLA_FREE=sync", "CUPOLA_BACKING=raw");
    CHECK_EQ(conf.free_mode.word, CUP_FREE_SYNC);
    CHECK_EQ(conf.backing.word, CUP_BACKING_RAW);
}

TEST(conf, variable)
{
    for (size_t i = 0; i < cup_conf_row_count; i++) {
        const cup_conf_row_t *row = &cup_conf_rows[i];
        char good[64], entry[128];

        pick_good(row, good, sizeof(good));
        snprintf(entry, sizeof(entry), "CUPOLA_%s=%s", row->name, good);
        load(entry, NULL);
        CHECK_MSG(complaints == 0, "%s", last_complaint);
        CHECK_MSG(strcmp(value_of(row)->text, good) == 0, "%s: \"%s\"", entry, value_of(row)->text);
        CHECK_MSG(value_of(row)->is_set, "%s", entry);
        for (size_t other = 0; other < cup_conf_row_count; other++)
            if (other != i)
                check_default(&cup_conf_rows[other]);
    }
}

TEST(conf, many_at_once)
{
    char text[1024] = "CUPOLA_CONF=";

    for (size_t i = 0; i < cup_conf_row_count; i++) {
        const cup_conf_row_t *row = &cup_conf_rows[i];
        char good[64];
        size_t end = strlen(text);

        pick_good(row, good, sizeof(good));
        snprintf(text + end, sizeof(text) - end, "%s%s:%s", i ? "," : "", row->name, good);
        for (char *c = text + end; i % 2 == 0 && *c && *c != ':'; c++) /* either case */
            *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    }
    load(text, NULL);
    CHECK_MSG(complaints == 0, "%s", last_complaint);
    for (size_t i = 0; i < cup_conf_row_count; i++) {
        char good[64];

        pick_good(&cup_conf_rows[i], good, sizeof(good));
        CHECK_MSG(strcmp(value_of(&cup_conf_rows[i])->text, good) == 0, "%s", cup_conf_rows[i].name);
        CHECK(value_of(&cup_conf_rows[i])->is_set);
    }
}

TEST(conf, many_with_a_list_of_sizes)
{
    load("CUPOLA_CONF=cache:2g;1=4g,free:sync", NULL);
    CHECK_EQ(complaints, 0);
    CHECK_EQ(cup_conf_bytes(&conf.cache.size, 0, 80 * GIB), 2 * GIB);
    CHECK_EQ(cup_conf_bytes(&conf.cache.size, 1, 80 * GIB), 4 * GIB);
    CHECK_EQ(conf.free_mode.word, CUP_FREE_SYNC);
}

TEST(conf, single_wins_in_either_order)
{
    load("CUPOLA_CONF=free:sync,log:off", "CUPOLA_FREE=deferred");
    CHECK_EQ(conf.free_mode.word, CUP_FREE_DEFERRED);
    CHECK(strcmp(conf.log.text, "off") == 0);
    load("CUPOLA_FREE=deferred", "CUPOLA_CONF=free:sync,log:off");
    CHECK_EQ(conf.free_mode.word, CUP_FREE_DEFERRED);
    CHECK(strcmp(conf.log.text, "off") == 0);
    CHECK_EQ(complaints, 0);
}

static void check_bad(const char *form)
{
    for (size_t i = 0; i < cup_conf_row_count; i++) {
        const cup_conf_row_t *row = &cup_conf_rows[i];
        char bad[CUP_CONF_TEXT_MAX + 1], entry[CUP_CONF_TEXT_MAX + 64];

        pick_bad(row, bad, sizeof(bad));
        snprintf(entry, sizeof(entry), form, row->name, bad);
        load(entry, NULL);
        CHECK_MSG(complaints == 1, "%s: %u complaints", entry, complaints);
        CHECK_MSG(strstr(last_complaint, row->name), "%s does not name %s", last_complaint, row->name);
        CHECK_MSG(!strchr(last_complaint, '\n'), "%s: more than a line", last_complaint);
        check_default(row);
    }
}

TEST(conf, bad_value_is_one_line_and_the_default)
{
    check_bad("CUPOLA_%s=%s");
}

TEST(conf, bad_value_among_many_is_one_line_and_the_default)
{
    check_bad("CUPOLA_CONF=%s:%s");
}

TEST(conf, bad_single_keeps_what_many_set)
{
    load("CUPOLA_CONF=free:sync", "CUPOLA_FREE=maybe");
    CHECK_EQ(complaints, 1);
    CHECK_EQ(conf.free_mode.word, CUP_FREE_SYNC);
}

TEST(conf, unknown_is_one_line)
{
    static const char *const unknown[] = {"CUPOLA_NONSENSE=1",   "CUPOLA_free=sync",       "CUPOLA_=1",
                                          "CUPOLA_FREEX=sync",   "CUPOLA_CONF=nonsense:1", "CUPOLA_CONF=free",
                                          "CUPOLA_CONF=fre:sync"};

    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        load(unknown[i], NULL);
        CHECK_MSG(complaints == 1, "%s: %u complaints", unknown[i], complaints);
        for (size_t row = 0; row < cup_conf_row_count; row++)
            check_default(&cup_conf_rows[row]);
    }
    load("CUPOLA_CONF=", NULL);
    CHECK_EQ(complaints, 0);
}

TEST(conf, sizes)
{
    static const struct {
        const char *text;
        uint64_t on_0, on_1; /* of 80 GiB */
    } table[] = {
        {"0", 0, 0},
        {"1", 1, 1},
        {"4k", 4096, 4096},
        {"4K", 4096, 4096},
        {"4kb", 4096, 4096},
        {"64M", 64 << 20, 64 << 20},
        {"3g", 3 * GIB, 3 * GIB},
        {"1t", 1024 * GIB, 1024 * GIB},
        {"16777215t", UINT64_MAX - ((1ull << 40) - 1), UINT64_MAX - ((1ull << 40) - 1)},
        {"18446744073709551600", UINT64_MAX - 15, UINT64_MAX - 15},
        {"25%", 20 * GIB, 20 * GIB},
        {"12.5%", 10 * GIB, 10 * GIB},
        {"6.25%", 5 * GIB, 5 * GIB},
        {"100%", 80 * GIB, 80 * GIB},
        {"0%", 0, 0},
        {"2g,1=4g", 2 * GIB, 4 * GIB},
        {"1=4g,2g", 2 * GIB, 4 * GIB},
        {"0=8g,1=25%", 8 * GIB, 20 * GIB},
        {"0=8g", 8 * GIB, 2 << 20}, /* the others keep DEDICATED's default */
        {"7=8g", 2 << 20, 2 << 20},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char entry[128];

        snprintf(entry, sizeof(entry), "CUPOLA_DEDICATED=%s", table[i].text);
        load(entry, NULL);
        CHECK_MSG(complaints == 0, "%s", last_complaint);
        CHECK_MSG(cup_conf_bytes(&conf.dedicated.size, 0, 80 * GIB) == table[i].on_0, "%s on device 0: %llu",
                  table[i].text, (unsigned long long)cup_conf_bytes(&conf.dedicated.size, 0, 80 * GIB));
        CHECK_MSG(cup_conf_bytes(&conf.dedicated.size, 1, 80 * GIB) == table[i].on_1, "%s on device 1: %llu",
                  table[i].text, (unsigned long long)cup_conf_bytes(&conf.dedicated.size, 1, 80 * GIB));
    }
}

TEST(conf, bad_sizes)
{
    static const char *const bad[] = {"",
                                      "k",
                                      "-1",
                                      "+1",
                                      "1 ",
                                      " 1",
                                      "1.5g",
                                      "1.5",
                                      "101%",
                                      "%",
                                      "1x",
                                      "1=",
                                      "=1g",
                                      "1g,",
                                      ",1g",
                                      "1g;2",
                                      "100.01%",
                                      "18446744073709551616",
                                      "0x1",
                                      "1kk",
                                      "16777216t",
                                      "99999999999999999999%",
                                      "1024=1g",
                                      "1=2=3g",
                                      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char entry[128];

        snprintf(entry, sizeof(entry), "CUPOLA_DEDICATED=%s", bad[i]);
        load(entry, NULL);
        CHECK_MSG(complaints == 1, "%s: %u complaints", entry, complaints);
        CHECK_EQ(cup_conf_bytes(&conf.dedicated.size, 0, 80 * GIB), 2 << 20);
    }
}

TEST(conf, numbers)
{
    static const struct {
        const char *text;
        uint64_t hundredths;
    } good[] = {{"0", 0},    {"1", 100},     {"1.05", 105},         {"1.5", 150},
                {"2.", 200}, {"1.059", 105}, {"1000000", 100000000}};
    static const char *const bad[] = {"",    ".5",    "-1", "+1",      "1 ",  "1.0x",
                                      "1,5", "1.2.3", "5%", "1000001", "1e3", "nan"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char entry[128];

        snprintf(entry, sizeof(entry), "CUPOLA_SLACK=%s", good[i].text);
        load(entry, NULL);
        CHECK_MSG(complaints == 0 && conf.slack.hundredths == good[i].hundredths, "%s", entry);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char entry[128];

        snprintf(entry, sizeof(entry), "CUPOLA_WAIT_MS=%s", bad[i]);
        load(entry, NULL);
        CHECK_MSG(complaints == 1 && conf.wait_ms.hundredths == 200, "%s: %u complaints", entry, complaints);
    }
}

TEST(conf, names)
{
    CHECK(cup_conf_names("python3,solver", "solver"));
    CHECK(cup_conf_names("python3,solver", "python3"));
    CHECK(cup_conf_names("solver", "solver"));
    CHECK(!cup_conf_names("python3,solver", "python"));
    CHECK(!cup_conf_names("python3,solver", "olver"));
    CHECK(!cup_conf_names("python3,solver", "python3,solver"));
    CHECK(!cup_conf_names("", "solver"));
}

/* Text of pieces that the parser knows, so that much of it is nearly right. */
static void random_text(cup_rng_t *rng, char *out, size_t capacity)
{
    static const char *const pieces[] = {"0",    "1",   "7",   "2g", "64m",   "%",    ".5",
                                         "k",    "=",   ",",   ";",  ":",     "|",    "free",
                                         "sync", "raw", "on",  "0",  "99",    "\xff", "\n",
                                         " ",    "%p",  "%q{", "}",  "cache", "log",  "18446744073709551615"};
    size_t length = 0, count = cup_rng_below(rng, 24);

    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(out + length, capacity - length, "%s",
                                   pieces[cup_rng_below(rng, sizeof(pieces) / sizeof(pieces[0]))]);
    out[length] = '\0';
}

/* What a row holds must be something that it takes, and takes as the same. */
static void check_row_parses(const cup_conf_row_t *row, uint64_t seed)
{
    static cup_conf_t again;
    char entry[CUP_CONF_TEXT_MAX + 32];
    char *environment[] = {entry, NULL};
    const cup_conf_value_t *value = value_of(row), *other = (const void *)((char *)&again + row->offset);

    snprintf(entry, sizeof(entry), "CUPOLA_%s=%s", row->name, value->text);
    complaints = 0;
    cup_conf_load(environment, complain, &again);
    CHECK_MSG(complaints == 0, "seed %llu: %s holds \"%s\"", (unsigned long long)seed, row->name,
              value->text);
    CHECK_MSG(other->word == value->word && strcmp(other->text, value->text) == 0, "seed %llu: %s=\"%s\"",
              (unsigned long long)seed, row->name, value->text);
}

TEST(conf, law_random_text_leaves_every_row_sound)
{
    uint64_t seed = cup_rng_seed(20261130);
    cup_rng_t rng = {seed};

    for (int round = 0; round < 4000; round++) {
        char text[640], single[704], many[704];
        const cup_conf_row_t *row = &cup_conf_rows[cup_rng_below(&rng, cup_conf_row_count)];

        random_text(&rng, text, sizeof(text));
        snprintf(single, sizeof(single), "CUPOLA_%s=%s", row->name, text);
        load(single, NULL);
        CHECK_MSG(complaints <= 1, "seed %llu: %u complaints about %s", (unsigned long long)seed, complaints,
                  single);
        CHECK_MSG(complaints == 0 || strcmp(value_of(row)->text, row->fallback) == 0, "seed %llu: %s",
                  (unsigned long long)seed, single);
        random_text(&rng, text, sizeof(text));
        snprintf(many, sizeof(many), "CUPOLA_CONF=%s", text);
        load(many, single);
        for (size_t i = 0; i < cup_conf_row_count; i++)
            check_row_parses(&cup_conf_rows[i], seed);
    }
}

TEST(conf, law_a_percentage_is_never_more_than_the_whole)
{
    uint64_t seed = cup_rng_seed(7);
    cup_rng_t rng = {seed};

    for (int round = 0; round < 10000; round++) {
        uint64_t total = cup_rng_next(&rng) >> cup_rng_below(&rng, 60);
        uint64_t hundredths = cup_rng_below(&rng, 10001);
        cup_conf_size_t size = {{{-1, true, hundredths}}, 1};
        uint64_t exact = (uint64_t)((unsigned __int128)total * hundredths / 10000);

        CHECK_MSG(cup_conf_bytes(&size, 3, total) == exact,
                  "seed %llu: %llu hundredths of a percent of %llu: %llu", (unsigned long long)seed,
                  (unsigned long long)hundredths, (unsigned long long)total,
                  (unsigned long long)cup_conf_bytes(&size, 3, total));
    }
}
