/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* status on several hosts: a row for each host, and figures of all hosts together. */

#include <inttypes.h>
#include <math.h>

#include "format.h"
#include "histogram-sum.h"
#include "histogram-view.h"
#include "hosts.h"
#include "qosctl.h"
#include "snapshot-view.h"
#include "snapshot.h"
#include "unit-names.h"
#include "value.h"

#define SERVER "requests.server"
#define KEY_WIDTH 16
/* The same as for one host. */
#define HISTOGRAM_ROWS 12U

/* A unit on one of the hosts. */
typedef struct Part {
        const Host *host;
        Reading reading;
        sd_json_variant *histograms; /* replies to Histogram() by name of the distribution, owned by the
                                      * host */
} Part;

/* ---- one host ---------------------------------------------------------------------------------------- */

static bool is_distribution(sd_json_variant *v) {
        return sd_json_variant_is_object(v) && value_find(v, "count") && value_find(v, "max");
}

/* Reads the buckets of all phases over the window of the snapshot. */
static int read_histograms(Client *c, const char *unit, sd_json_variant *snapshot, sd_json_variant **ret) {
        sd_json_variant *server = value_find(snapshot, SERVER);
        uint64_t window;
        int r;

        if (!value_unsigned(snapshot, "window", &window))
                window = 0;
        for (size_t i = 0; server && i + 1 < sd_json_variant_elements(server); i += 2) {
                const char *name = sd_json_variant_string(sd_json_variant_by_index(server, i));
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                _cleanup_free_ char *metric = NULL;

                if (!is_distribution(sd_json_variant_by_index(server, i + 1)))
                        continue;
                if (asprintf(&metric, SERVER ".%s", name) < 0)
                        return log_out_of_memory();
                r = client_callbo(c, QOS_METHOD("Histogram"), &replies,
                                  SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                  SD_JSON_BUILD_PAIR_STRING("metric", metric),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("window", window));
                if (r != 0)
                        return client_fail(r, &replies, "read '%s' of '%s'", metric, unit);
                if (sd_json_variant_set_field(ret, name, replies.items[0]) < 0)
                        return log_out_of_memory();
        }
        return STATUS_OK;
}

static int collect_unit(Client *c, const char *name, Replies *ret) {
        _cleanup_json_ sd_json_variant *histograms = NULL, *v = NULL;
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        sd_json_variant *snapshot;
        int r;

        r = client_call_morebo(c, QOS_METHOD("List"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", name),
                               SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                            SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, name);
        snapshot = replies.n == 1 ? value_find(replies.items[0], "snapshot") : NULL;
        if (!snapshot) {
                (void) log_failure(-ENOENT, "Failed to read '%s': unit is not attached.", name);
                return STATUS_NOT_ATTACHED;
        }

        r = read_histograms(c, value_string(replies.items[0], "unit") ?: name, snapshot, &histograms);
        if (r != STATUS_OK)
                return r;
        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_VARIANT("item", replies.items[0]),
                           SD_JSON_BUILD_PAIR_CONDITION(!!histograms, "histograms",
                                                        SD_JSON_BUILD_VARIANT(histograms)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("minimumSamples", client_get_minimum_samples(c)));
        if (r >= 0)
                r = replies_add(ret, v, NULL);
        return r < 0 ? log_out_of_memory() : STATUS_OK;
}

static int collect_units(int argc, char **argv, Replies *ret) {
        _cleanup_names_ Names names = NAMES_INIT;
        _cleanup_client_ Client *c = NULL;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, collect_unit(c, names.items[i], ret));
        return status;
}

/* ---- all hosts --------------------------------------------------------------------------------------- */

static uint64_t sum_unsigned(const Part *parts, size_t n, const char *metric) {
        uint64_t sum = 0, value;

        for (const Part *p = parts; p < parts + n; p++)
                if (reading_unsigned(&p->reading, metric, &value))
                        sum += value;
        return sum;
}

static uint64_t maximum(const Part *parts, size_t n, const char *metric) {
        uint64_t max = 0, value;

        for (const Part *p = parts; p < parts + n; p++)
                if (reading_unsigned(&p->reading, metric, &value))
                        max = MAX(max, value);
        return max;
}

/* Returns the sum of events per second, each over the time for which the host was observed. */
static double sum_rates(const Part *parts, size_t n, const char *metric) {
        uint64_t value, covered;
        double sum = 0;

        for (const Part *p = parts; p < parts + n; p++)
                if (reading_unsigned(&p->reading, metric, &value) &&
                    reading_unsigned(&p->reading, "covered", &covered) && covered > 0)
                        sum += (double) value * (double) NSEC_PER_SEC / (double) covered;
        return sum;
}

