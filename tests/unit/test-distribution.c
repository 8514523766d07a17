/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Distributions: bounds of their buckets, and quantiles, compared with plain arithmetic. */

#include <math.h>

#include "util-window-record.h"

static const enum qos_distribution all_distributions[] = {
        QOS_LATENCY, QOS_FIRST_BYTE, QOS_RECEIVE, QOS_QUEUE, QOS_SERVICE, QOS_ANSWER,
};

/* Integers of up to 2000 bits, least significant digit first. */
#define DIGIT_BITS 25
typedef struct Number {
        uint64_t digits[80];
} Number;

/* factor: below 2^37 */
static void number_multiply(Number *n, uint64_t factor, unsigned times) {
        for (; times > 0; times--) {
                uint64_t carry = 0;

                for (size_t i = 0; i < ELEMENTSOF(n->digits); i++) {
                        carry += n->digits[i] * factor;
                        n->digits[i] = carry & ((UINT64_C(1) << DIGIT_BITS) - 1);
                        carry >>= DIGIT_BITS;
                }
                check(carry == 0);
        }
}

/* Whether a duration is within the upper bound of a bucket of schema 5, as defined by Prometheus: at most
 * 2^(index/32) seconds. Compares the 32nd powers, in integers. */
static bool within_bucket(uint64_t nsec, int index) {
        Number duration = { .digits = { 1 } }, bound = { .digits = { 1 } };

        number_multiply(&duration, nsec, 32);
        number_multiply(&bound, NSEC_PER_SEC, 32);
        number_multiply(index < 0 ? &duration : &bound, 2, (unsigned) abs(index));
        for (size_t i = ELEMENTSOF(bound.digits); i-- > 0; )
                if (duration.digits[i] != bound.digits[i])
                        return duration.digits[i] < bound.digits[i];
        return true;
}

/* Each bin has the bounds (lower, upper], in both schemas. */
static void test_grid(void) {
        static uint64_t bounds[HISTOGRAM_FINE_BINS - 1];
        unsigned seed = 1, at = 0;

        check(HISTOGRAM_FINE_BINS == 898 && HISTOGRAM_COARSE_BINS == 226);

        for (unsigned k = 0; k < ELEMENTSOF(bounds); k++) {
                int index = (int) k - 704;
                uint64_t b = (uint64_t) floorl(exp2l(index / 32.0L) * NSEC_PER_SEC);

                check(within_bucket(b, index) && !within_bucket(b + 1, index));
                bounds[k] = b;
                check(histogram_fine_bin(b - 1) == k);
                check(histogram_fine_bin(b) == k);
                check(histogram_fine_bin(b + 1) == k + 1);
                check(histogram_coarse_bin(k) == (k + 3) / 4);
                check(histogram_fine_bound(k) == b);
        }
        check(bounds[0] == HISTOGRAM_MIN_NSEC && bounds[ELEMENTSOF(bounds) - 1] == HISTOGRAM_MAX_NSEC);
        check(histogram_fine_bin(0) == 0);
        check(histogram_fine_bin(NSEC_PER_SEC) == 704);
        check(histogram_fine_bin(UINT64_MAX) == HISTOGRAM_FINE_BINS - 1);

        /* All short durations, and some of all lengths */
        for (uint64_t nsec = 0; nsec < 1000000; nsec++) {
                at += nsec > bounds[at];
                check(histogram_fine_bin(nsec) == at);
        }
        for (unsigned i = 0; i < 1000000; i++) {
                uint64_t nsec = (uint64_t) rand_r(&seed) << 31 >> rand_r(&seed) % 50;
                unsigned bin = histogram_fine_bin(nsec);

                check(bin == 0 || nsec > bounds[bin - 1]);
                check(bin == ELEMENTSOF(bounds) || nsec <= bounds[bin]);
        }

        check(window_bins_get_index(HISTOGRAM_FINE_SCHEMA, 0) == -704);
        check(window_bins_get_index(HISTOGRAM_COARSE_SCHEMA, 0) == -176);
        check(window_bins_get_index(-1, 0) == -11 && window_bins_number(-1) == 16);
        check(window_bins_get_index(-2, 0) == -5 && window_bins_number(-2) == 8);
        check(histogram_coarse_bin(HISTOGRAM_FINE_BINS - 1) == HISTOGRAM_COARSE_BINS - 1);
        for (unsigned i = 0, k = 0; i < HISTOGRAM_FINE_BINS; i++) {
                /* Each is within the bounds of its coarser one */
                unsigned n = histogram_merged_bin(i, 4);
                uint64_t lower, upper, rough_lower, rough_upper;

                window_get_bounds(QOS_LATENCY, i, &lower, &upper);
                window_bins_get_bounds(1, n, &rough_lower, &rough_upper);
                check(n == k || n == k + 1);
                check(rough_lower <= lower && upper <= rough_upper);
                k = n;
        }
        check(histogram_merged_bin(HISTOGRAM_FINE_BINS - 1, 4) == window_bins_number(1) - 1);
        check(histogram_coarse_bin(HISTOGRAM_FINE_BINS - 2) == HISTOGRAM_COARSE_BINS - 2);

        for (size_t i = 0; i < ELEMENTSOF(all_distributions); i++) {
                uint64_t lower, upper, before = 0;

                for (unsigned bin = 0; bin < QOS_DISTRIBUTION_BINS(all_distributions[i]); bin++) {
                        window_get_bounds(all_distributions[i], bin, &lower, &upper);
                        check(lower == before && upper > lower);
                        before = upper;
                }
                check(before == UINT64_MAX);
        }
}

