/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Values that BPF iterators write into the maps of all units at once. Readings update them, unless that was
 * done within the last 20 ms. */

#include <stdbool.h>
#include <stdint.h>

#include "snapshot-fill.h"

typedef struct Manager Manager;

/* Times are CLOCK_MONOTONIC ns, 0: never. */
typedef struct GaugeReadings {
        uint64_t listeners_at;
        uint64_t read_at;               /* other gauges were last read */
        ReadingSessions sessions;
        uint64_t faults_at;             /* page faults were last recorded */
        uint64_t flows_at;              /* connections were last recorded */
        uint64_t storage_at;            /* calls on files were last recorded */
        uint64_t storage_session;       /* session of that iterator run; 0: none */
        uint64_t udp_expired_at;        /* requests over UDP were last expired */
        uint64_t reconcile_at;          /* gauges are to be corrected next */
} GaugeReadings;

/* Whether there are requests in flight that have arrived since the last run, so that the oldest one is
 * unknown. */
bool gauges_are_missing(const Manager *m, const WindowSources *w);

/* missing: see gauges_are_missing(); such requests may be in an accept queue. Updates regardless of age. */
void listeners_refresh(Manager *m, uint64_t now, bool missing);
void gauges_refresh(Manager *m, uint64_t now, bool missing);

/* Counts program runs that the kernel has skipped since the last call, and corrects gauges of connections
 * for these and for other changes that no program has seen. */
void missed_refresh(Manager *m, uint64_t now);

/* Records page faults that threads have had so far; otherwise a thread's latest one is recorded at the
 * next. */
void faults_refresh(Manager *m, uint64_t now);

/* Records calls on files that threads have made so far, from the kernel's counters. */
void storage_calls_refresh(Manager *m, uint64_t now);
void flows_refresh(Manager *m, uint64_t now);
