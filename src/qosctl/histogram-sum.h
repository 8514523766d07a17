/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The distribution of several hosts together: the sum of their buckets. */

#include <systemd/sd-json.h>

#include "util.h"

typedef struct SumBucket {
        long index;             /* as in native histograms; LONG_MAX: the one without upper bound */
        uint64_t count;
} SumBucket;

typedef struct HistogramSum {
        int schema;             /* the coarsest of those that were added */
        uint64_t count;
        uint64_t sum;           /* ns */
        uint64_t last;          /* lower bound of the bucket without upper bound, ns */
        bool from_zero;         /* the first bucket has all that is shorter */
        size_t n;
        SumBucket *buckets;     /* ascending */
} HistogramSum;

/* Adds the buckets of a reply to Histogram(). Where the schemas differ, the finer buckets are added to those
 * that contain them. Returns -EBADMSG for an invalid reply, or -ENOMEM; the sum is as before then. */
int histogram_sum_add(HistogramSum *s, sd_json_variant *reply);
/* The buckets as in a reply to Histogram(). */
int histogram_sum_get_buckets(const HistogramSum *s, sd_json_variant **ret);
/* The quantile q by the rule of qosd: the value in the middle of the bucket that has the sample of this
 * rank, by the ratio to its bounds; ns, at most maximum, which is the value of the bucket without upper
 * bound. There has to be a sample. */
uint64_t histogram_sum_get_quantile(const HistogramSum *s, double q, uint64_t maximum);
void histogram_sum_done(HistogramSum *s);
#define _cleanup_histogram_sum_ _cleanup_(histogram_sum_done)
