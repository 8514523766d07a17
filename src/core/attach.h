/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Takes, renews and releases holds: the first one makes the unit, the last one ends it. */

#include "manager.h"
#include "service-manager.h"

int unit_hold(Unit *u, const AttachRequest *request, uint64_t expires);

/* info: as the service manager describes the unit, with the control group that it has or will have; what
 * unit_new() says of it. */
int manager_attach_unit(Manager *m, const AttachRequest *request, const UnitInfo *info, Unit **ret,
                        QosError *e);
