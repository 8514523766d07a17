/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Nested units, such as a service in a slice, both attached. A control group counts for its innermost unit,
 * and a unit shows the sum of its own map and those of all its descendants (window.h). This file tracks
 * which units contain which and which maps a unit sums up, and retains the map of a unit that was detached
 * inside another one until no window of its ancestors reaches it. Then its counters are merged into
 * theirs. */

#include <stdbool.h>

#include <systemd/sd-event.h>
#include <systemd/sd-json.h>

#include "bitmap.h"
#include "unit-map.h"
#include "window.h"

typedef struct Manager Manager;
typedef struct Unit Unit;

typedef struct Hierarchy {
        Unit *retained[UNITS_MAX_LIMIT]; /* detached units inside attached ones, by slot; NULL: none */
        Bitmap inner[UNITS_MAX_LIMIT];  /* slots of the descendants of each attached unit, including retained
                                         * ones */
        bool valid;                     /* inner is up to date; cleared when a unit is added or its path
                                         * changes */
        sd_event_source *timer;         /* for the next merge, while there are retained units */
} Hierarchy;

/* Whether a unit contains another one, by their paths: neither has to be active. */
bool unit_is_ancestor(const Unit *outer, const Unit *inner);
/* First slot, from the given one on, of a descendant of the unit, including retained ones; UNITS_MAX_LIMIT:
 * none. Cached, for use in every snapshot. */
unsigned unit_next_inner_slot(const Unit *u, unsigned slot);

/* Innermost attached ancestor of a unit; NULL: none. */
Unit* unit_find_ancestor(const Unit *u);
/* Innermost observed unit that contains the path of a control group, other than except; NULL: none. */
Unit* manager_find_innermost(Manager *m, const char *control_group, const Unit *except);

/* Sources of a unit with a map. buffer: UNITS_MAX_LIMIT elements, which ret points to. */
void unit_get_sources(const Unit *u, WindowSource *buffer, WindowSources *ret);

/* Whether the unit's map contains all of its metrics, and nothing else, so that it can be exported. */
bool unit_is_whole(const Unit *u);
/* Ends exports of its map. */
void unit_end_export(Unit *u);

/* Updates the hierarchy in the kernel. attached: a unit just attached, to which sockets of its ancestors may
 * belong; or NULL. */
void hierarchy_push_to_kernel(Manager *m, const Unit *attached);
/* Reassigns the kernel's known sockets, after hierarchy_push_to_kernel(). */
void hierarchy_reassign_sockets(Manager *m);

/* To be called when the unit has got its map: excludes what its sources have counted so far. */
int unit_init_offset(Unit *u);
/* Retained unit with that name and path; NULL: none. */
Unit* retained_find(Manager *m, const char *control_group);
/* Retains the map of a unit that was detached inside another one, and holds no control groups any more.
 * Consumes u. */
void unit_retain(Unit *u);
/* Frees retained units without ancestors. */
void retained_gc(Manager *m);
/* Schedules the merge of retained units. */
void hierarchy_schedule(Manager *m);

/* To be called when the control group path of the unit has changed. */
int unit_relocate(Unit *u, const char *control_group, const char *instances);

/* Notifies clients of all ancestors and descendants. */
void hierarchy_notify_relatives(const Unit *u);

/* Serialization for the state file: indices and values of non-zero numbers, as most are zero. */
int numbers_to_json(const uint64_t *numbers, size_t n, sd_json_variant **ret);
int numbers_from_json(sd_json_variant *v, size_t n, uint64_t *ret);
int window_base_to_json(const CounterOffset *base, sd_json_variant **ret);
int window_base_from_json(sd_json_variant *v, CounterOffset *ret);
