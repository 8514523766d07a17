/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of thresholds share. */

#include "manager.h"
#include "observer.h"
#include "threshold-monitor.h"
#include "threshold-sample.h"

/* A user whose thresholds change. */
typedef struct UserRateLimit {
        struct UserRateLimit *next;
        uid_t uid;
        uint64_t since;                 /* CLOCK_MONOTONIC ns: since then … */
        unsigned n;                     /* … so many changes were told */
        uint64_t suppressed;              /* that were not, and nobody knows of yet */
} UserRateLimit;

struct ThresholdMonitor {
        Manager *manager;
        UserRateLimit *rate_limits;
        sd_event_source *timer;
        bool saving;                    /* something is to be kept after this round */
        unsigned n;
        uint64_t seq;                   /* of the newest event */
        uint64_t seq_begin;             /* before the first */
        ThresholdEvent events[THRESHOLD_EVENTS_MAX]; /* by seq, modulo */
        uint64_t ended;                 /* the newest event when a round ended last */
        char *directory;                /* of the files of violated thresholds; NULL: nowhere */
};

/* threshold-monitor.c */
void monitor_arm_timer(Manager *m, bool at_once);
void threshold_monitor_save(ThresholdMonitor *thresholds);

/* threshold-events.c */
bool threshold_notify_if_changed(Threshold *a, ThresholdState previous, uint64_t now,
                const ThresholdSample *l);
void threshold_monitor_end_round(ThresholdMonitor *thresholds);

/* threshold-set.c */
int threshold_new(Unit *u, const ThresholdRule *rule, ThresholdSource source, uid_t uid, uid_t owner_uid,
                  void *lease_key, const char *origin, Threshold **ret);

/* threshold-flags.c */
void threshold_update_flag(const Threshold *a, bool violated);
