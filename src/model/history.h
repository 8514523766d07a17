/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a unit did over time: steps of 10 s for the last hour, and of 5 min, made of these, for the last day.
 * Pure: no I/O, no clock. A step in which nobody looked is not there. */

#include "metric.h"
#include "util.h"
#include "window.h"

typedef enum HistoryLevel {
        HISTORY_FINE,
        HISTORY_COARSE,
        _HISTORY_LEVEL_MAX,
} HistoryLevel;

#define HISTORY_FINE_NSEC WINDOW_STEP_NSEC
#define HISTORY_COARSE_NSEC (30 * HISTORY_FINE_NSEC)
#define HISTORY_FINE_STEPS 360U
#define HISTORY_COARSE_STEPS 288U

/* What the history of one unit may take in memory, and in the file that a restart of qosd reads: the budget
 * of the design. What does not fit loses precision first (history_put()). */
#define HISTORY_SIZE_MAX (64U * 1024U)

/* Metrics with a value of their own in each step; more would be a bug that test-history finds: it is a
 * matter of dbus/. */
#define HISTORY_VALUES_MAX 64U

#define HISTORY_DISTRIBUTIONS 2U

/* What means, rates and shares of a step are made of, besides metrics: amounts, which add up over steps.
 * What comes after one that is COVERED is of as many ns as that says, and not known where that is 0. They
 * are rounded to 8 significant bits, half a percent: that is two bytes each, and who compares a unit with
 * what it did before looks for differences of tenths. */
typedef enum HistoryAmount {
        HISTORY_PHASED,                 /* requests whose phases are known … */
        HISTORY_RECEIVE,                /* … and ns of all of them */
        HISTORY_QUEUE,
        HISTORY_SERVICE,
        HISTORY_ANSWER,
        HISTORY_ASKED_COVERED,          /* the last ten seconds when somebody looked: of peers nothing else
                                         * is known in the past */
        HISTORY_ASKED,
        HISTORY_ASKED_TIME,
        HISTORY_QUOTA_COVERED,          /* the last minute then */
        HISTORY_QUOTA_PERIODS,
        HISTORY_QUOTA_THROTTLED,
        HISTORY_CPU_COVERED,
        HISTORY_FIRST_STATE,            /* ns of threads: that of QOS_STATE_RUNNING, then the others */
        /* how often a thread was ready, and came to run */
        HISTORY_RUN_QUEUES = HISTORY_FIRST_STATE + QOS_STATES - QOS_STATE_RUNNING,
        HISTORY_RUN_QUEUE_TIME,
        HISTORY_BLOCK_COVERED,
        HISTORY_BLOCK_OPERATIONS,       /* by enum qos_block_counter */
        HISTORY_BLOCK_BYTES = HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_COUNTERS,
        /* ns of reads in the queue and in the device, and of writes */
        HISTORY_BLOCK_TIMES = HISTORY_BLOCK_BYTES + QOS_BLOCK_COUNTERS,
        HISTORY_MEMORY_COVERED = HISTORY_BLOCK_TIMES + 4,
        HISTORY_MAJOR_FAULTS,
        HISTORY_MAJOR_FAULT_TIME,
        HISTORY_RECLAIM_TIME,
        HISTORY_DIRTY_THROTTLE_TIME,
        HISTORY_OOM_KILLS,
        _HISTORY_AMOUNT_MAX,
} HistoryAmount;

typedef struct HistoryStep {
        uint64_t index;                 /* CLOCK_MONOTONIC at its begin, in lengths of a step */
        uint64_t timestamp;             /* CLOCK_REALTIME at its begin, ns, kept as whole milliseconds */
        uint64_t covered;               /* ns of it in which the unit was observed */
        uint64_t overlaps;              /* questions that came while one was open */
        uint64_t values[HISTORY_VALUES_MAX]; /* counters in the step, gauges at its end; ABSENT */
        bool measured[HISTORY_DISTRIBUTIONS];
        WindowBins distributions[HISTORY_DISTRIBUTIONS]; /* on one grid all of them */
        uint64_t amounts[_HISTORY_AMOUNT_MAX];
        bool violated;                  /* a threshold was, at some time in it */
        bool missed;                    /* the kernel has skipped runs of programs */
} HistoryStep;

typedef struct History History;

int history_new(History **ret);
History* history_free(History *h);
static inline void history_freep(History **h) {
        (void) history_free(*h);
}
#define _cleanup_history_ _cleanup_(history_freep)

uint64_t history_level_nsec(HistoryLevel level);

/* Of the catalogue: whether the history has it, or can make it from what it has. */
bool history_has_metric(const Metric *metric);
/* "requests.server.latency" and the like: which of the distributions, or negative. */
int history_find_distribution(const char *name);
const char* history_distribution_name(unsigned i);
enum qos_distribution history_distribution(unsigned i);

/* Takes the counters and gauges out of a reading; all the rest of the step is the caller's. */
void history_step_set_metrics(HistoryStep *s, const Metrics *metrics);
/* All that the step tells, by the rules that hold for readings; what it does not know is absent. */
void history_step_get_metrics(const HistoryStep *s, unsigned minimum_samples, Metrics *ret);
/* Whether the distribution means anything, which it does not where questions overlap. */
bool history_step_has_distribution(const HistoryStep *s, unsigned i);

/* Adds a step of 10 s, or replaces it: its figures may still have changed. What does not fit makes the
 * largest steps coarser (their distributions are merged into bins of twice the width, down to schema 1);
 * when that is not enough they lose their amounts (those of 10 s that are in one of 5 min, then these, then
 * the rest, each from the oldest), then the largest get coarser still, down to schema -2, and at last the
 * oldest ones go. */
int history_put(History *h, const HistoryStep *step);
/* The newest step of 10 s that has passed: older ones become steps of 5 min when they are final, and go
 * after their time. */
int history_roll(History *h, uint64_t newest);

/* Calls for each step, from old to new; those of 5 min include the present one as far as it is known. Stops
 * at the first negative return. */
int history_foreach(const History *h, HistoryLevel level, int (*each)(const HistoryStep *s, void *userdata),
                    void *userdata);

/* What a file has of the history, of the unit with that generation. Of a file that makes no sense
 * -EBADMSG. */
int history_serialize(const History *h, uint32_t generation, void **ret, size_t *ret_size);
int history_deserialize(const void *data, size_t size, uint32_t generation, History **ret);
