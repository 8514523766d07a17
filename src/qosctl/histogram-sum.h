/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sum of the distributions of several hosts. */

#include <systemd/sd-json.h>

#include "util.h"

typedef struct SumBucket {
        long index;             /* index in native histograms; LONG_MAX: bucket without upper bound */
        uint64_t count;
} SumBucket;

typedef struct HistogramSum {
        int schema;             /* coarsest schema of the added histograms */
        uint64_t count;
        uint64_t sum;           /* ns */
        uint64_t last;          /* lower bound of the bucket without upper bound, ns */
        bool from_zero;         /* whether the first bucket begins at 0 */
        size_t n;
        SumBucket *buckets;     /* in ascending order */
} HistogramSum;

/* Adds the buckets of a reply to Histogram(). If the schemas differ, the result has the coarser one. Returns
 * -EBADMSG for an invalid reply, or -ENOMEM, without a change of the sum. */
int histogram_sum_add(HistogramSum *s, sd_json_variant *reply);
/* Returns the buckets as in a reply to Histogram(). */
int histogram_sum_get_buckets(const HistogramSum *s, sd_json_variant **ret);
/* Returns the quantile q in ns, as qosd calculates it: the harmonic mean of the bounds of the bucket with
 * the sample of this rank, but at most maximum, which is also returned for the bucket without upper bound.
 * There has to be a sample. */
uint64_t histogram_sum_get_quantile(const HistogramSum *s, double q, uint64_t maximum);
void histogram_sum_done(HistogramSum *s);
#define _cleanup_histogram_sum_ _cleanup_(histogram_sum_done)
