/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The binary format of Prometheus: messages io.prometheus.client.MetricFamily, each preceded by its
 * length. */

#include <math.h>

#include "exposition-writer.h"
#include "io/prometheus/client/metrics.pb-c.h"

/* Maximum size of a varint: 64 bits, seven in each byte. */
#define VARINT_BYTES_MAX 10U

typedef Io__Prometheus__Client__MetricFamily PbFamily;
typedef Io__Prometheus__Client__Metric PbMetric;
typedef Io__Prometheus__Client__LabelPair PbLabel;
typedef Io__Prometheus__Client__Counter PbCounter;
typedef Io__Prometheus__Client__Gauge PbGauge;
typedef Io__Prometheus__Client__Histogram PbHistogram;
typedef Io__Prometheus__Client__Bucket PbBucket;
typedef Io__Prometheus__Client__BucketSpan PbSpan;
typedef Google__Protobuf__Timestamp PbTimestamp;

/* Messages are allocated as by the unpack functions of protobuf-c, so that its free_unpacked() frees a
 * family. */
#define pb_new(type, init)                      \
        ({                                      \
                type *_m = new0(type, 1);       \
                if (_m)                         \
                        init(_m);               \
                _m;                             \
        })

static void protobuf_abort(Output *o) {
        if (o->state)
                io__prometheus__client__metric_family__free_unpacked(o->state, NULL);
        o->state = NULL;
}

static int protobuf_begin(Output *o) {
        static const Io__Prometheus__Client__MetricType types[_FAMILY_TYPE_MAX] = {
                [FAMILY_COUNTER]   = IO__PROMETHEUS__CLIENT__METRIC_TYPE__COUNTER,
                [FAMILY_GAUGE]     = IO__PROMETHEUS__CLIENT__METRIC_TYPE__GAUGE,
                [FAMILY_INFO]      = IO__PROMETHEUS__CLIENT__METRIC_TYPE__GAUGE,
                [FAMILY_HISTOGRAM] = IO__PROMETHEUS__CLIENT__METRIC_TYPE__HISTOGRAM,
        };
        PbFamily *f;

        o->state = f = pb_new(PbFamily, io__prometheus__client__metric_family__init);
        if (!f)
                return -ENOMEM;
        /* In this format a family has the name of its samples */
        if (asprintf(&f->name, "%s%s", o->family->name,
                     o->family->type == FAMILY_COUNTER ? "_total" :
                     o->family->type == FAMILY_INFO    ? "_info" : "") < 0) {
                f->name = NULL;
                return -ENOMEM;
        }
        f->help = strdup(o->family->help ?: "");
        f->unit = o->family->unit ? strdup(o->family->unit) : NULL;
        if (!f->help || (o->family->unit && !f->unit))
                return -ENOMEM;
        f->has_type = true;
        f->type = types[o->family->type];
        return 0;
}

static int add_label(PbMetric *m, const char *name, const char *value) {
        PbLabel *label;

        m->label[m->n_label] = label = pb_new(PbLabel, io__prometheus__client__label_pair__init);
        if (!label)
                return -ENOMEM;
        m->n_label++;
        label->name = strdup(name);
        label->value = strdup(value);
        return label->name && label->value ? 0 : -ENOMEM;
}

static int set_created(uint64_t created, PbTimestamp **ret) {
        PbTimestamp *t;

        if (created == 0)
                return 0;
        *ret = t = pb_new(PbTimestamp, google__protobuf__timestamp__init);
        if (!t)
                return -ENOMEM;
        t->seconds = (int64_t) (created / NSEC_PER_SEC);
        t->nanos = (int32_t) (created % NSEC_PER_SEC);
        return 0;
}

static int add_classic_bucket(PbHistogram *pb, double bound, uint64_t n) {
        PbBucket *b;

        pb->bucket[pb->n_bucket] = b = pb_new(PbBucket, io__prometheus__client__bucket__init);
        if (!b)
                return -ENOMEM;
        pb->n_bucket++;
        b->has_upper_bound = b->has_cumulative_count = true;
        b->upper_bound = bound;
        b->cumulative_count = n;
        return 0;
}

/* The same buckets as in the text formats, for servers on which native histograms are disabled. */
static int set_classic_buckets(PbHistogram *pb, const SparseHistogram *h) {
        uint64_t counts[SPARSE_OCTAVES];
        int r;

        pb->bucket = new0(PbBucket*, SPARSE_OCTAVES + 1);
        if (!pb->bucket)
                return -ENOMEM;
        sparse_histogram_accumulate(h, counts);
        for (size_t i = 0; i < SPARSE_OCTAVES; i++) {
                r = add_classic_bucket(pb, ldexp(1, SPARSE_MIN_EXPONENT + (int) i), counts[i]);
                if (r < 0)
                        return r;
        }
        return add_classic_bucket(pb, INFINITY, h->count);
}