static double sum_rate(const Part *parts, size_t n) {
        double sum = 0, rate;

        for (const Part *p = parts; p < parts + n; p++)
                if (reading_real(&p->reading, SERVER ".rate", &rate))
                        sum += rate;
        return sum;
}

/* Adds the buckets of a distribution on all hosts that measure it. Returns their number. */
static int add_buckets(const Part *parts, size_t n, const char *name, HistogramSum *sum) {
        int some = 0, r;

        for (const Part *p = parts; p < parts + n; p++) {
                sd_json_variant *v = value_find(p->histograms, name);

                if (!v)
                        continue;
                r = histogram_sum_add(sum, v);
                if (r < 0)
                        return r == -ENOMEM ? log_out_of_memory() :
                                              log_failure(r, "%s: received an invalid response from qosd.",
                                                          p->host->name);
                some++;
        }
        return some;
}

static int set_distribution(const HistogramSum *sum, uint64_t max, uint64_t minimum_samples,
                            const char *name, sd_json_variant **server) {
        _cleanup_json_ sd_json_variant *v = NULL;
        int r;

        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_UNSIGNED("count", sum->count),
                           SD_JSON_BUILD_PAIR_CONDITION(sum->count > 0, "mean",
                                                        SD_JSON_BUILD_UNSIGNED(
                                                                MIN(sum->sum / (sum->count ?: 1), max))));
        for (const Quantile *q = quantile_table; q < quantile_table + QUANTILES && r >= 0; q++)
                if (quantile_is_known(sum->count, q->q, minimum_samples))
                        r = sd_json_variant_set_field_unsigned(&v, q->name,
                                                               histogram_sum_get_quantile(sum, q->q, max));
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "max", max);
        if (r >= 0)
                r = sd_json_variant_set_field(server, name, v);
        return r < 0 ? log_out_of_memory() : 0;
}

/* Builds a snapshot with the figures of all hosts. */
static int build_snapshot(const Part *parts, size_t n, uint64_t minimum_samples, sd_json_variant **ret) {
        _cleanup_json_ sd_json_variant *server = NULL;
        uint64_t window;
        bool total;
        int r;

        r = sd_json_buildo(&server,
                           SD_JSON_BUILD_PAIR_UNSIGNED("count", sum_unsigned(parts, n, SERVER ".count")),
                           SD_JSON_BUILD_PAIR_REAL("rate", sum_rate(parts, n)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("inFlight",
                                                       sum_unsigned(parts, n, SERVER ".inFlight")));
        if (r < 0)
                return log_out_of_memory();

        for (const Part *p = parts; p < parts + n; p++)
                for (size_t i = 0; p->histograms && i + 1 < sd_json_variant_elements(p->histograms);
                     i += 2) {
                        const char *name = sd_json_variant_string(
                                sd_json_variant_by_index(p->histograms, i));
                        _cleanup_histogram_sum_ HistogramSum sum = {};
                        char max[64];

                        if (value_find(server, name))
                                continue;
                        r = add_buckets(parts, n, name, &sum);
                        if (r < 0)
                                return r;
                        (void) snprintf(max, sizeof(max), SERVER ".%s.max", name);
                        r = set_distribution(&sum, maximum(parts, n, max), minimum_samples, name, &server);
                        if (r < 0)
                                return r;
                }

        total = !reading_unsigned(&parts->reading, "window", &window);
        r = sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("unit", parts->reading.unit),
                           SD_JSON_BUILD_PAIR_CONDITION(!total, "window", SD_JSON_BUILD_UNSIGNED(window)),
                           SD_JSON_BUILD_PAIR("requests",
                                              SD_JSON_BUILD_OBJECT(
                                                      SD_JSON_BUILD_PAIR_VARIANT("server", server))));
        return r < 0 ? log_out_of_memory() : 0;
}

static int print_json(const Part *parts, size_t n, sd_json_variant *snapshot) {
        _cleanup_json_ sd_json_variant *v = sd_json_variant_ref(snapshot), *hosts = NULL;
        int r;

        for (const Part *p = parts; p < parts + n; p++) {
                _cleanup_json_ sd_json_variant *one = sd_json_variant_ref(p->reading.snapshot);

                r = host_add_name(p->host, &one);
                if (r < 0)
                        return r;
                if (sd_json_variant_append_array(&hosts, one) < 0)
                        return log_out_of_memory();
        }
        if (sd_json_variant_set_field(&v, "hosts", hosts) < 0)
                return log_out_of_memory();
        return json_print(v);
}

