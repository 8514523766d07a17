/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Contention maps of units, and the probes "cpu", "block" and "memory". */

#include <systemd/sd-event.h>
#include <systemd/sd-json.h>

#include "contention-window.h"
#include "probe-name.h"

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct Usage Usage;

/* Probes that need a contention map. */
#define PROBES_CONTENTION (PROBE_CPU | PROBE_BLOCK | PROBE_MEMORY)

/* State of a unit. */
typedef struct UnitContention {
        const struct qos_contention_map *map; /* mapped read-only; NULL: none */
        const struct qos_contention_cpu *cpus; /* its per-CPU part */
        uint64_t since;                 /* CLOCK_MONOTONIC ns of its creation */
        uint64_t watched_since;         /* CLOCK_MONOTONIC ns since when contention is observed; may be later
                                         * than the creation */
        ProbeMask probes;               /* probes with contention map, of own holds and those of ancestors */
        ContentionCounts *base;         /* see ContentionSources.before; NULL: nothing */
        ContentionCounts *machine_base; /* contention map of the machine when "block" was added; NULL:
                                         * none */
        uint64_t machine_base_at;       /* CLOCK_MONOTONIC ns of that moment */
        uint64_t shares_since;          /* windows that begin earlier have no valid shares of devices */
        Usage *usage;                   /* statistics of its control group; NULL: not read */
} UnitContention;

/* State of the manager. */
typedef struct ContentionProbe {
        const struct qos_contention_map *machine; /* contention map of the machine (probe.h), while a unit is
                                                   * observed with "block" */
        uint64_t machine_since;         /* CLOCK_MONOTONIC ns of its creation */
        sd_event_source *moves;         /* notifications of migrations, while there is a contention map */
        sd_event_source *moves_timer;   /* delayed scan for threads */
        uint64_t moves_at;              /* CLOCK_MONOTONIC us of the last or next scan */
} ContentionProbe;

/* To be called when probes or control groups of units have changed: creates and destroys contention maps,
 * loads and unloads programs, finds threads. */
void contention_update(Manager *m);

/* To be called before programs are unloaded. */
void contention_stop(Manager *m);

/* Contention maps of the unit and its descendants; false: contention is not observed. buffer:
 * UNITS_MAX_LIMIT elements. */
bool unit_get_contention_sources(const Unit *u, ContentionSource *buffer, ContentionSources *ret);

/* Moves the contention map of closed, a retained unit, to u, the same unit attached again. */
void unit_adopt_contention(Unit *u, Unit *closed);

/* Serialization for the state file. */
int contention_base_to_json(const ContentionCounts *base, sd_json_variant **ret);
int contention_base_from_json(sd_json_variant *v, ContentionCounts *ret);
