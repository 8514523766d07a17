/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Internal to the core. */

#include "manager.h"
#include "service-manager.h"

bool unit_has_name(const Unit *u, const char *name);

/* Uses id, control_group, instances, active_state and invocation_id of info. */
int unit_new(Manager *m, const UnitInfo *info, unsigned slot, Unit **ret);

/* Takes over what PID 1 reports. */
void unit_set_lifecycle(Unit *u, const Lifecycle *lifecycle);
