/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Control groups of a unit, and their assignment in the kernel. */

#include <stdbool.h>
#include <stdint.h>

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct GroupAssignment GroupAssignment;

/* State of the assignments of all units. */
typedef struct ControlGroups {
        GroupAssignment *assignments;   /* those that take several turns, oldest first */
        uint64_t n_lost;                /* probe_get_lost_groups() at the last scan for groups for which the
                                         * kernel failed to store the owner */
        uint64_t scanned_at;            /* CLOCK_MONOTONIC ns of that scan; 0: never */
} ControlGroups;

/* Assigns the current control groups of an observed unit to it, and claims those that will be created. If
 * that takes longer than a turn, it continues in turns of the unit's user, and ends with
 * ManagerObserver.unit_claimed. */
void unit_claim_cgroup(Unit *u);
/* Whether the assignment of unit_claim_cgroup() is still in progress. */
bool unit_is_claiming(const Unit *u);
/* Assigns the groups of a unit that was detached, and removed from its slot, to its innermost ancestor, in
 * turns. Until then a group counts in the map of the unit, which its ancestors sum up. */
void unit_release_cgroups(Unit *u);
/* Releases the control group of a socket unit of the unit at once. */
void unit_release_group(Unit *u, const char *path);
/* Cancels all assignments. */
void manager_end_assignments(Manager *m);

/* Reassigns the control groups of all units if the kernel failed to store the owner of a new one (now:
 * CLOCK_MONOTONIC ns). */
void manager_find_lost_groups(Manager *m, uint64_t now);
