/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What thresholds look at: one reading of a unit and a window for all of them, and of it only what their
 * metrics need. Ten times a second for each unit, a snapshot costs too much. */

#include "threshold.h"
#include "unit-peers.h"

typedef struct ThresholdSample {
        uint64_t window;
        /* Put together by threshold_sample_require() */
        unsigned distributions;         /* of the unit as a server, by bits */
        bool needs_requests, needs_gauges, needs_listeners, needs_rows, needs_contention, needs_cells;

        /* What is there after threshold_sample_read(): what is needed */
        uint64_t now;                   /* CLOCK_MONOTONIC ns */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        bool measured;                  /* false: nothing is known of requests */
        Metrics metrics;
        WindowReading reading;
        RowsReading rows;
} ThresholdSample;

/* Nothing is needed yet. */
void threshold_sample_init(ThresholdSample *l, uint64_t window);
/* A share of the unit's thread time that is not what it mostly is. */
typedef struct ShareChange {
        enum qos_state state;
        double share, usual;
} ShareChange;

/* As many as say something at a glance, and less than this is chance. */
#define SHARE_CHANGES_MAX 3U
#define SHARE_CHANGE_MIN 0.01

/* Those that have changed most, over the window against the last 5 min, or against all since the attach if
 * the window is as long. None while that is nothing else, or the unit is not observed with "cpu". Returns
 * how many. */
size_t unit_get_state_share_changes(Unit *u, uint64_t now, uint64_t window,
                                    ShareChange ret[static SHARE_CHANGES_MAX]);

/* The rule will be looked at, over the same window. */
void threshold_sample_require(ThresholdSample *l, const ThresholdRule *rule);
/* Takes the reading. now: CLOCK_MONOTONIC ns; where nothing is known of that moment any more, it is of a
 * later one. Gauges may be as old as those of any other reading. */
void threshold_sample_read(Unit *u, uint64_t now, ThresholdSample *l);

/* What the metric of the rule is: requests of which no answer has begun to leave for longer than the limit
 * count as beyond it, in quantiles of the latency and of the time to first byte of the whole unit. NaN: not
 * known, also of what is counted while the unit is not attached for as long as the window. ret_samples: what
 * it was taken from; ABSENT: not known. */
double unit_get_threshold_value(Unit *u, const ThresholdSample *l, const ThresholdRule *rule,
                                uint64_t *ret_samples);
