/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Custom probes, see qosd.probe(5): their files, their programs, and their maps of units. */

#include <systemd/sd-json.h>

#include "custom-window.h"
#include "probe-name.h"

typedef struct ChildJob ChildJob;
typedef struct CustomCheck CustomCheck;
typedef struct CustomLoad CustomLoad;
typedef struct CustomObject CustomObject;
typedef struct Manager Manager;
typedef struct ProbesInfo ProbesInfo;
typedef struct RunTime RunTime;
typedef struct Unit Unit;

/* Of a unit, for each custom probe. */
typedef struct UnitCustom {
        const union qos_custom_element *map; /* mapped read-only; NULL: none */
        uint64_t since;                 /* CLOCK_MONOTONIC ns of its creation */
        uint64_t watched_since; /* CLOCK_MONOTONIC ns since when the unit is observed with the probe */
        CustomReading base;             /* see CustomSources.before */
        uint64_t recorded;              /* number of values in the map when a sample of the cost began */
        double cost;                    /* its part of CustomProbe.cost, without nested units */
} UnitCustom;

/* Measuring what programs take costs all programs of the machine some time: it is done in samples. */
typedef enum CustomCost {
        CUSTOM_COST_PAUSE,
        CUSTOM_COST_BEGIN,              /* the kernel is about to measure */
        CUSTOM_COST_SAMPLE,
        CUSTOM_COST_WATCH,              /* a probe took too much in a sample */
} CustomCost;

typedef struct CustomProbe {
        CustomManifest *manifest;       /* of what is loaded; NULL: nothing */
        CustomObject *object;
        char *reason; /* why it is unavailable; not retried while a unit is observed with it */
        uint64_t run_nsec, measured_at; /* run time of its programs when a sample began; 0: none yet */
        double cost;                    /* CPUs that they took in the last sample, 0 if there was none */
        ChildJob *iteration;            /* runs its iterators; NULL: none */
} CustomProbe;

typedef struct CustomProbes {
        CustomProbe probes[CUSTOM_PROBES_MAX]; /* by their number */
        CustomCheck *check;     /* of the files of one that is about to be loaded; NULL: none */
        CustomLoad *load;       /* after it; NULL: none */
        unsigned checked;       /* number of the probe */
        bool outdated;          /* it is no longer needed, or was meanwhile */
        CustomCost cost;
        RunTime *run_time;      /* NULL: nothing is loaded */
        bool cost_failed;       /* which was logged */
        sd_event_source *timer; /* measures costs; NULL: nothing is loaded */
        sd_event_source *iterate; /* runs iterators; NULL: there are none */
} CustomProbes;

/* To be called when probes or control groups of units have changed: creates and destroys maps, unloads
 * programs, and begins to load them, which ends with manager_emit_programs_loaded(). */
void custom_update(Manager *m);
/* Unloads all. */
void custom_stop(Manager *m);
/* Frees all, which stays in the descriptor store. */
void custom_done(Manager *m);

/* Takes over the programs of the previous run, before units are restored; afterwards, removes the maps of
 * units that were not. */
void custom_restore(Manager *m);
void custom_end_restore(Manager *m);
void unit_restore_custom(Unit *u, sd_json_variant *saved);
/* What unit_restore_custom() needs; NULL: nothing. */
int custom_to_json(const Unit *u, sd_json_variant **ret);

/* Whether one of these probes is being loaded, or is about to be, for a unit that is observed with them. */
bool unit_awaits_custom(const Unit *u, ProbeMask probes);

/* Moves the maps of a retained unit that is attached again. */
void unit_adopt_custom(Unit *u, Unit *retained);

/* Adds the programs of custom probes. */
int custom_add_info(Manager *m, ProbesInfo *info);
