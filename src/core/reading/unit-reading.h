/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A reading of a unit: the maps, and what is measured at the moment, gathered once for all windows that
 * are filled from it. */

#include "manager.h"
#include "snapshot-fill.h"
#include "unit-peers.h"

/* Which figures of iterators are updated first, unless that was done a moment ago (gauges.h). */
typedef enum ReadingRefresh {
        READING_LISTENERS = 1U << 0,
        READING_IN_FLIGHT = 1U << 1,
        READING_MISSING   = 1U << 2,    /* also if it was, and requests have arrived since */
} ReadingRefresh;

typedef struct UnitReading {
        Unit *unit;
        ReadingContext context;
        WindowSource source_buffer[UNITS_MAX_LIMIT];
        WindowSources sources;          /* empty without map */
        ContentionSource contention_buffer[UNITS_MAX_LIMIT];
        ContentionSources contention;
        StorageSource storage_buffer[UNITS_MAX_LIMIT];
        StorageSources storage;
} UnitReading;

/* What is measured by the attached programs: bits of Measured. */
uint64_t manager_get_measured(Manager *m);

/* refresh: of ReadingRefresh */
void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret);

/* Of a unit with a map: see reading_get_gauges(). */
void unit_reading_get_gauges(UnitReading *r);

/* False: contention is not observed. cells: for readings with all counters. */
bool unit_reading_get_contention(UnitReading *r, bool cells);

/* False: the unit is not observed with "storage". */
bool unit_reading_get_storage(UnitReading *r);

/* Endpoints and peers over a window. covered: as for the unit. */
void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret);
