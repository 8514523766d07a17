/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Keeps programs attached while they are needed. Until that is known of a unit, they are attached.
 *
 * requests_read runs for each read of any TCP socket of the machine, and sees what requests_content does not
 * see, spliced reads above all. Whether a unit needs it is known after some of its reads.
 *
 * requests_unix runs for all data that any socket of the machine receives, and is needed for Unix sockets
 * only. Whether a unit has any that may carry requests is looked up some time after its start, or when it
 * has read often from others without. If it opens its first one later, that is noticed when it reads from
 * it. */

#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

/* State of the manager. */
typedef struct ReadWatch {
        sd_event_source *events;        /* notifications of the programs */
        sd_event_source *timer;         /* end of the check of units; NULL: none is checked */
} ReadWatch;

/* To be called when units have been attached or detached. started: as for manager_update_probes(). */
void read_check_update(Manager *m, const Unit *started);

/* To be called before programs are unloaded. */
void read_check_stop(Manager *m);
