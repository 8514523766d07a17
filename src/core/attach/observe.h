/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Starts and stops observing a unit. */

#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

typedef struct ProbeStart ProbeStart;

/* Loads programs, and keeps them loaded for a while after their last use. */
typedef struct ProgramKeeper {
        ProbeStart *start;              /* loading in progress; NULL: none */
        uint64_t keep_until;            /* CLOCK_MONOTONIC us until which unused programs stay loaded */
        sd_event_source *timer;         /* end of that time */
} ProgramKeeper;

void unit_claim_cgroups(Unit *u);
/* To be called when the control groups of the unit have been assigned in turns. */
void unit_complete_claim(Unit *u);
void manager_update_probes(Manager *m, Unit *started);
void unit_start(Unit *u);
/* Loads the programs and starts all units, unless that was done, or is in progress. */
void manager_start_probe(Manager *m);
/* As manager_start_probe(), in the background: units are started later. */
void manager_begin_start_probe(Manager *m);
void manager_keep_programs(Manager *m);
void unit_stop(Unit *u);
void unit_detach(Unit *u);
void unit_set_cgroup(Unit *u, const char *control_group);
