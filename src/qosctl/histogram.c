/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* histogram */

#include "client.h"
#include "format.h"
#include "histogram-sum.h"
#include "histogram-view.h"
#include "hosts.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Maximum number of rows, for small terminals. */
#define ROWS_MAX 18U

static const char* get_metric(int argc, char **argv) {
        return argc > 1 ? argv[1] : "requests.server.latency";
}

/* Reads the histogram. Returns an exit status. */
static int read_histogram(Client *c, int argc, char **argv, Replies *ret) {
        _cleanup_names_ Names names = NAMES_INIT;
        int r;

        r = names_expand_attached(c, 1, argv, &names);
        if (r != STATUS_OK)
                return r;
        if (names.n != 1) {
                (void) log_failure(-EINVAL, "Expected one unit, but '%s' matches %zu.", argv[0], names.n);
                return STATUS_USAGE;
        }

        r = client_callbo(c, QOS_METHOD("Histogram"), ret, SD_JSON_BUILD_PAIR_STRING("unit", names.items[0]),
                          SD_JSON_BUILD_PAIR_STRING("metric", get_metric(argc, argv)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        return r != 0 ? unit_read_fail(r, ret, names.items[0]) : STATUS_OK;
}

/* where: "" or " on 3 hosts" */
static int print_histogram(int argc, char **argv, sd_json_variant *reply, const char *where,
                           uint64_t minimum_samples) {
        char count[FORMAT_MAX], mean[FORMAT_MAX], over[FORMAT_MAX];
        const char *metric = get_metric(argc, argv), *unit = value_string(reply, "unit") ?: argv[0];
        uint64_t n = 0, sum = 0, window = 0;
        size_t wide;
        int r;

        pager_open();

        (void) value_unsigned(reply, "count", &n);
        (void) value_unsigned(reply, "sum", &sum);
        (void) value_unsigned(reply, "window", &window);
        if (arg_legend) {
                const Style *style = terminal_style();
                char figures[128];
                int k;

                k = window > 0 ?
                            snprintf(figures, sizeof(figures), "%s in the last %s", format_count(count, n),
                                     format_window(over, window)) :
                            snprintf(figures, sizeof(figures), "%s since attached", format_count(count, n));
                if (n > 0)
                        k += snprintf(figures + k, sizeof(figures) - (size_t) k, ", mean %s",
                                      format_duration(mean, sum / n));
                /* The pager cuts longer lines */
                wide = strlen(metric) + strlen(" of ") + text_width(unit) + strlen(where) + strlen(": ") +
                       (size_t) k;
                (void) printf("%s%s%s of %s%s:%s%s\n\n", color_on(style, COLOR_BOLD), metric,
                              color_off(style), unit, where,
                              style->width > 0 && wide > style->width ? "\n" : " ", figures);
        }

        r = histogram_print(stdout, terminal_style(), reply, ROWS_MAX, minimum_samples, 0);
        return r < 0 ? client_fail(r, &REPLIES_INIT, "draw '%s' of '%s'", metric, unit) : STATUS_OK;
}

int verb_histogram(int argc, char **argv) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = read_histogram(c, argc, argv, &replies);
        if (r != STATUS_OK)
                return r;

        if (arg_json != JSON_OFF)
                return json_print(replies.items[0]);
        return print_histogram(argc, argv, replies.items[0], "", client_get_minimum_samples(c));
}

/* ---- several hosts ----------------------------------------------------------------------------------- */

/* Returns the reply with MinimumSamples= of the host added. */
static int collect_histogram(int argc, char **argv, Replies *ret) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_json_ sd_json_variant *v = NULL;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = read_histogram(c, argc, argv, &replies);
        if (r != STATUS_OK)
                return r;

        v = sd_json_variant_ref(replies.items[0]);
        r = sd_json_variant_set_field_unsigned(&v, "minimumSamples", client_get_minimum_samples(c));
        if (r >= 0)
                r = replies_add(ret, v, NULL);
        return r < 0 ? log_out_of_memory() : STATUS_OK;
}

