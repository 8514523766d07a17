/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Lookup of units by name. */

#include "manager.h"

Unit* manager_find_unit(Manager *m, const char *name);
int control_group_path_check(const char *path);
int unit_name_complete(const char *written, char **ret, QosError *e);
