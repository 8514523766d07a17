/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Attaches and detaches units. The first hold of a unit creates it, the last one frees it. */

#include "manager.h"
#include "service-manager.h"

/* Takes a hold, or renews it. expires: CLOCK_BOOTTIME us, or USEC_INFINITY. */
int unit_hold(Unit *u, const AttachRequest *request, uint64_t expires);

/* Drops the hold of Observe=auto; the unit may be freed. */
void unit_drop_configured_hold(Unit *u);

/* info: properties with the current or future control group, see unit_new(). */
int manager_attach_unit(Manager *m, const AttachRequest *request, const UnitInfo *info, Unit **ret,
                        QosError *e);
