/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of readings. An absent value is an absent key, never null and never 0, and an empty object is absent,
 * too. */

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

/* As an ExportedUnit. */
int totals_to_text(const UnitIdentity *u, const UnitTotals *t, char **ret);

int histogram_to_json(const char *unit, const char *metric, const Histogram *h, sd_json_variant **ret);

/* Of metrics only present values, and of distributions (bits by their number in history.h) their buckets. */
int history_step_to_json(const HistoryStep *s, const Metrics *metrics, unsigned distributions,
                         sd_json_variant **ret);

/* Value of the metric, as an integer if the metric is one. */
int threshold_value_to_json(const Metric *metric, double value, sd_json_variant **ret);

/* sd_json_variant_unref_many() also frees the array, which here lies on the stack or has another owner. */
static inline void json_unref_all(sd_json_variant **array, size_t n) {
        for (size_t i = 0; i < n; i++)
                sd_json_variant_unref(array[i]);
}
