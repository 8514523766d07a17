/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Numbers, tables and bars of qosctl, without a terminal. */

#include <locale.h>
#include <math.h>

#include "format.h"
#include "histogram-sum.h"
#include "histogram-view.h"
#include "histogram.h"
#include "table.h"
#include "value.h"

#define CHECK(condition)                                                                                \
        do {                                                                                            \
                if (!(condition)) {                                                                     \
                        fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);       \
                        exit(EXIT_FAILURE);                                                             \
                }                                                                                       \
        } while (false)

#define CHECK_STRING(got, wanted)                                                                       \
        do {                                                                                            \
                const char *_g = (got), *_w = (wanted);                                                 \
                if (!streq_ptr(_g, _w)) {                                                               \
                        fprintf(stderr, "%s:%d: %s is\n%s\nnot\n%s\n", __FILE__, __LINE__, #got, _g, _w); \
                        exit(EXIT_FAILURE);                                                             \
                }                                                                                       \
        } while (false)

static void test_durations(void) {
        static const struct {
                uint64_t nsec;
                const char *text;
        } cases[] = {
                { 0,                                "0"           },
                { 1,                                "1ns"         },
                { 999,                              "999ns"       },
                { 1000,                             "1.00us"      },
                { 9994,                             "9.99us"      },
                { 9996,                             "10.0us"      },
                { 99960,                            "100us"       },
                { 327000,                           "327us"       },
                { 999499,                           "999us"       },
                { 999500,                           "1.00ms"      },
                { 1180000,                          "1.18ms"      },
                { 999500000,                        "1.00s"       },
                { 12340 * NSEC_PER_MSEC,            "12.3s"       },
                { 60 * NSEC_PER_SEC - 1,            "60.0s"       },
                { 60 * NSEC_PER_SEC,                "1min"        },
                { 72 * NSEC_PER_SEC,                "1min 12s"    },
                { 3600 * NSEC_PER_SEC,              "1h"          },
                { 90061 * NSEC_PER_SEC,             "1d 1h"       },
                { UINT64_MAX,                       "584y 6month" },
        };
        char buf[FORMAT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                CHECK_STRING(format_duration(buf, cases[i].nsec), cases[i].text);

        CHECK_STRING(format_span(buf, 0), "0");
        CHECK_STRING(format_span(buf, 1500 * NSEC_PER_MSEC), "1s");
        CHECK_STRING(format_span(buf, 250 * NSEC_PER_MSEC), "250ms");
        CHECK_STRING(format_span(buf, 14 * 86400 * NSEC_PER_SEC), "2w");

        CHECK_STRING(format_window(buf, 0), "total");
        CHECK_STRING(format_window(buf, 100 * NSEC_PER_MSEC), "100ms");
        CHECK_STRING(format_window(buf, 10 * NSEC_PER_SEC), "10s");
        CHECK_STRING(format_window(buf, 60 * NSEC_PER_SEC), "60s");
        CHECK_STRING(format_window(buf, 300 * NSEC_PER_SEC), "5min");
}

static void test_numbers(void) {
        char buf[FORMAT_MAX];

        CHECK_STRING(format_count(buf, 0), "0");
        CHECK_STRING(format_count(buf, 999), "999");
        CHECK_STRING(format_count(buf, 1000), "1.00k");
        CHECK_STRING(format_count(buf, 15123), "15.1k");
        CHECK_STRING(format_count(buf, 999499), "999k");
        CHECK_STRING(format_count(buf, 999500), "1.00M");
        CHECK_STRING(format_count(buf, 3400000), "3.40M");
        CHECK_STRING(format_count(buf, UINT64_MAX), "18.4E");

        CHECK_STRING(format_rate(buf, 0), "0/s");
        CHECK_STRING(format_rate(buf, 0.0001), "<0.01/s");
        CHECK_STRING(format_rate(buf, 0.4), "0.40/s");
        CHECK_STRING(format_rate(buf, 15123.4), "15.1k/s");
        CHECK_STRING(format_rate(buf, 1e21), "1000E/s");
        CHECK_STRING(format_rate(buf, 1e300), "1.00e+300/s");
        CHECK_STRING(format_rate(buf, NAN), "-");
        CHECK_STRING(format_rate(buf, INFINITY), "-");
        CHECK_STRING(format_rate(buf, -1), "-");

        CHECK_STRING(format_bytes(buf, 0), "0B");
        CHECK_STRING(format_bytes(buf, 1023), "1023B");
        CHECK_STRING(format_bytes(buf, 1024), "1.0K");
        CHECK_STRING(format_bytes(buf, 1048575), "1.0M");
        CHECK_STRING(format_bytes(buf, UINT64_MAX), "16.0E");

        CHECK_STRING(format_percent(buf, 0), "0%");
        CHECK_STRING(format_percent(buf, 0.0001), "<0.1%");
        CHECK_STRING(format_percent(buf, 0.004), "0.4%");
        CHECK_STRING(format_percent(buf, 1), "100.0%");
        CHECK_STRING(format_percent(buf, NAN), "-");

        CHECK_STRING(format_real(buf, 0.1), "0.1");
        CHECK_STRING(format_real(buf, 15123.4), "15123.4");
        CHECK_STRING(format_real(buf, 1.0 / 3), "0.3333333333333333");
        CHECK_STRING(format_real(buf, 60), "60");
}

static void test_parse(void) {
        static const struct {
                const char *text;
                uint64_t nsec;
        } good[] = {
                { "10s",        10 * NSEC_PER_SEC      },
                { "10",         10 * NSEC_PER_SEC      },
                { " 10 s ",     10 * NSEC_PER_SEC      },
                { "1min",       60 * NSEC_PER_SEC      },
                { "1m",         60 * NSEC_PER_SEC      },
                { "1M",         UINT64_C(2629800) * NSEC_PER_SEC },
                { "5min",       300 * NSEC_PER_SEC     },
                { "1h 30min",   5400 * NSEC_PER_SEC    },
                { "1h30m",      5400 * NSEC_PER_SEC    },
                { "0.5s",       500 * NSEC_PER_MSEC    },
                { "100ms",      100 * NSEC_PER_MSEC    },
                { "7ns",        7                      },
                { "0",          0                      },
        }, windows[] = {
                { "total",      0                      },
                { "60s",        60 * NSEC_PER_SEC      },
        };
        static const char *const bad[] = {
                "", " ", "s", "-1s", "+1s", "1e3", "0x10", "1..5s", "1.5.5s", ".", "10 parsecs", "10s!",
                        "nan", "inf",
                "infinity", "99999999999999999999999999s", "999999999y", "1S", "\xff",
        };
        uint64_t v = 4711;

        for (size_t i = 0; i < ELEMENTSOF(good); i++) {
                CHECK(parse_span(good[i].text, &v) == 0);
                CHECK(v == good[i].nsec);
        }
        for (size_t i = 0; i < ELEMENTSOF(windows); i++) {
                CHECK(parse_window(windows[i].text, &v) == 0);
                CHECK(v == windows[i].nsec);
        }

        v = 4711;
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                CHECK(parse_span(bad[i], &v) < 0);
                CHECK(parse_window(bad[i], &v) < 0);
        }
        CHECK(parse_window("0", &v) < 0);
        CHECK(parse_window("Total", &v) < 0);
        CHECK(v == 4711);
}

static void check_freed(char *got, const char *wanted) {
        CHECK_STRING(got, wanted);
        free(got);
}

static void test_text(void) {
        bool unicode = setlocale(LC_CTYPE, "C.UTF-8");

        CHECK(text_width("nginx.service") == 13);
        CHECK(text_width("caf\xc3\xa9") == 4);
        /* Invalid characters have the width of their replacement */
        CHECK(text_width("\xff\xc3") == 2);
        if (unicode)
                CHECK(text_width("\xe6\x97\xa5\xe6\x9c\xac") == 4);

        check_freed(text_clean("plain \xc3\xa9", true), "plain \xc3\xa9");
        check_freed(text_clean("plain \xc3\xa9", false), "plain ?");
        check_freed(text_clean("\x1b[2J\n\t\x7f", true), "\\x1b[2J\\x0a\\x09\\x7f");
        /* C1 in UTF-8, a lone continuation byte, an overlong encoding, a surrogate, right-to-left
         * override */
        check_freed(text_clean("\xc2\x9b" "31m", true), "\\xc2\\x9b31m");
        check_freed(text_clean("\x80", true), "\\x80");
        check_freed(text_clean("\xc0\xaf", true), "\\xc0\\xaf");
        check_freed(text_clean("\xed\xa0\x80", true), "\\xed\\xa0\\x80");
        check_freed(text_clean("a\xe2\x80\xae" "b", true), "a\\u202eb");
        check_freed(text_clean("a\xe2\x80\xae" "b", false), "a?b");
        /* Without a width, a mark of direction, the byte order mark, a tag */
        check_freed(text_clean("ngi\xe2\x80\x8bnx", true), "ngi\\u200bnx");
        check_freed(text_clean("\xe2\x80\x8f\xd8\x9c\xef\xbb\xbf", true), "\\u200f\\u061c\\ufeff");
        check_freed(text_clean("\xf3\xa0\x81\xbf", true), "\\ue007f");
        check_freed(text_clean("\xe2\x80\x8a\xe2\x80\x90\xd8\x9b", true),
                    "\xe2\x80\x8a\xe2\x80\x90\xd8\x9b"); /* the characters next to them */
        check_freed(text_clean("", true), "");

        check_freed(text_ellipsize("nginx.service", 13, false), "nginx.service");
        check_freed(text_ellipsize("postgresql@17-main.service", 16, false), "postgresq...vice");
        check_freed(text_ellipsize("postgresql@17-main.service", 16, true), "postgresql\xe2\x80\xa6rvice");
        check_freed(text_ellipsize("abcdef", 3, false), "...");
        check_freed(text_ellipsize("abcdef", 2, false), "..");
        check_freed(text_ellipsize("abcdef", 1, true), "\xe2\x80\xa6");
        check_freed(text_ellipsize("abcdef", 0, true), "");

        CHECK(text_wrap("one two three", 100) == 13);
        CHECK(text_wrap("one two three", 9) == 7);
        CHECK(text_wrap("one two three", 7) == 7);
        CHECK(text_wrap("unbreakable", 4) == 4);
        CHECK(text_wrap("x", 0) == 1);
        /* Colors have no width */
        CHECK(text_wrap("\x1b[0;1;31mone\x1b[0m two", 3) == strlen("\x1b[0;1;31mone\x1b[0m"));
        CHECK(text_width("\x1b[0;1;31mone\x1b[0m") == 3);

        check_freed(text_bar(0, 10, true), "");
        check_freed(text_bar(1, 3, true), "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88");
        check_freed(text_bar(0.5, 3, true), "\xe2\x96\x88\xe2\x96\x8c");
        check_freed(text_bar(1e-9, 3, true), "\xe2\x96\x8f");
        check_freed(text_bar(0.5, 4, false), "##");
        check_freed(text_bar(1e-9, 4, false), "#");
        check_freed(text_bar(NAN, 4, false), "");
        check_freed(text_bar(7, 4, false), "####");
}

/* ---- tables ------------------------------------------------------------------------------------------- */

static const Column columns[] = {
        { "UNIT", .minimum = 10 },
        { "ACTIVE", .rank = 1 },
        { "RATE", .right = true },
};

static char* print_table(Table *t, unsigned width, bool colors, bool legend) {
        const Style style = { .width = width, .utf8 = true, .colors = colors };
        char *text = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&text, &size);
        CHECK(f);
        CHECK(table_print(t, f, &style, legend, 0) == 0);
        CHECK(fclose(f) == 0);
        return text;
}