/* The error by construction: 1.09 % at most, and one nanosecond of rounding. */
static void test_quantile_error(void) {
        for (double v = 300; v < 6e10; v *= 1.0037) {
                uint64_t now = 1000 * NSEC_PER_SEC;
                struct qos_unit_map *u = unit_new_at(now);
                WindowReading r;
                Distribution d;

                for (unsigned i = 0; i < 10; i++)
                        record(u, now, (uint64_t) v);
                /* A larger sample, so that the maximum does not limit the value of the bin */
                record(u, now, (uint64_t) v * 2);
                check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
                window_get_distribution(&r, QOS_LATENCY, 5, &d);
                check(fabs(d.p50 - floor(v)) <= v * 0.0109 + 1);
                check(d.max == (uint64_t) v * 2);
                free(u);
        }
}

/* A quantile of n samples needs n * min(q, 1-q) >= 5. */
static void test_quantile_rule(void) {
        uint64_t now = 1000 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(now);
        WindowReading r;
        Distribution d;

        for (unsigned n = 0; n <= 5000; n++) {
                if (n > 0)
                        record(u, now, 1000 + n);
                check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
                window_get_distribution(&r, QOS_LATENCY, 5, &d);
                check(d.count == n);
                check((d.max == ABSENT) == (n == 0));
                check((d.mean == ABSENT) == (n == 0));
                check((d.p50 == ABSENT) == (n < 10));
                check((d.p90 == ABSENT) == (n < 50));
                check((d.p95 == ABSENT) == (n < 100));
                check((d.p99 == ABSENT) == (n < 500));
                check((d.p999 == ABSENT) == (n < 5000));
        }
        free(u);
}

/* The quantile of n samples is the smallest one with a rank of at least n * q, also if that is an
 * integer. */
static void test_quantile_rank(void) {
        static const struct {
                unsigned low;
                double q;
                bool is_low;
        } table[] = {
                { 500, 0.50, true }, { 499, 0.50, false }, { 900, 0.90, true }, { 899, 0.90, false },
                { 990, 0.99, true }, { 989, 0.99, false }, { 995, 0.99, true },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                uint64_t now = 1000 * NSEC_PER_SEC, value;
                struct qos_unit_map *u = unit_new_at(now);
                WindowReading r;
                Distribution d;

                for (unsigned k = 0; k < 1000; k++)
                        record(u, now, k < table[i].low ? 1000000 : 100000000);
                check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
                window_get_distribution(&r, QOS_LATENCY, 5, &d);
                value = table[i].q == 0.50 ? d.p50 : table[i].q == 0.90 ? d.p90 : d.p99;
                check(value != ABSENT && (value < 10000000) == table[i].is_low);
                free(u);
        }
}

/* Pipelined requests whose responses are sent at the same time count one by one, each with its own time. */
static void test_several(void) {
        uint64_t now = 1000 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(now);
        WindowReading r;
        Distribution d;

        window_advance(u, now);
        window_add(u, QOS_SERVICE, 5000000, 16);
        window_add(u, QOS_SERVICE, 1000000, 1);
        check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
        window_get_distribution(&r, QOS_SERVICE, 5, &d);
        check(d.count == 17 && d.mean == (16 * 5000000 + 1000000) / 17 && d.max == 5000000);

        window_move_sample(u, QOS_SERVICE, 5000000, 7000000, 16);
        check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
        window_get_distribution(&r, QOS_SERVICE, 5, &d);
        check(d.count == 17 && d.mean == (16 * 7000000 + 1000000) / 17 && d.max == 7000000);
        free(u);
}

/* Pending requests count as larger than all samples. */
static void test_quantile_waiting(void) {
        WindowReading reading = {};
        uint64_t *bins = reading.cells + QOS_DISTRIBUTION_FIRST_COUNTER(QOS_FIRST_BYTE), n;

        check(window_get_quantile(&reading, QOS_FIRST_BYTE, 0.99, 5, 0, &n) == ABSENT && n == 0);
        check(window_get_quantile(&reading, QOS_FIRST_BYTE, 0.99, 5, 1, &n) == WINDOW_WAITING && n == 1);

        bins[100] = 1000;
        reading.maxima[QOS_FIRST_BYTE] = 1;
        for (uint64_t waiting = 0; waiting < 30; waiting++) {
                uint64_t q = window_get_quantile(&reading, QOS_FIRST_BYTE, 0.99, 5, waiting, &n);

                /* The rank of the quantile is 0.99 * n, rounded up */
                check(n == 1000 + waiting && (q == WINDOW_WAITING) == (waiting > 10) && q != ABSENT);
                check(window_get_quantile(&reading, QOS_FIRST_BYTE, 0.5, 5, waiting, &n) < WINDOW_WAITING);
                check((window_get_quantile(&reading, QOS_FIRST_BYTE, 1, 5, waiting, &n) == WINDOW_WAITING) ==
                      (waiting > 0));
        }

        /* Samples up to a limit */
        check(window_count_within(&reading, QOS_FIRST_BYTE, 0) == 0 &&
              window_count_within(&reading, QOS_FIRST_BYTE, 1e12) == 1000);

        /* Too few samples, and too few pending requests */
        bins[100] = 200;
        check(window_get_quantile(&reading, QOS_FIRST_BYTE, 0.99, 5, 2, &n) == ABSENT);
        check(window_get_quantile(&reading, QOS_FIRST_BYTE, 0.99, 5, 3, &n) == WINDOW_WAITING);
}

int main(void) {
        test_grid();
        test_quantile_error();
        test_quantile_rule();
        test_quantile_rank();
        test_several();
        test_quantile_waiting();
}
