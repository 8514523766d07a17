/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Thresholds on quantiles as objectives: "p99 within 20ms" allows one percent of requests to miss it. */

#include "objective-history.h"
#include "threshold-monitor.h"
#include "totals.h"

/* Progress of an objective. */
typedef struct ErrorBudget {
        ObjectiveCounts counts;         /* since the threshold was set */
        double burn_rates[BURN_PERIODS]; /* share of requests that missed it over these periods, relative
                                          * to the share that it allows; NaN: no requests */
} ErrorBudget;

/* False: not an objective, or not measured. Takes up to three readings. */
bool threshold_get_error_budget(const Threshold *a, ErrorBudget *ret);

/* What the threshold has counted as an objective, and its share of good requests, from a reading of the
 * unit's totals. False as above, but that the caller knows whether the distribution is measured. */
bool threshold_count_totals(const Threshold *a, const WindowReading *totals, const RowsReading *rows,
                            TotalObjective *ret);

/* A new threshold: what was counted before is not part of it. */
void objective_begin(Threshold *a);
/* Records counts for burn rates over long periods, if it is time to. now: CLOCK_MONOTONIC ns. */
void objective_record(Threshold *a, uint64_t now);
