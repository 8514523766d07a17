/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Totals of a unit since the attach, for exports. */

#include <systemd/sd-json.h>

#include "contention-map.h"
#include "objective-history.h"
#include "snapshot.h"

/* A distribution since the attach. */
typedef struct TotalDistribution {
        const char *metric;
        int schema;                     /* as in Histogram */
        const uint64_t *bins;           /* all, see window_bins_get_index() */
        unsigned n_bins;
        uint64_t sum;
} TotalDistribution;

/* An objective: a threshold on a quantile of all requests. */
typedef struct TotalObjective {
        const char *threshold;          /* name; owned by the threshold */
        double target;                  /* the quantile: share of requests that has to be within the limit */
        ObjectiveCounts counts;         /* since the threshold was set */
} TotalObjective;

/* Totals of one reading: counters and gauges in the totals of the snapshot, measured distributions, and
 * objectives. */
typedef struct UnitTotals {
        Snapshot snapshot;
        TotalDistribution distributions[QOS_DISTRIBUTIONS + QOS_CONTENTION_DISTRIBUTIONS +
                                        QOS_STORAGE_TIMED + QOS_NETWORK_DISTRIBUTIONS + 1];
        size_t n_distributions;
        TotalObjective *objectives;     /* thresholds that are objectives, see ErrorBudget */
        size_t n_objectives;
        uint64_t cost_requests, cost_contention, cost_storage, cost_network; /* run time of qosd's programs
                                         * for the unit, ns; ABSENT */
        sd_json_variant
                *custom; /* entries of metrics of custom probes (ExportedCustom); owned; NULL: none */
        bool tables;                    /* the snapshot includes endpoints and devices, with counters and
                                         * requests in flight, see endpoint-totals.h */
} UnitTotals;
