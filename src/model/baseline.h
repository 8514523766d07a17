/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Baseline of a unit, derived from its history. Pure: no I/O, no clock. */

#include "diagnosis.h"
#include "history.h"

typedef struct Baseline {
        DiagnosisFigures figures;
        double usual;                   /* 75th percentile of the time to first byte, ns */
        uint64_t since, until;          /* CLOCK_REALTIME ns: beginning of the first and end of the last step
                                         * used */
        uint64_t covered;               /* total length of the steps used, ns */
} Baseline;

/* Baseline of the steps that ended before a moment (CLOCK_MONOTONIC ns). rate: current request rate; steps
 * of a similar rate are preferred. -ENODATA: not enough history. */
int baseline_read(const History *h, uint64_t before, double rate, Baseline *ret);
