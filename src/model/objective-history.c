/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "objective-history.h"

typedef struct Ring {
        uint64_t step_nsec;
        unsigned first, n;              /* elements of ObjectiveHistory.counts */
} Ring;

/* In ascending order of steps, all of which are multiples of the first one. */
static const Ring rings[] = {
        { 10 * NSEC_PER_SEC,  0,       31 },
        { 60 * NSEC_PER_SEC,  31,      61 },
        { 300 * NSEC_PER_SEC, 31 + 61, 73 },
};

const BurnPeriodInfo burn_period_table[BURN_PERIODS] = {
        [BURN_60S]   = { "burnRate60s",   60 * NSEC_PER_SEC       },
        [BURN_5MIN]  = { "burnRate5min",  300 * NSEC_PER_SEC      },
        [BURN_30MIN] = { "burnRate30min", 1800 * NSEC_PER_SEC     },
        [BURN_1H]    = { "burnRate1h",    3600 * NSEC_PER_SEC     },
        [BURN_6H]    = { "burnRate6h",    6 * 3600 * NSEC_PER_SEC },
};

bool objective_history_is_due(const ObjectiveHistory *h, uint64_t now) {
        return !h->begun || now / rings[0].step_nsec > h->step;
}

void objective_history_add(ObjectiveHistory *h, uint64_t now, ObjectiveCounts counts) {
        if (!h->begun)
                for (unsigned i = 0; i < OBJECTIVE_STEPS; i++)
                        h->counts[i] = counts;
        else
                for (size_t k = 0; k < ELEMENTSOF(rings); k++) {
                        const Ring *r = rings + k;
                        uint64_t previous = h->step * rings[0].step_nsec / r->step_nsec;
                        uint64_t last = now / r->step_nsec, replaced = last - MIN(last, r->n);

                        for (uint64_t i = MAX(previous, replaced) + 1; i <= last; i++)
                                h->counts[r->first + i % r->n] = counts;
                }
        h->begun = true;
        h->step = now / rings[0].step_nsec;
}

ObjectiveCounts objective_history_get(const ObjectiveHistory *h, uint64_t now, BurnPeriod period,
                                      ObjectiveCounts counts) {
        uint64_t nsec = burn_period_table[period].nsec;
        const Ring *r = rings;
        ObjectiveCounts before;

        while ((r->n - 1) * r->step_nsec < nsec)
                r++;
        /* If the newest step has not been recorded yet, its element still has the oldest one */
        before = h->counts[r->first + (MIN(now, h->step * rings[0].step_nsec) / r->step_nsec + r->n -
                                       nsec / r->step_nsec) % r->n];
        return (ObjectiveCounts) {
                .good = counts.good - MIN(counts.good, before.good),
                .total = counts.total - MIN(counts.total, before.total),
        };
}

double objective_get_burn_rate(ObjectiveCounts counts, double target) {
        uint64_t bad = counts.total - MIN(counts.good, counts.total);

        return counts.total == 0 ? NAN : (double) bad / (double) counts.total / (1 - target);
}
