/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The metric table, generated from the interfaces in metrics/. The name of a metric is its path in the JSON
 * of a snapshot. */

#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

typedef enum MetricType {
        METRIC_INTEGER,         /* uint64_t, absent: ABSENT */
        METRIC_REAL,            /* double, absent: NaN */
        METRIC_QUALITY,         /* Quality, absent: QUALITY_ABSENT; shown as a string */
} MetricType;

typedef enum MetricKind {
        METRIC_GAUGE,           /* a current value, or one over the window */
        METRIC_COUNTER,         /* events or bytes in the window; also in "totals" */
} MetricKind;

typedef struct Metric {
        const char *name;               /* "requests.server.latency.p99" */
        const char *property;           /* D-Bus property, "ServerLatencyP99NSec" */
        const char *interface;          /* "org.qosd1.Requests" */
        const char *probe;              /* "requests" */
        size_t offset;                  /* in struct Metrics */
        MetricType type;
        MetricKind kind;
        const char *unit;               /* "ns", "bytes", "1/s", "1" (a plain number) or "" (a string) */
        bool essential;                 /* exported by default */
        const char *description;        /* one sentence */
} Metric;

extern const Metric metric_table[];
extern const size_t metric_table_size;

const Metric* metric_find(const char *name);

/* Returns the metric with the most similar name, or NULL if none is similar. */
const Metric* metric_suggest(const char *name);

/* Whether the metric has a value. values, here and below: Metrics, or the struct of the record for metrics
 * of a record. */
bool metric_is_present(const Metric *metric, const void *values);

/* Sets one or all metrics to absent. */
void metric_set_absent(const Metric *metric, Metrics *values);
void metrics_set_absent(Metrics *m);

/* Reads one metric; false if absent. */
bool metric_get_integer(const Metric *metric, const void *values, uint64_t *ret);
bool metric_get_real(const Metric *metric, const void *values, double *ret);
bool metric_get_string(const Metric *metric, const void *values, const char **ret);
