/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Control groups of a unit, and their assignment in the kernel. */

#include <stdbool.h>
#include <stdint.h>

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct GroupAssignment GroupAssignment;

/* Those of all units. */
typedef struct ControlGroups {
        GroupAssignment *assignments;   /* that take several turns, oldest first */
        uint64_t n_lost;                /* probe_get_lost_groups() at the last scan for groups of which the
                                         * kernel failed to store the owner */
        uint64_t scanned_at;            /* CLOCK_MONOTONIC ns of that scan; 0: never */
} ControlGroups;

/* Assigns the current control groups of an observed unit, and claims those that will be created. What takes
 * longer than a turn goes on in turns of its user, and ends with ManagerObserver.unit_claimed. */
void unit_claim_cgroup(Unit *u);
/* Whether it goes on. */
bool unit_is_claiming(const Unit *u);
/* The unit is detached, and not in its slot any more: assigns its groups to its innermost ancestor, in
 * turns. Until its turn a group is that of the unit, of which ancestors have the map. */
void unit_release_cgroups(Unit *u);
/* The same at once for a group with sockets of the unit. */
void unit_release_group(Unit *u, const char *path);
/* Ends all of this. */
void manager_end_assignments(Manager *m);

/* Reassigns the control groups of all units if the kernel failed to store the owner of a new one (now:
 * CLOCK_MONOTONIC ns). */
void manager_find_lost_groups(Manager *m, uint64_t now);
