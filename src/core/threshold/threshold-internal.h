/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the threshold modules. */

#include "manager.h"
#include "observer.h"
#include "threshold-monitor.h"
#include "threshold-sample.h"

/* Rate limit of a user's events. */
typedef struct UserRateLimit {
        struct UserRateLimit *next;
        uid_t uid;
        uint64_t since;                 /* CLOCK_MONOTONIC ns: start of the period */
        unsigned n;                     /* events emitted in it */
        uint64_t suppressed;              /* suppressed events not reported yet */
} UserRateLimit;

struct ThresholdMonitor {
        Manager *manager;
        UserRateLimit *rate_limits;
        sd_event_source *timer;
        bool saving;                    /* state has to be saved after this round */
        uint64_t seq;                   /* of the newest event */
        uint64_t seq_begin;             /* number before the first event */
        ThresholdEvent events[THRESHOLD_EVENTS_MAX]; /* ring, by seq */
        uint64_t ended;                 /* newest event at the end of the last round */
        char *directory;                /* of flag files; NULL: none */
};

/* threshold-monitor.c */
void monitor_arm_timer(Manager *m, bool at_once);
void threshold_monitor_save(ThresholdMonitor *thresholds);

/* threshold-events.c */
bool threshold_notify_if_changed(Threshold *t, ThresholdState previous, uint64_t now,
                                 const ThresholdSample *sample);
void threshold_monitor_end_round(ThresholdMonitor *thresholds);

/* threshold-set.c */
/* u and rule are the parsed unit and threshold of the request. */
int threshold_new(Unit *u, const ThresholdRule *rule, const ThresholdRequest *request, Threshold **ret);

/* threshold-flags.c */
void threshold_update_flag(const Threshold *t, bool violated);
