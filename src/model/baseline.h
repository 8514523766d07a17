/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The baseline of a unit, from its history. Pure: no I/O, no clock. */

#include "diagnosis.h"
#include "history.h"

typedef struct Baseline {
        DiagnosisFigures figures;
        double usual;                   /* time to first byte in ns that is not exceeded three quarters of
                                         * the time */
        double busy;                    /* share of the time with requests, 0 to 1 */
        uint64_t since, until;          /* CLOCK_REALTIME ns: begin of the first step of the figures, end of
                                         * the last */
        uint64_t covered;               /* ns of these steps */
} Baseline;

/* Reads the baseline from steps that ended before a moment (CLOCK_MONOTONIC ns), without those of failures.
 * rate: current requests/s; steps with at least as many are preferred. starts: CLOCK_MONOTONIC ns of starts
 * of the unit, in any order; steps with a start are excluded. -ENODATA: too few steps remain. */
int baseline_read(const History *h, uint64_t before, double rate, const uint64_t *starts, size_t n_starts,
                  Baseline *ret);
