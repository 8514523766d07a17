/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A reading of a unit: the maps, programs and gauges that all its windows are filled from, gathered once. */

#include "contention-window.h"
#include "manager.h"
#include "probe.h"
#include "unit-peers.h"
#include "window.h"

/* Programs required by metrics, for PROGRAMS(): without one of them, the metric is not measured. */
#define REQUIRES_EXCHANGES PROGRAM_READ, PROGRAM_EGRESS
#define REQUIRES_ARRIVALS REQUIRES_EXCHANGES, PROGRAM_INGRESS
#define REQUIRES_CLOCK REQUIRES_ARRIVALS, PROGRAM_STATE
#define REQUIRES_LISTENERS PROGRAM_FIND_SOCKETS /* the only source for older ones */

/* Which figures of iterators are updated first, unless that was done a moment ago (gauges.h). */
typedef enum ReadingRefresh {
        READING_LISTENERS = 1U << 0,
        READING_IN_FLIGHT = 1U << 1,
        READING_MISSING   = 1U << 2,    /* also if it was, and requests have arrived since */
} ReadingRefresh;

/* Levels of the moment. ABSENT: unknown, or not measured. */
typedef struct ReadingGauges {
        uint64_t open, accept_queue, accept_queue_max;
        uint64_t in_flight, oldest_in_flight, waiting, oldest_waiting; /* see Server */
        bool not_tcp;                   /* some requests in flight are not on TCP */
} ReadingGauges;

typedef struct UnitReading {
        Unit *unit;
        uint64_t now;                   /* CLOCK_MONOTONIC ns */
        Bitmap programs;                /* attached ones */
        WindowSource source_buffer[UNITS_MAX_LIMIT];
        WindowSources sources;          /* empty without map */
        ReadingGauges gauges;
        ContentionSource contention_buffer[UNITS_MAX_LIMIT];
        ContentionSources contention;
        bool writeback;                 /* attributed to the unit */
} UnitReading;

/* refresh: of ReadingRefresh */
void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret);

/* Of a unit with a map, after the windows were read: a request that ends meanwhile is in one of them. */
void unit_reading_get_gauges(UnitReading *r);

/* False: contention is not observed. cells: for readings with all counters. */
bool unit_reading_get_contention(UnitReading *r, bool cells);

/* Endpoints and peers over a window. covered: as for the unit. */
void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret);
