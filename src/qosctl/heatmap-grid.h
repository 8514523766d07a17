/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distribution over time as a grid: a column for one or more steps, a row for a range of durations. */

#include <systemd/sd-json.h>

#include "util.h"

typedef struct Heatmap {
        size_t slots;           /* steps from the first to the last one; 0: drawn without gaps, as the clock
                                 * was set */
        size_t per_column;      /* steps per column; 1 if step_columns > 1 */
        size_t step_columns;    /* columns of the screen per step; 1 if per_column > 1 */
        size_t columns;         /* not multiplied by step_columns */
        int schema;
        long first;             /* index of the bucket of the first row */
        size_t rows;
        uint64_t begin, step;   /* ns */
        uint64_t *cells;        /* numbers of samples, in row-major order */
        bool *observed;         /* by column: whether it has a step */
} Heatmap;

/* Reads the buckets of a metric from steps of the history, of which there is at least one. width: largest
 * number of columns of the screen. Returns -EBADMSG if they are invalid. */
int heatmap_make(sd_json_variant *steps, const char *metric, uint64_t step, size_t width, Heatmap *ret);
void heatmap_done(Heatmap *h);

/* Levels of color, by the share of the samples of the column. */
#define HEATMAP_SHADES 5

/* 0: no samples, else up to HEATMAP_SHADES. */
unsigned heatmap_get_shade(const Heatmap *h, size_t row, size_t column);
/* Shares of a level, 1 to HEATMAP_SHADES: "<5%", "more". */
const char* heatmap_shade_to_string(unsigned shade);

/* Upper bound of a row, ns; UINT64_MAX: none. */
uint64_t heatmap_get_bound(const Heatmap *h, size_t row);