static int print_hosts(Part *parts, size_t n) {
        _cleanup_(table_freep) Table *table = NULL;
        _cleanup_free_ Column *columns = NULL;
        unsigned width = terminal_style()->width;

        columns = new0(Column, n_unit_columns);
        if (!columns)
                return log_out_of_memory();
        memcpy(columns, unit_columns, n_unit_columns * sizeof(Column));
        columns[UNIT_COLUMN_UNIT] = (Column) { "HOST", .minimum = width > 0 && width < 80 ? 8 : 22 };
        columns[UNIT_COLUMN_IN_FLIGHT].rank = 1;

        table = table_new(columns, n_unit_columns);
        if (!table)
                return log_out_of_memory();
        for (Part *p = parts; p < parts + n; p++) {
                /* Shown in the first column */
                p->reading.unit = p->host->name;
                reading_add_row(&p->reading, table);
        }
        return table_print(table, stdout, terminal_style(), arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

static void print_key(const char *key) {
        (void) printf("%*s: ", KEY_WIDTH, key);
}

/* Prints figures over the windows of the hosts, and since the attach. */
static void print_requests(const Part *parts, size_t n, sd_json_variant *snapshot) {
        char a[FORMAT_MAX], b[FORMAT_MAX], c[FORMAT_MAX];
        uint64_t total = 0, oldest = 0, value, errors, window = 0;
        const Style *style = terminal_style();
        const Host *oldest_host = NULL;
        size_t missing = 0, measured = 0;
        double error_rate = 0, rate = 0;

        for (const Part *p = parts; p < parts + n; p++) {
                if (reading_errors(&p->reading, &errors, &rate) && !isnan(rate))
                        error_rate += rate;
                if (reading_unsigned(&p->reading, SERVER ".oldestInFlight", &value) && value >= oldest) {
                        oldest = value;
                        oldest_host = p->host;
                }
                if (value_unsigned(value_find(p->reading.snapshot, "totals"), SERVER ".count", &value))
                        total += value;
                measured += reading_unsigned(&p->reading, SERVER ".count", &value);
        }

        (void) value_unsigned(snapshot, "window", &window);
        (void) value_real(snapshot, SERVER ".rate", &rate);
        print_key("Requests");
        if (measured == 0)
                (void) printf("not measured\n");
        else
                (void) printf("%s%s%s (%s %s%s)\n", color_on(style, COLOR_BOLD), format_rate(a, rate),
                              color_off(style), format_count(b, sum_unsigned(parts, n, SERVER ".count")),
                              window > 0 ? "in the last " : "since attached",
                              window > 0 ? format_window(c, window) : "");
        for (const Part *p = parts; p < parts + n && measured > 0; p++)
                if (!reading_unsigned(&p->reading, SERVER ".count", &value)) {
                        (void) printf("%*s%s%s", missing == 0 ? KEY_WIDTH + 2 : 0, "",
                                      missing == 0 ? "not measured on " : ", ", p->host->name);
                        missing++;
                }
        if (missing > 0)
                (void) printf("\n");

        print_key("In flight");
        (void) printf("%s", format_count(a, sum_unsigned(parts, n, SERVER ".inFlight")));
        if (oldest_host)
                (void) printf(", oldest %s on %s", format_duration(a, oldest), oldest_host->name);
        (void) printf("\n");
        print_key("Errors");
        (void) printf("%s%s%s\n", error_rate > 0 ? color_on(style, COLOR_RED) : "",
                      format_rate(a, error_rate), error_rate > 0 ? color_off(style) : "");
        print_key("Traffic");
        (void) printf("%s/s in, %s/s out\n",
                      format_bytes(a, (uint64_t) sum_rates(parts, n, SERVER ".bytesIn")),
                      format_bytes(b, (uint64_t) sum_rates(parts, n, SERVER ".bytesOut")));
        print_key("Total");
        (void) printf("%s requests since attached\n", format_count(a, total));
}

static int print_latency(const Part *parts, size_t n) {
        _cleanup_json_ sd_json_variant *buckets = NULL, *v = NULL;
        _cleanup_histogram_sum_ HistogramSum sum = {};
        char buf[FORMAT_MAX];
        uint64_t window;
        int r;

        r = add_buckets(parts, n, "latency", &sum);
        if (r < 0)
                return r;
        if (sum.count == 0)
                return 0;

        (void) printf("\n");
        print_key("Histogram");
        if (reading_unsigned(&parts->reading, "window", &window))
                (void) printf("request latency, last %s\n", format_window(buf, window));
        else
                (void) printf("request latency, since attached\n");

        r = histogram_sum_get_buckets(&sum, &buckets);
        if (r >= 0)
                r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_INTEGER("schema", sum.schema),
                                   SD_JSON_BUILD_PAIR_VARIANT("buckets", buckets));
        if (r >= 0)
                r = histogram_print(stdout, terminal_style(), v, HISTOGRAM_ROWS, 0, KEY_WIDTH - 9);
        return r < 0 ? log_failure(r, "Failed to draw the latency histogram: %m") : 0;
}

static int print_page(Part *parts, size_t n, sd_json_variant *snapshot, uint64_t minimum_samples) {
        _cleanup_json_ sd_json_variant *item = NULL;
        _cleanup_(reading_done) Reading all = {};
        Client minimum = { .minimum_samples = minimum_samples };
        const Style *style = terminal_style();
        int r;

        (void) printf("%s%s%s on %zu host%s\n", color_on(style, COLOR_BOLD), parts->reading.unit,
                      color_off(style), n, n == 1 ? "" : "s");
        r = print_hosts(parts, n);
        if (r < 0)
                return r;
        (void) printf("\n");
        print_requests(parts, n, snapshot);

        if (sd_json_buildo(&item, SD_JSON_BUILD_PAIR_VARIANT("snapshot", snapshot)) < 0)
                return log_out_of_memory();
        reading_set(&all, item);
        /* Prevents reading of longer windows */
        for (size_t i = 0; i < READING_WIDER_MAX; i++)
                reading_set_wider(&all, i, NULL, 1);
        r = reading_print_phases(&all, &minimum);
        return r < 0 ? r : print_latency(parts, n);
}

/* Finds the unit on each host. Returns the number of hosts that have it. */
static size_t find_parts(const Host *hosts, size_t n, const char *unit, Part *ret, uint64_t *ret_minimum) {
        size_t some = 0;

        *ret_minimum = 0;
        for (const Host *h = hosts; h < hosts + n; h++)
                for (size_t i = 0; i < h->replies.n; i++) {
                        sd_json_variant *item = value_find(h->replies.items[i], "item");
                        uint64_t minimum = 0;

                        if (!streq_ptr(value_string(item, "unit"), unit))
                                continue;
                        (void) value_unsigned(h->replies.items[i], "minimumSamples", &minimum);
                        *ret_minimum = MAX(*ret_minimum, minimum);
                        ret[some].host = h;
                        ret[some].histograms = value_find(h->replies.items[i], "histograms");
                        reading_set(&ret[some++].reading, item);
                        break;
                }
        return some;
}

static int status_unit(const Host *hosts, size_t n_hosts, const char *unit, bool first) {
        _cleanup_json_ sd_json_variant *snapshot = NULL;
        uint64_t minimum_samples;
        int r = STATUS_OK;
        Part *parts;
        size_t n;

        parts = new0(Part, n_hosts);
        if (!parts)
                return log_out_of_memory();

        n = find_parts(hosts, n_hosts, unit, parts, &minimum_samples);
        for (size_t i = 1; i < n && r == STATUS_OK; i++)
                r = host_check_window(parts->host, parts->reading.snapshot, parts[i].host,
                                      parts[i].reading.snapshot);
        if (r == STATUS_OK)
                r = build_snapshot(parts, n, minimum_samples, &snapshot);
        if (r == STATUS_OK) {
                if (arg_json == JSON_OFF && !first)
                        (void) printf("\n");
                r = arg_json != JSON_OFF ? print_json(parts, n, snapshot) :
                                           print_page(parts, n, snapshot, minimum_samples);
        }

        for (size_t i = 0; i < n; i++)
                reading_done(&parts[i].reading);
        free(parts);
        return r;
}

int verb_status_hosts(int argc, char **argv) {
        _cleanup_names_ Names units = NAMES_INIT;
        int r = 0, status;
        Host *hosts;
        size_t n;

        status = hosts_collect(collect_units, argc, argv, 0, &hosts, &n);
        if (status < 0)
                return status;

        for (const Host *h = hosts; h < hosts + n && r >= 0; h++)
                for (size_t i = 0; i < h->replies.n && r >= 0; i++) {
                        const char *unit = value_string(value_find(h->replies.items[i], "item"), "unit");

                        r = unit ? names_add(&units, unit) : 0;
                }

        if (units.n > 0)
                pager_open();
        for (size_t i = 0; i < units.n && r >= 0; i++)
                status = status_combine(status, status_unit(hosts, n, units.items[i], i == 0));

        hosts_done(hosts, n);
        return status_combine(status, r < 0 ? r : STATUS_OK);
}
