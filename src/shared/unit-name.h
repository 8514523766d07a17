/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The names of units, as people write them. Pure, and shared with qosctl. */

#include "util.h"

/* As in systemd: src/basic/unit-name.h */
#define UNIT_NAME_MAX 255

/* The types of units that have processes. Ends with NULL. */
extern const char *const unit_observed_suffixes[];

/* As systemctl does: appends ".service" where there is no suffix. -EINVAL for what cannot be a unit's
 * name. */
int unit_name_mangle(const char *name, char **ret);
