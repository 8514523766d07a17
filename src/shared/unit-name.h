/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Unit names. Pure, and shared with qosctl. */

#include "util.h"

/* As in systemd: src/basic/unit-name.h */
#define UNIT_NAME_MAX 255

/* Types of units that have a control group. NULL terminated. */
extern const char *const unit_observed_suffixes[];

/* Appends ".service" to a name without suffix, as systemctl does. -EINVAL: invalid name. */
int unit_name_mangle(const char *name, char **ret);

/* Replaces the specifiers %n (name), %N (name without suffix), %p (prefix, up to "@"), %i (instance) and %%,
 * which mean the same as in systemd.unit(5), by those of the unit. -EINVAL: another specifier, or the result
 * is no valid name with a suffix. */
int unit_name_expand(const char *pattern, const char *unit, char **ret);

/* Name of the unit of a control group: the first part of the path that is no slice, if it is a service, a
 * scope or a socket. Returns 0 if there is none. */
int control_group_get_top_unit(const char *path, char **ret);

/* Whether the control group that the first n bytes of the path name is owned by root. */
typedef bool (*group_is_roots_t)(const char *path, size_t n, void *userdata);

/* Offset (0: none) and length of the part of a control group path that names its unit: the first unit below
 * the slices, as in the service manager, or a unit inside it whose group is owned by root, as in a
 * container. Any user can create groups inside a delegated unit: if another one than root has, the part
 * begins with the unit around it ("a.service/b.service"). */
size_t control_group_find_unit(const char *path, group_is_roots_t is_roots, void *userdata,
                               size_t *ret_length);
