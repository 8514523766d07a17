/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "custom-metric.h"
#include "util.h"

/* Of struct Metrics, in which they are not. */
#define NO_OFFSET (SIZE_MAX / 2)

#define FIELD(name_, type_, kind_, unit_) \
        { \
                .name = "custom." name_, .probe = "custom", .offset = NO_OFFSET, .type = type_, \
                .kind = kind_, .unit = unit_ \
        }
#define QUANTILE_METRIC(name_, label, q) FIELD(#name_, METRIC_INTEGER, METRIC_GAUGE, "ns"),

static const Metric custom_metrics[_CUSTOM_FIELDS] = {
        [CUSTOM_COUNT] = FIELD("count", METRIC_INTEGER, METRIC_COUNTER, "1"),
        [CUSTOM_RATE]  = FIELD("rate", METRIC_REAL, METRIC_GAUGE, "1/s"),
        [CUSTOM_VALUE] = FIELD("value", METRIC_INTEGER, METRIC_GAUGE, "1"),
        [CUSTOM_SUM]   = FIELD("sum", METRIC_INTEGER, METRIC_COUNTER, "ns"),
        [CUSTOM_MEAN]  = FIELD("mean", METRIC_INTEGER, METRIC_GAUGE, "ns"),
        [CUSTOM_QUANTILE] = QUANTILE_LIST(QUANTILE_METRIC)
};

bool metric_is_custom(const Metric *metric) {
        return metric >= custom_metrics && metric < custom_metrics + _CUSTOM_FIELDS;
}

CustomField metric_get_custom_field(const Metric *metric) {
        assert(metric_is_custom(metric));

        return (CustomField) (metric - custom_metrics);
}

const Metric* custom_metric_find(const char *field) {
        for (const Metric *m = custom_metrics; m < custom_metrics + _CUSTOM_FIELDS; m++)
                if (streq(m->name + strlen("custom."), field))
                        return m;
        return NULL;
}

/* Length of a name of a probe or metric; 0: it is none. */
static size_t name_length(const char *s) {
        size_t l = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");

        return *s >= 'a' && *s <= 'z' && l <= 32 ? l : 0;
}

/* Length of "PROBE.METRIC" at the beginning; 0: there is none. */
static size_t path_length(const char *s) {
        size_t probe = name_length(s), metric;

        if (probe == 0 || s[probe] != '.')
                return 0;
        metric = name_length(s + probe + 1);
        return metric == 0 ? 0 : probe + 1 + metric;
}

const Metric* custom_metric_parse(const char *name, const char **ret_path, size_t *ret_length) {
        const char *path = startswith(name, "custom.");
        size_t l = path ? path_length(path) : 0;

        if (l == 0 || path[l] != '.')
                return NULL;
        *ret_path = path;
        *ret_length = l;
        return custom_metric_find(path + l + 1);
}

const Metric* custom_entry_parse(const char *name, const char **ret_path, size_t *ret_length) {
        const char *path = startswith(name, "custom."), *end;
        size_t l = path ? path_length(path) : 0;

        if (l == 0 || path[l] != '[')
                return NULL;
        /* Values may have brackets and dots, too */
        end = strrchr(path + l, '.');
        if (!end || end[-1] != ']')
                return NULL;
        *ret_path = path;
        *ret_length = (size_t) (end - path);
        return custom_metric_find(end + 1);
}
