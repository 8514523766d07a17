/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parts of a snapshot, for readers that do not need all of it. */

#include "unit-reading.h"

/* Statistics of the control group; of a unit without any, nothing. */
void usage_fill(const Unit *u, uint64_t window, Contention *c);

/* Components of the totals of a snapshot. */
typedef struct TotalReading {
        WindowReading requests;
        ContentionReading contention;
        StorageReading storage;
        WindowRow client;               /* sum of all peers */
} TotalReading;

/* at: NULL for now. ret_total: NULL if not needed; has what ret->totals says is measured. */
void snapshot_read(Unit *u, const Moment *at, uint64_t window, Snapshot *ret, RowsReading *ret_rows,
                   TotalReading *ret_total);
