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
