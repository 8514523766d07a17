/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "totals.h"
#include "unit.h"

/* The result is one allocation, for free(). Names of thresholds are theirs. */
int unit_get_totals(Unit *u, bool tables, UnitTotals **ret);
