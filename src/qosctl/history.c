/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* history, heatmap */

#include <ctype.h>
#include <math.h>

#include "client.h"
#include "format.h"
#include "heatmap.h"
#include "heatmap-grid.h"
#include "history-charts.h"
#include "qosctl.h"
#include "selector.h"
#include "svg.h"
#include "table.h"
#include "unit-history.h"
#include "unit-names.h"
#include "value.h"

#define SERVER "requests.server."

/* Limit of metrics of a table. */
#define METRICS_MAX 64

/* Lists the metrics of qosd. Returns an exit status. */
static int get_catalogue(Client *c, Replies *ret) {
        int r;

        r = client_call_more(c, QOS_METHOD("ListMetrics"), 0, NULL, ret);
        return r != 0 ? client_fail(r, ret, "list metrics") : STATUS_OK;
}

/* NULL: no metric of that name. */
static sd_json_variant* catalogue_find(const Replies *catalogue, const char *metric) {
        for (size_t i = 0; i < catalogue->n; i++)
                if (streq_ptr(value_string(catalogue->items[i], "name"), metric))
                        return catalogue->items[i];
        return NULL;
}

/* Returns whether it is a distribution, which has the member "max". */
static int is_distribution(const Replies *catalogue, const char *metric) {
        _cleanup_free_ char *max = NULL;

        if (asprintf(&max, "%s.max", metric) < 0) {
                max = NULL;
                return log_out_of_memory();
        }
        return !!catalogue_find(catalogue, max);
}

/* Returns an exit status. */
static int check_output(void) {
        if (!arg_svg || arg_json == JSON_OFF)
                return STATUS_OK;
        (void) log_failure(-EINVAL, "Option --svg cannot be combined with JSON output.");
        return STATUS_USAGE;
}

/* Unit of a metric, also of one of a file system or of a custom probe, which are not in the list; NULL: it
 * is no number. */
static const char* metric_unit(const Replies *catalogue, const char *metric) {
        const char *field = strrchr(metric, '.');
        char whole[SELECTOR_METRIC_MAX];
        Selector selector;

        if (field && startswith(metric, "custom."))
                return streq(field, ".rate")                             ? "1/s" :
                       streq(field, ".count") || streq(field, ".value") ? "1" :
                                                                           "ns";
        return selector_parse(metric, &selector, whole) < 0 ? NULL :
                                                              value_string(catalogue_find(catalogue, whole),
                                                                           "unit");
}

static void add_value(Table *t, sd_json_variant *step, const char *metric, const char *unit) {
        sd_json_variant *v = value_find(step, metric), *values = value_find(step, "values");
        char buf[FORMAT_MAX];

        /* Of a file system or a custom probe */
        if (!v && values)
                v = sd_json_variant_by_key(values, metric);
        if (v && sd_json_variant_is_unsigned(v) && !streq(unit, "1/s")) {
                uint64_t n = sd_json_variant_unsigned(v);

                table_add(t, COLOR_NONE, "%s",
                          streq(unit, "ns")    ? format_duration(buf, n) :
                          streq(unit, "bytes") ? format_bytes(buf, n) :
                                                 format_count(buf, n));
        } else if (v && sd_json_variant_is_number(v)) {
                double d = sd_json_variant_real(v);

                table_add(t, COLOR_NONE, "%s",
                          streq(unit, "1/s") ? format_rate(buf, d) : format_real(buf, d));
        }
        else if (v && sd_json_variant_is_string(v))
                table_add(t, COLOR_NONE, "%s", sd_json_variant_string(v));
        else
                table_add_absent(t);
}

static void add_errors(Table *t, sd_json_variant *step) {
        double rate = history_step_get_errors(step);
        char buf[FORMAT_MAX];

        if (isnan(rate))
                table_add_absent(t);
        else
                table_add(t, rate > 0 ? COLOR_RED : COLOR_NONE, "%s", format_rate(buf, rate));
}

