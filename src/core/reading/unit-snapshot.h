/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Snapshots, and parts of them. */

#include "unit-reading.h"

/* Fills in statistics of the control group. Leaves c unchanged if they are not read. */
void usage_fill(const Unit *u, uint64_t window, Contention *c);

/* Components of the totals of a snapshot. */
typedef struct TotalReading {
        WindowReading requests;
        ContentionReading contention;
        StorageReading storage;
        NetworkReading network;
        WindowRow client;               /* sum of all peers */
} TotalReading;

/* at: NULL: now. ret_total: NULL: not needed; valid where ret->totals is not absent. */
void snapshot_read(Unit *u, const Moment *at, uint64_t window, Snapshot *ret, RowsReading *ret_rows,
                   TotalReading *ret_total);
