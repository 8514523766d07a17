/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* show */

#include "metric.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

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
        /* Optional fields of a snapshot that are not metrics */
        static const char *const others[] = { "controlGroup",
                                              "invocationId",
                                              "window",
                                              "requests",
                                              "totals",
                                              "cost",
                                              "cost.share",
                                              "requests.server.endpoints",
                                              "requests.client.peers" };
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

/* Returns the metrics with a selector as array, or NULL if there are none. */
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

/* several: whether to print the name of the unit */
static int show_unit(Client *c, const char *unit, Replies *catalogue, bool first, bool several) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_json_ sd_json_variant *selected = NULL;
        int r, status = STATUS_OK;

        r = find_selected(&selected);
        if (r < 0)
                return log_out_of_memory();

        r = client_callbo(c, QOS_METHOD("Get"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!selected, "metrics",
                                                       SD_JSON_BUILD_VARIANT(selected)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);

        if (arg_json != JSON_OFF)
                return json_print(replies.items[0]);

        if (!first)
                (void) printf("\n");

        if (!arg_metrics)
                return value_walk(replies.items[0], print_value, (void*) "");

        for (char **m = arg_metrics; *m; m++)
                several = several && !streq(*m, "unit");
        if (several && !arg_value)
                (void) printf("unit=%s\n", value_string(replies.items[0], "unit") ?: unit);
        for (char **m = arg_metrics; *m; m++) {
                sd_json_variant *v = is_selected(*m) ?
                                             value_find(value_find(replies.items[0], "values"), *m) :
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

                /* Values that were not measured are empty, as with systemctl */
                r = is_selected(*m) || startswith(*m, "custom.") ? 1 : metric_exists(c, *m, catalogue);
                if (r < 0)
                        return r;
                if (r == 0) {
                        const Metric *suggested = metric_suggest(startswith(*m, "totals.") ?: *m);

                        if (suggested)
                                (void) log_failure(-ENOENT, "Unknown metric '%s', did you mean '%s'?", *m,
                                                   suggested->name);
                        else
                                (void) log_failure(-ENOENT,
                                                   "Unknown metric '%s', see 'qosctl list-metrics'.", *m);
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
                status = status_combine(status,
                                        show_unit(c, names.items[i], &catalogue, i == 0, names.n > 1));

        return status;
}
