/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Kinds and names of what threads wait for. */

#include "cgroup-names.h"
#include "contention-map.h"
#include "unit.h"

/* Size of a formatted name, and of an address. */
#define RESOURCE_NAME_SIZE 512U

typedef struct WaitTarget {
        struct qos_wait_target row;
        char *name;                     /* NULL: only the address is known */
        const char *unit;               /* unit that listens there; NULL: unknown */
} WaitTarget;

/* Returns the kind of a resource. Formats its name and address, of RESOURCE_NAME_SIZE each. *ret_unit: unit
 * that listens at the address, or had the CPU. */
const char* resource_describe(const Unit *u, const WaitTarget *resource, CgroupNames *groups, char *name,
                              char *address, const char **ret_unit);
/* Formats the name of a kernel lock. */
void resource_format_lock(const struct qos_wait_target *row, char *ret, size_t size);
/* Formats the name of a CPU occupant. Returns its unit; NULL: none or unknown. */
const char* resource_format_cpu(const Unit *u, const struct qos_wait_target *row, CgroupNames *groups,
                                char *ret, size_t size);
