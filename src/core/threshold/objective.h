/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Thresholds on quantiles as objectives: "p99 within 20ms" allows one percent of requests to take longer. */

#include "objective-history.h"
#include "threshold-monitor.h"
#include "totals.h"

/* Progress of an objective. */
typedef struct ErrorBudget {
        ObjectiveCounts counts;         /* since the threshold was set */
        double burn_rates[BURN_PERIODS]; /* share of requests that missed the objective over these periods,
                                          * relative to the allowed share; NaN: no requests */
} ErrorBudget;

/* False: not an objective, or not measured. Takes up to three readings. */
bool threshold_get_error_budget(const Threshold *t, ErrorBudget *ret);

/* Counts since the threshold was set, from a reading of the unit's totals. False: not an objective, or its
 * endpoint is not measured. The caller checks whether the distribution is. */
bool threshold_count_totals(const Threshold *t, const WindowReading *totals, const RowsReading *rows,
                            TotalObjective *ret);

/* To be called for a new threshold: excludes what was counted before. */
void objective_begin(Threshold *t);
/* Records counts for burn rates over long periods, if due. now: CLOCK_MONOTONIC ns. */
void objective_record(Threshold *t, uint64_t now);
