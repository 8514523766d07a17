/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The thresholds of units in the daemon: who has set them, when their metrics are looked at, and who is
 * told. What a rule means, and when its state changes, is threshold.h's. */

#include <systemd/sd-json.h>

#include "manager.h"
#include "threshold-sample.h"
#include "threshold.h"

/* A person looks at a few of these, a program that makes them in a loop is stopped before it costs: each is
 * a comparison, and each window of a unit one reading a second, or ten. */
#define THRESHOLDS_PER_UNIT_MAX 32U

/* All units together: eight for each that there may be. */
#define THRESHOLDS_MAX 2048U

/* Of one user, root apart, conditions that are waited for included. */
#define THRESHOLDS_PER_UID_MAX 128U

/* Changes of states of one user's thresholds that are told in so long a time, root apart: all of them may
 * change at once. A state that goes on changing is told when there is room again, as it is then. */
#define CROSSINGS_PER_UID_MAX THRESHOLDS_PER_UID_MAX
#define CROSSINGS_NSEC (10 * NSEC_PER_SEC)

/* Events that are kept for those who come back for them: half a kilobyte each. More than this was not an
 * outage of a subscriber, but of all units. */
#define THRESHOLD_EVENTS_MAX 1024U

typedef enum ThresholdSource {
        THRESHOLD_SOURCE_ADMINISTRATOR,    /* "qosctl set-threshold": until it is cleared, or the unit is no
                                            * longer observed */
        THRESHOLD_SOURCE_LEASE,            /* as long as the connection or the bus name of who asked */
        THRESHOLD_SOURCE_FILE,             /* in a unit file */
        THRESHOLD_SOURCE_CONDITION,        /* has no name, and is nobody's but who waits for it */
        _THRESHOLD_SOURCE_MAX,
} ThresholdSource;

const char* threshold_source_to_string(ThresholdSource s);      /* "administrator", "lease", "unitFile" */

typedef struct Threshold Threshold;

/* The condition holds, or (e) the unit is no longer observed. The alarm is gone afterwards. */
typedef void (*threshold_handler_t)(const Threshold *a, const QosError *e, void *userdata);

struct Threshold {
        /* As in the rule */
        Threshold *next;
        uint64_t period;                /* threshold_rule_get_period() */
        uint64_t next_evaluation;                /* for the next look, CLOCK_MONOTONIC ns; 0: at once */
        Unit *unit;
        ThresholdMachine machine;
        ThresholdState told;            /* the state that everybody was told */
        ThresholdSource source;
        double value;                   /* at the last look; NaN: none */
        uint64_t samples;               /* ABSENT: not known */
        ThresholdRule rule;

        uid_t uid, owner_uid;
        void *lease_key;                /* as in struct Hold */
        char *origin;                   /* file and line; NULL: not from a file */
        bool seen;                      /* by the newest look at unit files (xqos-loader.c) */
        bool unsaved;                   /* the last attempt to keep it failed, which was said */

        uint64_t since;                 /* of the state, CLOCK_REALTIME ns */

        uint64_t good_before, total_before; /* what threshold_count() does not count */

        threshold_handler_t handler;        /* of a condition */
        void *userdata;
};

/* What an objective asks for, "p99 within 20ms", of a hundred requests ninety-nine, and what there was of
 * it. */
typedef struct ErrorBudget {
        uint64_t good, total;           /* requests since it was set, within the limit, and all */
        double burn_rate_short, burn_rate_long;   /* how much of what may be beyond the limit was, over these
                                                   * windows: 1 is all of it; NaN: no requests */
} ErrorBudget;

#define BURN_RATE_SHORT_NSEC (60 * NSEC_PER_SEC)
#define BURN_RATE_LONG_NSEC (300 * NSEC_PER_SEC)

/* False: it is no objective about requests. Takes three readings. */
bool threshold_get_error_budget(const Threshold *a, ErrorBudget *ret);

/* A change of a state. */
typedef struct ThresholdEvent {
        uint64_t seq;                   /* counts all events of qosd, also over a restart */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        char *unit;
        ThresholdRule rule;
        ThresholdState state, previous;
        double value;                   /* NaN: none */
        uint64_t samples;               /* ABSENT: not known */
        uint64_t suppressed;              /* changes of the same user's thresholds before this one that were
                                           * not told */
        ShareChange shares[SHARE_CHANGES_MAX]; /* where the time of the unit's threads goes now, and does not
                                                * mostly */
        size_t n_shares;
} ThresholdEvent;

/* "runQueue" */
const char* state_share_name(const ShareChange *c);

typedef struct ThresholdRequest {
        const char *unit;               /* as the client wrote it */
        const char *threshold;
        ThresholdSource source;
        uid_t uid, owner_uid;           /* as in struct Hold: the latter may change what is his own alone */
        void *lease_key;
        const char *origin;
        threshold_handler_t handler;
        void *userdata;
} ThresholdRequest;

int threshold_monitor_new(Manager *m, ThresholdMonitor **ret);
ThresholdMonitor* threshold_monitor_free(ThresholdMonitor *thresholds);

/* Sets a threshold, instead of the one of this name that the same source has set; or waits for a
 * condition. */
int threshold_set(Manager *m, const ThresholdRequest *request, Threshold **ret, QosError *e);
int threshold_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid,
                    QosError *e);
void threshold_free(Threshold *a);

/* Takes back those of the unit that its files no longer have. */
void threshold_monitor_forget_files(Unit *u);

/* The connection or bus name has ended. */
void threshold_monitor_release(Manager *m, const void *lease_key);
bool threshold_monitor_have_lease(const Manager *m, const void *lease_key);

/* The unit is about to go. */
void threshold_monitor_unit_detached(Unit *u);

/* What a client is shown: the next one of those that have a name; NULL: begin. */
Threshold* threshold_next(const Unit *u, const Threshold *a);

/* The number of the newest event, and the one that came before the first: those before it were never given,
 * or by a qosd of which nothing is known. Of those after another: how many are no longer known, and the
 * rest. */
uint64_t threshold_monitor_get_seq(const Manager *m);
uint64_t threshold_monitor_get_seq_begin(const Manager *m);
uint64_t threshold_monitor_count_missed(const Manager *m, uint64_t since);
int threshold_monitor_foreach_event(Manager *m, uint64_t since,
                                    int (*f)(const ThresholdEvent *e, void *userdata), void *userdata);

/* For a restart of qosd. */
int thresholds_list_to_json(const Unit *u, sd_json_variant **ret);
void threshold_monitor_from_json(Unit *u, sd_json_variant *v);
void threshold_monitor_set_seq(Manager *m, uint64_t seq, uint64_t begin);
/* All units of before are there: files of thresholds that are violated no more go. */
void threshold_monitor_restored(Manager *m);
