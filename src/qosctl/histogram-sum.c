/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <math.h>

#include "histogram-sum.h"
#include "histogram-view.h"
#include "value.h"

void histogram_sum_done(HistogramSum *s) {
        free(s->buckets);
        *s = (HistogramSum) {};
}

static long index_in(long index, int steps) {
        return index == LONG_MAX ? LONG_MAX : bucket_coarser_index(index, steps);
}

static int compare_buckets(const void *a, const void *b) {
        const SumBucket *x = a, *y = b;

        return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the buckets, and merges those with the same index. */
static void merge(HistogramSum *s) {
        size_t n = 0;

        qsort(s->buckets, s->n, sizeof(SumBucket), compare_buckets);
        for (size_t i = 0; i < s->n; i++)
                if (n > 0 && s->buckets[n - 1].index == s->buckets[i].index)
                        s->buckets[n - 1].count += s->buckets[i].count;
                else
                        s->buckets[n++] = s->buckets[i];
        s->n = n;
}

static int read_bucket(sd_json_variant *v, int schema, SumBucket *ret, HistogramSum *s) {
        uint64_t lower, upper, count;

        if (!value_unsigned(v, "lower", &lower) || !value_unsigned(v, "count", &count))
                return -EBADMSG;
        /* The counts of all buckets fit if their sum does */
        if (__builtin_add_overflow(s->count, count, &s->count))
                return -EBADMSG;

        ret->count = count;
        if (!value_unsigned(v, "upper", &upper)) {
                s->last = lower;
                ret->index = LONG_MAX;
                return 0;
        }
        if (upper <= lower)
                return -EBADMSG;
        s->from_zero = s->from_zero || lower == 0;
        ret->index = bucket_index(upper, schema);
        return 0;
}

int histogram_sum_add(HistogramSum *s, sd_json_variant *reply) {
        sd_json_variant *buckets = value_find(reply, "buckets"), *v = value_find(reply, "schema");
        _cleanup_histogram_sum_ HistogramSum sum = *s;
        uint64_t duration;
        int schema, r;
        size_t n;

        sum.buckets = NULL;
        if (!buckets || !sd_json_variant_is_array(buckets) || !v || !sd_json_variant_is_integer(v) ||
            !value_unsigned(reply, "sum", &duration) || __builtin_add_overflow(sum.sum, duration, &sum.sum))
                return -EBADMSG;
        if (sd_json_variant_integer(v) < HISTOGRAM_SCHEMA_MIN ||
            sd_json_variant_integer(v) > HISTOGRAM_SCHEMA_MAX)
                return -EBADMSG;
        schema = (int) sd_json_variant_integer(v);

        n = sd_json_variant_elements(buckets);
        sum.schema = s->n == 0 ? schema : MIN(s->schema, schema);
        sum.n = s->n + n;
        sum.buckets = new0(SumBucket, sum.n);
        if (!sum.buckets)
                return -ENOMEM;

        for (size_t i = 0; i < s->n; i++)
                sum.buckets[i] = (SumBucket) {
                        .index = index_in(s->buckets[i].index, s->schema - sum.schema),
                        .count = s->buckets[i].count,
                };
        for (size_t i = 0; i < n; i++) {
                r = read_bucket(sd_json_variant_by_index(buckets, i), schema, sum.buckets + s->n + i, &sum);
                if (r < 0)
                        return r;
                sum.buckets[s->n + i].index = index_in(sum.buckets[s->n + i].index, schema - sum.schema);
        }
        merge(&sum);

        free(s->buckets);
        *s = sum;
        sum = (HistogramSum) {};
        return 0;
}

int histogram_sum_get_buckets(const HistogramSum *s, sd_json_variant **ret) {
        sd_json_variant **items;
        size_t n = 0;
        int r = 0;

        items = new0(sd_json_variant*, s->n);
        if (!items)
                return -ENOMEM;

        for (; n < s->n; n++) {
                const SumBucket *b = s->buckets + n;
                bool last = b->index == LONG_MAX;
                uint64_t lower = last                   ? s->last :
                                 n == 0 && s->from_zero ? 0 :
                                                          bucket_upper(b->index - 1, s->schema);

                r = sd_json_buildo(items + n, SD_JSON_BUILD_PAIR_UNSIGNED("lower", lower),
                                   SD_JSON_BUILD_PAIR_CONDITION(!last, "upper",
                                                                SD_JSON_BUILD_UNSIGNED(
                                                                        bucket_upper(b->index, s->schema))),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("count", b->count));
                if (r < 0)
                        break;
        }
        if (r >= 0)
                r = sd_json_variant_new_array(ret, items, n);

        for (size_t i = 0; i < n; i++)
                (void) sd_json_variant_unref(items[i]);
        free(items);
        return r;
}

/* Upper bound of a bucket, ns. */
static double bound(const HistogramSum *s, long index) {
        return exp2(ldexp((double) index, -s->schema)) * NSEC_PER_SEC;
}

uint64_t histogram_sum_get_quantile(const HistogramSum *s, double q, uint64_t maximum) {
        uint64_t seen = 0, rank = MAX((uint64_t) ceil((double) s->count * q - 1e-9), UINT64_C(1));
        double lower, upper;
        size_t i = 0;

        assert(s->count > 0);

        while ((seen += s->buckets[i].count) < rank)
                i++;
        if (s->buckets[i].index == LONG_MAX)
                return maximum;
        /* Too short to be measured */
        if (i == 0 && s->from_zero)
                return 0;

        lower = bound(s, s->buckets[i].index - 1);
        upper = bound(s, s->buckets[i].index);
        return MIN((uint64_t) llround(2 * lower * upper / (lower + upper)), maximum);
}
