/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Keeps the program requests_read attached while it is needed: it runs for each read of any TCP socket of
 * the machine, and sees what requests_content does not see, spliced reads above all. Whether a unit needs
 * the program is known after some of its reads; until then it is attached. */

#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

/* State of the manager. */
typedef struct ReadWatch {
        sd_event_source *events;        /* notifications of the programs */
        sd_event_source *timer;         /* end of the check of units with few reads; NULL: none is checked */
} ReadWatch;

/* To be called when units have been attached or detached. started: as for manager_update_probes(). */
void read_check_update(Manager *m, const Unit *started);

/* To be called before programs are unloaded. */
void read_check_stop(Manager *m);
