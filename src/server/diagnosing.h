/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Diagnoses in progress, for both servers. */

#include <systemd/sd-event.h>

#include "baseline.h"
#include "diagnosis.h"
#include "evidence.h"
#include "inspect-waits.h"
#include "manager.h"
#include "turns.h"
#include "unit.h"

/* Limits of concurrent diagnoses, for each server: each takes some milliseconds at both ends of its interval
 * to read CPU times. */
#define DIAGNOSES_MAX 16U
#define DIAGNOSES_PER_UID_MAX 4U

/* Minimum interval: most units have some requests in a second. */
#define INTERVAL_MIN_NSEC NSEC_PER_SEC

/* Probes that a diagnosis requires. */
#define DIAGNOSE_PROBES (PROBE_REQUESTS | PROBE_CPU | PROBE_BLOCK | PROBE_MEMORY)

/* Steps at both ends of the interval, done in turns. */
typedef enum DiagnosingState {
        DIAGNOSING_WAITS,               /* waits for the attach, or the end of the interval */
        DIAGNOSING_RESOURCES,
        DIAGNOSING_NAMES,               /* waits for names of futexes */
        DIAGNOSING_THREADS,
} DiagnosingState;

/* A diagnosis in progress, which is the key of a lease of the unit. */
typedef struct Diagnosing {
        uint64_t window;                /* ns; 0: the client ends the interval */
        bool interactive;
        bool begins;                    /* the pending call is BeginDiagnosis(), which ends with the first
                                         * reading */
        uint64_t begun_at;              /* CLOCK_MONOTONIC ns, of the first reading */
        char *unit;                     /* name, while no call is pending */
        bool has_normal;
        DiagnosisFigures normal;
        sd_event_source *timer;         /* end of the interval, or of the time in which the client has to end
                                         * it */
        HostSample *begin;              /* NULL: not read yet */
        DiagnosingState state;
        WaitsQuery *query;              /* reading of the state; NULL: not begun */
        waits_names_t on_names;         /* schedules the next step */
        void *userdata;
        ResourcesReading resources;
        ThreadsReading threads;
} Diagnosing;

/* Result of a diagnosis. */
typedef struct Conclusion {
        DiagnosisEvidence evidence;
        Baseline normal;
        bool by_history;                /* the baseline is from the unit's history */
        Diagnosis diagnosis;
} Conclusion;

Diagnosing* diagnosing_free(Manager *m, Diagnosing *d);

/* To be called when the unit is detached: restarts the current reading. */
void diagnosing_restart(Diagnosing *d);

/* Probes of the lease. all: the client may attach units; otherwise it may inspect the unit only, and the
 * lease must not keep any program loaded. */
ProbeMask diagnosing_get_probes(bool all);

/* Continues a reading by one step. 1: there are more; 0: complete, unless the state is DIAGNOSING_NAMES.
 * After errors, locks or threads are unknown. user: NULL: root. */
int diagnosing_step(Diagnosing *d, Unit *u, TurnUser *user);

/* Makes the diagnosis, from the readings at both ends of the interval. window: up to the end of the
 * interval. */
int diagnosing_conclude(const Diagnosing *d, Unit *u, const HostSample *end, uint64_t window,
                        Conclusion *ret);

/* Rate limit of searches for names of futexes, per user: whether one may start now; to be called after
 * one. */
bool names_may_be_read(const TurnUser *user, uint64_t now);
void names_were_read(TurnUser *user, uint64_t nsec);