static void test_table(void) {
        static const Column described[] = { { "METRIC" }, { "DESCRIPTION", .minimum = 8, .wrap = true } };
        _cleanup_(table_freep) Table *t = NULL, *empty = NULL, *w = NULL;

        t = table_new(columns, ELEMENTSOF(columns));
        CHECK(t);
        table_add(t, COLOR_NONE, "%s", "nginx.service");
        table_add(t, COLOR_GREEN, "%s", "active");
        table_add(t, COLOR_NONE, "%s", "15.1k/s");
        table_add(t, COLOR_NONE, "%s", "a\nb");
        table_add_absent(t);
        table_add(t, COLOR_NONE, "%s", "0/s");
        CHECK(table_rows(t) == 2);

        check_freed(print_table(t, 0, false, true),
                    "UNIT          ACTIVE    RATE\n"
                    "nginx.service active 15.1k/s\n"
                    "a\\x0ab        -          0/s\n");
        check_freed(print_table(t, 28, false, false),
                    "nginx.service active 15.1k/s\n"
                    "a\\x0ab        -          0/s\n");
        /* Names are shortened first, then columns are omitted, down to the minimum */
        check_freed(print_table(t, 26, false, false),
                    "nginx.s\xe2\x80\xa6" "ice active 15.1k/s\n"
                    "a\\x0ab      -          0/s\n");
        check_freed(print_table(t, 22, false, false),
                    "nginx.service 15.1k/s\n"
                    "a\\x0ab            0/s\n");
        /* Beyond its minimum only if nothing more can be omitted, and at most to its least width */
        check_freed(print_table(t, 5, false, false),
                    "nginx\xe2\x80\xa6""ce 15.1k/s\n"
                    "a\\x0ab       0/s\n");
        check_freed(print_table(t, 0, true, true),
                    "\x1b[0;4mUNIT         \x1b[0m\x1b[0;4m ACTIVE\x1b[0m\x1b[0;4m    RATE\x1b[0m\n"
                    "nginx.service \x1b[0;1;32mactive\x1b[0m 15.1k/s\n"
                    "a\\x0ab        \x1b[0;90m-\x1b[0m          0/s\n");

        /* Later rows are as wide as those printed before, or wider */
        table_clear(t);
        CHECK(table_rows(t) == 0);
        table_add(t, COLOR_NONE, "%s", "a.service");
        table_add(t, COLOR_NONE, "%s", "inactive");
        table_add(t, COLOR_NONE, "%s", "1/s");
        check_freed(print_table(t, 0, false, false), "a.service     inactive     1/s\n");
        table_clear(t);
        table_add(t, COLOR_NONE, "%s", "b.service");
        table_add_absent(t);
        table_add(t, COLOR_NONE, "%s", "1/s");
        check_freed(print_table(t, 0, false, false), "b.service     -            1/s\n");

        empty = table_new(columns, ELEMENTSOF(columns));
        CHECK(empty);
        check_freed(print_table(empty, 80, false, true), "UNIT ACTIVE RATE\n");
        check_freed(print_table(empty, 80, false, false), "");

        w = table_new(described, ELEMENTSOF(described));
        CHECK(w);
        table_add(w, COLOR_NONE, "a.b");
        table_add(w, COLOR_NONE, "it takes a while to read");
        check_freed(print_table(w, 16, false, false),
                    "a.b    it takes\n"
                    "       a while\n"
                    "       to read\n");
}

