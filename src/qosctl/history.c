/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* History of a unit: a row per step, or the heatmap of a distribution. */

#include <ctype.h>

#include "client.h"
#include "format.h"
#include "heatmap.h"
#include "qosctl.h"
#include "table.h"
#include "unit-names.h"
#include "value.h"

#define SERVER "requests.server."

/* More do not fit on a screen. */
#define METRICS_MAX 64

/* Gets the metrics that this qosd has. */
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

/* Whether it is a distribution: it has a maximum. */
static int is_distribution(const Replies *catalogue, const char *metric) {
        _cleanup_free_ char *max = NULL;

        if (asprintf(&max, "%s.max", metric) < 0) {
                max = NULL;
                return log_out_of_memory();
        }
        return !!catalogue_find(catalogue, max);
}

/* Gets the history of a unit; the caller frees the reply. Returns an exit status. */
static int get_history(Client *c, const char *unit, char **metrics, Replies *ret) {
        int r;

        r = client_callbo(c, QOS_METHOD("History"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!metrics, "metrics", SD_JSON_BUILD_STRV(metrics)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_since != SINCE_UNSET, "since",
                                                       SD_JSON_BUILD_UNSIGNED(arg_since / NSEC_PER_USEC)));
        return r != 0 ? unit_read_fail(r, ret, unit) : STATUS_OK;
}

static int find_unit(Client *c, char **argv, Names *names) {
        int r;

        r = names_expand_attached(c, 1, argv, names);
        if (r != STATUS_OK)
                return r;
        if (names->n != 1) {
                (void) log_failure(-EINVAL, "Expected one unit, but '%s' matches %zu.", argv[0], names->n);
                return STATUS_USAGE;
        }
        return STATUS_OK;
}

static void add_value(Table *t, sd_json_variant *step, const char *metric, const char *unit) {
        sd_json_variant *v = value_find(step, metric);
        char buf[FORMAT_MAX];
        uint64_t n;
        double d;

        if (value_unsigned(step, metric, &n) && !streq(unit, "1/s"))
                table_add(t, COLOR_NONE, "%s",
                          streq(unit, "ns")    ? format_duration(buf, n) :
                          streq(unit, "bytes") ? format_bytes(buf, n) :
                                                 format_count(buf, n));
        else if (value_real(step, metric, &d))
                table_add(t, COLOR_NONE, "%s",
                          streq(unit, "1/s") ? format_rate(buf, d) : format_real(buf, d));
        else if (v && sd_json_variant_is_string(v))
                table_add(t, COLOR_NONE, "%s", sd_json_variant_string(v));
        else
                table_add_absent(t);
}

/* Sum of requests.server.errors.*, per second. */
static void add_errors(Table *t, sd_json_variant *step) {
        sd_json_variant *errors = value_find(step, SERVER "errors");
        uint64_t n = 0, covered = 0, one;
        char buf[FORMAT_MAX];

        if (!errors || !value_unsigned(step, "covered", &covered) || covered == 0) {
                table_add_absent(t);
                return;
        }
        for (size_t i = 1; i < sd_json_variant_elements(errors); i += 2) {
                sd_json_variant *v = sd_json_variant_by_index(errors, i);

                one = sd_json_variant_is_unsigned(v) ? sd_json_variant_unsigned(v) : 0;
                n += one;
        }
        table_add(t, n > 0 ? COLOR_RED : COLOR_NONE, "%s",
                  format_rate(buf, (double) n * (double) NSEC_PER_SEC / (double) covered));
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
                        add_value(t, s, metrics[k],
                                  value_string(catalogue_find(catalogue, metrics[k]), "unit") ?: "");
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

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = find_unit(c, argv, &names);
        if (r != STATUS_OK)
                return r;

        if (arg_json != JSON_OFF) {
                r = get_history(c, names.items[0], argc > 1 ? metrics : NULL, &reply);
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
                metrics = summary;
        }

        r = get_history(c, names.items[0], metrics, &reply);
        if (r != STATUS_OK)
                return r;
        r = print_history(reply.items[0], &catalogue, argv + 1, (size_t) argc - 1);
        return r < 0 ? client_fail(r, &reply, "show the history of '%s'", names.items[0]) : STATUS_OK;
}

int verb_heatmap(int argc, char **argv) {
        char *metrics[] = { argc > 1 ? argv[1] : (char*) SERVER "latency", NULL };
        _cleanup_replies_ Replies reply = REPLIES_INIT, catalogue = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = find_unit(c, argv, &names);
        if (r != STATUS_OK)
                return r;
        r = get_history(c, names.items[0], metrics, &reply);
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

        pager_open();
        r = heatmap_print(terminal_style(), !terminal_is_tty(), reply.items[0], metrics[0],
                          now_nsec(CLOCK_REALTIME), arg_legend);
        return r < 0 ? client_fail(r, &reply, "draw '%s' of '%s'", metrics[0], names.items[0]) : STATUS_OK;
}
