/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The attached units, and their lookup by name. */

#include <stdint.h>

#include "error.h"
#include "unit-map.h"

typedef struct Manager Manager;
typedef struct Unit Unit;

typedef struct UnitTable {
        Unit *slots[UNITS_MAX_LIMIT];   /* NULL: free */
        unsigned n;
        uint32_t generation;            /* of the newest unit */
        uint32_t map_generation;        /* of the newest contention or storage map of any unit */
} UnitTable;

Unit* manager_find_unit(Manager *m, const char *name);
int control_group_path_check(const char *path);
int unit_name_complete(const char *written, char **ret, QosError *e);