/* A new span begins after each gap, as databases limit the number of buckets, including empty ones. */
static int set_native_buckets(PbHistogram *pb, const SparseHistogram *h) {
        uint64_t previous = 0;
        int next = 0;

        if (h->n == 0)
                return 0;
        pb->positive_delta = new0(int64_t, h->n);
        pb->positive_span = new0(PbSpan*, h->n);
        if (!pb->positive_delta || !pb->positive_span)
                return -ENOMEM;
        for (size_t i = 0; i < h->n; i++) {
                PbSpan *span;

                if (i == 0 || h->buckets[i].index != next) {
                        span = pb_new(PbSpan, io__prometheus__client__bucket_span__init);
                        if (!span)
                                return -ENOMEM;
                        pb->positive_span[pb->n_positive_span++] = span;
                        span->has_offset = span->has_length = true;
                        span->offset = h->buckets[i].index - next;
                }
                pb->positive_span[pb->n_positive_span - 1]->length++;
                next = h->buckets[i].index + 1;
                pb->positive_delta[pb->n_positive_delta++] = (int64_t) (h->buckets[i].n - previous);
                previous = h->buckets[i].n;
        }
        return 0;
}

static int set_histogram(PbMetric *m, const Sample *sample) {
        const SparseHistogram *h = sample->histogram;
        PbHistogram *pb;
        int r;

        m->histogram = pb = pb_new(PbHistogram, io__prometheus__client__histogram__init);
        if (!pb)
                return -ENOMEM;
        pb->has_sample_count = pb->has_sample_sum = true;
        pb->sample_count = h->count;
        pb->sample_sum = (double) h->sum / (double) NSEC_PER_SEC;
        pb->has_schema = pb->has_zero_threshold = pb->has_zero_count = true;
        pb->schema = h->schema;
        pb->zero_threshold = ldexp(1, SPARSE_MIN_EXPONENT);
        pb->zero_count = h->zero;
        r = set_classic_buckets(pb, h);
        if (r < 0)
                return r;
        r = set_native_buckets(pb, h);
        if (r < 0)
                return r;
        return set_created(sample->created, &pb->created_timestamp);
}

static int set_value(PbMetric *m, FamilyType type, const Sample *sample) {
        double value = sample->kind == SAMPLE_REAL ? sample->real :
                       sample->kind == SAMPLE_NSEC ? (double) sample->n / (double) NSEC_PER_SEC :
                                                     (double) sample->n;

        if (type == FAMILY_COUNTER) {
                m->counter = pb_new(PbCounter, io__prometheus__client__counter__init);
                if (!m->counter)
                        return -ENOMEM;
                m->counter->has_value = true;
                m->counter->value = value;
                return set_created(sample->created, &m->counter->created_timestamp);
        }
        m->gauge = pb_new(PbGauge, io__prometheus__client__gauge__init);
        if (!m->gauge)
                return -ENOMEM;
        m->gauge->has_value = true;
        m->gauge->value = value;
        return 0;
}

static int protobuf_add(Output *o, const Sample *sample) {
        PbFamily *f = o->state;
        PbMetric *m, **metrics;
        int r;

        metrics = reallocarray(f->metric, f->n_metric + 1, sizeof(PbMetric*));
        if (!metrics)
                return -ENOMEM;
        f->metric = metrics;
        f->metric[f->n_metric] = m = pb_new(PbMetric, io__prometheus__client__metric__init);
        if (!m)
                return -ENOMEM;
        f->n_metric++;

        m->label = new0(PbLabel*, LABELS_MAX);
        if (!m->label)
                return -ENOMEM;
        for (size_t i = 0; i < sample->n_labels; i++) {
                r = add_label(m, sample->labels[i].name, sample->labels[i].value ?: "");
                if (r < 0)
                        return r;
        }
        return sample->kind == SAMPLE_HISTOGRAM ? set_histogram(m, sample) :
                                                  set_value(m, o->family->type, sample);
}

static int protobuf_end(Output *o) {
        size_t size = io__prometheus__client__metric_family__get_packed_size(o->state), l = 0;
        _cleanup_free_ uint8_t *packed = malloc(size);
        uint8_t length[VARINT_BYTES_MAX];

        if (!packed)
                return -ENOMEM;
        (void) io__prometheus__client__metric_family__pack(o->state, packed);
        for (size_t n = size; n > 0 || l == 0; n >>= 7)
                length[l++] = (uint8_t) ((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
        (void) fwrite(length, 1, l, o->file);
        (void) fwrite(packed, 1, size, o->file);
        protobuf_abort(o);
        return 0;
}

const Writer protobuf_writer = {
        .begin = protobuf_begin,
        .add = protobuf_add,
        .end = protobuf_end,
        .abort = protobuf_abort,
};
