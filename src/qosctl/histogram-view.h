/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A distribution as a picture. */

#include <systemd/sd-json.h>

#include "terminal.h"

typedef struct HistogramRow {
        uint64_t lower, upper;  /* ns; upper UINT64_MAX: no end */
        uint64_t count;
} HistogramRow;

/* Merges the buckets of a reply to Histogram into at most rows_max (at least 3) rows of equal ratio, without gaps.
 * No rows if nothing was counted. */
int histogram_merge(sd_json_variant *reply, size_t rows_max, HistogramRow **ret, size_t *ret_n);

/* The bars, each with its share; if minimum_samples is not 0 also with counts, and with the quantiles that have so many samples on either side. */
int histogram_print(FILE *f, const Style *style, sd_json_variant *reply, size_t rows_max, uint64_t minimum_samples, unsigned indent);

/* Bucket index of a grid with 2^schema buckets for each doubling ends at 2^(index / 2^schema): that, at most INT64_MAX. */
uint64_t bucket_upper(long index, int schema);
/* The same bucket's number on a coarser grid: each bucket lies within one of those, as the bounds nest. */
long bucket_coarser_index(long index, int steps);
