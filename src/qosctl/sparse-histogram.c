/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "sparse-histogram.h"
#include "value.h"

/* Finest schema of Prometheus. */
#define SCHEMA_MAX 8U

void sparse_histogram_done(SparseHistogram *h) {
        free(h->buckets);
        *h = (SparseHistogram) {};
}

static bool get_index(sd_json_variant *indexes, size_t i, int schema, int *ret) {
        sd_json_variant *v = sd_json_variant_by_index(indexes, i);
        int64_t n;

        if (!sd_json_variant_is_integer(v))
                return false;
        n = sd_json_variant_integer(v);
        if (n < SPARSE_MIN_EXPONENT * (1 << schema) || n > SPARSE_MAX_EXPONENT * (1 << schema) + 1)
                return false;
        *ret = (int) n;
        return true;
}

sd_json_variant* sparse_histogram_find(sd_json_variant *histograms, const char *metric) {
        for (size_t i = 0; histograms && i < sd_json_variant_elements(histograms); i++) {
                sd_json_variant *h = sd_json_variant_by_index(histograms, i);

                if (streq_ptr(value_string(h, "metric"), metric))
                        return h;
        }
        return NULL;
}

int sparse_histogram_parse(sd_json_variant *v, SparseHistogram *ret) {
        sd_json_variant *indexes = value_find(v, "indexes"), *counts = value_find(v, "counts");
        _cleanup_sparse_histogram_ SparseHistogram h = {};
        uint64_t schema;
        size_t n;

        if (!indexes || !counts || !value_unsigned(v, "schema", &schema) || schema > SCHEMA_MAX ||
            !value_unsigned(v, "sum", &h.sum) || !value_unsigned(v, "count", &h.count))
                return -EBADMSG;
        n = sd_json_variant_elements(indexes);
        if (n != sd_json_variant_elements(counts))
                return -EBADMSG;
        h.schema = h.finest = (int) schema;
        h.buckets = new0(SparseBucket, n);
        if (!h.buckets)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                sd_json_variant *count = sd_json_variant_by_index(counts, i);
                SparseBucket b;

                if (!get_index(indexes, i, h.schema, &b.index) || !sd_json_variant_is_unsigned(count))
                        return -EBADMSG;
                b.n = sd_json_variant_unsigned(count);
                if (h.n > 0 && b.index <= h.buckets[h.n - 1].index)
                        return -EBADMSG;
                if (b.index == SPARSE_MIN_EXPONENT * (1 << h.schema))
                        h.zero += b.n;
                else if (b.n > 0)
                        h.buckets[h.n++] = b;
        }
        *ret = h;
        (void) TAKE_PTR(h.buckets);
        return 0;
}

/* Bucket i of the next coarser schema consists of buckets 2i-1 and 2i. */
static void make_coarser(SparseHistogram *h) {
        size_t n = 0;

        for (size_t i = 0; i < h->n; i++) {
                SparseBucket b = h->buckets[i];

                b.index = (b.index + 1) >> 1;
                if (n > 0 && h->buckets[n - 1].index == b.index)
                        h->buckets[n - 1].n += b.n;
                else
                        h->buckets[n++] = b;
        }
        h->n = n;
        h->schema--;
}

void sparse_histogram_limit(SparseHistogram *h, unsigned buckets_max) {
        while (buckets_max > 0 && h->n > buckets_max && h->schema > 0)
                make_coarser(h);
}

void sparse_histogram_accumulate(const SparseHistogram *h, uint64_t ret[static SPARSE_OCTAVES]) {
        uint64_t n = h->zero;
        size_t i = 0;

        for (int e = SPARSE_MIN_EXPONENT; e <= SPARSE_MAX_EXPONENT; e++) {
                for (; i < h->n && h->buckets[i].index <= e * (1 << h->schema); i++)
                        n += h->buckets[i].n;
                ret[e - SPARSE_MIN_EXPONENT] = n;
        }
}
