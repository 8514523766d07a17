/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* History */

#include <math.h>

#include "history.h"
#include "mounts.h"
#include "snapshot-json.h"
#include "unit-mounts.h"
#include "varlink-connection.h"

/* Limit of steps in a reply, which no level of the history exceeds. */
#define HISTORY_STEPS_MAX MAX(HISTORY_FINE_STEPS, HISTORY_COARSE_STEPS)

/* A metric of a file system or a custom probe. */
typedef struct HistoryValue {
        const char *name;
        const Metric *metric;
        uint64_t identity;              /* of the file system */
        bool found;                     /* it has a row */
        const char *path;               /* of a custom metric or an entry, see custom_metric_parse() */
        size_t length;
} HistoryValue;

/* Such metrics in one request: in each step, to add a value copies those before it. */
#define HISTORY_SELECTED_MAX 64U

typedef struct HistoryQuery {
        uint64_t since;                 /* CLOCK_REALTIME, us */
        uint64_t step;                  /* ns */
        unsigned minimum_samples;
        bool *metrics;                  /* by index in metric_table: whether it is requested */
        unsigned distributions;         /* bit mask of requested ones */
        HistoryValue *values;
        size_t n_values;

        sd_json_variant **steps;
        size_t n;
} HistoryQuery;

static void history_query_done(HistoryQuery *q) {
        json_unref_all(q->steps, q->n);
        free(q->steps);
        free(q->metrics);
        free(q->values);
}

/* Returns 0 if the step does not have the value. */
static int history_value_get(const HistoryValue *v, const HistoryStep *s, unsigned minimum_samples,
                             sd_json_variant **ret) {
        Metrics metrics;
        double value;
        int r;

        if (!v->path && !v->found)
                return 0;
        if (!v->path) {
                history_step_get_mount(s, v->identity, minimum_samples, &metrics);
                return metric_to_json(v->metric, &metrics, ret);
        }
        value = history_step_get_custom(s, v->path, v->length, metric_get_custom_field(v->metric),
                                        minimum_samples);
        if (isnan(value))
                return 0;
        r = v->metric->type == METRIC_REAL ? sd_json_variant_new_real(ret, value) :
                                             sd_json_variant_new_unsigned(ret, (uint64_t) value);
        return r < 0 ? r : 1;
}

/* NULL: none was requested. */
static int history_query_get_values(const HistoryQuery *q, const HistoryStep *s, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *object = NULL;
        int r = 0;

        if (q->n_values > 0)
                r = sd_json_variant_new_object(&object, NULL, 0);
        for (size_t i = 0; i < q->n_values && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *value = NULL;

                r = history_value_get(q->values + i, s, q->minimum_samples, &value);
                if (r > 0)
                        r = sd_json_variant_set_field(&object, q->values[i].name, value);
        }
        if (r >= 0)
                *ret = TAKE_PTR(object);
        return r;
}

static int history_query_add(const HistoryStep *s, void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *values = NULL;
        HistoryQuery *q = ASSERT_PTR(userdata);
        Metrics metrics;
        int r;

        if (s->timestamp / NSEC_PER_USEC + q->step / NSEC_PER_USEC <= q->since)
                return 0;

        history_step_get_metrics(s, q->minimum_samples, &metrics);
        for (size_t i = 0; i < metric_table_size; i++)
                if (!q->metrics[i])
                        metric_set_absent(metric_table + i, &metrics);

        if (q->n >= HISTORY_STEPS_MAX)
                return -E2BIG;
        r = history_query_get_values(q, s, &values);
        if (r >= 0)
                r = history_step_to_json(s, &metrics, q->distributions, values, q->steps + q->n);
        if (r >= 0)
                q->n++;
        return r;
}

static bool is_distribution(const char *name) {
        for (size_t i = 0; i < metric_table_size; i++)
                if (streq_ptr(startswith(metric_table[i].name, name), ".max"))
                        return true;
        return false;
}

/* Adds a metric, and the count if it is of a distribution, which limits the accuracy of quantiles. */
static void history_query_want(HistoryQuery *q, const Metric *metric) {
        char name[SELECTOR_METRIC_MAX];
        int l = (int) (strrchr(metric->name, '.') - metric->name);

        q->metrics[metric - metric_table] = true;
        (void) snprintf(name, sizeof(name), "%.*s", l, metric->name);
        if (!is_distribution(name))
                return;
        (void) snprintf(name, sizeof(name), "%.*s.count", l, metric->name);
        q->metrics[metric_find(name) - metric_table] = true;
}

