/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <math.h>

#include "format.h"
#include "heatmap.h"
#include "histogram-view.h"
#include "value.h"

/* Fits on a small terminal. */
#define ROWS_MAX 18
/* Rows of less than half an octave would show noise. */
#define SCHEMA_MAX 1
/* Wider columns do not improve readability. */
#define STEP_COLUMNS_MAX 4U
/* Far more than a day has steps: if the clock was set, steps are drawn without gaps. */
#define SLOTS_MAX 4096U
/* Exponent of the lower bound of the last, unbounded bucket (2^6 s). */
#define LAST_EXPONENT 6

/* Appearance of cells by the share of requests of the column. */
static const struct {
        double share;
        const char *text, *utf8, *ascii;
        Color color;
} shades[] = {
        { 0.01,     "<1%",  "\xc2\xb7",     ".", COLOR_GREY   },
        { 0.05,     "<5%",  "\xe2\x96\x91", ":", COLOR_GREEN  },
        { 0.15,     "<15%", "\xe2\x96\x92", "+", COLOR_GREEN  },
        { 0.35,     "<35%", "\xe2\x96\x93", "*", COLOR_YELLOW },
        { INFINITY, "more", "\xe2\x96\x88", "#", COLOR_RED    },
};

typedef struct Heatmap {
        size_t slots;           /* from the first to the last step */
        size_t per_column;      /* 1 if step_columns is not */
        size_t step_columns;    /* 1 if per_column is not */
        size_t columns;         /* without repetitions for step_columns */
        int schema;
        long first;             /* bucket of the first row */
        size_t rows;
        uint64_t begin, step;   /* ns */
        uint64_t *cells;        /* in row-major order */
        bool *observed;         /* by column */
} Heatmap;

static void heatmap_done(Heatmap *h) {
        free(h->cells);
        free(h->observed);
}

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

/* Schema and offset of a step's buckets. Returns 0 if there are none. */
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

static int heatmap_make(sd_json_variant *steps, const char *metric, uint64_t step, size_t width,
                        Heatmap *ret) {
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

static void print_cell(FILE *f, const Style *style, bool plain, size_t times, Color color,
                       const char *text) {
        (void) fputs(plain ? "" : color_on(style, color), f);
        for (size_t i = 0; i < times; i++)
                (void) fputs(text, f);
        (void) fputs(plain || color == COLOR_NONE ? "" : color_off(style), f);
}

static const char* shade_text(const Style *style, bool plain, size_t i) {
        return plain || !style->utf8 ? shades[i].ascii : shades[i].utf8;
}

/* Prints times below some of the columns. */
static void print_axis(FILE *f, const Heatmap *h, uint64_t now, size_t indent) {
        size_t at = 0, width = h->columns * h->step_columns;

        if (h->slots == 0)
                return;

        for (size_t column = 0; column < h->columns; column++) {
                size_t begin = column * h->step_columns, l;
                char buf[FORMAT_MAX];

                if (begin > 0 && begin < at + 3)
                        continue;
                /* Depends on the locale */
                l = text_width(format_time(buf, h->begin + column * h->per_column * h->step, now));
                if (begin > 0 && begin + l > width)
                        break;
                (void) fprintf(f, "%*s%s", (int) (begin - at + (begin == 0 ? indent : 0)), "", buf);
                at = begin + l;
        }
        (void) fputc('\n', f);
}

int heatmap_print(const Style *style, bool plain, sd_json_variant *reply, const char *metric, uint64_t now,
                  bool legend) {
        sd_json_variant *steps = value_find(reply, "steps");
        size_t width = style->width > 0 ? style->width : 80;
        const char *unit = value_string(reply, "unit");
        _cleanup_(heatmap_done) Heatmap h = {};
        char a[FORMAT_MAX], b[FORMAT_MAX], c[FORMAT_MAX];
        uint64_t total = 0, step;
        bool gaps = false;
        int r;

        if (!steps || !sd_json_variant_is_array(steps) || !value_unsigned(reply, "step", &step) || step == 0)
                return -EBADMSG;
        if (sd_json_variant_elements(steps) == 0) {
                if (legend)
                        (void) printf("No complete step of %s is recorded for this period.\n",
                                      format_window(a, step));
                return 0;
        }

        /* Space for "   1.05ms " and "   15.1k" */
        r = heatmap_make(steps, metric, step, width > 18 + 20 ? width - 18 : 20, &h);
        if (r < 0)
                return r;
        for (size_t i = 0; i < h.rows * h.columns; i++)
                total += h.cells[i];

        if (legend)
                (void) printf("%s%s%s of %s: %s since %s, steps of %s\n\n", color_on(style, COLOR_BOLD),
                              metric, color_off(style), unit ?: "?", format_count(a, total),
                              format_time(b, h.begin, now), format_window(c, step));

        if (legend && h.rows > 0)
                (void) printf("%9s %*s %7s\n", "UP TO", (int) (h.columns * h.step_columns), "", "COUNT");
        for (size_t row = 0; row < h.rows; row++) {
                long bucket = h.first + (long) row;
                uint64_t sum = 0;

                if (bucket > (long) ldexp(LAST_EXPONENT, h.schema))
                        (void) printf("%9s ", "longer");
                else
                        (void) printf("%9s ", format_duration(a, bucket_upper(bucket, h.schema)));
                for (size_t column = 0; column < h.columns; column++) {
                        uint64_t n = h.cells[row * h.columns + column], all = 0;
                        size_t shade = 0;

                        sum += n;
                        if (!h.observed[column]) {
                                gaps = true;
                                print_cell(stdout, style, plain, h.step_columns, COLOR_GREY, "/");
                                continue;
                        }
                        if (n == 0) {
                                print_cell(stdout, style, plain, h.step_columns, COLOR_NONE, " ");
                                continue;
                        }
                        for (size_t k = 0; k < h.rows; k++)
                                all += h.cells[k * h.columns + column];
                        while ((double) n >= shades[shade].share * (double) all)
                                shade++;
                        print_cell(stdout, style, plain, h.step_columns, shades[shade].color,
                                   shade_text(style, plain, shade));
                }
                (void) printf(" %7s\n", format_count(a, sum));
        }
        print_axis(stdout, &h, now, 10);

        if (legend && h.rows > 0) {
                (void) printf("\nShare of requests per column:");
                for (size_t i = 0; i < ELEMENTSOF(shades); i++) {
                        (void) putchar(' ');
                        print_cell(stdout, style, plain, 1, shades[i].color, shade_text(style, plain, i));
                        (void) printf(" %s", shades[i].text);
                }
                (void) printf("%s\n", gaps ? ", / not observed" : "");
        }
        return 0;
}
