/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Quantiles, mean and maximum of the bins of a distribution. */

#include <math.h>

#include "window-internal.h"

uint64_t window_get_count(const WindowReading *reading, enum qos_distribution d) {
        uint64_t n = 0;

        for (unsigned i = 0; i < QOS_DISTRIBUTION_BINS(d); i++)
                n += reading->cells[QOS_DISTRIBUTION_FIRST_COUNTER(d) + i];
        return n;
}

Bins reading_get_bins(const WindowReading *reading, enum qos_distribution d) {
        return (Bins) {
                .schema = QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                .n = QOS_DISTRIBUTION_BINS(d),
                .count = reading->cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                .sum = reading->sums[d],
                .max = reading->maxima[d],
        };
}

/* Upper bound of a bin other than the last one, in ns. */
static double bin_bound(int schema, unsigned bin) {
        return exp2(ldexp(window_bins_get_index(schema, bin), -schema)) * NSEC_PER_SEC;
}

/* As bin_bound(), rounded down. */
static uint64_t bin_bound_nsec(int schema, unsigned bin) {
        double index = ldexp(window_bins_get_index(schema, bin), HISTOGRAM_FINE_SCHEMA - schema);

        return histogram_fine_bound((unsigned) (index - window_bins_get_index(HISTOGRAM_FINE_SCHEMA, 0)));
}

static void bin_get_bounds(int schema, unsigned n, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper) {
        assert(bin < n);

        *ret_lower = bin == 0 ? 0 : bin_bound_nsec(schema, bin - 1);
        *ret_upper = bin == n - 1 ? UINT64_MAX : bin_bound_nsec(schema, bin);
}

void window_get_bounds(enum qos_distribution d, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper) {
        bin_get_bounds(QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                       QOS_DISTRIBUTION_BINS(d), bin, ret_lower, ret_upper);
}

/* Representative value of a bin, with the same relative distance to both bounds: (upper - lower) / (upper +
 * lower). */
uint64_t bin_value(const Bins *b, unsigned bin, uint64_t maximum) {
        double lower, upper;

        if (bin == 0)
                return 0; /* below the resolution of the clock */
        if (bin == b->n - 1)
                return maximum;

        lower = bin_bound(b->schema, bin - 1);
        upper = bin_bound(b->schema, bin);
        return MIN((uint64_t) llround(2 * lower * upper / (lower + upper)), maximum);
}

/* The largest sample. Maxima are stored per sub-window in words of their own, which may have been missed or
 * overwritten if the reader was interrupted after reading the bins: then the bound of the highest non-empty
 * bin is used. end: first bin not considered. */
uint64_t maximum_of(const Bins *b, unsigned end) {
        for (unsigned bin = end; bin-- > 0;) {
                uint64_t lower, upper;

                if (b->count[bin] == 0)
                        continue;
                bin_get_bounds(b->schema, b->n, bin, &lower, &upper);
                return b->max >= lower ? b->max : bin_value(b, bin, upper == UINT64_MAX ? lower : upper);
        }
        return 0;
}

/* Rank 1 … n of a quantile, by the nearest-rank method. */
uint64_t quantile_get_rank(uint64_t n, double q) {
        return MAX((uint64_t) ceil(n * q - 1e-9), UINT64_C(1));
}

static void bins_get_distribution(const Bins *b, unsigned minimum_samples, Distribution *ret) {
        uint64_t n = 0, maximum, seen = 0;
        unsigned bin = 0, end = b->n;

        for (unsigned i = 0; i < b->n; i++)
                n += b->count[i];

        distribution_set_absent(ret);
        ret->count = n;
        if (n == 0)
                return;

        while (b->count[end - 1] == 0)
                end--;
        ret->max = maximum = maximum_of(b, end);
        ret->mean = MIN(b->sum / n, maximum);
        /* A single pass, as quantiles and their minimum numbers of samples are in ascending order */
        for (const Quantile *i = quantile_table; i < quantile_table + QUANTILES &&
             quantile_is_known(n, i->q, minimum_samples); i++) {
                while (seen < quantile_get_rank(n, i->q))
                        seen += b->count[bin++];
                *(uint64_t*) ((char*) ret + i->offset) = bin_value(b, bin - 1, maximum);
        }
}

