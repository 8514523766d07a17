/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "gauges.h"
#include "manager.h"
#include "objective.h"
#include "threshold-sample.h"
#include "unit-reading.h"

static bool threshold_is_objective(const Threshold *a, double *ret_target) {
        return a->source != THRESHOLD_SOURCE_CONDITION && threshold_rule_is_objective(&a->rule, ret_target);
}

/* missing: requests without a response, which are in none of the distributions. An error that is late, too,
 * counts as two that are not good: which errors are late is not known. */
static ObjectiveCounts counts_make(const ThresholdRule *rule, uint64_t within, uint64_t count,
                                   uint64_t missing, uint64_t errors) {
        if (rule->good == GOOD_SUCCESS)
                within -= MIN(within, errors);
        return (ObjectiveCounts) { .good = within, .total = count + missing };
}

static ObjectiveCounts count_all(const WindowReading *reading, const ThresholdRule *rule) {
        const uint64_t *cells = reading->cells;
        enum qos_distribution d;
        double q;

        (void) metric_get_server_quantile(rule->metric, &d, &q); /* it is an objective */
        return counts_make(rule, window_count_within(reading, d, threshold_rule_get_good_limit(rule)),
                           window_get_count(reading, d),
                           cells[QOS_COUNTER_ERRORS_RESET] + cells[QOS_COUNTER_ERRORS_TIMEOUT],
                           cells[QOS_COUNTER_STATUS_5XX] + cells[QOS_COUNTER_ERRORS_GRPC] +
                           cells[QOS_COUNTER_ERRORS_REPLIES]);
}

/* Of one endpoint, which has no figures before its first request. False: requests overlap. */
static bool count_endpoint(const Unit *u, const RowsReading *rows, const ThresholdRule *rule,
                           ObjectiveCounts *ret) {
        WindowRow value;
        Selector s;
        Row row;

        threshold_rule_get_selector(rule, &s);
        rows_sum(u, rows, &s, &value, &row);
        if (row.measured && row.count == ABSENT)
                return false;
        *ret = row.measured ?
                counts_make(rule, window_row_count_within(&value, threshold_rule_get_good_limit(rule)),
                            window_row_get_count(&value),
                            value.cells[QOS_ENTRY_ERRORS_RESET] + value.cells[QOS_ENTRY_ERRORS_TIMEOUT], 0) :
                (ObjectiveCounts) {};
        return true;
}

static bool read_endpoint(Unit *u, const ThresholdRule *rule, ObjectiveCounts *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        UnitReading reading;
        WindowReading totals;
        RowsReading rows;

        unit_reading_begin(u, now, /* refresh= */ 0, &reading);
        if (window_read_some(&reading.sources, now, WINDOW_TOTAL, /* distributions= */ 0, &totals) < 0)
                return false;
        unit_reading_get_rows(&reading, WINDOW_TOTAL, totals.covered, &rows);
        return rows.measured && count_endpoint(u, &rows, rule, ret);
}

/* pending: requests that have waited for longer than the limit. NULL: without these, so that the total does
 * not fall when they get their response. */
static bool read_counts(Unit *u, const ThresholdRule *rule, uint64_t window, uint64_t *pending,
                        ObjectiveCounts *ret) {
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowReading reading;
        WindowSources sources;

        if (!u->view || !is_measured(manager_get_measured(u->manager), MEASURED_ARRIVALS))
                return false;
        if (*rule->selector) {
                if (pending)
                        *pending = 0; /* their number is known of the whole unit alone */
                return read_endpoint(u, rule, ret);
        }
        if (pending)
                gauges_refresh(u->manager, now_nsec(CLOCK_MONOTONIC), /* missing= */ false);
        unit_get_sources(u, buffer, &sources);
        if (window_read(&sources, now_nsec(CLOCK_MONOTONIC), window, &reading) < 0 ||
            window_reading_is_overlapping(&reading))
                return false;
        *ret = count_all(&reading, rule);
        if (pending)
                *pending = sources_count_pending(&sources, u->manager, threshold_rule_get_good_limit(rule));
        return true;
}

/* Counts may decrease when a response in transmission exceeds the limit, and when totals restart. */
static ObjectiveCounts threshold_subtract_before(const Threshold *a, ObjectiveCounts counts) {
        counts.good -= MIN(counts.good, a->before.good);
        counts.total -= MIN(counts.total, a->before.total);
        counts.good = MIN(counts.good, counts.total);
        return counts;
}

bool threshold_get_error_budget(const Threshold *a, ErrorBudget *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), pending;
        ObjectiveCounts counts, within;
        double target;

        if (!threshold_is_objective(a, &target) ||
            !read_counts(a->unit, &a->rule, WINDOW_TOTAL, &pending, &counts))
                return false;

        ret->counts = threshold_subtract_before(a, counts);
        for (BurnPeriod i = 0; i < BURN_PERIODS; i++) {
                uint64_t waiting = pending;

                /* Windows of the unit include counts from before a restart of qosd */
                if (*a->rule.selector || !window_is_valid(burn_period_table[i].nsec))
                        within = a->history && a->history->begun
                                ? objective_history_get(a->history, now, i, counts)
                                : ret->counts;
                else if (!read_counts(a->unit, &a->rule, burn_period_table[i].nsec, &waiting, &within))
                        within = (ObjectiveCounts) {}, waiting = 0;
                within.total += waiting;
                ret->burn_rates[i] = objective_get_burn_rate(within, target);
        }
        return true;
}

bool threshold_count_totals(const Threshold *a, const WindowReading *totals, const RowsReading *rows,
                            TotalObjective *ret) {
        ObjectiveCounts counts;
        double target;

        if (!threshold_is_objective(a, &target))
                return false;
        if (!*a->rule.selector)
                counts = count_all(totals, &a->rule);
        else if (!rows->measured || !count_endpoint(a->unit, rows, &a->rule, &counts))
                return false;

        *ret = (TotalObjective) {
                .threshold = a->rule.name,
                .target = target,
                .counts = threshold_subtract_before(a, counts),
        };
        return true;
}

void objective_begin(Threshold *a) {
        double target;

        if (!threshold_is_objective(a, &target) ||
            !read_counts(a->unit, &a->rule, WINDOW_TOTAL, NULL, &a->before))
                a->before = (ObjectiveCounts) {};
}

void objective_record(Threshold *a, uint64_t now) {
        ObjectiveCounts counts;

        if (a->history && objective_history_is_due(a->history, now) &&
            read_counts(a->unit, &a->rule, WINDOW_TOTAL, NULL, &counts))
                objective_history_add(a->history, now, counts);
}
