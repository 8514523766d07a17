/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Takes, renews and releases holds: the first one makes the unit, the last one ends it. */

#include "manager.h"

int unit_hold(Unit *u, const AttachRequest *request, uint64_t expires);
int manager_attach_unit(Manager *m, const AttachRequest *request, const char *name, const char *control_group,
                        const char *instances, const char *active_state, sd_id128_t invocation_id, Unit **ret, QosError *e);
