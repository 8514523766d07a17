/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Endpoints and peers of a unit over a window. */

#include "selector.h"
#include "unit.h"
#include "window.h"

typedef struct RowReading {
        Row row;
        WindowRow value;
} RowReading;

/* All entries over a window. */
typedef struct RowsReading {
        RowReading rows[SNAPSHOT_ROWS_MAX]; /* as in Snapshot */
        size_t n;
        bool measured;
        uint64_t covered;
        uint64_t known;         /* requests of all endpoints in a known protocol, see window_count_known() */
        bool folded;            /* rows were added to the others for lack of space; another reading may have
                                 * them */
        WindowRow peers;        /* sum of peers, if known although entries are not measured */
        bool peers_known;
} RowsReading;

/* sessions: iterator sessions for which qos_unit_map.gauges is valid; NULL: counting programs are not
 * attached. covered: of the unit's reading. */
void rows_read(const WindowSources *sources, const uint64_t *sessions, uint64_t now, uint64_t window,
               uint64_t covered, RowsReading *ret);

/* Sum of the selected rows; SELECTOR_NONE with client: all peers. ret->measured is false if no row
 * matches. */
void rows_sum(const Unit *u, const RowsReading *rows, const Selector *s, WindowRow *ret_value, Row *ret);
/* Client role of the unit: the sum of its peers. */
void rows_get_client(const Unit *u, const RowsReading *rows, ClientRole *ret);
/* Fills in the rows of a snapshot. */
void rows_fill(const Unit *u, RowsReading *rows, Snapshot *ret);

/* Adds the client role and excluded endpoints, which have no cells of their own, to the signature of a
 * reading. */
uint64_t rows_get_signature(const RowsReading *rows, uint64_t signature);
