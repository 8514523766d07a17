/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "gauges.h"
#include "manager.h"
#include "measured.h"
#include "objective.h"
#include "threshold-sample.h"
#include "unit-reading.h"

static bool threshold_is_objective(const Threshold *t, double *ret_target) {
        return t->source != THRESHOLD_SOURCE_CONDITION && threshold_rule_is_objective(&t->rule, ret_target);
}

/* missing: requests without a response, which no distribution includes. A late error counts as two bad
 * requests, as it is unknown which errors are late. */
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

        (void) metric_get_server_quantile(rule->metric, &d, &q); /* cannot fail for an objective */
        return counts_make(rule, window_count_within(reading, d, threshold_rule_get_good_limit(rule)),
                           window_get_count(reading, d),
                           cells[QOS_COUNTER_ERRORS_RESET] + cells[QOS_COUNTER_ERRORS_TIMEOUT],
                           cells[QOS_COUNTER_STATUS_5XX] + cells[QOS_COUNTER_ERRORS_GRPC] +
                           cells[QOS_COUNTER_ERRORS_REPLIES]);
}

/* Counts of one endpoint, which has no row before its first request. False: requests overlap. */
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

/* Requests without response, which no counter includes yet. */
typedef struct Pending {
        uint64_t n;                     /* requests older than the limit */
        uint64_t silence;               /* ns for which the oldest has exceeded the limit, if there were no
                                         * responses meanwhile */
        uint64_t covered;               /* ns of the totals */
} Pending;

/* Returns late, the time for which the oldest request has exceeded the limit, in ns; 0: there were responses
 * meanwhile. */
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

/* ret_pending: NULL: not needed. */
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
                return read_endpoint(u, rule, ret); /* pending requests are known for the whole unit only */
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

/* Bad requests of a period in addition to those counted. As waiting clients send no further requests, the
 * time without any response counts with the rate of requests of the rest of the period. */
static uint64_t pending_count(const Pending *pending, uint64_t total, uint64_t period) {
        period = MIN(period, pending->covered);
        if (pending->n == 0 || period <= pending->silence)
                return pending->n;
        return pending->n + (uint64_t) ((double) total * (double) pending->silence /
                                        (double) (period - pending->silence));
}

/* Counts may have decreased: a response in transmission has exceeded the limit, or totals have restarted. */
static ObjectiveCounts threshold_subtract_before(const Threshold *t, ObjectiveCounts counts) {
        counts.good -= MIN(counts.good, t->before.good);
        counts.total -= MIN(counts.total, t->before.total);
        counts.good = MIN(counts.good, counts.total);
        return counts;
}

bool threshold_get_error_budget(const Threshold *t, ErrorBudget *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        ObjectiveCounts counts, within;
        Pending pending;
        double target;

        if (!threshold_is_objective(t, &target) ||
            !read_counts(t->unit, &t->rule, WINDOW_TOTAL, &pending, &counts))
                return false;

        ret->counts = threshold_subtract_before(t, counts);
        for (BurnPeriod i = 0; i < BURN_PERIODS; i++) {
                bool known = true;

                /* Windows of the unit include counts from before a restart of qosd */
                if (*t->rule.selector || !window_is_valid(burn_period_table[i].nsec))
                        within = t->history && t->history->begun
                                ? objective_history_get(t->history, now, i, counts)
                                : ret->counts;
                else
                        known = read_counts(t->unit, &t->rule, burn_period_table[i].nsec, NULL, &within);
                if (!known)
                        within = (ObjectiveCounts) {};
                else
                        within.total += pending_count(&pending, within.total, burn_period_table[i].nsec);
                ret->burn_rates[i] = objective_get_burn_rate(within, target);
        }
        return true;
}

bool threshold_count_totals(const Threshold *t, const WindowReading *totals, const RowsReading *rows,
                            TotalObjective *ret) {
        ObjectiveCounts counts;
        double target;

        if (!threshold_is_objective(t, &target))
                return false;
        if (!*t->rule.selector)
                counts = count_all(totals, &t->rule);
        else if (!rows->measured || !count_endpoint(t->unit, rows, &t->rule, &counts))
                return false;

        *ret = (TotalObjective) {
                .threshold = t->rule.name,
                .target = target,
                .counts = threshold_subtract_before(t, counts),
        };
        return true;
}

void objective_begin(Threshold *t) {
        double target;

        if (!threshold_is_objective(t, &target) ||
            !read_counts(t->unit, &t->rule, WINDOW_TOTAL, NULL, &t->before))
                t->before = (ObjectiveCounts) {};
}

void objective_record(Threshold *t, uint64_t now) {
        ObjectiveCounts counts;

        if (t->history && objective_history_is_due(t->history, now) &&
            read_counts(t->unit, &t->rule, WINDOW_TOTAL, NULL, &counts))
                objective_history_add(t->history, now, counts);
}