static int print_history(sd_json_variant *reply, const Replies *catalogue, char **metrics,
                         size_t n_metrics) {
        static const Column summary[] = {
                { "TIME" },
                { "RATE",     .right = true },
                { "ERRORS",   .right = true },
                { "P50",      .right = true },
                { "P99",      .right = true },
                { "INFLIGHT", .right = true },
        };
        sd_json_variant *steps = value_find(reply, "steps");
        Column columns[1 + METRICS_MAX] = { { "TIME" } };
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t now = now_nsec(CLOCK_REALTIME), step = 0;
        char *headers[METRICS_MAX] = {}, buf[FORMAT_MAX];
        int r = -ENOMEM;

        for (size_t i = 0; i < n_metrics; i++) {
                headers[i] = strdup(startswith(metrics[i], SERVER) ?:
                                    startswith(metrics[i], "requests.") ?: metrics[i]);
                if (!headers[i])
                        goto finish;
                for (char *p = headers[i]; *p; p++)
                        *p = (char) toupper((unsigned char) *p);
                columns[1 + i] = (Column) { headers[i], .right = true, .rank = (unsigned) i + 1 };
        }
        if (n_metrics > 0)
                columns[1].rank = 0;

        t = n_metrics > 0 ? table_new(columns, 1 + n_metrics) : table_new(summary, ELEMENTSOF(summary));
        if (!t)
                goto finish;

        for (size_t i = 0; steps && sd_json_variant_is_array(steps) && i < sd_json_variant_elements(steps);
             i++) {
                sd_json_variant *s = sd_json_variant_by_index(steps, i);
                uint64_t at;

                if (!value_time(s, "timestamp", &at)) {
                        r = -EBADMSG;
                        goto finish;
                }
                table_add(t, COLOR_NONE, "%s", format_time(buf, at, now));

                for (size_t k = 0; k < n_metrics; k++)
                        add_value(t, s, metrics[k], metric_unit(catalogue, metrics[k]) ?: "");
                if (n_metrics > 0)
                        continue;
                add_value(t, s, SERVER "rate", "1/s");
                add_errors(t, s);
                add_value(t, s, SERVER "latency.p50", "ns");
                add_value(t, s, SERVER "latency.p99", "ns");
                add_value(t, s, SERVER "inFlight", "1");
        }

        pager_open();
        r = 0;
        if (table_rows(t) > 0)
                r = table_print(t, stdout, terminal_style(), arg_legend, 0);
        if (r >= 0 && arg_legend) {
                (void) value_unsigned(reply, "step", &step);
                if (table_rows(t) > 0)
                        (void) printf("\n%zu step%s of %s, listed by start time. Missing steps were not "
                                      "observed.\n",
                                      table_rows(t), table_rows(t) == 1 ? "" : "s",
                                      format_window(buf, step));
                else
                        (void) printf("No complete step of %s is recorded for this period.\n",
                                      format_window(buf, step));
        }

finish:
        for (size_t i = 0; i < n_metrics; i++)
                free(headers[i]);
        return r;
}

static int draw_fail(int r, const char *unit) {
        if (r == -ENODATA)
                return log_failure(r, "No complete step of '%s' is recorded for this period.", unit);
        if (r == -ERANGE)
                return log_failure(r, "The clock was set in this period, expected one without that.");
        return log_failure(r, "Failed to draw the history of '%s': %m", unit);
}

/* A chart for each unit of measurement; without metrics, those of a report. */
static int draw_history(sd_json_variant *reply, const Replies *catalogue, const char *unit, char **metrics,
                        size_t n_metrics) {
        _cleanup_(history_charts_done) HistoryCharts charts = {};
        int r;

        if (n_metrics == 0)
                r = history_charts_of_requests(reply, &charts);
        else {
                r = history_charts_init(reply, &charts);
                for (size_t i = 0; r >= 0 && i < n_metrics; i++)
                        r = history_charts_add_metric(&charts, metrics[i],
                                                      metric_unit(catalogue, metrics[i]));
        }
        if (r == -EINVAL)
                return log_failure(r, "Metric is not a number, expected others: see 'qosctl list-metrics'.");
        if (r < 0)
                return draw_fail(r, unit);
        history_charts_print(stdout, &charts);
        return STATUS_OK;
}

static int draw_heatmap(sd_json_variant *reply, const char *unit, const char *metric) {
        _cleanup_(heatmap_done) Heatmap h = {};
        _cleanup_(history_time_done) HistoryTime time = {};
        _cleanup_free_ char *title = NULL;
        int r;

        r = history_time_make(reply, &time);
        if (r >= 0)
                r = heatmap_make(value_find(reply, "steps"), metric, time.step, time.slots, &h);
        if (r >= 0 && asprintf(&title, "%s of %s", metric, strempty(value_string(reply, "unit"))) < 0) {
                title = NULL;
                r = -ENOMEM;
        }
        if (r < 0)
                return draw_fail(r, unit);
        svg_begin(stdout, title, SVG_HEATMAP_HEIGHT, /* alone= */ true);
        svg_print_heatmap(stdout, &h, title, 0);
        svg_end(stdout);
        return STATUS_OK;
}

