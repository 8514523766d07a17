/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <math.h>

#include "format.h"
#include "histogram-view.h"
#include "snapshot.h"
#include "value.h"

/* Maximum length of bars, in columns. */
#define BAR_MAX 60U
/* Finest schema of rows, a quarter of an octave: finer ones would show noise. */
#define SCHEMA_MAX 2

long bucket_index(uint64_t upper, int schema) {
        return lround(ldexp(log2((double) upper / NSEC_PER_SEC), schema));
}

long bucket_coarser_index(long index, int steps) {
        long n = 1L << steps;

        return index >= 0 ? (index + n - 1) / n : -(-index / n);
}

uint64_t bucket_upper(long index, int schema) {
        double v = exp2(ldexp((double) index, -schema)) * NSEC_PER_SEC;

        return v >= 0x1p63 ? INT64_MAX : (uint64_t) v;
}

int histogram_merge(sd_json_variant *reply, size_t rows_max, HistogramRow **ret, size_t *ret_n) {
        sd_json_variant *buckets = value_find(reply, "buckets"), *s = value_find(reply, "schema");
        _cleanup_free_ HistogramRow *rows = NULL;
        long first = LONG_MAX, last = LONG_MIN;
        uint64_t least = UINT64_MAX;
        bool overflow = false;
        int schema, steps = 0;
        size_t n;

        assert(rows_max >= 3);

        if (!buckets || !sd_json_variant_is_array(buckets) || !s || !sd_json_variant_is_integer(s))
                return -EBADMSG;
        if (sd_json_variant_integer(s) < HISTOGRAM_SCHEMA_MIN ||
            sd_json_variant_integer(s) > HISTOGRAM_SCHEMA_MAX)
                return -EBADMSG;
        schema = (int) sd_json_variant_integer(s);

        for (size_t i = 0; i < sd_json_variant_elements(buckets); i++) {
                sd_json_variant *b = sd_json_variant_by_index(buckets, i);
                uint64_t lower, upper, count;

                if (!value_unsigned(b, "lower", &lower) || !value_unsigned(b, "count", &count))
                        return -EBADMSG;
                least = MIN(least, lower);
                if (!value_unsigned(b, "upper", &upper)) {
                        overflow = true;
                        continue;
                }
                if (upper == 0 || upper <= lower)
                        return -EBADMSG;
                first = MIN(first, bucket_index(upper, schema));
                last = MAX(last, bucket_index(upper, schema));
        }

        for (; first <= last; steps++) {
                n = (size_t) (bucket_coarser_index(last, steps) - bucket_coarser_index(first, steps)) + 1;
                if ((n + overflow <= rows_max && schema - steps <= SCHEMA_MAX) ||
                    schema - steps == HISTOGRAM_SCHEMA_MIN)
                        break;
        }

        first = first > last ? 0 : bucket_coarser_index(first, steps);
        n = (size_t) (last == LONG_MIN ? 0 : bucket_coarser_index(last, steps) - first + 1) + overflow;
        rows = new0(HistogramRow, n);
        if (!rows)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                rows[i].lower = bucket_upper(first + (long) i - 1, schema - steps);
                rows[i].upper = bucket_upper(first + (long) i, schema - steps);
        }
        if (overflow)
                rows[n - 1].upper = UINT64_MAX;

        for (size_t i = 0; i < sd_json_variant_elements(buckets); i++) {
                sd_json_variant *b = sd_json_variant_by_index(buckets, i);
                uint64_t lower, upper, count;
                HistogramRow *row;

                (void) value_unsigned(b, "count", &count);
                (void) value_unsigned(b, "lower", &lower);
                if (value_unsigned(b, "upper", &upper))
                        row = rows + (bucket_coarser_index(bucket_index(upper, schema), steps) - first);
                else {
                        row = rows + n - 1;
                        row->lower = lower;
                        /* A merged bucket may overlap with the last one */
                        if (n > 1)
                                rows[n - 2].upper = MIN(rows[n - 2].upper, lower);
                }
                row->count += count;
        }
        /* The first bucket begins at 0 */
        if (n > 0 && least == 0)
                rows[0].lower = 0;

        *ret = TAKE_PTR(rows);
        *ret_n = n;
        return 0;
}

/* Lists the quantiles in a bucket with the samples before + 1 … before + count of n, without those that have
 * too few samples. */
static void quantiles_between(uint64_t before, uint64_t count, uint64_t n, uint64_t minimum_samples,
                              char *buf, size_t size) {
        size_t l = 0;

        buf[0] = 0;
        for (const Quantile *q = quantile_table; q < quantile_table + QUANTILES; q++) {
                double rank = ceil(q->q * (double) n);

                if (!quantile_is_known(n, q->q, minimum_samples) ||
                    rank <= (double) before || rank > (double) (before + count))
                        continue;
                l += (size_t) snprintf(buf + l, size - l, " %s", q->label);
        }
}

int histogram_print(FILE *f, const Style *style, sd_json_variant *reply, size_t rows_max,
                    uint64_t minimum_samples, unsigned indent) {
        _cleanup_free_ HistogramRow *rows = NULL;
        uint64_t total = 0, most = 0, before = 0;
        size_t n, used, width;
        int r;

        r = histogram_merge(reply, rows_max, &rows, &n);
        if (r < 0)
                return r;

        for (size_t i = 0; i < n; i++) {
                total += rows[i].count;
                most = MAX(most, rows[i].count);
        }

        /* Space for "1.05ms - 2.10ms  12.3% 15.1k " and " p50 p90" */
        used = indent + 9 + 3 + 9 + 8 + (minimum_samples > 0 ? 7 + 8 : 0) + 1;
        width = style->width > 0 ? style->width : 80;
        width = width > used + 8 ? MIN(width - used, (size_t) BAR_MAX) : 8;

        for (size_t i = 0; i < n; i++) {
                char a[FORMAT_MAX], b[FORMAT_MAX], share[FORMAT_MAX], count[FORMAT_MAX], marks[64];
                _cleanup_free_ char *bar = NULL;

                bar = text_bar((double) rows[i].count / (double) most, width, style->utf8);
                if (!bar)
                        return -ENOMEM;

                (void) fprintf(f, "%*s", (int) indent, "");
                if (rows[i].upper == UINT64_MAX)
                        (void) fprintf(f, "%9s %s %9s", format_duration(a, rows[i].lower),
                                       style->utf8 ? "\xe2\x80\x93" : "-", "");
                else
                        (void) fprintf(f, "%9s %s %9s", format_duration(a, rows[i].lower),
                                       style->utf8 ? "\xe2\x80\x93" : "-",
                                       format_duration(b, rows[i].upper));
                if (minimum_samples > 0)
                        (void) fprintf(f, " %6s", format_count(count, rows[i].count));
                (void) fprintf(f, " %6s ", format_percent(share, (double) rows[i].count / (double) total));

                marks[0] = 0;
                if (minimum_samples > 0)
                        quantiles_between(before, rows[i].count, total, minimum_samples, marks,
                                          sizeof(marks));
                (void) fprintf(f, "%s%s%s%s\n", color_on(style, COLOR_GREEN), bar, color_off(style), marks);
                before += rows[i].count;
        }

        return 0;
}
