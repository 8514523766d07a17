/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sample for thresholds: one reading of a unit per window, restricted to the data required by their metrics.
 * Ten times a second per unit, full snapshots would be too expensive. */

#include "threshold.h"
#include "unit-peers.h"

typedef struct ThresholdSample {
        uint64_t window;
        /* Set by threshold_sample_require() */
        unsigned distributions;         /* of the server role, bitmask */
        bool needs_requests, needs_gauges, needs_listeners, needs_rows, needs_contention, needs_cells,
             needs_storage, needs_network;

        /* Set by threshold_sample_read(), as required */
        uint64_t now;                   /* CLOCK_MONOTONIC ns */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        bool measured;                  /* false: requests are not measured */
        Metrics metrics;
        WindowReading reading;
        RowsReading rows;
        Mount mounts[QOS_STORAGE_ROWS];
        size_t n_mounts;
} ThresholdSample;

/* Initializes a sample without requirements. */
void threshold_sample_init(ThresholdSample *sample, uint64_t window);
/* A share of the unit's thread time that differs from the usual one. */
typedef struct ShareChange {
        enum qos_state state;
        double share, usual;
} ShareChange;

/* Number reported, and minimum change to be significant. */
#define SHARE_CHANGES_MAX 3U
#define SHARE_CHANGE_MIN 0.01

/* Largest changes of the window relative to the last 5 min, or to the total if the window is that long.
 * Returns their number; 0 also if both cover the same time, or without "cpu". */
size_t unit_get_state_share_changes(Unit *u, uint64_t now, uint64_t window,
                                    ShareChange ret[static SHARE_CHANGES_MAX]);

/* Adds the requirements of a rule with the same window. */
void threshold_sample_require(ThresholdSample *sample, const ThresholdRule *rule);
/* Reads the sample. now: CLOCK_MONOTONIC ns; a later moment is used if data for it has been overwritten.
 * Gauges may be as old as in snapshots. */
void threshold_sample_read(Unit *u, uint64_t now, ThresholdSample *sample);

/* Whether the metric is a quantile of latency or firstByte of all requests. If so, fills in both. */
bool metric_get_server_quantile(const Metric *metric, enum qos_distribution *ret_distribution,
                                double *ret_q);

/* Whether the metric of the rule has no value because requests overlap. */
bool threshold_sample_is_hidden(const Unit *u, const ThresholdSample *sample, const ThresholdRule *rule);

/* Number of requests without response that are older than the limit in ns; a lower bound. */
uint64_t sources_count_pending(const WindowSources *w, const Manager *m, double limit,
                               uint64_t *ret_oldest_at);

/* Value of the rule's metric. In quantiles of latency and time to first byte of the whole unit, pending
 * requests older than the limit count as exceeding it. NaN: unknown, or a counter with a window longer than
 * the unit has been attached. ret_samples: number of samples; ABSENT: unknown. */
double unit_get_threshold_value(Unit *u, const ThresholdSample *sample, const ThresholdRule *rule,
                                uint64_t *ret_samples);
