/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "totals.h"
#include "unit.h"

/* tables: include endpoints, devices and mounts. Names of thresholds are owned by the thresholds. */
int unit_get_totals(Unit *u, bool tables, UnitTotals **ret);
UnitTotals* unit_totals_free(UnitTotals *t);
static inline void unit_totals_freep(UnitTotals **t) {
        (void) unit_totals_free(*t);
}
