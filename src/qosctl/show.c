/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics of a unit line by line, and histograms. */

#include "format.h"
#include "histogram-view.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Fits on a small terminal. */
#define ROWS_MAX 18U

static int print_value(const char *path, sd_json_variant *value, void *userdata) {
        const char *prefix = ASSERT_PTR(userdata);
        _cleanup_free_ char *text = NULL;

        text = value_to_text(value);
        if (!text)
                return log_out_of_memory();

        /* One line per value, even for odd names */
        for (char *p = text; *p; p++)
                if (*p == '\n')
                        *p = ' ';

        if (arg_value)
                (void) printf("%s\n", text);
        else
                (void) printf("%s%s%s=%s\n", prefix, *prefix && *path ? "." : "", path, text);
        return 0;
}

/* Whether a metric, or a group of metrics, with that name exists. */
static int metric_exists(Client *c, const char *name, Replies *catalogue) {
        /* Optional fields that are not metrics */
        static const char *const others[] = { "controlGroup", "invocationId", "window", "requests", "totals", "cost", "cost.share",
                                              "requests.server.endpoints", "requests.client.peers" };
        size_t l;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                if (streq(name, others[i]))
                        return true;

        if (catalogue->n == 0) {
                r = client_call_more(c, QOS_METHOD("ListMetrics"), 0, NULL, catalogue);
                if (r != 0) {
                        (void) client_fail(r, catalogue, "list metrics");
                        return -EIO;
                }
        }

        name = startswith(name, "totals.") ?: name;
        l = strlen(name);
        for (size_t i = 0; i < catalogue->n; i++) {
                const char *rest, *metric = value_string(catalogue->items[i], "name");

                rest = metric && strncmp(metric, name, l) == 0 ? metric + l : NULL;
                if (rest && (*rest == 0 || *rest == '.'))
                        return true;
        }

        return false;
}

/* Metrics with a selector, "requests.server[:443].rate", are resolved by qosd. */
static bool is_selected(const char *metric) {
        return strchr(metric, '[');
}

/* Array of these metrics; NULL if there are none. */
static int find_selected(sd_json_variant **ret) {
        _cleanup_json_ sd_json_variant *array = NULL;
        int r = 0;

        for (char **m = arg_metrics; m && *m && r >= 0; m++)
                if (is_selected(*m))
                        r = sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(*m));
        if (r < 0)
                return r;

        *ret = TAKE_PTR(array);
        return 0;
}

static int show_unit(Client *c, const char *unit, Replies *catalogue, bool first) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_json_ sd_json_variant *selected = NULL;
        int r, status = STATUS_OK;

        r = find_selected(&selected);
        if (r < 0)
                return log_out_of_memory();

        r = client_callbo(c, QOS_METHOD("Get"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!selected, "metrics", SD_JSON_BUILD_VARIANT(selected)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);

        if (arg_json != JSON_OFF)
                return json_print(replies.items[0]);

        if (!first)
                (void) printf("\n");

        if (!arg_metrics)
                return value_walk(replies.items[0], print_value, (void*) "");

        for (char **m = arg_metrics; *m; m++) {
                sd_json_variant *v = is_selected(*m) ? value_find(value_find(replies.items[0], "values"), *m) :
                                                       value_find(replies.items[0], *m);

                if (v && sd_json_variant_is_object(v)) {
                        r = value_walk(v, print_value, *m);
                        if (r < 0)
                                return r;
                        continue;
                }
                if (v) {
                        r = print_value("", v, *m);
                        if (r < 0)
                                return r;
                        continue;
                }

                /* Values not measured are empty, as with systemctl */
                r = is_selected(*m) ? 1 : metric_exists(c, *m, catalogue);
                if (r < 0)
                        return r;
                if (r == 0) {
                        (void) log_failure(-ENOENT, "Unknown metric '%s', see 'qosctl list-metrics'.",
                                *m);
                        status = STATUS_FAILED;
                } else if (arg_value)
                        (void) printf("\n");
                else
                        (void) printf("%s=\n", *m);
        }

        return status;
}

int verb_show(int argc, char **argv) {
        _cleanup_replies_ Replies catalogue = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        if (arg_json != JSON_OFF && (arg_metrics || arg_value)) {
                (void) log_failure(-EINVAL, "--json= cannot be combined with -P or --value.");
                return STATUS_USAGE;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        pager_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, show_unit(c, names.items[i], &catalogue, i == 0));

        return status;
}

int verb_histogram(int argc, char **argv) {
        const char *metric = argc > 1 ? argv[1] : "requests.server.latency";
        char count[FORMAT_MAX], mean[FORMAT_MAX], over[FORMAT_MAX];
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        uint64_t n = 0, sum = 0, window = 0;
        _cleanup_names_ Names names = NAMES_INIT;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;

        r = names_expand_attached(c, 1, argv, &names);
        if (r != STATUS_OK)
                return r;
        if (names.n != 1) {
                (void) log_failure(-EINVAL, "Expected one unit, but '%s' matches %zu.", argv[0], names.n);
                return STATUS_USAGE;
        }

        r = client_callbo(c, QOS_METHOD("Histogram"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", names.items[0]),
                          SD_JSON_BUILD_PAIR_STRING("metric", metric),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, names.items[0]);

        if (arg_json != JSON_OFF)
                return json_print(replies.items[0]);

        pager_open();

        (void) value_unsigned(replies.items[0], "count", &n);
        (void) value_unsigned(replies.items[0], "sum", &sum);
        (void) value_unsigned(replies.items[0], "window", &window);
        if (arg_legend) {
                const Style *style = terminal_style();

                (void) printf("%s%s%s of %s: ", color_on(style, COLOR_BOLD), metric, color_off(style),
                              value_string(replies.items[0], "unit") ?: names.items[0]);
                if (window > 0)
                        (void) printf("%s in the last %s", format_count(count, n), format_window(over, window));
                else
                        (void) printf("%s since attached", format_count(count, n));
                if (n > 0)
                        (void) printf(", mean %s", format_duration(mean, sum / n));
                (void) printf("\n\n");
        }

        r = histogram_print(stdout, terminal_style(), replies.items[0], ROWS_MAX, client_get_minimum_samples(c), 0);
        return r < 0 ? client_fail(r, &replies, "draw '%s' of '%s'", metric, names.items[0]) : STATUS_OK;
}
