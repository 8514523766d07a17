/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Histograms in the formats of Prometheus: invalid ones, coarser ones, and the binary format read back. */

#include <math.h>

#include "check.h"
#include "exposition.h"
#include "sparse-histogram.h"
#if HAVE_PROTOBUF
#include "io/prometheus/client/metrics.pb-c.h"
#endif

/* Of JSON with single quotation marks. */
static sd_json_variant* parse(const char *s) {
        sd_json_variant *v = NULL;
        char *copy = strdup(s);

        check(copy);
        for (char *p = copy; *p; p++)
                if (*p == '\'')
                        *p = '"';
        check(sd_json_parse(copy, 0, &v, NULL, NULL) >= 0);
        free(copy);
        return v;
}

static void test_invalid(void) {
        static const struct {
                bool valid;
                const char *json;
        } cases[] = {
                { true,  "{'schema':5,'count':0,'sum':0,'indexes':[],'counts':[]}" },
                { true,  "{'schema':5,'count':3,'sum':9,'indexes':[-704,193],'counts':[1,2]}" },
                { true,  "{'schema':0,'count':3,'sum':9,'indexes':[-22,7],'counts':[1,2]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[-705],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[194],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[99999999999],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':['1'],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[1],'counts':[-3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[1],'counts':[1,2]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[2,1],'counts':[1,2]}" },
                { false, "{'schema':5,'count':3,'sum':9,'indexes':[1,1],'counts':[1,2]}" },
                { false, "{'schema':9,'count':3,'sum':9,'indexes':[1],'counts':[3]}" },
                { false, "{'schema':-1,'count':3,'sum':9,'indexes':[1],'counts':[3]}" },
                { false, "{'schema':5,'sum':9,'indexes':[1],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'indexes':[1],'counts':[3]}" },
                { false, "{'schema':5,'count':3,'sum':9,'counts':[3]}" },
                { false, "[]" },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                sd_json_variant *v = parse(cases[i].json);
                _cleanup_sparse_histogram_ SparseHistogram h = {};

                check(sparse_histogram_parse(v, &h) == (cases[i].valid ? 0 : -EBADMSG));
                (void) sd_json_variant_unref(v);
        }
}

/* The smallest index of the schema whose bound is not below that of a bucket of schema 5. */
static int coarse_index(int index, int schema) {
        return (int) ceil(ldexp(index, schema - 5));
}

static void test_limits(void) {
        SparseBucket all[898];

        for (size_t i = 0; i < ELEMENTSOF(all); i++)
                all[i] = (SparseBucket) { .index = (int) i - 703, .n = 1 + i * i };

        for (unsigned step = 1; step < 40; step++)
                for (unsigned limit = 29; limit < 1000; limit += 13) {
                        SparseBucket buckets[ELEMENTSOF(all)];
                        SparseHistogram h = { .schema = 5, .buckets = buckets };
                        size_t n, k = 0;

                        for (size_t i = 0; i < ELEMENTSOF(all) - 1; i += step)
                                buckets[h.n++] = all[i];
                        n = h.n;
                        sparse_histogram_limit(&h, limit);
                        check(h.n <= limit && h.schema >= 0 && h.schema <= 5);
                        check((n <= limit) == (h.schema == 5));

                        /* Each has the exact sum, and the next finer schema would have too many */
                        for (size_t i = 0, finer = 0; i < n * step; i += step) {
                                if (i == 0 || coarse_index(all[i].index, h.schema + 1) !=
                                              coarse_index(all[i - step].index, h.schema + 1))
                                        finer++;
                                check(i + step < n * step || h.schema == 5 || finer > limit);
                        }
                        for (size_t i = 0; i < n * step; k++) {
                                int index = coarse_index(all[i].index, h.schema);
                                uint64_t sum = 0;

                                for (; i < n * step; i += step) {
                                        if (coarse_index(all[i].index, h.schema) != index)
                                                break;
                                        sum += all[i].n;
                                }
                                check(k < h.n && h.buckets[k].index == index && h.buckets[k].n == sum);
                        }
                        check(k == h.n);

                        n = h.n;
                        sparse_histogram_limit(&h, 0);
                        check(h.n == n);
                }
}

