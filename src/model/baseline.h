/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The baseline of a unit, from its history. Pure: no I/O, no clock. */

#include "diagnosis.h"
#include "history.h"

typedef struct Baseline {
        DiagnosisFigures figures;
        double usual;                   /* ns to the first byte that are not exceeded in three quarters of
                                         * the time */
        double busy;                    /* share of the time with requests, 0 to 1 */
        uint64_t since, until;          /* CLOCK_REALTIME ns: begin of the first step of the figures, and end
                                         * of the last */
        uint64_t covered;               /* ns of these steps */
} Baseline;

/* From the steps that ended before that moment (CLOCK_MONOTONIC ns), those of failures left out. rate:
 * requests/s now; steps with as many are taken where there are some. starts: CLOCK_MONOTONIC ns at which the
 * unit was started, in any order; steps with one of them are left out. -ENODATA: too few steps are left. */
int baseline_read(const History *h, uint64_t before, double rate, const uint64_t *starts, size_t n_starts,
                  Baseline *ret);
