/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Paragraphs of the status page on endpoints, peers and unparsed connections. */

#include "format.h"
#include "qosctl.h"
#include "status-internal.h"
#include "value.h"

#define CLIENT "requests.client."

static uint64_t sum_errors(sd_json_variant *row) {
        static const char *const keys[] = { "errors.reset", "errors.timeout", "errors.status5xx",
                                            "errors.replies" };
        uint64_t sum = 0, n;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (value_unsigned(row, keys[i], &n))
                        sum += n;
        return sum;
}

static void add_row_rate(Table *t, sd_json_variant *row, Color color) {
        char buf[FORMAT_MAX];
        double rate;

        if (value_real(row, "rate", &rate))
                table_add(t, color, "%s", format_rate(buf, rate));
        else
                table_add_absent(t);
}

static void add_row_count(Table *t, sd_json_variant *row, const char *key, Color color) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(row, key, &n))
                table_add(t, color, "%s", format_count(buf, n));
        else
                table_add_absent(t);
}

/* Adds errors, P50, P99 and requests in flight. */
static void add_row_figures(Table *t, sd_json_variant *row, uint64_t covered, Color color) {
        static const char *const keys[] = { "latency.p50", "latency.p99" };
        uint64_t n = sum_errors(row);
        char buf[FORMAT_MAX];

        if (value_find(row, "errors") && covered > 0)
                table_add(t, n > 0 ? COLOR_RED : color, "%s",
                          format_rate(buf, (double) n * (double) NSEC_PER_SEC / (double) covered));
        else
                table_add_absent(t);
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (value_unsigned(row, keys[i], &n))
                        table_add(t, color, "%s", format_duration(buf, n));
                else
                        table_add_absent(t);
        add_row_count(t, row, "inFlight", color);
}

/* Whether endpoints and peers have metrics over this window. */
static bool rows_are_measured(sd_json_variant *rows) {
        for (size_t i = 0; i < sd_json_variant_elements(rows); i++)
                if (value_find(sd_json_variant_by_index(rows, i), "inFlight"))
                        return true;
        return false;
}

static void print_not_over_this_window(const char *key) {
        const Style *style = terminal_style();

        print_line(key, "%savailable only for windows from 2s to 10s and for --window=total%s",
                   color_on(style, COLOR_GREY), color_off(style));
}

void print_unparsed(const Reading *r, const char *path, const char *quality) {
        sd_json_variant *unparsed = value_find(r->snapshot, path);
        bool partial = streq_ptr(quality, "partial");
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        double share = 0;
        uint64_t n;

        /* Bytes to peers on Unix sockets are not counted */
        (void) value_real(unparsed, "share", &share);
        if (value_unsigned(unparsed, "connections", &n) && (n > 0 || share > 0))
                print_line("Unparsed",
                           "%s%.2g%% of the traffic%s, %s new connections: not included in other metrics",
                           partial ? color_on(style, COLOR_YELLOW) : "", share * 100,
                           partial ? color_off(style) : "", format_count(buf, n));
}

int reading_print_endpoints(const Reading *r) {
        static const Column columns[] = {
                { "LISTEN", .minimum = 16 },
                { "RATE",      .right = true            },
                { "COUNT",     .right = true, .rank = 3 },
                { "ERRORS",    .right = true            },
                { "P50",       .right = true, .rank = 2 },
                { "P99",       .right = true            },
                { "INFLIGHT",  .right = true, .rank = 1 },
        };
        sd_json_variant *rows = value_find(r->snapshot, SERVER "endpoints");
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered = 0;
        size_t n = rows ? sd_json_variant_elements(rows) : 0;

        /* A single endpoint has the same figures as the unit */
        if (n == 0 || (n == 1 && !value_boolean(sd_json_variant_by_index(rows, 0), "excluded")))
                return 0;

        line_end();
        if (!rows_are_measured(rows)) {
                print_not_over_this_window("Endpoints");
                return 0;
        }

        (void) reading_unsigned(r, "covered", &covered);
        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *row = sd_json_variant_by_index(rows, i);
                bool excluded = value_boolean(row, "excluded");
                Color color = excluded ? COLOR_GREY : COLOR_NONE;

                table_add(t, color, "%s%s",
                          value_boolean(row, "rest") ? "others" : value_string(row, "listen") ?: "?",
                          excluded ? " (excluded)" : "");
                add_row_rate(t, row, color);
                add_row_count(t, row, "count", color);
                add_row_figures(t, row, covered, color);
        }

        print_line("Endpoints", "%zu", n);
        return table_print(t, stdout, terminal_style(), arg_legend, table_indent()) < 0
                ? log_out_of_memory() : 0;
}

int reading_print_peers(const Reading *r) {
        static const Column columns[] = {
                { "PEER", .minimum = 15 },
                { "UNIT", .minimum = 12, .rank = 1 },
                { "RATE",      .right = true            },
                { "ERRORS",    .right = true            },
                { "P50",       .right = true, .rank = 3 },
                { "P99",       .right = true            },
                { "INFLIGHT",  .right = true, .rank = 2 },
        };
        sd_json_variant *rows = value_find(r->snapshot, CLIENT "peers");
        char rate[FORMAT_MAX], count[FORMAT_MAX], over[FORMAT_MAX];
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered = 0, total = 0, n;
        double per_second;

        (void) value_unsigned(value_find(r->snapshot, "totals"), CLIENT "bytesOut", &total);
        if (!rows && total == 0)
                return 0;

        line_end();
        if (rows && !rows_are_measured(rows)) {
                print_not_over_this_window("Outgoing");
                return 0;
        }

        (void) reading_unsigned(r, "covered", &covered);
        if (reading_real(r, CLIENT "rate", &per_second) && reading_unsigned(r, CLIENT "count", &n))
                print_line("Outgoing", "%s (%s in %s)", format_rate(rate, per_second),
                           format_count(count, n), format_duration(over, covered));
        else
                print_line("Outgoing", "%s",
                           reading_unsigned(r, CLIENT "inFlight", &n) ? "not measurable: requests overlap "
                                                                        "(pipelined or multiplexed)" :
                                                                        "not measured");
        print_unparsed(r, CLIENT "unparsed", value_string(r->snapshot, CLIENT "quality"));
        if (!rows) /* not authorized */
                return 0;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < sd_json_variant_elements(rows); i++) {
                sd_json_variant *row = sd_json_variant_by_index(rows, i);
                const char *unit = value_string(row, "unit");

                table_add(t, COLOR_NONE, "%s",
                          value_boolean(row, "rest") ? "others" : value_string(row, "peer") ?: "?");
                if (unit)
                        table_add(t, COLOR_NONE, "%s", unit);
                else
                        table_add_absent(t);
                add_row_rate(t, row, COLOR_NONE);
                add_row_figures(t, row, covered, COLOR_NONE);
        }
        return table_print(t, stdout, terminal_style(), arg_legend, table_indent()) < 0
                ? log_out_of_memory() : 0;
}