static void test_parse_limits(void) {
        unsigned n;

        check(exposition_parse_series("0", &n) == 0 && n == 0);
        check(exposition_parse_series("1", &n) == 0 && n == 1);
        check(exposition_parse_series("10000000", &n) == 0 && n == 10000000);
        check(exposition_parse_series("10000001", &n) == -EINVAL);
        check(exposition_parse_series("many", &n) == -EINVAL);

        check(exposition_parse_buckets("0", &n) == 0 && n == 0);
        check(exposition_parse_buckets("29", &n) == 0 && n == 29);
        check(exposition_parse_buckets("10000", &n) == 0 && n == 10000);
        check(exposition_parse_buckets("28", &n) == -EINVAL);
        check(exposition_parse_buckets("1", &n) == -EINVAL);
        check(exposition_parse_buckets("10001", &n) == -EINVAL);
        check(exposition_parse_buckets("", &n) == -EINVAL);
        check(exposition_parse_buckets("-1", &n) == -EINVAL);
        check(exposition_parse_buckets(" 160", &n) == -EINVAL);
        check(exposition_parse_buckets("160x", &n) == -EINVAL);
        check(exposition_parse_buckets("18446744073709551776", &n) == -EINVAL);
}

/* Metrics of custom probes of two units, whose samples are of one family each. */
static void test_custom(void) {
        const ExpositionOptions options = { .format = EXPOSITION_OPENMETRICS, .scope = EXPOSITION_PROBES };
        Replies catalogue = REPLIES_INIT, exports = REPLIES_INIT;
        static const char *const units[] = { "a", "b" };
        sd_json_variant *v;
        char *text = NULL, json[1024];
        size_t size = 0;
        FILE *f;

        for (unsigned i = 0; i < 2; i++) {
                (void) snprintf(
                        json, sizeof(json),
                        "{'unit':{'name':'%s','custom':["
                        "{'probe':'started','metric':'programs','type':'counter','unit':'1',"
                                "'description':'p',"
                        "'labels':{'program':'sh','by':'x'},'value':%u},"
                        "{'probe':'started','metric':'programs','type':'counter','unit':'1',"
                                "'description':'p',"
                        "'rest':true,'value':7},"
                        "{'probe':'started','metric':'size','type':'gauge','unit':'bytes',"
                                "'description':'s',"
                        "'value':9},"
                        "{'probe':'runqueue','metric':'wait','type':'histogram','unit':'ns',"
                                "'description':'w',"
                        "'schema':3,'sum':2000000000,'indexes':[0],'counts':[2],'count':2}]}}",
                        units[i], i + 3);
                v = parse(json);
                check(replies_add(&exports, v, NULL) == 0);
                (void) sd_json_variant_unref(v);
        }
        f = open_memstream(&text, &size);
        check(f && exposition_write(f, &options, &catalogue, &exports) == 0 && fclose(f) == 0);
        check(strstr(text, "# HELP qosd_custom_started_programs p\n"
                           "# TYPE qosd_custom_started_programs counter\n"
                           "qosd_custom_started_programs_total{unit=\"a\",program=\"sh\",by=\"x\"} 3\n"
                           "qosd_custom_started_programs_total{unit=\"a\",rest=\"true\"} 7\n"
                           "qosd_custom_started_programs_total{unit=\"b\",program=\"sh\",by=\"x\"} 4\n"
                           "qosd_custom_started_programs_total{unit=\"b\",rest=\"true\"} 7\n"));
        check(strstr(text, "qosd_custom_started_size_bytes{unit=\"a\"} 9\n"));
        check(strstr(text, "qosd_custom_runqueue_wait_seconds_count{unit=\"b\"} 2\n"));
        check(strstr(text, "qosd_custom_runqueue_wait_seconds_sum{unit=\"b\"} 2"));
        free(text);
        replies_done(&exports);
        replies_done(&catalogue);
}

#if HAVE_PROTOBUF
#define SAME(a, b) (fabs((a) - (b)) < 1e-12)

