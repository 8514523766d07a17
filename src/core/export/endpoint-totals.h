/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Counters of the endpoints of a unit since the attach, for exports: as in rows, but never less than before.
 * The first endpoint is a difference of two readings, which may be too small by what others count meanwhile,
 * and systems that store metrics take a counter that falls for one that began anew. */

#include "unit-peers.h"

typedef struct EndpointTotals EndpointTotals;

/* Raises the rows of endpoints (since the attach) to what they had before, and keeps what they have.
 * sources: those of the reading. Allocates *totals with the first call. */
int endpoint_totals_raise(EndpointTotals **totals, uint64_t attached_since, const WindowSources *sources,
                          RowsReading *rows);