/* ---- values and histograms ---------------------------------------------------------------------------- */

static sd_json_variant* parse(const char *s) {
        sd_json_variant *v = NULL;

        CHECK(sd_json_parse(s, 0, &v, NULL, NULL) >= 0);
        return v;
}

static int join(const char *path, sd_json_variant *value, void *userdata) {
        char *text = value_to_text(value), **all = userdata, *old = *all;

        CHECK(text);
        CHECK(asprintf(all, "%s%s=%s\n", old ?: "", path, text) >= 0);
        free(old);
        free(text);
        return 0;
}

static void test_values(void) {
        sd_json_variant *v = parse(
                "{\"unit\":\"x\\n\","
                "\"a\":{\"b\":{\"c\":7,"
                "\"rate\":15123.4}},\"totals\":{\"a.b.c\":18446744073709551615},\"n\":-3}");
        char *all = NULL;
        uint64_t u;
        double d;

        CHECK(value_unsigned(v, "a.b.c", &u) && u == 7);
        CHECK(value_unsigned(v, "totals.a.b.c", &u) && u == UINT64_MAX);
        CHECK(value_real(v, "a.b.c", &d) && fabs(d - 7) < 1e-9);
        CHECK(value_real(v, "a.b.rate", &d) && fabs(d - 15123.4) < 1e-9);
        CHECK(!value_unsigned(v, "a.b", &u));
        CHECK(!value_unsigned(v, "a.b.d", &u));
        CHECK(!value_unsigned(v, "n", &u));
        CHECK(!value_find(v, ""));
        CHECK(!value_find(v, "."));
        CHECK(!value_find(v, "a.b.c.d"));
        CHECK(!value_find(NULL, "a"));
        CHECK_STRING(value_string(v, "unit"), "x\n");
        CHECK(!value_string(v, "a"));

        CHECK(value_walk(v, join, &all) == 0);
        check_freed(all, "unit=x\n\na.b.c=7\na.b.rate=15123.4\ntotals.a.b.c=18446744073709551615\nn=-3\n");
        (void) sd_json_variant_unref(v);
}

