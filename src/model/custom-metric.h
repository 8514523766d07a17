/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Names of metrics of custom probes: "custom.PROBE.METRIC.FIELD", which the metric table does not have. */

#include "metric.h"
#include "quantiles.h"

/* Index in the table of fields: those of counters and gauges, then those of distributions. */
typedef enum CustomField {
        CUSTOM_COUNT,
        CUSTOM_RATE,
        CUSTOM_VALUE,
        CUSTOM_SUM,
        CUSTOM_MEAN,
        CUSTOM_QUANTILE,        /* this plus the index in quantile_table */
        _CUSTOM_FIELDS = CUSTOM_QUANTILE + QUANTILES,
} CustomField;

/* A field as a metric "custom.FIELD", which is in no struct. NULL: there is none of this name. */
const Metric* custom_metric_find(const char *field);
bool metric_is_custom(const Metric *metric);
CustomField metric_get_custom_field(const Metric *metric);

/* Splits a name. ret_path: "PROBE.METRIC", of this length. NULL: it is no such name. */
const Metric* custom_metric_parse(const char *name, const char **ret_path, size_t *ret_length);
/* The same of an entry, "custom.PROBE.METRIC[VALUE,VALUE].FIELD", with a value for each label. ret_path:
 * without the field. */
const Metric* custom_entry_parse(const char *name, const char **ret_path, size_t *ret_length);
