/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distributions as histograms. */

#include <systemd/sd-json.h>

#include "terminal.h"

typedef struct HistogramRow {
        uint64_t lower, upper;  /* ns; upper UINT64_MAX: unbounded */
        uint64_t count;
} HistogramRow;

/* Merges the buckets of a reply to Histogram() into at most rows_max (at least 3) contiguous rows with the
 * same ratio of their bounds. Returns no rows if there are no samples. */
int histogram_merge(sd_json_variant *reply, size_t rows_max, HistogramRow **ret, size_t *ret_n);

/* Prints bars with shares; unless minimum_samples is 0, also counts, and the quantiles with at least that
 * many samples on either side. */
int histogram_print(FILE *f, const Style *style, sd_json_variant *reply, size_t rows_max,
                    uint64_t minimum_samples, unsigned indent);

/* Schema of native histograms: logarithm to base 2 of the number of buckets per power of two. */
#define HISTOGRAM_SCHEMA_MIN (-4)
#define HISTOGRAM_SCHEMA_MAX 8

/* Returns the index of the bucket with this upper bound in ns. */
long bucket_index(uint64_t upper, int schema);
/* Returns the upper bound of a bucket, 2^(index / 2^schema) s, in ns, rounded down, at most INT64_MAX. */
uint64_t bucket_upper(long index, int schema);
/* Returns the index of the bucket that contains this one in a schema that is coarser by steps. */
long bucket_coarser_index(long index, int steps);
