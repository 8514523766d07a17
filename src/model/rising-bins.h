/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Monotonic bins of a distribution, for monitoring systems, which treat a bucket that decreases as a counter
 * that was reset. Bins do decrease, as the sample of a response in transmission moves to longer durations.
 * Pure. */

#include "util.h"

/* Changes n bins (counts since a fixed time, shortest durations first) such that none is less than in the
 * previous call, and stores them in before, which is zeroed for the first call. Samples move to higher bins
 * only. The sum of the bins is unchanged: the excess of a bin that samples have left is withheld from higher
 * bins until the bin gets new samples. */
void bins_raise(uint64_t *before, uint64_t *bins, size_t n);
