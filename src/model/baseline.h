/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is normal for a unit, by its history. Pure: no I/O, no clock. */

#include "diagnosis.h"
#include "history.h"

typedef struct Baseline {
        DiagnosisFigures figures;
        double usual;                   /* ns to the first byte: three quarters of the time it was no longer
                                         * than this */
        uint64_t since, until;          /* CLOCK_REALTIME ns: when the first of it began, and the last of it
                                         * ended */
        uint64_t covered;               /* ns of it */
} Baseline;

/* Of what ended before that moment (CLOCK_MONOTONIC ns). rate: of requests now, so that it is held against
 * times with as many, where there are some. -ENODATA: too little is known. */
int baseline_read(const History *h, uint64_t before, double rate, Baseline *ret);
