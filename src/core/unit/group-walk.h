/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Visits the control groups of a unit, and their descendants, one by one. The caller may do other work
 * between two groups. Parents come first: a group that is created meanwhile is visited, or was created in
 * one that has been visited before. */

#include <stdbool.h>

#include "util.h"

/* Limit of control groups assigned at attach; those created later inherit the owner in the kernel. More of
 * them indicate a container host, where containers should be attached individually. */
#define GROUPS_MAX 16384U
/* Limit of the depth of control groups, sufficient for nested containers. */
#define GROUP_DEPTH_MAX 32U

typedef struct GroupWalk GroupWalk;

/* Opens the directory of a control group. */
int cgroup_open(const char *control_group);

/* instances: as in Unit, or NULL. */
int group_walk_new(const char *control_group, const char *instances, GroupWalk **ret);
GroupWalk* group_walk_free(GroupWalk *w);
static inline void group_walk_freep(GroupWalk **w) {
        group_walk_free(*w);
}

/* Descriptor of the next group's directory, valid until the next call; negative: there are no more. */
int group_walk_next(GroupWalk *w);
/* Continues with the descendants of that group. */
void group_walk_enter(GroupWalk *w);
/* Whether the group is one of the instances, or a descendant of one. */
bool group_walk_is_instance(const GroupWalk *w);
/* Number of groups visited; above GROUPS_MAX: there are more. */
unsigned group_walk_count(const GroupWalk *w);
