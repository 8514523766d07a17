/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Overview of a unit, for user interfaces: the measured properties of org.qosd1.Unit. */

#include "unit.h"

/* As in snapshots, UINT64_MAX, NaN and "" are absent values. Equal strings have equal addresses, as all are
 * constants. */
typedef struct Overview {
        double rate, error_rate;        /* per second */
        uint64_t latency_p50, latency_p99; /* ns */
        uint64_t in_flight;
        const char *state;              /* combined state of all thresholds */
        const char *worst_wait;
        const char *verdict;
} Overview;

/* Fills in all but the verdict. */
void overview_fill(const Unit *u, const Snapshot *s, Overview *ret);

/* "nothing", "unknown", or the kind of the first finding of a diagnosis from snapshot and history. */
const char* overview_get_verdict(Unit *u, const Snapshot *s);
