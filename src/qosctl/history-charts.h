/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Charts of the history of a unit. */

#include "svg.h"
#include "unit-history.h"

/* As many as a metric table has columns. */
#define CHART_SERIES_MAX 64
/* Units of measurement, and the charts of a report. */
#define CHARTS_MAX 8

typedef struct HistoryChart {
        SvgChart chart;
        SvgSeries series[CHART_SERIES_MAX];     /* own their values; names are not owned */
} HistoryChart;

typedef struct HistoryCharts {
        sd_json_variant *reply;         /* of History, not owned */
        HistoryTime time;
        HistoryChart list[CHARTS_MAX];
        size_t n;
} HistoryCharts;

/* Errors as of history_time_make(). */
int history_charts_init(sd_json_variant *reply, HistoryCharts *ret);
void history_charts_done(HistoryCharts *c);

/* Adds a metric to the chart of its unit of measurement. -EINVAL: it has no numbers. */
int history_charts_add_metric(HistoryCharts *c, const char *metric, const char *unit);

/* Charts of requests, errors, latency, and requests in flight. */
int history_charts_of_requests(sd_json_variant *reply, HistoryCharts *ret);
/* Adds one of threads that run or wait for a resource, if there are any. */
int history_charts_add_threads(HistoryCharts *c);

/* Prints all as one picture. */
void history_charts_print(FILE *f, const HistoryCharts *c);
