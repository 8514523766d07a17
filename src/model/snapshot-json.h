/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of readings. Absent values have no key, and are never null or 0; objects without values are absent as
 * well. */

#include <systemd/sd-json.h>

#include "history.h"
#include "json-writer.h"
#include "metric.h"
#include "totals.h"

/* peers: the client may see the unit's peers. */
void snapshot_write(const UnitIdentity *u, const Snapshot *s, bool peers, JsonWriter *w);
int snapshot_to_json(const UnitIdentity *u, const Snapshot *s, bool peers, sd_json_variant **ret);
int snapshot_to_text(const UnitIdentity *u, const Snapshot *s, bool peers, char **ret);

/* Returns 0 if the value is absent; *ret is unchanged then. */
int metric_to_json(const Metric *metric, const Metrics *values, sd_json_variant **ret);

/* Adds the fields of an ExportedHistogram but its name. bins: all of the schema. */
void exported_bins_write(JsonWriter *w, int schema, const uint64_t *bins, uint64_t sum);

/* Returns an ExportedUnit as text. */
int totals_to_text(const UnitIdentity *u, const UnitTotals *t, char **ret);

int histogram_to_json(const char *unit, const char *metric, const Histogram *h, sd_json_variant **ret);

/* Present values of metrics, and buckets of distributions (bits by their index in history.h). values: object
 * of others; NULL: none */
int history_step_to_json(const HistoryStep *s, const Metrics *metrics, unsigned distributions,
                         sd_json_variant *values, sd_json_variant **ret);

/* Value of the metric, as an integer for metrics of that type. */
int threshold_value_to_json(const Metric *metric, double value, sd_json_variant **ret);

/* As sd_json_variant_unref_many(), which also frees the array, for arrays on the stack or of another
 * owner. */
static inline void json_unref_all(sd_json_variant **array, size_t n) {
        for (size_t i = 0; i < n; i++)
                sd_json_variant_unref(array[i]);
}
