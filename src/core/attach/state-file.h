/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State kept over restarts of qosd: attached units, their holds, thresholds and totals. */

#include "observer.h"

typedef struct StateFile {
        char *path;                     /* NULL: none */
        ManagerObserver observer;
        sd_event_source *later;         /* deferred write; NULL: none is pending */
} StateFile;

/* Enables writing of the file after each change. */
int state_file_init(Manager *m);
void state_file_done(Manager *m);

/* Continues with the state of the previous run. */
void manager_restore_state(Manager *m);

/* Writes the state file. */
void manager_save(Manager *m);
