/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Endpoints and peers: which rows the books of a unit have, what these have in a window, and what that
 * means. */

#include "selector.h"
#include "unit.h"
#include "window.h"

typedef struct RowReading {
        Row row;
        WindowRow value;
} RowReading;

/* All that the rows have in a window. */
typedef struct RowsReading {
        RowReading rows[SNAPSHOT_ROWS_MAX]; /* as in Snapshot */
        size_t n;
        bool measured;
        uint64_t covered;
        WindowRow peers;        /* all of them, where that is known and the rows are not measured */
        bool peers_known;
} RowsReading;

/* sessions: with which the gauges of qos_unit_map.gauges are valid; NULL: the programs that count are not
 * there. covered: of the window, as for the unit. */
void rows_read(const WindowSources *sources, const uint64_t *sessions, uint64_t now, uint64_t window,
               uint64_t covered, RowsReading *ret);

/* The rows that are chosen, together: SELECTOR_NONE with client: all peers. Not measured if there are
 * none. */
void rows_sum(const Unit *u, const RowsReading *rows, const Selector *s, WindowRow *ret_value, Row *ret);
/* The unit's figures as a client, which are the peers' together. */
void rows_get_client(const Unit *u, const RowsReading *rows, ClientRole *ret);
/* The same, and all rows. */
void rows_fill(const Unit *u, RowsReading *rows, Snapshot *ret, ClientRole *ret_client);

/* What the unit asks of others, and what is not in its figures, is in no cell of its own: what is to be
 * added to the signature of a reading. */
uint64_t rows_get_signature(const RowsReading *rows, uint64_t signature);