static int merge(const char *json, size_t rows_max, HistogramRow **ret, size_t *ret_n) {
        sd_json_variant *v = parse(json);
        int r;

        r = histogram_merge(v, rows_max, ret, ret_n);
        (void) sd_json_variant_unref(v);
        return r;
}

static int add(HistogramSum *s, const char *json) {
        sd_json_variant *v = parse(json);
        int r;

        r = histogram_sum_add(s, v);
        (void) sd_json_variant_unref(v);
        return r;
}

static void check_sum(const HistogramSum *s, const char *expected) {
        sd_json_variant *v = NULL;
        char *text = NULL;

        CHECK(histogram_sum_get_buckets(s, &v) == 0);
        CHECK(sd_json_variant_format(v, 0, &text) >= 0);
        check_freed(text, expected);
        (void) sd_json_variant_unref(v);
}

#define BUCKET(lower, upper, count) "{\"lower\":" #lower ",\"upper\":" #upper ",\"count\":" #count "}"
#define LAST(count) "{\"lower\":64000000000,\"count\":" #count "}"
#define REPLY(schema, sum, buckets) "{\"schema\":" #schema ",\"sum\":" #sum ",\"buckets\":[" buckets "]}"

static void test_sum(void) {
        _cleanup_histogram_sum_ HistogramSum s = {}, bounds = {};

        check_sum(&s, "[]");
        CHECK(add(&s, REPLY(5, 0, "")) == 0);
        check_sum(&s, "[]");

        /* Both ends of the scale, and buckets that one or both have */
        CHECK(add(&s, REPLY(5, 1000, BUCKET(0, 238, 1) "," BUCKET(933, 953, 2) "," LAST(3))) == 0);
        CHECK(add(&s, REPLY(5, 500, BUCKET(933, 953, 18446744073709551600) ","
                                    BUCKET(953, 974, 4) "," LAST(5))) == 0);
        CHECK(s.schema == 5 && s.count == UINT64_MAX && s.sum == 1500);
        check_sum(&s, "[" BUCKET(0, 238, 1) "," BUCKET(933, 953, 18446744073709551602) ","
                      BUCKET(953, 974, 4) "," LAST(8) "]");

        /* One more does not fit, and has no effect, nor have invalid ones */
        CHECK(add(&s, REPLY(5, 1, BUCKET(933, 953, 1))) == -EBADMSG);
        CHECK(add(&s, REPLY(5, 18446744073709551615, "")) == -EBADMSG);
        CHECK(add(&s, "{\"schema\":5,\"buckets\":[]}") == -EBADMSG);
        CHECK(add(&s, REPLY(9, 1, "")) == -EBADMSG);
        CHECK(add(&s, REPLY(5, 1, BUCKET(953, 953, 0))) == -EBADMSG);
        CHECK(add(&s, REPLY(5, 1, "7")) == -EBADMSG);
        CHECK(s.schema == 5 && s.count == UINT64_MAX && s.sum == 1500 && s.n == 4);

        /* In the coarser schema of both: (2^-21, 2^-20] s is one bucket of schema 0 */
        CHECK(add(&s, REPLY(0, 1, "")) == 0);
        check_sum(&s, "[" BUCKET(0, 238, 1) "," BUCKET(476, 953, 18446744073709551602) ","
                      BUCKET(953, 1907, 4) "," LAST(8) "]");

        /* Each bucket of qosd has the same bounds afterwards, to the nanosecond */
        for (uint32_t bin = 1; bin < HISTOGRAM_FINE_BINS - 1; bin++) {
                _cleanup_free_ char *text = NULL;

                CHECK(asprintf(&text, REPLY(5, 0, "{\"lower\":%llu,\"upper\":%llu,\"count\":1}"),
                               histogram_fine_bound(bin - 1), histogram_fine_bound(bin)) > 0);
                CHECK(add(&bounds, text) == 0);
        }
        CHECK(bounds.n == HISTOGRAM_FINE_BINS - 2);
        for (uint32_t bin = 1; bin < HISTOGRAM_FINE_BINS - 1; bin++) {
                long index = bounds.buckets[bin - 1].index;

                CHECK(index == (long) bin - 704);
                CHECK(bucket_upper(index - 1, 5) == histogram_fine_bound(bin - 1));
                CHECK(bucket_upper(index, 5) == histogram_fine_bound(bin));
        }
}

