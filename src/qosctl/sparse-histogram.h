/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distributions of Export(), with buckets as in native histograms of Prometheus. */

#include <systemd/sd-json.h>

#include "util.h"

/* Exponents of the bounds, 2^e s: the first bucket ends at the lower one and has all shorter durations as
 * well, the last one begins at the upper one and has all longer durations. */
#define SPARSE_MIN_EXPONENT (-22)
#define SPARSE_MAX_EXPONENT 6
/* Number of powers of two from the lower to the upper bound. */
#define SPARSE_OCTAVES ((size_t) (SPARSE_MAX_EXPONENT - SPARSE_MIN_EXPONENT + 1))

/* Bucket i has durations longer than 2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s. */
typedef struct SparseBucket {
        int index;
        uint64_t n;
} SparseBucket;

typedef struct SparseHistogram {
        int schema;                     /* 0 to 8 */
        int finest;                     /* schema before sparse_histogram_limit() */
        uint64_t count;
        uint64_t sum;                   /* ns */
        uint64_t zero;                  /* durations of at most 2^SPARSE_MIN_EXPONENT s */
        size_t n;
        SparseBucket *buckets;          /* buckets that are not empty, in ascending order, without the first
                                         * one */
} SparseHistogram;

/* Finds the ExportedHistogram of a distribution. histograms: those of an ExportedUnit, may be NULL. NULL:
 * none. */
sd_json_variant* sparse_histogram_find(sd_json_variant *histograms, const char *metric);

/* Reads an ExportedHistogram. Returns -EBADMSG if it is invalid, or -ENOMEM. */
int sparse_histogram_parse(sd_json_variant *v, SparseHistogram *ret);
void sparse_histogram_done(SparseHistogram *h);
#define _cleanup_sparse_histogram_ _cleanup_(sparse_histogram_done)

/* Reduces the schema until there are at most buckets_max buckets (0: no limit), or to 0, which has up to 29.
 * Merging pairs of buckets is exact. The schema of a distribution does not grow again before a reset, as no
 * bucket becomes empty before. */
void sparse_histogram_limit(SparseHistogram *h, unsigned buckets_max);

/* Returns the number of durations that are no longer than each power of two, from the lower to the upper
 * bound. */
void sparse_histogram_accumulate(const SparseHistogram *h, uint64_t ret[static SPARSE_OCTAVES]);
