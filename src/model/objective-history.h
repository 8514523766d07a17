/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Past counts of an objective, for burn rates over longer periods than the kernel keeps. Pure: the clock is
 * an argument. */

#include "util.h"

typedef struct ObjectiveCounts {
        uint64_t good, total;
} ObjectiveCounts;

/* Periods of burn rates. Alerts combine a long period with a twelfth of it, which shows that the budget is
 * still being spent: 1 h with 5 min, and 6 h with 30 min. */
typedef enum BurnPeriod {
        BURN_60S,
        BURN_5MIN,
        BURN_30MIN,
        BURN_1H,
        BURN_6H,
        BURN_PERIODS,
} BurnPeriod;

typedef struct BurnPeriodInfo {
        const char *key;                /* in JSON and on D-Bus: "burnRate5min" */
        uint64_t nsec;
} BurnPeriodInfo;

extern const BurnPeriodInfo burn_period_table[BURN_PERIODS];

/* Counts at the beginning of steps of 10 s for 5 min, of 1 min for 1 h, and of 5 min for 6 h: all periods
 * but 60 s have steps of at most a thirtieth. */
#define OBJECTIVE_STEPS (31 + 61 + 73)

typedef struct ObjectiveHistory {
        bool begun;                     /* has a record */
        uint64_t step;                  /* newest step of the finest ring */
        ObjectiveCounts counts[OBJECTIVE_STEPS];
} ObjectiveHistory;

/* Whether a step has begun since the last call of objective_history_add(). now: CLOCK_MONOTONIC ns. */
bool objective_history_is_due(const ObjectiveHistory *h, uint64_t now);

/* Records the present counts, also for earlier steps without a record: before the first record nothing was
 * counted, nor while the system was suspended. */
void objective_history_add(ObjectiveHistory *h, uint64_t now, ObjectiveCounts counts);

/* Counts in a period, including the whole step in which it begins: difference between the present counts and
 * recorded ones. 0 before the first record. */
ObjectiveCounts objective_history_get(const ObjectiveHistory *h, uint64_t now, BurnPeriod period,
                                      ObjectiveCounts counts);

/* Share of requests that are not good, relative to the share that the objective allows: 1 uses up the error
 * budget exactly. target: share that has to be good. NaN: no requests. */
double objective_get_burn_rate(ObjectiveCounts counts, double target);
