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
        ProbeStart *start;              /* they are being loaded; NULL: no */
        uint64_t keep_until;            /* CLOCK_MONOTONIC us; 0: no time */
        sd_event_source *timer;         /* for that time */
} ProgramKeeper;

void unit_claim_cgroups(Unit *u);
/* The rest of it was done in turns. */
void unit_complete_claim(Unit *u);
void manager_update_probes(Manager *m, Unit *started);
void unit_start(Unit *u);
/* Loads the programs, if that was not done, and starts all units. */
void manager_start_probe(Manager *m);
/* As above, beside the event loop: units are started later. */
void manager_begin_start_probe(Manager *m);
void manager_keep_programs(Manager *m);
void unit_stop(Unit *u);
void unit_detach(Unit *u);
void unit_set_cgroup(Unit *u, const char *control_group);
