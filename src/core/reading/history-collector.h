/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Collects the histories of all units, and stores them in files. */

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

typedef struct History History;

/* State of a unit. */
typedef struct UnitHistory {
        History *steps;                 /* history.h; NULL: none yet */
        struct {
                uint64_t index;
                uint64_t signature;
        } collected[8];                 /* collected steps, by index modulo size; one more than the kernel
                                         * keeps */
        uint64_t violated_since, violated_until; /* see unit_note_violation(); 0: never */
        bool unsaved;                   /* saving has failed, and was logged */
} UnitHistory;

/* State of the manager. */
typedef struct HistoryCollector {
        char *prefix;                   /* path of history files, without the number of the slot; NULL:
                                         * none */
        sd_event_source *timer;         /* while a unit is observed */
        uint64_t all_at;                /* CLOCK_MONOTONIC us, when those of all units are due */
} HistoryCollector;

int history_collector_init(Manager *m);
/* Collects once more, then stops. */
void history_collector_done(Manager *m);

void unit_forget_history(Manager *m, unsigned slot);
/* Removes the files of slots without a unit. */
void manager_forget_histories(Manager *m);
void manager_collect_history(Manager *m);
void manager_begin_history(Manager *m);
void unit_load_history(Unit *u, uint32_t generation);
