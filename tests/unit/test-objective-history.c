/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "check.h"
#include "objective-history.h"

#define SEC NSEC_PER_SEC

/* All counts of each second. */
typedef struct Truth {
        ObjectiveCounts *at;            /* by second */
        uint64_t begin, end;            /* seconds */
} Truth;

static ObjectiveCounts truth_get(const Truth *t, uint64_t second) {
        return t->at[second <= t->begin ? 0 : MIN(second, t->end) - t->begin];
}

static bool is_between(uint64_t low, uint64_t n, uint64_t high) {
        return low <= n && n <= high;
}

/* A day of one call per second, with phases in which all requests fail. */
static void test_day(uint64_t begin) {
        static const uint64_t steps[BURN_PERIODS] = { 10, 10, 60, 60, 300 };
        uint64_t seconds = 24 * 3600;
        ObjectiveHistory h = {};
        Truth t = { calloc(seconds + 1, sizeof(ObjectiveCounts)), begin, begin };
        ObjectiveCounts now = { 1000, 2000 };

        check(t.at);
        t.at[0] = now;
        for (uint64_t s = begin; s < begin + seconds; s++) {
                t.end = s;
                t.at[s - begin] = now;
                if (objective_history_is_due(&h, s * SEC))
                        objective_history_add(&h, s * SEC, now);
                for (BurnPeriod p = 0; p < BURN_PERIODS; p++) {
                        uint64_t period = burn_period_table[p].nsec / SEC;
                        ObjectiveCounts found = objective_history_get(&h, s * SEC, p, now);
                        ObjectiveCounts of_period = truth_get(&t, s - MIN(s, period));
                        ObjectiveCounts of_step = truth_get(&t, s - MIN(s, period + steps[p]));

                        check(is_between(now.total - of_period.total, found.total,
                                         now.total - of_step.total));
                        check(is_between(now.good - of_period.good, found.good,
                                         now.good - of_step.good));
                }
                now.total += 3 + s % 5;
                now.good += s / 1000 % 3 == 0 ? 0 : 3 + s % 5;
        }
        free(t.at);
}

/* Nothing is known of a time without records: it has what was counted at its end. */
static void test_gap(void) {
        ObjectiveHistory h = {};
        ObjectiveCounts n;

        objective_history_add(&h, 100000 * SEC, (ObjectiveCounts) { 10, 10 });
        objective_history_add(&h, 100010 * SEC, (ObjectiveCounts) { 20, 30 });
        /* Longer than all periods */
        objective_history_add(&h, 200000 * SEC, (ObjectiveCounts) { 50, 60 });
        for (BurnPeriod p = 0; p < BURN_PERIODS; p++) {
                n = objective_history_get(&h, 200005 * SEC, p, (ObjectiveCounts) { 51, 65 });
                check(n.good == 1 && n.total == 5);
        }
        /* Half an hour, which is part of the long periods alone */
        objective_history_add(&h, 202000 * SEC, (ObjectiveCounts) { 60, 80 });
        n = objective_history_get(&h, 202000 * SEC, BURN_5MIN, (ObjectiveCounts) { 60, 80 });
        check(n.good == 0 && n.total == 0);
        n = objective_history_get(&h, 202000 * SEC, BURN_1H, (ObjectiveCounts) { 60, 80 });
        check(n.good == 10 && n.total == 20);
}

/* Records that are late, or lower than before. */
static void test_clock(void) {
        ObjectiveHistory h = {};
        ObjectiveCounts n;

        check(objective_history_is_due(&h, 0));
        objective_history_add(&h, SEC, (ObjectiveCounts) { 5, 5 });
        check(!objective_history_is_due(&h, 9 * SEC));
        for (uint64_t s = 20; s <= 400; s += 10)
                objective_history_add(&h, s * SEC, (ObjectiveCounts) { s, s });
        check(!objective_history_is_due(&h, 409 * SEC) && objective_history_is_due(&h, 410 * SEC));
        /* The step at 410 s is not recorded yet: the oldest one is that of 100 s */
        n = objective_history_get(&h, 411 * SEC, BURN_5MIN, (ObjectiveCounts) { 411, 411 });
        check(n.total == 311);
        n = objective_history_get(&h, 411 * SEC, BURN_5MIN, (ObjectiveCounts) { 3, 4 });
        check(n.good == 0 && n.total == 0);
}

static void test_burn_rate(void) {
        check(isnan(objective_get_burn_rate((ObjectiveCounts) { 0, 0 }, .99)));
        check(fabs(objective_get_burn_rate((ObjectiveCounts) { 99, 100 }, .99) - 1) < 1e-9);
        check(fabs(objective_get_burn_rate((ObjectiveCounts) { 0, 5 }, .9) - 10) < 1e-9);
        check(fabs(objective_get_burn_rate((ObjectiveCounts) { 6, 5 }, .9)) < 1e-9);
}

int main(void) {
        test_day(12345);
        test_day(3);
        test_gap();
        test_clock();
        test_burn_rate();
        return EXIT_SUCCESS;
}
