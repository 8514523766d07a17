/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Figures that iterators of the kernel write into the maps of all units at once. They are updated along with
 * readings, unless that was done a moment ago. */

#include <stdbool.h>
#include <stdint.h>

#include "snapshot-fill.h"

typedef struct Manager Manager;

/* Times are CLOCK_MONOTONIC ns, 0: never. */
typedef struct GaugeReadings {
        uint64_t listeners_at;
        uint64_t read_at;               /* of the other gauges */
        ReadingSessions sessions;
        uint64_t faults_at;             /* page faults were last recorded */
        uint64_t storage_at;            /* calls on files were last recorded */
        uint64_t storage_session;       /* session of the iterator that did; 0: none */
        uint64_t udp_expired_at;        /* requests over UDP were last expired */
        uint64_t missed_at;             /* skipped program runs were last found */
        uint64_t reconciled_at;         /* gauges were last corrected */
} GaugeReadings;

/* Whether there are requests in flight, but no time of the oldest one: they arrived since the last run. */
bool gauges_are_missing(const Manager *m, const WindowSources *w);

/* missing: there are requests in flight that were not at the last run, possibly in an accept queue. */
void listeners_refresh(Manager *m, uint64_t now, bool missing);
void gauges_refresh(Manager *m, uint64_t now, bool missing);

/* Records program runs skipped since the last time. */
void missed_refresh(Manager *m, uint64_t now);

/* Records the latest page fault of each thread, which is otherwise only recorded at its next one. */
void faults_refresh(Manager *m, uint64_t now);

/* Records the latest calls on files of each thread, as the kernel counts them. */
void storage_calls_refresh(Manager *m, uint64_t now);