static void test_histogram(void) {
        static const char *const nonsense[] = {
                "{}",
                "{\"schema\":5}",
                "{\"schema\":5,\"buckets\":7}",
                "{\"schema\":5,\"buckets\":[7]}",
                "{\"schema\":99,\"buckets\":[]}",
                "{\"schema\":-99,\"buckets\":[]}",
                "{\"schema\":5,\"buckets\":[{\"lower\":5,\"upper\":5,\"count\":1}]}",
                "{\"schema\":5,\"buckets\":[{\"lower\":0,\"upper\":0,\"count\":1}]}",
                "{\"schema\":5,\"buckets\":[{\"lower\":0,\"upper\":256}]}",
        };
        _cleanup_free_ HistogramRow *a = NULL, *b = NULL, *c = NULL, *d = NULL, *e = NULL, *ignored = NULL;
        _cleanup_free_ char *text = NULL;
        const Style style = { .width = 80 };
        sd_json_variant *v;
        uint64_t sum = 0;
        size_t n, size;
        FILE *f;

        for (size_t i = 0; i < ELEMENTSOF(nonsense); i++)
                CHECK(merge(nonsense[i], 10, &ignored, &n) < 0);

        CHECK(merge("{\"schema\":5,\"buckets\":[]}", 10, &a, &n) == 0);
        CHECK(n == 0);

        /* (2^-21, 2^(-21 + 1/32)] s and (.., 2^-20] s are in the same power of two, the next one is not; a
         * gap, then 2^-17 to 2^-16 s */
        CHECK(merge("{\"schema\":5,\"buckets\":["
                    "{\"lower\":476,\"upper\":487,\"count\":1},"
                    "{\"lower\":933,\"upper\":953,\"count\":2},"
                    "{\"lower\":953,\"upper\":974,\"count\":4},"
                    "{\"lower\":14931,\"upper\":15258,\"count\":8}]}", 5, &b, &n) == 0);
        CHECK(n == 5);
        CHECK(b[0].lower == 476 && b[0].upper == 953 && b[0].count == 3);
        CHECK(b[1].lower == 953 && b[1].upper == 1907 && b[1].count == 4);
        CHECK(b[2].count == 0 && b[3].count == 0);
        CHECK(b[4].lower == 7629 && b[4].upper == 15258 && b[4].count == 8);

        /* All that is measured, durations beyond both ends of the scale included, in as few rows as
         * possible. The last row but one ends where the last one begins */
        CHECK(merge("{\"schema\":3,\"buckets\":["
                    "{\"lower\":0,\"upper\":238,\"count\":1},"
                    "{\"lower\":61035,\"upper\":66559,\"count\":2},"
                    "{\"lower\":58688397004,\"upper\":64000000000,\"count\":3},"
                    "{\"lower\":64000000000,\"count\":4}]}", 6, &c, &n) == 0);
        CHECK(n <= 6);
        CHECK(c[0].lower == 0 && c[n - 2].upper == 64000000000 && c[n - 2].count == 3 &&
              c[n - 1].lower == 64000000000 && c[n - 1].upper == UINT64_MAX && c[n - 1].count == 4);
        for (size_t i = 0; i < n; i++)
                sum += c[i].count;
        CHECK(sum == 10);

        /* Only durations beyond the scale */
        CHECK(merge("{\"schema\":5,\"buckets\":[{\"lower\":64000000000,\"count\":4}]}", 10, &d, &n) == 0);
        CHECK(n == 1 && d[0].lower == 64000000000 && d[0].upper == UINT64_MAX && d[0].count == 4);

        /* 64 bits from end to end */
        CHECK(merge("{\"schema\":5,\"buckets\":["
                    "{\"lower\":0,\"upper\":1,\"count\":1},"
                    "{\"lower\":9000000000000000000,\"upper\":9223372036854775807,\"count\":1}]}", 3, &e,
                    &n) == 0);
        CHECK(n > 0 && e[0].count == 1 && e[n - 1].count == 1);

        v = parse("{\"schema\":5,\"count\":20,\"buckets\":["
                  "{\"lower\":953,\"upper\":974,\"count\":19},"
                  "{\"lower\":64000000000,\"count\":1}]}");
        f = open_memstream(&text, &size);
        CHECK(f);
        CHECK(histogram_print(f, &style, v, 10, 5, 0) == 0);
        CHECK(fclose(f) == 0);
        CHECK_STRING(text,
                     "    953ns -    1.13us     19  95.0% ################################### p50 p75\n"
                     "  1min 4s -                1   5.0% ##\n");
        (void) sd_json_variant_unref(v);
}

