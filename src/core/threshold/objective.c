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

/* What has no response, in no counter yet. */
typedef struct Pending {
        uint64_t n;                     /* requests that have waited for longer than the limit */
        uint64_t silence;               /* ns for which these should have had one, and nothing has got any */
        uint64_t covered;               /* ns of the totals */
} Pending;

/* The time for which the oldest of these has exceeded the limit, if there was no response in that. */
static uint64_t read_silence(const WindowSources *sources, uint64_t now, uint64_t late) {
        WindowReading reading;
        uint64_t window;

        window = late >= 300 * NSEC_PER_SEC ? 300 * NSEC_PER_SEC :
                late >= 60 * NSEC_PER_SEC ? 60 * NSEC_PER_SEC :
                late >= 10 * NSEC_PER_SEC ? 10 * NSEC_PER_SEC :
                late >= NSEC_PER_SEC ? late / NSEC_PER_SEC * NSEC_PER_SEC :
                late / (100 * NSEC_PER_MSEC) * (100 * NSEC_PER_MSEC);
        if (window == 0 ||
            window_read_some(sources, now, window, /* distributions= */ 0, &reading) < 0)
                return 0;
        return reading.cells[QOS_COUNTER_COUNT] > 0 || reading.cells[QOS_COUNTER_ERRORS_RESET] > 0 ||
                reading.cells[QOS_COUNTER_ERRORS_TIMEOUT] > 0 ? 0 : late;
}

/* ret_pending: NULL: not needed, as in the total, which does not fall when these get their response. */
static bool read_counts(Unit *u, const ThresholdRule *rule, uint64_t window, Pending *ret_pending,
                        ObjectiveCounts *ret) {
        double limit = threshold_rule_get_good_limit(rule);
        uint64_t now = now_nsec(CLOCK_MONOTONIC), oldest_at;
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowReading reading;
        WindowSources sources;

        if (ret_pending)
                *ret_pending = (Pending) {};
        if (!u->view || !is_measured(manager_get_measured(u->manager), MEASURED_ARRIVALS))
                return false;
        if (*rule->selector)
                return read_endpoint(u, rule, ret); /* what is pending is known of the whole unit alone */
        if (ret_pending)
                gauges_refresh(u->manager, now, /* missing= */ false);
        unit_get_sources(u, buffer, &sources);
        if (window_read(&sources, now_nsec(CLOCK_MONOTONIC), window, &reading) < 0 ||
            window_reading_is_overlapping(&reading))
                return false;
        *ret = count_all(&reading, rule);
        if (!ret_pending)
                return true;
        ret_pending->covered = reading.covered;
        ret_pending->n = sources_count_pending(&sources, u->manager, limit, &oldest_at);
        if (ret_pending->n > 0 && now > oldest_at + (uint64_t) limit)
                ret_pending->silence = read_silence(&sources, now, now - oldest_at - (uint64_t) limit);
        return true;
}

/* Requests of a period that are not good, besides those that were counted. Clients that wait send no others:
 * while nothing gets a response, as many count as in the rest of the period. */
static uint64_t pending_count(const Pending *pending, uint64_t total, uint64_t period) {
        period = MIN(period, pending->covered);
        if (pending->n == 0 || period <= pending->silence)
                return pending->n;
        return pending->n + (uint64_t) ((double) total * (double) pending->silence /
                                        (double) (period - pending->silence));
}

/* Counts may decrease when a response in transmission exceeds the limit, and when totals restart. */
static ObjectiveCounts threshold_subtract_before(const Threshold *a, ObjectiveCounts counts) {
        counts.good -= MIN(counts.good, a->before.good);
        counts.total -= MIN(counts.total, a->before.total);
        counts.good = MIN(counts.good, counts.total);
        return counts;
}

bool threshold_get_error_budget(const Threshold *a, ErrorBudget *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        ObjectiveCounts counts, within;
        Pending pending;
        double target;

        if (!threshold_is_objective(a, &target) ||
            !read_counts(a->unit, &a->rule, WINDOW_TOTAL, &pending, &counts))
                return false;

        ret->counts = threshold_subtract_before(a, counts);
        for (BurnPeriod i = 0; i < BURN_PERIODS; i++) {
                bool known = true;

                /* Windows of the unit include counts from before a restart of qosd */
                if (*a->rule.selector || !window_is_valid(burn_period_table[i].nsec))
                        within = a->history && a->history->begun
                                ? objective_history_get(a->history, now, i, counts)
                                : ret->counts;
                else
                        known = read_counts(a->unit, &a->rule, burn_period_table[i].nsec, NULL, &within);
                if (!known)
                        within = (ObjectiveCounts) {};
                else
                        within.total += pending_count(&pending, within.total, burn_period_table[i].nsec);
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