static void test_protobuf(void) {
        static const char *const names[] = { "qosd_unit_info", "qosd_requests_server_latency_seconds",
                                             "qosd_requests_server_latency_seconds_overflow_total",
                                             "qosd_drops_total" };
        const ExpositionOptions options = { .format = EXPOSITION_PROTOBUF, .buckets_max = 160 };
        Replies catalogue = REPLIES_INIT, exports = REPLIES_INIT;
        Io__Prometheus__Client__MetricFamily *families[ELEMENTSOF(names)];
        Io__Prometheus__Client__Histogram *h;
        sd_json_variant *v;
        char *text = NULL;
        size_t size = 0, at = 0;
        FILE *f;

        v = parse("{'name':'requests.server.latency.count','kind':'counter','unit':'1','probe':'requests',"
                  "'essential':true,'description':'x'}");
        check(replies_add(&catalogue, v, NULL) == 0);
        (void) sd_json_variant_unref(v);
        v = parse("{'unit':{'name':'a \\'b\\'.service','activeState':'active','drops':3,"
                  "'attachedSince':1700000000123456,'totals':{},'gauges':{},"
                  "'histograms':[{'metric':'requests.server.latency','schema':5,'count':21,"
                  "'sum':1500000000,'indexes':[-704,-5,-4,0,193],'counts':[1,2,3,11,4]}]}}");
        check(replies_add(&exports, v, NULL) == 0);
        (void) sd_json_variant_unref(v);

        f = open_memstream(&text, &size);
        check(f);
        check(exposition_write(f, &options, &catalogue, &exports) == 0);
        exposition_end(f, EXPOSITION_PROTOBUF);
        check(fclose(f) == 0);

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                size_t length = 0;

                for (unsigned shift = 0;; shift += 7) {
                        uint8_t byte;

                        check(at < size);
                        byte = (uint8_t) text[at++];
                        length |= (size_t) (byte & 0x7f) << shift;
                        if (!(byte & 0x80))
                                break;
                }
                check(length <= size - at);
                families[i] = io__prometheus__client__metric_family__unpack(NULL, length,
                                                                            (uint8_t*) text + at);
                check(families[i]);
                check(streq(families[i]->name, names[i]));
                check(families[i]->n_metric == 1);
                check(streq(families[i]->metric[0]->label[0]->value, "a \"b\".service"));
                at += length;
        }
        check(at == size);

        check(families[0]->type == IO__PROMETHEUS__CLIENT__METRIC_TYPE__GAUGE);
        check(SAME(families[2]->metric[0]->counter->value, 4));
        check(SAME(families[3]->metric[0]->counter->value, 3));
        check(families[3]->metric[0]->counter->created_timestamp->seconds == 1700000000);
        check(families[3]->metric[0]->counter->created_timestamp->nanos == 123456000);

        check(families[1]->type == IO__PROMETHEUS__CLIENT__METRIC_TYPE__HISTOGRAM);
        check(streq(families[1]->unit, "seconds"));
        h = families[1]->metric[0]->histogram;
        check(h->sample_count == 21 && SAME(h->sample_sum, 1.5) && h->schema == 5);
        check(h->zero_count == 1 && SAME(h->zero_threshold, 0x1p-22));
        check(h->n_positive_span == 3 && h->n_positive_delta == 4);
        check(h->positive_span[0]->offset == -5 && h->positive_span[0]->length == 2);
        check(h->positive_span[1]->offset == 3 && h->positive_span[1]->length == 1);
        check(h->positive_span[2]->offset == 192 && h->positive_span[2]->length == 1);
        check(h->positive_delta[0] == 2 && h->positive_delta[1] == 1 && h->positive_delta[2] == 8 &&
              h->positive_delta[3] == -7);
        check(h->n_bucket == 30);
        check(SAME(h->bucket[0]->upper_bound, 0x1p-22) && h->bucket[0]->cumulative_count == 1);
        check(SAME(h->bucket[21]->upper_bound, 0.5) && h->bucket[21]->cumulative_count == 1);
        check(SAME(h->bucket[22]->upper_bound, 1) && h->bucket[22]->cumulative_count == 17);
        check(SAME(h->bucket[28]->upper_bound, 64) && h->bucket[28]->cumulative_count == 17);
        check(isinf(h->bucket[29]->upper_bound) && h->bucket[29]->cumulative_count == 21);
        check(h->created_timestamp->seconds == 1700000000);

        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                io__prometheus__client__metric_family__free_unpacked(families[i], NULL);
        free(text);
        replies_done(&catalogue);
        replies_done(&exports);
}
#endif

int main(void) {
        test_invalid();
        test_limits();
        test_parse_limits();
        test_custom();
#if HAVE_PROTOBUF
        test_protobuf();
#endif
        return 0;
}
