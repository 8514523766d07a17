/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The table of the status page with the distributions of the latency and its phases. */

#include <inttypes.h>

#include "format.h"
#include "qosctl.h"
#include "snapshot.h"
#include "status-internal.h"
#include "value.h"

static const struct {
        const char *name, *key;
        bool phase;             /* part of the latency */
} distributions[] = {
        { "Latency",    "latency",   false },
        { "First byte", "firstByte", false },
        { "Receive",    "receive",   true  },
        { "Queue",      "queue",     true  },
        { "Service",    "service",   true  },
        { "Send",       "answer",    true  },
};

/* Quantiles between p50 and p90 are omitted, as the histogram shows that range. */
static bool quantile_has_column(const Quantile *quantile) {
        return quantile->q <= 0.5 || quantile->q >= 0.9;
}

/* Ranks of columns: those between p50 and p99 are omitted first on narrow terminals. */
static unsigned column_get_rank(double q) {
        return q > 0.99 ? 1 : q <= 0.5 || q >= 0.99 ? 0 : q < 0.95 ? 2 : 4;
}

typedef struct Quantiles {
        sd_json_variant *from[QUANTILES]; /* snapshot over the window of the column */
        char headers[QUANTILES][16];
        size_t missing;         /* first one without value; SIZE_MAX: none */
} Quantiles;

/* Determines the window of each column: the shortest one with enough samples for the quantile of the
 * latency. */
static int quantiles_read(Reading *r, Client *c, Quantiles *ret) {
        uint64_t value, window, requested = 0;
        char buf[FORMAT_MAX];
        int k;

        (void) reading_unsigned(r, "window", &requested);
        ret->missing = SIZE_MAX;

        for (size_t q = 0; q < QUANTILES; q++) {
                const Quantile *quantile = quantile_table + q;

                if (!quantile_has_column(quantile))
                        continue;
                /* Without a header, the column could not be marked as one of a longer window */
                k = arg_legend ? reading_complete(r, c, SERVER "latency", quantile->name) : 0;
                if (k < 0)
                        return k;

                if (!reading_quantile(r, SERVER "latency", quantile->name, &value, &window)) {
                        window = requested;
                        ret->missing = MIN(ret->missing, q);
                }
                ret->from[q] = r->snapshot;
                for (size_t w = 0; window != requested && w < READING_WIDER_MAX; w++)
                        if (reading_wider_window(w) == window)
                                ret->from[q] = r->wider[w].snapshot;

                if (window == requested)
                        (void) snprintf(ret->headers[q], sizeof(ret->headers[q]), "P%s",
                                        quantile->label + 1);
                else
                        (void) snprintf(ret->headers[q], sizeof(ret->headers[q]), "P%s (%s)",
                                        quantile->label + 1, format_window(buf, window));
        }
        return 0;
}

static void add_duration(Table *t, sd_json_variant *distribution, const char *key) {
        char buf[FORMAT_MAX];
        uint64_t value;

        if (value_unsigned(distribution, key, &value))
                table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
        else
                table_add_absent(t);
}

/* whole: mean latency, for the share of phases */
static void add_distribution(Table *t, const Reading *r, const Quantiles *quantiles, size_t d,
                             double whole) {
        sd_json_variant *distribution;
        char buf[FORMAT_MAX], path[64];
        uint64_t count;
        double mean;

        (void) snprintf(path, sizeof(path), SERVER "%s", distributions[d].key);
        distribution = value_find(r->snapshot, path);
        if (!distribution)
                return;

        table_add(t, distributions[d].phase ? COLOR_NONE : COLOR_BOLD, "%*s",
                  terminal_is_narrow() ? 0 : KEY_WIDTH, distributions[d].name);
        add_duration(t, distribution, "mean");
        for (size_t q = 0; q < QUANTILES; q++)
                if (quantile_has_column(quantile_table + q))
                        add_duration(t, value_find(quantiles->from[q], path), quantile_table[q].name);
        if (value_unsigned(distribution, "count", &count) && count > 0)
                add_duration(t, distribution, "max");
        else
                table_add_absent(t);
        if (distributions[d].phase && whole > 0 && value_real(distribution, "mean", &mean))
                table_add(t, COLOR_NONE, "%s", format_percent(buf, mean / whole));
        else
                table_add(t, COLOR_NONE, " ");
}

static void print_too_few(const Reading *r, Client *c, const Quantile *missing) {
        const Style *style = terminal_style();
        uint64_t seen = 0;

        /* Number of samples in the longest window read */
        if (arg_window != WINDOW_UNSET)
                (void) reading_unsigned(r, SERVER "latency.count", &seen);
        else
                (void) value_unsigned(value_find(r->snapshot, "totals"), SERVER "count", &seen);

        line_add("%*s%s", KEY_WIDTH + 1, "", color_on(style, COLOR_GREY));
        if (seen == 0)
                line_add("-: no requests");
        else
                line_add("-: too few requests, P%s requires %" PRIu64, missing->label + 1,
                         quantile_get_samples_needed(missing->q, client_get_minimum_samples(c)));
        line_add("%s", color_off(style));
        line_end();
}

int reading_print_phases(Reading *r, Client *c) {
        Column columns[4 + QUANTILES] = { [0] = { "" } };
        _cleanup_(table_freep) Table *t = NULL;
        Quantiles quantiles;
        uint64_t value;
        double whole = 0;
        size_t n = 1;
        int k;

        /* No requests yet */
        if (!value_find(r->snapshot, SERVER "latency") ||
            (value_unsigned(value_find(r->snapshot, "totals"), SERVER "count", &value) && value == 0))
                return 0;
        (void) reading_real(r, SERVER "latency.mean", &whole);
        k = quantiles_read(r, c, &quantiles);
        if (k < 0)
                return k;

        columns[n++] = (Column) { "MEAN", .right = true, .rank = 1 };
        for (size_t q = 0; q < QUANTILES; q++)
                if (quantile_has_column(quantile_table + q))
                        columns[n++] = (Column) { quantiles.headers[q], .right = true,
                                                  .rank = column_get_rank(quantile_table[q].q) };
        columns[n++] = (Column) { "MAX", .right = true };
        columns[n++] = (Column) { "SHARE", .right = true, .rank = 3 };
        assert(n <= ELEMENTSOF(columns));

        t = table_new(columns, n);
        if (!t)
                return log_out_of_memory();
        for (size_t d = 0; d < ELEMENTSOF(distributions); d++)
                add_distribution(t, r, &quantiles, d, whole);

        line_end();
        k = table_print(t, stdout, terminal_style(), arg_legend, 0);
        if (k < 0)
                return log_out_of_memory();

        if (arg_legend && quantiles.missing < QUANTILES)
                print_too_few(r, c, quantile_table + quantiles.missing);
        return 0;
}
