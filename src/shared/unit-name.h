/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Unit names. Pure, and shared with qosctl. */

#include "util.h"

/* As in systemd: src/basic/unit-name.h */
#define UNIT_NAME_MAX 255

/* Suffixes of units with a control group. NULL terminated. */
extern const char *const unit_observed_suffixes[];

/* Appends ".service" to a name without suffix, as systemctl does. -EINVAL: invalid name. */
int unit_name_mangle(const char *name, char **ret);

/* Expands the specifiers %n, %N, %p, %i and %% for the unit, see systemd.unit(5). -EINVAL: another
 * specifier, or the result is not a valid name with suffix. */
int unit_name_expand(const char *pattern, const char *unit, char **ret);

/* Name of the unit of a control group: the first component of the path that is not a slice, if it is a
 * service, a scope or a socket. Returns 0 if there is none. */
int control_group_get_top_unit(const char *path, char **ret);

/* Whether root owns the control group named by the first n bytes of the path. */
typedef bool (*group_is_roots_t)(const char *path, size_t n, void *userdata);

/* Offset (0: none) and length of the components of a control group path that name its unit: the first unit
 * below the slices, as in the service manager, or a unit inside it whose group is owned by root, as in a
 * container. As users can create groups inside a delegated unit, those of other owners are named together
 * with the unit around them ("a.service/b.service"). */
size_t control_group_find_unit(const char *path, group_is_roots_t is_roots, void *userdata,
                               size_t *ret_length);
