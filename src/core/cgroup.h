/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Control groups of a unit, and their assignment in the kernel. */

#include "manager.h"

void cgroup_reassign(Unit *u, const Unit *to, int fd, unsigned depth, unsigned *n);
int cgroup_open(const char *control_group);
unsigned unit_reassign_cgroups(Unit *u, bool own);
void unit_claim_cgroup(Unit *u);
