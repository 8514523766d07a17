/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Thresholds of units: sources, periodic evaluation and events. Rules and the state machine are in
 * threshold.h. */

#include <systemd/sd-json.h>

#include "manager.h"
#include "threshold-limits.h"
#include "threshold-list.h"
#include "threshold-sample.h"

/* State change of a threshold. */
typedef struct ThresholdEvent {
        uint64_t seq;                   /* number among all events, continued over restarts of qosd */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        char *unit;
        ThresholdRule rule;
        ThresholdState state, previous;
        double value;                   /* NaN: none */
        uint64_t samples;               /* ABSENT: unknown */
        uint64_t suppressed;              /* preceding events of the same user's thresholds that were
                                           * suppressed */
        ShareChange shares[SHARE_CHANGES_MAX]; /* thread states whose share differs from the usual one */
        size_t n_shares;
} ThresholdEvent;

/* Returns the name of the state, such as "runQueue". */
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

/* Removes thresholds that are no longer in the unit's files. */
void threshold_monitor_forget_files(Unit *u);

/* To be called when the connection or bus name has ended. */
void threshold_monitor_release(Manager *m, const void *lease_key);
bool threshold_monitor_have_lease(const Manager *m, const void *lease_key);

/* To be called before the unit is freed. */
void threshold_monitor_unit_detached(Unit *u);

/* Number of the newest event, and the last one before the first event known.
 * threshold_monitor_foreach_event() reports events after a number, and how many of these are no longer
 * known. */
uint64_t threshold_monitor_get_seq(const Manager *m);
uint64_t threshold_monitor_get_seq_begin(const Manager *m);
uint64_t threshold_monitor_count_missed(const Manager *m, uint64_t since);
int threshold_monitor_foreach_event(Manager *m, uint64_t since,
                                    int (*f)(const ThresholdEvent *e, void *userdata), void *userdata);

/* Serialization for the state file. totals: the unit's totals continue, and with them the counts of
 * objectives. */
int thresholds_list_to_json(const Unit *u, sd_json_variant **ret);
void threshold_monitor_from_json(Unit *u, sd_json_variant *v, bool totals);
void threshold_monitor_set_seq(Manager *m, uint64_t seq, uint64_t begin);
/* To be called when all units have been restored: removes outdated flag files. */
void threshold_monitor_restored(Manager *m);
