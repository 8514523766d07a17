/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Replies of qosd that become a scrape, and the headers of a scraper: an object with the arrays "catalogue"
 * and "exports", and the strings "accept" and "encoding". The binary format can be read back. */

#include "check.h"
#include "exposition.h"
#include "fuzz.h"
#include "negotiate.h"
#include "value.h"
#if HAVE_PROTOBUF
#include "io/prometheus/client/metrics.pb-c.h"
#endif

static void add_all(Replies *replies, sd_json_variant *v) {
        for (size_t i = 0; v && sd_json_variant_is_array(v) && i < sd_json_variant_elements(v); i++)
                check(replies_add(replies, sd_json_variant_by_index(v, i), NULL) == 0);
}

#if HAVE_PROTOBUF
static void check_protobuf(const uint8_t *p, const uint8_t *end) {
        while (p < end) {
                Io__Prometheus__Client__MetricFamily *f;
                size_t length = 0;

                for (unsigned shift = 0;; shift += 7) {
                        uint8_t byte;

                        check(p < end && shift < 64);
                        byte = *p++;
                        length |= (size_t) (byte & 0x7f) << shift;
                        if (!(byte & 0x80))
                                break;
                }
                check(length <= (size_t) (end - p));
                f = io__prometheus__client__metric_family__unpack(NULL, length, p);
                check(f && f->n_metric > 0);
                for (size_t i = 0; i < f->n_metric; i++) {
                        const Io__Prometheus__Client__Histogram *h = f->metric[i]->histogram;
                        uint64_t previous = 0, length_of_spans = 0;

                        for (size_t k = 0; h && k < h->n_positive_span; k++)
                                length_of_spans += h->positive_span[k]->length;
                        check(!h || length_of_spans == h->n_positive_delta);
                        for (size_t k = 0; h && k < h->n_positive_delta; k++) {
                                previous += (uint64_t) h->positive_delta[k];
                                check(previous > 0);
                        }
                }
                io__prometheus__client__metric_family__free_unpacked(f, NULL);
                p += length;
        }
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const unsigned limits[_EXPOSITION_SCOPE_MAX] = { 0, EXPOSITION_BUCKETS_MIN,
                                                                EXPOSITION_BUCKETS_DEFAULT };
        Replies catalogue = REPLIES_INIT, exports = REPLIES_INIT;
        _cleanup_free_ char *text = strndup((const char*) data, size);
        sd_json_variant *v = NULL;

        check(text);
        if (sd_json_parse(text, 0, &v, NULL, NULL) < 0)
                return 0;
        add_all(&catalogue, value_find(v, "catalogue"));
        add_all(&exports, value_find(v, "exports"));
        check(exposition_is_supported(negotiate_format(value_string(v, "accept"))));
        (void) negotiate_gzip(value_string(v, "encoding"));

        for (Exposition format = 0; format < _EXPOSITION_MAX; format++)
                for (size_t i = 0; i < ELEMENTSOF(limits) && exposition_is_supported(format); i++) {
                        const ExpositionOptions options = {
                                .format = format,
                                .scope = (ExpositionScope) (_EXPOSITION_SCOPE_MAX - 1 - i),
                                .buckets_max = limits[i],
                                .series_max = (unsigned) i,
                        };
                        _cleanup_free_ char *out = NULL;
                        size_t out_size = 0;
                        FILE *f = open_memstream(&out, &out_size);
                        int r;

                        check(f);
                        r = exposition_write(f, &options, &catalogue, &exports);
                        check(r == 0 || r == -EBADMSG);
                        check(fclose(f) == 0);
                        if (format != EXPOSITION_PROTOBUF)
                                check(out_size == 0 || out[out_size - 1] == '\n');
#if HAVE_PROTOBUF
                        else
                                check_protobuf((const uint8_t*) out, (const uint8_t*) out + out_size);
#endif
                }

        replies_done(&catalogue);
        replies_done(&exports);
        (void) sd_json_variant_unref(v);
        return 0;
}
