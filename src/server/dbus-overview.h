/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A unit in eight values, for user interfaces: the properties of org.qosd1.Unit that are measured. */

#include "unit.h"

/* As in a snapshot, UINT64_MAX, NaN and "" are absent. Texts are constants: equal ones have the same
 * address. */
typedef struct Overview {
        double rate, error_rate;        /* per second */
        uint64_t latency_p50, latency_p99; /* ns */
        uint64_t in_flight;
        const char *state;              /* what all its thresholds say together */
        const char *worst_wait;
        const char *verdict;
} Overview;

/* All but the verdict, from a snapshot. */
void overview_fill(const Unit *u, const Snapshot *s, Overview *ret);

/* "nothing", "unknown", or the kind of the first finding of a diagnosis from snapshot and history. */
const char* overview_get_verdict(Unit *u, const Snapshot *s);
