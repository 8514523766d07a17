/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The buckets of a distribution that Export() has, on the grid of native histograms of Prometheus. */

#include <systemd/sd-json.h>

#include "util.h"

/* Between these powers of two seconds the buckets are: shorter durations are in the one that ends at the
 * first, longer ones in the one that begins at the second. */
#define SPARSE_MIN_EXPONENT (-22)
#define SPARSE_MAX_EXPONENT 6
/* The powers of two from the first to the last. */
#define SPARSE_OCTAVES ((size_t) (SPARSE_MAX_EXPONENT - SPARSE_MIN_EXPONENT + 1))

/* Bucket i has durations longer than 2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s. */
typedef struct SparseBucket {
        int index;
        uint64_t n;
} SparseBucket;

typedef struct SparseHistogram {
        int schema;                     /* 0 to 8 */
        int finest;                     /* the schema before a limit was applied */
        uint64_t count;
        uint64_t sum;                   /* ns */
        uint64_t zero;                  /* durations of at most 2^SPARSE_MIN_EXPONENT s */
        size_t n;
        SparseBucket *buckets;          /* ascending, none of them empty, without zero */
} SparseHistogram;

/* The ExportedHistogram of a distribution, among those of an ExportedUnit, which may be NULL. NULL: it has
 * none. */
sd_json_variant* sparse_histogram_find(sd_json_variant *histograms, const char *metric);

/* Reads an ExportedHistogram. Returns -EBADMSG if it is invalid, or -ENOMEM. */
int sparse_histogram_parse(sd_json_variant *v, SparseHistogram *ret);
void sparse_histogram_done(SparseHistogram *h);
#define _cleanup_sparse_histogram_ _cleanup_(sparse_histogram_done)

/* Takes the finest schema with which there are no more buckets than the limit (0: none), by adding pairs of
 * buckets, which is exact. As no bucket becomes empty before a reset, it never becomes finer before one.
 * Schema 0 is the last one: it has up to 29 buckets. */
void sparse_histogram_limit(SparseHistogram *h, unsigned buckets_max);

/* How many durations are no longer than each power of two seconds, from the first to the last. */
void sparse_histogram_accumulate(const SparseHistogram *h, uint64_t ret[static SPARSE_OCTAVES]);