int verb_history(int argc, char **argv) {
        _cleanup_replies_ Replies reply = REPLIES_INIT, catalogue = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        char *summary[METRICS_MAX + 1] = { (char*) SERVER "rate", (char*) SERVER "latency.p50",
                                           (char*) SERVER "latency.p99", (char*) SERVER "inFlight" };
        char **metrics = argv + 1;
        size_t n = 4;
        int r;

        if (argc - 1 > METRICS_MAX) {
                (void) log_failure(-E2BIG, "Expected at most %d metrics, got %d.", METRICS_MAX, argc - 1);
                return STATUS_USAGE;
        }
        r = check_output();
        if (r != STATUS_OK)
                return r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = names_expand_one(c, argv[0], &names);
        if (r != STATUS_OK)
                return r;

        if (arg_json != JSON_OFF) {
                r = history_get(c, names.items[0], argc > 1 ? metrics : NULL, &reply);
                return r == STATUS_OK ? json_print(reply.items[0]) : r;
        }

        r = get_catalogue(c, &catalogue);
        if (r != STATUS_OK)
                return r;

        for (int i = 1; i < argc; i++) {
                r = is_distribution(&catalogue, argv[i]);
                if (r < 0)
                        return r;
                if (r > 0) {
                        (void) log_failure(-EINVAL,
                                           "'%s' is a distribution, expected one of its members, such as "
                                           "'%s.max'. See also 'qosctl heatmap'.",
                                           argv[i], argv[i]);
                        return STATUS_USAGE;
                }
        }
        if (argc == 1) {
                for (size_t i = 0; i < catalogue.n && n < METRICS_MAX; i++) {
                        const char *name = value_string(catalogue.items[i], "name");

                        if (name && startswith(name, SERVER "errors."))
                                summary[n++] = (char*) name;
                }
                metrics = arg_svg ? NULL : summary; /* the charts take others */
        }

        r = history_get(c, names.items[0], metrics, &reply);
        if (r != STATUS_OK)
                return r;
        if (arg_svg)
                return draw_history(reply.items[0], &catalogue, names.items[0], argv + 1, (size_t) argc - 1);
        r = print_history(reply.items[0], &catalogue, argv + 1, (size_t) argc - 1);
        return r < 0 ? client_fail(r, &reply, "show the history of '%s'", names.items[0]) : STATUS_OK;
}

int verb_heatmap(int argc, char **argv) {
        char *metrics[] = { argc > 1 ? argv[1] : (char*) SERVER "latency", NULL };
        _cleanup_replies_ Replies reply = REPLIES_INIT, catalogue = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r;

        r = check_output();
        if (r != STATUS_OK)
                return r;
        r = client_connect(&c);
        if (r < 0)
                return r;
        r = names_expand_one(c, argv[0], &names);
        if (r != STATUS_OK)
                return r;
        r = history_get(c, names.items[0], metrics, &reply);
        if (r != STATUS_OK)
                return r;

        /* The metric may have a history, but no buckets */
        r = get_catalogue(c, &catalogue);
        if (r != STATUS_OK)
                return r;
        r = is_distribution(&catalogue, metrics[0]);
        if (r < 0)
                return r;
        if (r == 0) {
                (void) log_failure(-EINVAL,
                                   "'%s' is not a distribution, expected one such as '" SERVER "latency'.",
                                   metrics[0]);
                return STATUS_USAGE;
        }

        if (arg_json != JSON_OFF)
                return json_print(reply.items[0]);

        if (arg_svg)
                return draw_heatmap(reply.items[0], names.items[0], metrics[0]);
        pager_open();
        r = heatmap_print(terminal_style(), !terminal_is_tty(), reply.items[0], metrics[0],
                          now_nsec(CLOCK_REALTIME), arg_legend);
        return r < 0 ? client_fail(r, &reply, "draw '%s' of '%s'", metrics[0], names.items[0]) : STATUS_OK;
}
