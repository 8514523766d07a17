/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Bins of a distribution for systems that store metrics, which take a bucket that falls for a counter that
 * began anew. The sample of a response that goes on moves to longer durations, so bins do fall. Pure. */

#include "util.h"

/* Changes n bins (since a fixed time, shortest durations first) such that none is below what it was in the
 * previous call, and keeps them in before; zeroed for the first call. Samples move to higher bins only. The
 * sum of the bins stays as it is: what a bin has too much, as samples have left it, is withheld from those
 * above it, until the bin itself gets new samples. */
void bins_raise(uint64_t *before, uint64_t *bins, size_t n);
