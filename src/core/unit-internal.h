/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the core's own files need of unit.c. */

#include "manager.h"

bool unit_has_name(const Unit *u, const char *name);
int unit_new(Manager *m, const char *name, const char *control_group, const char *instances, const char *active_state,
             sd_id128_t invocation_id, unsigned slot, Unit **ret);
