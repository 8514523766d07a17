/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The thresholds of a unit, which core/threshold evaluates. */

#include "objective-history.h"
#include "threshold.h"
#include "unit.h"

typedef enum ThresholdSource {
        THRESHOLD_SOURCE_ADMINISTRATOR,    /* "qosctl set-threshold": until cleared, or the unit is
                                            * detached */
        THRESHOLD_SOURCE_LEASE,            /* until its connection or bus name ends */
        THRESHOLD_SOURCE_FILE,             /* in a unit file */
        THRESHOLD_SOURCE_CONDITION,        /* unnamed, for a waiting client */
        _THRESHOLD_SOURCE_MAX,
} ThresholdSource;

const char* threshold_source_to_string(ThresholdSource s);      /* "administrator", "lease", "unitFile" */

typedef struct Threshold Threshold;

/* Called once: the condition holds, or (e) the unit is no longer observed. The threshold is freed
 * afterwards. */
typedef void (*threshold_handler_t)(const Threshold *t, const QosError *e, void *userdata);

struct Threshold {
        Threshold *next;
        uint64_t period;                /* copy of threshold_rule_get_period() */
        uint64_t next_evaluation;       /* CLOCK_MONOTONIC ns of the next evaluation; 0: immediately */
        Unit *unit;
        ThresholdMachine machine;
        ThresholdState reported;        /* last reported state */
        ThresholdSource source;
        double value;                   /* of the last evaluation; NaN: none */
        uint64_t samples;               /* ABSENT: unknown */
        ThresholdRule rule;

        uid_t uid, owner_uid;
        void *lease_key;                /* as in struct Hold */
        char *origin;                   /* file and line; NULL: not from a file */
        bool seen;                      /* found by the latest scan of unit files (xqos-loader.c) */
        bool unsaved;                   /* saving has failed, and was logged */

        uint64_t since;                 /* of the state, CLOCK_REALTIME ns */

        ObjectiveCounts before;         /* counts from before the threshold was set */
        ObjectiveHistory *history;      /* NULL: not an objective */

        threshold_handler_t handler;    /* of a condition */
        void *userdata;
};

void threshold_free(Threshold *t);

/* Iterates over named thresholds; NULL: first. */
Threshold* threshold_next(const Unit *u, const Threshold *t);
