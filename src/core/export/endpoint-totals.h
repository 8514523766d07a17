/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Counters of the endpoints of a unit since the attach, for exports, made monotonic: monitoring systems
 * treat a counter that decreases as one that was reset. The first endpoint is the unit minus the others, and
 * a reading may be too small by what these count meanwhile. */

#include "unit-peers.h"

typedef struct EndpointTotals EndpointTotals;

/* Raises rows of endpoints, read since the attach, to their values of the last call, and stores the result.
 * sources: of the reading. Allocates *totals in the first call. */
int endpoint_totals_raise(EndpointTotals **totals, uint64_t attached_since, const WindowSources *sources,
                          RowsReading *rows);
