/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parts of a snapshot, for readers that do not need all of it. */

#include "contention-window.h"
#include "manager.h"
#include "probe.h"
#include "unit-reading.h"
#include "window.h"

#define REQUIRES_STATES PROGRAM_CPU_SWITCH, PROGRAM_CPU_WAKE, PROGRAM_CPU_WAKE_NEW, \
                        PROGRAM_FIND_THREADS

/* Distributions of the server role. */
typedef struct ServerDistribution {
        const char *name;
        const Program *needs;           /* PROGRAMS(REQUIRES_*) */
        size_t offset;                  /* in struct Server */
} ServerDistribution;

#define REQUIRES_BLOCK PROGRAM_BLOCK_START, PROGRAM_BLOCK_ISSUE, PROGRAM_BLOCK_COMPLETE, \
                       PROGRAM_BLOCK_DONE
#define REQUIRES_FAULTS PROGRAM_FAULT, PROGRAM_FAULT_KERNEL, PROGRAM_MEMORY_FORK, \
                        PROGRAM_MEMORY_EXIT, PROGRAM_FIND_FAULTS

extern const ServerDistribution server_distributions[QOS_DISTRIBUTIONS];

/* With the gauges of the reading. distributions: bitmask of those that were read; the others are absent. */
void metrics_fill(const UnitReading *r, const WindowReading *reading, unsigned distributions, Metrics *ret);
/* Raw counters alone, without regard to validity. */
void counters_fill(const UnitReading *r, const WindowReading *reading, Metrics *ret);
void contention_set_absent(Metrics *ret);
void states_fill(const ContentionReading *reading, Bitmap programs, unsigned minimum, bool cells,
                 Contention *c);
/* Whether all requests were on TCP. */
bool clock_is_whole(const UnitReading *r, const WindowReading *reading);
/* As metrics_fill(). cells, clock: whether these were read and are valid; otherwise values derived from them
 * are absent. */
void contention_fill_read(const UnitReading *r, const ContentionReading *reading, uint64_t window,
                          bool cells, bool clock, Contention *c);

/* Run time of the programs, ns. */
uint64_t contention_get_cost(const ContentionReading *reading);

/* Components of the totals of a snapshot. */
typedef struct TotalReading {
        WindowReading requests;
        ContentionReading contention;
        WindowRow client;               /* sum of all peers */
} TotalReading;

/* at: NULL for now. ret_total: NULL if not needed; has what ret->totals says is measured. */
void snapshot_read(Unit *u, const Moment *at, uint64_t window, Snapshot *ret, RowsReading *ret_rows,
                   TotalReading *ret_total);
