/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Thresholds of units: sources, periodic evaluation and events. Rules and the state machine are in
 * threshold.h. */

#include <systemd/sd-json.h>

#include "manager.h"
#include "objective-history.h"
#include "threshold-sample.h"
#include "threshold.h"

/* Per unit. An evaluation is a comparison, and per distinct window one reading per second, or ten. */
#define THRESHOLDS_PER_UNIT_MAX 32U

/* All units: eight for each. */
#define THRESHOLDS_MAX 2048U

/* Per user other than root, including pending conditions. */
#define THRESHOLDS_PER_UID_MAX 128U

/* Events per user other than root and period: all thresholds may change once. Further changes are
 * suppressed, and the resulting state is reported later. */
#define CROSSINGS_PER_UID_MAX THRESHOLDS_PER_UID_MAX
#define CROSSINGS_NSEC (10 * NSEC_PER_SEC)

/* Events kept for clients that reconnect, half a KiB each. */
#define THRESHOLD_EVENTS_MAX 1024U

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

/* The condition holds, or (e) the unit is no longer observed. The threshold has been freed. */
typedef void (*threshold_handler_t)(const Threshold *a, const QosError *e, void *userdata);

struct Threshold {
        /* copied from the rule */
        Threshold *next;
        uint64_t period;                /* threshold_rule_get_period() */
        uint64_t next_evaluation;                /* CLOCK_MONOTONIC ns of the next evaluation; 0:
                                                  * immediately */
        Unit *unit;
        ThresholdMachine machine;
        ThresholdState reported;        /* the last one that was */
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

        ObjectiveCounts before;         /* counted before it was set */
        ObjectiveHistory *history;      /* NULL: not an objective */

        threshold_handler_t handler;        /* of a condition */
        void *userdata;
};

/* State change of a threshold. */
typedef struct ThresholdEvent {
        uint64_t seq;                   /* number over all events of qosd, also across restarts */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        char *unit;
        ThresholdRule rule;
        ThresholdState state, previous;
        double value;                   /* NaN: none */
        uint64_t samples;               /* ABSENT: unknown */
        uint64_t suppressed;              /* preceding events of the same user's thresholds that were
                                           * suppressed */
        ShareChange shares[SHARE_CHANGES_MAX]; /* states of threads with a share that differs from the usual
                                                * one */
        size_t n_shares;
} ThresholdEvent;

/* "runQueue" */
const char* state_share_name(const ShareChange *c);

typedef struct ThresholdRequest {
        const char *unit;               /* as passed by the client */
        const char *threshold;
        ThresholdSource source;
        uid_t uid, owner_uid;           /* as in struct Hold; an owner may change own thresholds only */
        void *lease_key;
        const char *origin;
        threshold_handler_t handler;
        void *userdata;
} ThresholdRequest;

int threshold_monitor_new(Manager *m, ThresholdMonitor **ret);
ThresholdMonitor* threshold_monitor_free(ThresholdMonitor *thresholds);

/* Sets a threshold, replacing the one with the same name and source; or waits for a condition. */
int threshold_set(Manager *m, const ThresholdRequest *request, Threshold **ret, QosError *e);
int threshold_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid,
                    QosError *e);
void threshold_free(Threshold *a);

/* Removes thresholds of the unit that its files no longer have. */
void threshold_monitor_forget_files(Unit *u);

/* The connection or bus name has ended. */
void threshold_monitor_release(Manager *m, const void *lease_key);
bool threshold_monitor_have_lease(const Manager *m, const void *lease_key);

/* The unit is about to be freed. */
void threshold_monitor_unit_detached(Unit *u);

/* Iterates over named thresholds; NULL: first. */
Threshold* threshold_next(const Unit *u, const Threshold *a);

/* Number of the newest event, and the last one before the first event known.
 * threshold_monitor_foreach_event() reports events after a number, and how many of these are no longer
 * known. */
uint64_t threshold_monitor_get_seq(const Manager *m);
uint64_t threshold_monitor_get_seq_begin(const Manager *m);
uint64_t threshold_monitor_count_missed(const Manager *m, uint64_t since);
int threshold_monitor_foreach_event(Manager *m, uint64_t since,
                                    int (*f)(const ThresholdEvent *e, void *userdata), void *userdata);

/* Serialization for the state file. totals: those of the unit go on, and so do those of thresholds. */
int thresholds_list_to_json(const Unit *u, sd_json_variant **ret);
void threshold_monitor_from_json(Unit *u, sd_json_variant *v, bool totals);
void threshold_monitor_set_seq(Manager *m, uint64_t seq, uint64_t begin);
/* All units are restored: removes outdated flag files. */
void threshold_monitor_restored(Manager *m);