static void test_since(void) {
        /* Sat 2025-11-22 10:30:00.5 UTC */
        const uint64_t now = UINT64_C(1763807400) * NSEC_PER_SEC + NSEC_PER_SEC / 2,
                midnight = UINT64_C(1763769600) * NSEC_PER_SEC;
        const struct {
                const char *text;
                uint64_t nsec;          /* 0: invalid, UINT64_MAX: in the future */
        } cases[] = {
                { "now",                 now                                     },
                { "10min",               now - 600 * NSEC_PER_SEC                },
                { "1h 30min",            now - 5400 * NSEC_PER_SEC               },
                { "2h ago",              now - 7200 * NSEC_PER_SEC               },
                { "1h 30min ago",        now - 5400 * NSEC_PER_SEC               },
                { "-90s",                now - 90 * NSEC_PER_SEC                 },
                { "600",                 now - 600 * NSEC_PER_SEC                },
                { "today",               midnight                                },
                { "yesterday",           midnight - 86400 * NSEC_PER_SEC         },
                { "09:00",               midnight + 9 * 3600 * NSEC_PER_SEC      },
                { "09:00:30",            midnight + (9 * 3600 + 30) * NSEC_PER_SEC },
                { "2025-11-21",          midnight - 86400 * NSEC_PER_SEC         },
                { "2025-11-21 23:59",    midnight - 60 * NSEC_PER_SEC            },
                { "2025-11-21 23:59:59", midnight - NSEC_PER_SEC                 },
                { "@1763683200",         UINT64_C(1763683200) * NSEC_PER_SEC     },
                { "@1763683200.5",       UINT64_C(1763683200) * NSEC_PER_SEC + NSEC_PER_SEC / 2 },
                { "11:00",               UINT64_MAX                              },
                { "2025-11-23",          UINT64_MAX                              },
                { "@9999999999",         UINT64_MAX                              },
                { "",                    0 },
                { "ago",                 0 },
                { "-",                   0 },
                { "@",                   0 },
                { "@5min",               0 },
                { "soon",                0 },
                { "tomorrow",            0 },
                { "25:00",               0 },
                { "09:60",               0 },
                { "09:00x",              0 },
                { "2025-02-31",          0 },
                { "2025-13-01",          0 },
                { "5 apples ago",        0 },
        };
        char buf[FORMAT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                uint64_t nsec = 0;
                int r = parse_since(cases[i].text, now, &nsec);

                if (cases[i].nsec == 0)
                        CHECK(r == -EINVAL);
                else if (cases[i].nsec == UINT64_MAX)
                        CHECK(r == -ERANGE);
                else
                        CHECK(r == 0 && nsec == cases[i].nsec);
        }

        CHECK_STRING(format_time(buf, now, now), "10:30:00");
        CHECK_STRING(format_time(buf, midnight, now), "00:00:00");
        CHECK_STRING(format_time(buf, midnight - NSEC_PER_SEC, now), "Fri 23:59:59");
}

int main(void) {
        /* Local time depends on the machine otherwise */
        (void) setenv("TZ", "UTC", true);

        test_durations();
        test_numbers();
        test_parse();
        test_since();
        test_text();
        test_table();
        test_values();
        test_histogram();
        test_sum();
        return EXIT_SUCCESS;
}
