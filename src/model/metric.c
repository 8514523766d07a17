/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "metric.h"
#include "parse.h"
#include "util.h"

#include "metric-table.h"

const Metric* metric_suggest(const char *name) {
        size_t best = text_distance_of_typo(name) + 1;
        const Metric *found = NULL;

        for (size_t i = 0; i < metric_table_size; i++) {
                const char *metric = metric_table[i].name, *quantile = endswith(metric, ".p99");
                size_t distance = text_distance(name, metric);

                /* For the name of a distribution, which is not a metric, its p99 is suggested */
                if (quantile) {
                        char distribution[TEXT_DISTANCE_MAX + 1];

                        (void) snprintf(distribution, sizeof(distribution), "%.*s",
                                        (int) (quantile - metric), metric);
                        distance = MIN(distance, text_distance(name, distribution));
                }
                if (distance < best) {
                        best = distance;
                        found = metric_table + i;
                }
        }
        return found;
}

const Metric* metric_find(const char *name) {
        for (size_t i = 0; i < metric_table_size; i++)
                if (streq(metric_table[i].name, name))
                        return metric_table + i;
        return NULL;
}

void metric_set_absent(const Metric *metric, Metrics *values) {
        void *field = (char*) values + metric->offset;

        switch (metric->type) {

        case METRIC_INTEGER:
                *(uint64_t*) field = ABSENT;
                break;

        case METRIC_REAL:
                *(double*) field = NAN;
                break;

        case METRIC_QUALITY:
                *(Quality*) field = QUALITY_ABSENT;
                break;

        default:
                abort();
        }
}

void metrics_set_absent(Metrics *m) {
        memset(m, 0xff, sizeof(*m)); /* including padding and unused states */
        for (const Metric *i = metric_table; i < metric_table + metric_table_size; i++)
                metric_set_absent(i, m);
}

static const void* metric_field(const Metric *metric, const void *values) {
        return (const char*) values + metric->offset;
}

bool metric_get_integer(const Metric *metric, const void *values, uint64_t *ret) {
        uint64_t v;

        assert(metric->type == METRIC_INTEGER);

        v = *(const uint64_t*) metric_field(metric, values);
        if (v == ABSENT)
                return false;
        *ret = v;
        return true;
}

bool metric_get_real(const Metric *metric, const void *values, double *ret) {
        double v;

        assert(metric->type == METRIC_REAL);

        v = *(const double*) metric_field(metric, values);
        if (isnan(v))
                return false;
        *ret = v;
        return true;
}

bool metric_is_present(const Metric *metric, const void *values) {
        const char *s;
        uint64_t u;
        double d;

        return metric->type == METRIC_INTEGER ? metric_get_integer(metric, values, &u) :
               metric->type == METRIC_REAL    ? metric_get_real(metric, values, &d) :
                                                metric_get_string(metric, values, &s);
}

bool metric_get_string(const Metric *metric, const void *values, const char **ret) {
        const char *v;

        assert(metric->type == METRIC_QUALITY);

        v = quality_to_string(*(const Quality*) metric_field(metric, values));
        if (!v)
                return false;
        *ret = v;
        return true;
}
