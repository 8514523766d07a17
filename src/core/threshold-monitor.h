/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The thresholds of units in the daemon: who has set them, when their metrics are looked at, and who is told. What a rule means,
 * and when its state changes, is threshold.h's. */

#include <systemd/sd-json.h>

#include "manager.h"
#include "threshold-sample.h"
#include "threshold.h"

/* A person looks at a few of these, a program that makes them in a loop is stopped before it costs: each is a comparison, and
 * each window of a unit one reading a second, or ten. */
#define ALARMS_PER_UNIT_MAX 32U

/* All units together: eight for each that there may be. */
#define ALARMS_MAX 2048U

/* Of one user, root apart, conditions that are waited for included. */
#define ALARMS_PER_UID_MAX 128U

/* Changes of states of one user's thresholds that are told in so long a time, root apart: all of them may change at once. A state
 * that goes on changing is told when there is room again, as it is then. */
#define CROSSINGS_PER_UID_MAX ALARMS_PER_UID_MAX
#define CROSSINGS_NSEC (10 * NSEC_PER_SEC)

/* Events that are kept for those who come back for them: half a kilobyte each. More than this was not an outage of a
 * subscriber, but of all units. */
#define ALARM_EVENTS_MAX 1024U

typedef enum AlarmSource {
        ALARM_ADMINISTRATOR,    /* "qosctl set-threshold": until it is cleared, or the unit is no longer observed */
        ALARM_LEASE,            /* as long as the connection or the bus name of who asked */
        ALARM_FILE,             /* in a unit file */
        ALARM_CONDITION,        /* has no name, and is nobody's but who waits for it */
        _ALARM_SOURCE_MAX,
} AlarmSource;

const char* alarm_source_to_string(AlarmSource s);      /* "administrator", "lease", "unitFile" */

typedef struct Alarm Alarm;

/* The condition holds, or (e) the unit is no longer observed. The alarm is gone afterwards. */
typedef void (*alarm_handler_t)(const Alarm *a, const QosError *e, void *userdata);

struct Alarm {
        /* As in the rule */
        Alarm *next;
        uint64_t period;                /* threshold_get_period() */
        uint64_t due_at;                /* for the next look, CLOCK_MONOTONIC ns; 0: at once */
        Unit *unit;
        ThresholdMachine machine;
        ThresholdState told;            /* the state that everybody was told */
        AlarmSource source;
        double value;                   /* at the last look; NaN: none */
        uint64_t samples;               /* ABSENT: not known */
        ThresholdRule rule;

        uid_t uid, owner_uid;
        void *lease_key;                /* as in struct Hold */
        char *origin;                   /* file and line; NULL: not from a file */
        bool seen;                      /* by the newest look at unit files (xqos-loader.c) */
        bool unsaved;                   /* the last attempt to keep it failed, which was said */

        uint64_t since;                 /* of the state, CLOCK_REALTIME ns */

        uint64_t good_before, total_before; /* what alarm_count() does not count */

        alarm_handler_t handler;        /* of a condition */
        void *userdata;
};

/* What an objective asks for, "p99 within 20ms", of a hundred requests ninety-nine, and what there was of it. */
typedef struct AlarmAccount {
        uint64_t good, total;           /* requests since it was set, within the limit, and all */
        double burn_short, burn_long;   /* how much of what may be beyond the limit was, over these windows: 1 is all of it; NaN: no requests */
} AlarmAccount;

#define ALARM_BURN_SHORT_NSEC (60 * NSEC_PER_SEC)
#define ALARM_BURN_LONG_NSEC (300 * NSEC_PER_SEC)

/* False: it is no objective about requests. Takes three readings. */
bool alarm_get_account(const Alarm *a, AlarmAccount *ret);

/* A change of a state. */
typedef struct AlarmEvent {
        uint64_t seq;                   /* counts all events of qosd, also over a restart */
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        char *unit;
        ThresholdRule rule;
        ThresholdState state, previous;
        double value;                   /* NaN: none */
        uint64_t samples;               /* ABSENT: not known */
        uint64_t left_out;              /* changes of the same user's thresholds before this one that were not told */
        ShareChange shares[SHARE_CHANGES_MAX]; /* where the time of the unit's threads goes now, and does not mostly */
        size_t n_shares;
} AlarmEvent;

/* "runQueue" */
const char* alarm_share_name(const ShareChange *c);

typedef struct AlarmRequest {
        const char *unit;               /* as the client wrote it */
        const char *threshold;
        AlarmSource source;
        uid_t uid, owner_uid;           /* as in struct Hold: the latter may change what is his own alone */
        void *lease_key;
        const char *origin;
        alarm_handler_t handler;
        void *userdata;
} AlarmRequest;

int alarms_new(Manager *m, Alarms **ret);
Alarms* alarms_free(Alarms *alarms);

/* Sets a threshold, instead of the one of this name that the same source has set; or waits for a condition. */
int alarm_set(Manager *m, const AlarmRequest *request, Alarm **ret, QosError *e);
int alarm_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid, QosError *e);
void alarm_free(Alarm *a);

/* Takes back those of the unit that its files no longer have. */
void alarms_forget_files(Unit *u);

/* The connection or bus name has ended. */
void alarms_release(Manager *m, const void *lease_key);
bool alarms_have_lease(const Manager *m, const void *lease_key);

/* The unit is about to go. */
void alarms_unit_detached(Unit *u);

/* What a client is shown: the next one of those that have a name; NULL: begin. */
Alarm* alarm_next(const Unit *u, const Alarm *a);

/* The number of the newest event, and the one that came before the first: those before it were never given, or by a qosd of which
 * nothing is known. Of those after another: how many are no longer known, and the rest. */
uint64_t alarms_get_seq(const Manager *m);
uint64_t alarms_get_seq_begin(const Manager *m);
uint64_t alarms_count_lost(const Manager *m, uint64_t since);
int alarms_foreach_event(Manager *m, uint64_t since, int (*f)(const AlarmEvent *e, void *userdata), void *userdata);

/* For a restart of qosd. */
int alarms_to_json(const Unit *u, sd_json_variant **ret);
void alarms_from_json(Unit *u, sd_json_variant *v);
void alarms_set_seq(Manager *m, uint64_t seq, uint64_t begin);
/* All units of before are there: files of thresholds that are violated no more go. */
void alarms_restored(Manager *m);
