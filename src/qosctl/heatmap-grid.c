/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <math.h>

#include "heatmap-grid.h"
#include "histogram-view.h"
#include "value.h"

/* Maximum number of rows, for small terminals. */
#define ROWS_MAX 18
/* Finest schema of rows, half an octave: finer ones would show noise. */
#define SCHEMA_MAX 1
/* Maximum width of a step. */
#define STEP_COLUMNS_MAX 4U
/* Number of steps between the first and the last one from which on steps are drawn without gaps, as the
 * clock was probably set. */
#define SLOTS_MAX 4096U
void heatmap_done(Heatmap *h) {
        free(h->cells);
        free(h->observed);
}

/* Upper limits of the levels. */
static const struct {
        double share;
        const char *text;
} shades[HEATMAP_SHADES] = {
        { 0.01,     "<1%"  },
        { 0.05,     "<5%"  },
        { 0.15,     "<15%" },
        { 0.35,     "<35%" },
        { INFINITY, "more" },
};

/* Exponent of the lower bound of the last, unbounded bucket (2^6 s). */
#define LAST_EXPONENT 6

static sd_json_variant* step_find_histogram(sd_json_variant *step, const char *metric) {
        sd_json_variant *histograms = value_find(step, "histograms");

        for (size_t i = 0;
             histograms && sd_json_variant_is_array(histograms) && i < sd_json_variant_elements(histograms);
             i++) {
                sd_json_variant *h = sd_json_variant_by_index(histograms, i);

                if (streq_ptr(value_string(h, "metric"), metric))
                        return h;
        }
        return NULL;
}

static bool value_integer(sd_json_variant *v, const char *path, int64_t *ret) {
        v = value_find(v, path);
        if (!v || !sd_json_variant_is_integer(v))
                return false;
        *ret = sd_json_variant_integer(v);
        return true;
}

/* Returns schema and offset of a step's buckets, or 0 if there are none. */
static int histogram_parse(sd_json_variant *h, int *ret_schema, long *ret_first,
                           sd_json_variant **ret_counts) {
        sd_json_variant *counts = value_find(h, "counts");
        int64_t schema, offset;

        if (!h || !counts || !sd_json_variant_is_array(counts) || sd_json_variant_elements(counts) == 0)
                return 0;
        if (!value_integer(h, "schema", &schema) || !value_integer(h, "offset", &offset) || schema < -4 ||
            schema > 8 || offset < -100000 || offset > 100000 || sd_json_variant_elements(counts) > 100000)
                return -EBADMSG;

        *ret_schema = (int) schema;
        *ret_first = (long) offset;
        *ret_counts = counts;
        return 1;
}

static size_t step_get_slot(const Heatmap *h, sd_json_variant *step, size_t i) {
        uint64_t at = 0;

        (void) value_time(step, "timestamp", &at);
        /* Round to nearest, as the clock may have been adjusted */
        return h->slots == 0 ? i : at < h->begin ? 0 : (size_t) ((at - h->begin + h->step / 2) / h->step);
}

int heatmap_make(sd_json_variant *steps, const char *metric, uint64_t step, size_t width, Heatmap *ret) {
        size_t n = sd_json_variant_elements(steps), last_slot;
        Heatmap h = { .step = step, .schema = SCHEMA_MAX };
        long last = LONG_MIN;
        uint64_t end = 0;

        (void) value_time(sd_json_variant_by_index(steps, 0), "timestamp", &h.begin);
        for (size_t i = 0; i < n; i++) {
                uint64_t at = 0;

                (void) value_time(sd_json_variant_by_index(steps, i), "timestamp", &at);
                end = MAX(end, at);
                h.begin = MIN(h.begin, at);
        }
        last_slot = (size_t) ((end - h.begin + step / 2) / step);
        h.slots = last_slot < SLOTS_MAX ? last_slot + 1 : 0;

        /* Use the coarsest schema of all steps */
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *counts;
                int schema, r;
                long first;

                r = histogram_parse(step_find_histogram(sd_json_variant_by_index(steps, i), metric), &schema,
                                    &first, &counts);
                if (r < 0)
                        return r;
                if (r > 0)
                        h.schema = MIN(h.schema, schema);
        }
        for (;; h.schema--) {
                h.first = LONG_MAX;
                last = LONG_MIN;
                for (size_t i = 0; i < n; i++) {
                        sd_json_variant *counts;
                        int schema;
                        long first;

                        if (histogram_parse(step_find_histogram(sd_json_variant_by_index(steps, i), metric),
                                            &schema, &first, &counts) <= 0)
                                continue;
                        h.first = MIN(h.first, bucket_coarser_index(first, schema - h.schema));
                        last = MAX(last,
                                   bucket_coarser_index(first + (long) sd_json_variant_elements(counts) - 1,
                                                        schema - h.schema));
                }
                if (last < h.first || last - h.first < ROWS_MAX || h.schema <= -4)
                        break;
        }
        h.rows = last < h.first ? 0 : (size_t) (last - h.first + 1);

        last_slot = h.slots > 0 ? h.slots : n;
        h.per_column = (last_slot + width - 1) / width;
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is a step */
        h.columns = (last_slot + h.per_column - 1) / h.per_column;
        h.step_columns = MIN(width / h.columns, (size_t) STEP_COLUMNS_MAX);
        h.step_columns = MAX(h.step_columns, (size_t) 1);

        h.cells = new0(uint64_t, h.rows * h.columns);
        h.observed = new0(bool, h.columns);
        if (!h.cells || !h.observed) {
                heatmap_done(&h);
                return -ENOMEM;
        }

        for (size_t i = 0; i < n; i++) {
                sd_json_variant *v = sd_json_variant_by_index(steps, i), *counts;
                size_t column = step_get_slot(&h, v, i) / h.per_column;
                int schema;
                long first;

                h.observed[column] = true;
                if (histogram_parse(step_find_histogram(v, metric), &schema, &first, &counts) <= 0)
                        continue;
                for (size_t k = 0; k < sd_json_variant_elements(counts); k++) {
                        size_t row = (size_t) (bucket_coarser_index(first + (long) k, schema - h.schema) -
                                               h.first);

                        h.cells[row * h.columns + column] += sd_json_variant_unsigned(
                                sd_json_variant_by_index(counts, k));
                }
        }

        *ret = h;
        return 0;
}

unsigned heatmap_get_shade(const Heatmap *h, size_t row, size_t column) {
        uint64_t n = h->cells[row * h->columns + column], all = 0;
        unsigned shade = 0;

        if (n == 0)
                return 0;
        for (size_t i = 0; i < h->rows; i++)
                all += h->cells[i * h->columns + column];
        while ((double) n >= shades[shade].share * (double) all)
                shade++;
        return shade + 1;
}

const char* heatmap_shade_to_string(unsigned shade) {
        return shades[shade - 1].text;
}

uint64_t heatmap_get_bound(const Heatmap *h, size_t row) {
        long bucket = h->first + (long) row;

        if (bucket > (long) ldexp(LAST_EXPONENT, h->schema))
                return UINT64_MAX;
        return bucket_upper(bucket, h->schema);
}
