/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Names of control groups, and of their units, by the id that the kernel records. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Manager Manager;
typedef struct Unit Unit;

/* Cache of control groups by id, with their units, for the lookups of one reply. A lookup that is not cached
 * walks the directories; the number of directories limits that to some ten milliseconds per reply. */
#define CGROUP_NAMES_LOOKUPS 20000U

typedef struct CgroupNames {
        struct {
                uint64_t id;
                char *path, *unit;      /* NULL: unknown */
        } groups[32];
        size_t n;
        unsigned left;          /* directories that may still be visited */
} CgroupNames;

#define CGROUP_NAMES_INIT { .left = CGROUP_NAMES_LOOKUPS }

/* Name of the unit of a control group; NULL: unknown or removed. Valid as long as the cache. */
const char* cgroup_names_get(CgroupNames *c, const Manager *m, uint64_t id);
/* Path of a control group that was looked up before, below the root; NULL: unknown or removed. */
const char* cgroup_names_get_path(const CgroupNames *c, uint64_t id);
/* Whether the group belongs to the unit or is contained in it. */
bool cgroup_names_is_within(CgroupNames *c, const Unit *u, uint64_t id);
void cgroup_names_done(CgroupNames *c);
#define _cleanup_cgroup_names_ _cleanup_(cgroup_names_done)
