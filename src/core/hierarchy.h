/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Units in units: a service in a slice, both attached. A control group books for the innermost unit around
 * it, and what a unit shows is the sum of its own book and of those of all units in it (window.h). Here is
 * decided who lies in whom, whose books are whose, and what becomes of the book of a unit that is detached
 * while it lies in another: that has to go on with it for as long as windows reach back, and with its totals
 * for ever. */

#include <systemd/sd-json.h>

#include "manager.h"
#include "window.h"

/* Does the one have groups that lie in groups of the other? By the paths alone: neither need be running. */
bool unit_is_ancestor(const Unit *outer, const Unit *inner);
/* The first slot, from this one on, of a unit that lies in the unit, gone ones included; UNITS_MAX_LIMIT:
 * there is none. Without comparing paths each time, for what is done for each reading. */
unsigned unit_next_inner_slot(const Unit *u, unsigned slot);

/* The innermost attached unit around a unit, or besides it around the path of a control group; NULL:
 * none. */
Unit* unit_find_ancestor(const Unit *u);
Unit* unit_find_ancestor_of_path(const Unit *u, const char *control_group);

/* Whose books are the unit's: fills in both, buffer has room for UNITS_MAX_LIMIT. */
void unit_get_sources(const Unit *u, WindowSource *buffer, WindowSources *ret);

/* Whether the figures of the unit are in its own book alone, and that has none of others: then it may be
 * given away as it is. */
bool unit_is_whole(const Unit *u);
/* Its map is of no use any more to those who have it. */
void unit_end_export(Unit *u);

/* Tells the kernel who lies in whom. look: one that was just attached, whose sockets may be those of units
 * around it. */
void hierarchy_push_to_kernel(Manager *m, const Unit *look);
/* Lets the kernel look through its sockets, after hierarchy_push_to_kernel(). */
void hierarchy_reassign_sockets(Manager *m);

/* The unit has its map: what its books had until now is not its own. */
int unit_init_offset(Unit *u);
/* The closed book of a unit that is attached again; NULL: there is none. */
Unit* retained_find(Manager *m, const char *control_group);
/* The unit was detached, holds no groups any more, and lies in another: its book is closed. Consumes u. */
void unit_retain(Unit *u);
/* Lets go of closed books that no unit is left for. */
void retained_gc(Manager *m);
/* Waits for the time when closed books have left all windows. */
void hierarchy_schedule(Manager *m);

/* The unit's control groups lie elsewhere than was known. */
int unit_relocate(Unit *u, const char *control_group, const char *instances);

/* Tells the views of all units around it and in it. */
void hierarchy_notify_relatives(const Unit *u);

/* For a restart of qosd. Of numbers that mostly are 0: those that are not, each behind its place. */
int numbers_to_json(const uint64_t *numbers, size_t n, sd_json_variant **ret);
int numbers_from_json(sd_json_variant *v, size_t n, uint64_t *ret);
int window_base_to_json(const CounterOffset *base, sd_json_variant **ret);
int window_base_from_json(sd_json_variant *v, CounterOffset *ret);
