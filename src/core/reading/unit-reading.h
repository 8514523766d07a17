/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A reading of a unit: its maps and measured values, gathered once for all windows. */

#include "manager.h"
#include "snapshot-fill.h"
#include "unit-peers.h"

/* Values of iterators to be updated first (gauges.h). */
typedef enum ReadingRefresh {
        READING_LISTENERS = 1U << 0,
        READING_IN_FLIGHT = 1U << 1,
        READING_MISSING   = 1U << 2,    /* regardless of age if requests have arrived since */
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
        NetworkSource network_buffer[UNITS_MAX_LIMIT];
        NetworkSources network;
} UnitReading;

/* refresh: flags of ReadingRefresh */
void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret);

/* For a unit with a map, see reading_get_gauges(). */
void unit_reading_get_gauges(UnitReading *r);

/* False: contention is not observed. cells: for readings with all counters. */
bool unit_reading_get_contention(UnitReading *r, bool cells);

/* False: the unit is not observed with "storage". */
bool unit_reading_get_storage(UnitReading *r);

/* False: the unit is not observed with "network". */
bool unit_reading_get_network(UnitReading *r);

/* Endpoints and peers over a window. covered: of the unit's reading. */
void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret);