/* Builds the sum as a reply to Histogram(), with the count of each host. */
static int build_sum(const HistogramSum *sum, sd_json_variant *first, const char *metric,
                     sd_json_variant *hosts, sd_json_variant **ret) {
        _cleanup_json_ sd_json_variant *buckets = NULL;
        uint64_t window;
        bool total;
        int r;

        total = !value_unsigned(first, "window", &window);
        r = histogram_sum_get_buckets(sum, &buckets);
        if (r >= 0)
                r = sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("unit", value_string(first, "unit")),
                                   SD_JSON_BUILD_PAIR_STRING("metric", metric),
                                   SD_JSON_BUILD_PAIR_CONDITION(!total, "window",
                                                                SD_JSON_BUILD_UNSIGNED(window)),
                                   SD_JSON_BUILD_PAIR_VARIANT("hosts", hosts),
                                   SD_JSON_BUILD_PAIR_INTEGER("schema", sum->schema),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("count", sum->count),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("sum", sum->sum),
                                   SD_JSON_BUILD_PAIR_VARIANT("buckets", buckets));
        return r < 0 ? log_out_of_memory() : 0;
}

/* Checks that both replies are of the same unit and window. Returns an exit status, or a negative errno. */
static int check_same(const Host *a, const Host *b) {
        sd_json_variant *x = a->replies.items[0], *y = b->replies.items[0];
        const char *unit = value_string(x, "unit"), *other = value_string(y, "unit");

        if (!unit || !other)
                return log_failure(-EBADMSG, "%s: received an invalid response from qosd.",
                                   unit ? b->name : a->name);
        if (!streq(unit, other)) {
                (void) log_failure(-EINVAL,
                                   "Expected the same unit on all hosts, but it is %s on %s and %s on %s.",
                                   unit, a->name, other, b->name);
                return STATUS_USAGE;
        }
        return host_check_window(a, x, b, y);
}

static int sum_histograms(const Host *hosts, size_t n, const char *metric, sd_json_variant **ret,
                          size_t *ret_hosts, uint64_t *ret_minimum) {
        _cleanup_json_ sd_json_variant *array = NULL;
        _cleanup_histogram_sum_ HistogramSum sum = {};
        const Host *first = NULL;
        int r;

        *ret_hosts = 0;
        *ret_minimum = 0;
        for (const Host *h = hosts; h < hosts + n; h++) {
                uint64_t count = 0, covered = 0, timestamp = 0, minimum = 0;
                sd_json_variant *reply;

                if (h->replies.n == 0)
                        continue;
                first = first ?: h;
                r = check_same(first, h);
                if (r != STATUS_OK)
                        return r;
                reply = h->replies.items[0];
                r = histogram_sum_add(&sum, reply);
                if (r < 0)
                        return r == -ENOMEM ? log_out_of_memory() :
                                              log_failure(r, "%s: received an invalid response from qosd.",
                                                          h->name);

                (void) value_unsigned(reply, "count", &count);
                (void) value_unsigned(reply, "covered", &covered);
                (void) value_unsigned(reply, "timestamp", &timestamp);
                (void) value_unsigned(reply, "minimumSamples", &minimum);
                *ret_minimum = MAX(*ret_minimum, minimum);
                r = sd_json_variant_append_arrayb(
                        &array, SD_JSON_BUILD_OBJECT(SD_JSON_BUILD_PAIR_STRING("host", h->name),
                                                     SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", timestamp),
                                                     SD_JSON_BUILD_PAIR_UNSIGNED("covered", covered),
                                                     SD_JSON_BUILD_PAIR_UNSIGNED("count", count)));
                if (r < 0)
                        return log_out_of_memory();
                (*ret_hosts)++;
        }

        return first ? build_sum(&sum, first->replies.items[0], metric, array, ret) : STATUS_OK;
}

int verb_histogram_hosts(int argc, char **argv) {
        _cleanup_json_ sd_json_variant *v = NULL;
        uint64_t minimum_samples;
        int r, status;
        size_t n, some;
        Host *hosts;

        status = hosts_collect(collect_histogram, argc, argv, 0, &hosts, &n);
        if (status < 0)
                return status;

        r = sum_histograms(hosts, n, get_metric(argc, argv), &v, &some, &minimum_samples);
        hosts_done(hosts, n);
        if (r != STATUS_OK)
                return r;
        if (!v)
                return status;

        if (arg_json != JSON_OFF)
                r = json_print(v);
        else {
                char where[32];

                (void) snprintf(where, sizeof(where), " on %zu host%s", some, some == 1 ? "" : "s");
                r = print_histogram(argc, argv, v, where, minimum_samples);
        }
        return status_combine(status, r);
}
