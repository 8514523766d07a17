/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Control groups of a unit, and their assignment in the kernel. */

#include <stdbool.h>
#include <stdint.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

/* Control groups of which the kernel failed to store the owner. */
typedef struct LostGroups {
        uint64_t n;                     /* probe_get_lost_groups() at the last scan for them */
        uint64_t scanned_at;            /* CLOCK_MONOTONIC ns of that scan; 0: never */
} LostGroups;

void cgroup_reassign(Unit *u, const Unit *to, int fd, unsigned depth, unsigned *n);
int cgroup_open(const char *control_group);
unsigned unit_reassign_cgroups(Unit *u, bool own);
void unit_claim_cgroup(Unit *u);

/* Calls f for each current control group of the unit, including descendants, with a descriptor of its
 * directory. */
void unit_for_each_group(Unit *u, void (*f)(Unit *u, int group, void *userdata), void *userdata);

/* Reassigns the control groups of all units if the kernel failed to store the owner of a new one (now:
 * CLOCK_MONOTONIC ns). */
void manager_find_lost_groups(Manager *m, uint64_t now);
