/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "totals.h"
#include "unit.h"

/* tables: include endpoints, devices and mounts. The result is a single allocation, to be freed with free().
 * Names of thresholds are owned by the thresholds. */
int unit_get_totals(Unit *u, bool tables, UnitTotals **ret);