/* Returns 0 if the name is none of a file system or a custom probe. */
static int history_query_add_value(HistoryQuery *q, Unit *u, const char *name) {
        HistoryValue custom = { .name = name };
        char whole[SELECTOR_METRIC_MAX];
        const Metric *metric;
        Selector selector;
        Metrics metrics;

        custom.metric = custom_metric_parse(name, &custom.path, &custom.length)
                ?: custom_entry_parse(name, &custom.path, &custom.length);
        if (custom.metric) {
                q->values[q->n_values++] = custom;
                return 1;
        }
        if (selector_parse(name, &selector, whole) < 0 || selector.type != SELECTOR_MOUNT)
                return 0;
        metric = metric_find(whole);
        mount_get_metrics(&(Mount) {}, &metrics);
        if (!metric || !metric_is_present(metric, &metrics) || startswith(whole, "storage.submitted."))
                return 0;
        q->values[q->n_values] = (HistoryValue) { .name = name, .metric = metric };
        q->values[q->n_values].found = unit_find_mount(u, &selector, &q->values[q->n_values].identity) >= 0;
        q->n_values++;
        return 1;
}

static int history_query_parse(HistoryQuery *q, Unit *u, char **names, QosError *e) {
        for (size_t i = 0; i < metric_table_size && !(names && *names); i++)
                q->metrics[i] = history_has_metric(metric_table + i);

        for (char **name = names; name && *name; name++) {
                const Metric *metric = metric_find(*name);
                int d = history_find_distribution(*name);
                char whole[SELECTOR_METRIC_MAX];
                Selector selector;

                if (d >= 0)
                        q->distributions |= 1U << d;
                else if (metric && history_has_metric(metric))
                        history_query_want(q, metric);
                else if (history_query_add_value(q, u, *name) > 0)
                        continue;
                else if (metric || is_distribution(*name) ||
                         (selector_parse(*name, &selector, whole) >= 0 &&
                          (metric_find(whole) || is_distribution(whole))))
                        return qos_error_set(e, QOS_ERROR_NO_HISTORY, *name,
                                             "no history is kept of '%s', only of counters, rates, latency "
                                             "and time to first byte, requests in flight "
                                             "and open connections of the whole unit, its shares and "
                                             "threads by state, some of its waits, reads, writes and syncs "
                                             "of its file systems, and custom probes", *name);
                else
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, *name,
                                             "there is no metric '%s', see 'qosctl list-metrics'", *name);
        }
        return 0;
}

int vl_method_history(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",    SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),  SD_JSON_MANDATORY },
                { "metrics", SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, names), SD_JSON_NULLABLE  },
                { "since",   _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, since), SD_JSON_NULLABLE  },
                { "step",    _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, step),  SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *steps = NULL;
        uint64_t now = now_usec(CLOCK_REALTIME),
                kept = HISTORY_FINE_STEPS * HISTORY_FINE_NSEC / NSEC_PER_USEC;
        _cleanup_(history_query_done) HistoryQuery q = {};
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        size_t n_names = 0;
        HistoryLevel level;
        bool mounts = false;
        Unit *u;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;

        if (p.since == ABSENT)
                p.since = now - MIN(now, kept);
        if (p.since > now)
                return sd_varlink_error_invalid_parameter_name(link, "since");
        if (p.step == ABSENT)
                p.step = now - p.since <= kept ? HISTORY_FINE_NSEC : HISTORY_COARSE_NSEC;
        for (level = 0; level < _HISTORY_LEVEL_MAX; level++)
                if (history_level_nsec(level) == p.step)
                        break;
        if (level >= _HISTORY_LEVEL_MAX)
                return sd_varlink_error_invalid_parameter_name(link, "step");

        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return connection_reply_missing(c, flags, p.unit, &e);

        while (p.names && p.names[n_names])
                n_names++;

        q = (HistoryQuery) {
                .since = p.since,
                .step = p.step,
                .minimum_samples = c->server->manager->config.minimum_samples,
                .metrics = new0(bool, metric_table_size),
                .values = new0(HistoryValue, n_names + 1),
                .steps = new0(sd_json_variant*, HISTORY_STEPS_MAX),
        };
        if (!q.metrics || !q.values || !q.steps)
                return -ENOMEM;
        r = history_query_parse(&q, u, p.names, &e);
        if (r < 0)
                return vl_reply_error(link, r, &e);
        if (q.n_values > HISTORY_SELECTED_MAX)
                return sd_varlink_error_invalid_parameter_name(link, "metrics");
        for (size_t i = 0; i < q.n_values; i++)
                mounts |= !q.values[i].path;
        if (mounts && !connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        r = unit_collect_history(u);
        if (r >= 0)
                r = history_foreach(u->history.steps, level, history_query_add, &q);
        if (r >= 0)
                r = sd_json_variant_new_array(&steps, q.steps, q.n);
        if (r < 0)
                return r;

        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("step", p.step),
                                  SD_JSON_BUILD_PAIR_VARIANT("steps", steps));
}
