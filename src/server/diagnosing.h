/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A diagnosis under way, whichever bus its client is on. */

#include <systemd/sd-event.h>

#include "baseline.h"
#include "diagnosis.h"
#include "evidence.h"
#include "inspect-waits.h"
#include "manager.h"
#include "turns.h"
#include "unit.h"

/* Diagnoses at a time on either bus: each reads the CPU time of all units at either end of its interval,
 * which is some milliseconds. */
#define DIAGNOSES_MAX 16U
#define DIAGNOSES_PER_UID_MAX 4U

/* The shortest interval: a second has some requests of most units. */
#define INTERVAL_MIN_NSEC NSEC_PER_SEC

/* Probes that a diagnosis requires. */
#define DIAGNOSE_PROBES (PROBE_REQUESTS | PROBE_CPU | PROBE_BLOCK | PROBE_MEMORY)

/* Steps at either end of the interval of a diagnosis, done in turns. */
typedef enum DiagnosingState {
        DIAGNOSING_WAITS,               /* for the attach, or the end of the interval */
        DIAGNOSING_RESOURCES,
        DIAGNOSING_NAMES,               /* waits for names of futexes, between the other two */
        DIAGNOSING_THREADS,
} DiagnosingState;

/* A diagnosis under way; the unit is leased with it as the key. */
typedef struct Diagnosing {
        uint64_t window;                /* ns; 0: the client ends the interval */
        bool interactive;
        bool begins;                    /* the call is BeginDiagnosis(), which ends with the first reading */
        uint64_t begun_at;              /* CLOCK_MONOTONIC ns, of the first reading */
        char *unit;                     /* while no call is under way */
        bool has_normal;
        DiagnosisFigures normal;
        sd_event_source *timer;         /* ends the interval, or drops what no call ends */
        HostSample *begin;              /* NULL: not read yet */
        DiagnosingState state;
        WaitsQuery *query;              /* of the state; NULL: not begun */
        waits_names_t on_names;         /* has the next step made */
        void *userdata;
        ResourcesReading resources;
        ThreadsReading threads;
} Diagnosing;

/* What a diagnosis has found. */
typedef struct Conclusion {
        DiagnosisEvidence evidence;
        Baseline normal;
        bool by_history;                /* the baseline is from the history of the unit */
        Diagnosis diagnosis;
} Conclusion;

Diagnosing* diagnosing_free(Manager *m, Diagnosing *d);

/* The unit is detached, with what the reading is made of. */
void diagnosing_restart(Diagnosing *d);

/* Probes of the lease. all: the client may attach units; otherwise it may look at this one, and keeps
 * nothing loaded that others have attached. */
ProbeMask diagnosing_get_probes(bool all);

/* One step of a reading; 1: there are more; 0: it is complete, unless the state is DIAGNOSING_NAMES. On
 * error no locks are known, or no threads. user: NULL for root. */
int diagnosing_step(Diagnosing *d, Unit *u, TurnUser *user);

/* From the readings at either end of the interval, to the end of which window reaches. */
int diagnosing_conclude(const Diagnosing *d, Unit *u, const HostSample *end, uint64_t window,
                        Conclusion *ret);

/* Names of futexes: whether they may be searched now, and that they were, for so long. */
bool names_may_be_read(const TurnUser *user, uint64_t now);
void names_were_read(TurnUser *user, uint64_t nsec);