void window_get_distribution(const WindowReading *reading, enum qos_distribution d, unsigned minimum_samples,
                             Distribution *ret) {
        Bins b = reading_get_bins(reading, d);

        bins_get_distribution(&b, minimum_samples, ret);
}

static uint64_t bins_count_within(const Bins *b, double limit) {
        uint64_t maximum = maximum_of(b, b->n), n = 0;

        for (unsigned i = 0; i < b->n; i++)
                if (b->count[i] > 0 && bin_value(b, i, maximum) <= limit)
                        n += b->count[i];
        return n;
}

uint64_t window_count_within(const WindowReading *reading, enum qos_distribution d, double limit) {
        Bins b = reading_get_bins(reading, d);

        return bins_count_within(&b, limit);
}

static Bins row_get_bins(const WindowRow *row) {
        return (Bins) {
                .schema = HISTOGRAM_COARSE_SCHEMA,
                .n = HISTOGRAM_COARSE_BINS,
                .count = row->cells,
                .sum = row->sums[QOS_ENTRY_SUM_LATENCY],
                .max = row->maximum == ABSENT ? 0 : row->maximum,
        };
}

uint64_t window_row_get_count(const WindowRow *row) {
        uint64_t n = 0;

        for (unsigned i = 0; i < HISTOGRAM_COARSE_BINS; i++)
                n += row->cells[i];
        return n;
}

uint64_t window_row_count_within(const WindowRow *row, double limit) {
        Bins b = row_get_bins(row);

        return bins_count_within(&b, limit);
}

void window_row_get_distribution(const WindowRow *row, unsigned minimum_samples, Distribution *ret) {
        Bins b = row_get_bins(row);

        bins_get_distribution(&b, minimum_samples, ret);
        if (row->maximum == ABSENT)
                ret->max = ABSENT;
}

/* ---- stored distributions ----------------------------------------------------------------------------- */

unsigned window_bins_number(int schema) {
        /* The last one begins within the range, or at its end */
        return (unsigned) ((int) floor(ldexp(HISTOGRAM_MAX_EXPONENT, schema)) + 1 -
                           window_bins_get_index(schema, 0)) + 1;
}

int window_bins_get_index(int schema, unsigned bin) {
        return (int) ceil(ldexp(HISTOGRAM_MIN_EXPONENT, schema)) + (int) bin;
}

void window_bins_get_bounds(int schema, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper) {
        bin_get_bounds(schema, window_bins_number(schema), bin, ret_lower, ret_upper);
}

void window_get_bins(const WindowReading *reading, enum qos_distribution d, WindowBins *ret) {
        Bins b = reading_get_bins(reading, d);

        *ret = (WindowBins) {
                .schema = WINDOW_BINS_SCHEMA_MAX,
                .sum = b.sum,
        };
        for (unsigned i = 0; i < b.n; i++)
                ret->count[QOS_DISTRIBUTION_IS_FINE(d) ? histogram_coarse_bin(i) : i] += b.count[i];
        /* From the finer bins, in case the maximum is missing */
        ret->max = maximum_of(&b, b.n);
}

void window_bins_coarsen(WindowBins *b) {
        int first = window_bins_get_index(b->schema, 0),
                coarse_first = window_bins_get_index(b->schema - 1, 0);
        unsigned n = window_bins_number(b->schema);
        uint64_t count[WINDOW_BINS_MAX] = {};

        assert(b->schema > WINDOW_BINS_SCHEMA_MIN);

        for (unsigned i = 0; i < n; i++)
                count[((first + (int) i + 1) >> 1) - coarse_first] += b->count[i]; /* half, rounded up */
        memcpy(b->count, count, sizeof(count));
        b->schema--;
}

void window_bins_add(WindowBins *b, const WindowBins *other) {
        WindowBins o = *other;

        while (b->schema > o.schema)
                window_bins_coarsen(b);
        while (o.schema > b->schema)
                window_bins_coarsen(&o);

        for (unsigned i = 0; i < WINDOW_BINS_MAX; i++)
                b->count[i] += o.count[i];
        b->sum += o.sum;
        b->max = MAX(b->max, o.max);
}

void window_bins_get_distribution(const WindowBins *b, unsigned minimum_samples, Distribution *ret) {
        Bins bins = {
                .schema = b->schema,
                .n = window_bins_number(b->schema),
                .count = b->count,
                .sum = b->sum,
                .max = b->max,
        };

        bins_get_distribution(&bins, minimum_samples, ret);
}
