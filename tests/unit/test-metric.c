/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The metric table: every field of a reading has exactly one metric, and absent fields stay absent. */

#include <ctype.h>
#include <math.h>

#include "check.h"
#include "metric.h"
#include "util.h"

static bool name_is_valid(const char *name) {
        if (!islower((unsigned char) *name))
                return false;
        for (; *name; name++)
                if (!isalnum((unsigned char) *name) && *name != '.')
                        return false;
        return true;
}

#define UNUSED(array, first, n) \
        { offsetof(Metrics, array) + (first) * sizeof(uint64_t), offsetof(Metrics, array) + \
          ((first) + (n)) * sizeof(uint64_t) }

static void test_table(void) {
        static const struct {
                size_t begin, end;
        } unused[] = {
                UNUSED(requests.server.service_states.shares, QOS_STATE_NONE, 1),
                UNUSED(contention.shares, QOS_STATE_NONE, 1),
                UNUSED(contention.threads, QOS_STATE_NONE, 1),
                UNUSED(contention.serving.shares, QOS_STATE_NONE, 1),
                UNUSED(contention.time, QOS_STATE_NONE, 1),
                UNUSED(contention.waits, QOS_STATE_NONE, QOS_STATE_LOCK),
                UNUSED(contention.block.counts.bytes, QOS_BLOCK_FLUSHES, 1),
                UNUSED(storage.shares[QOS_STORAGE_READ], QOS_STATE_NONE, 1),
                UNUSED(storage.shares[QOS_STORAGE_WRITE], QOS_STATE_NONE, 1),
                UNUSED(storage.shares[QOS_STORAGE_SYNC], QOS_STATE_NONE, 1),
        };
        uint8_t covered[sizeof(Metrics)] = {};

        for (size_t i = 0; i < metric_table_size; i++) {
                const Metric *m = metric_table + i;
                size_t size = m->type == METRIC_QUALITY ? sizeof(Quality) : sizeof(uint64_t);

                check(name_is_valid(m->name));
                check(metric_find(m->name) == m); /* unique */
                check(!isempty(m->description) && !isempty(m->probe) && !isempty(m->property) &&
                      !isempty(m->interface));
                check(m->kind != METRIC_COUNTER || m->type == METRIC_INTEGER);

                check(m->offset + size <= sizeof(Metrics));
                for (size_t k = 0; k < size; k++)
                        check(covered[m->offset + k]++ == 0); /* no field twice */

                /* No name is both a value and an object in JSON */
                for (size_t k = 0; k < metric_table_size; k++) {
                        const char *rest = startswith(metric_table[k].name, m->name);

                        check(!rest || *rest != '.');
                }
        }

        /* Each field has a metric. The rest is padding after the two fields that are smaller than 64 bits,
         * and elements of arrays for values of an enumeration without a metric */
        for (size_t i = 0; i < sizeof(Metrics); i++) {
                bool hole = (i >= offsetof(Metrics, requests.quality) + sizeof(Quality) &&
                             i < offsetof(Metrics, requests.server)) ||
                            (i >= offsetof(Metrics, requests.client.quality) + sizeof(Quality) &&
                             i < offsetof(Metrics, contention));

                for (size_t k = 0; k < ELEMENTSOF(unused); k++)
                        hole = hole || (i >= unused[k].begin && i < unused[k].end);
                check(hole == !covered[i]);
        }

        check(!metric_find(""));
        check(!metric_find("requests"));
        check(!metric_find("requests.server.latency"));
        check(!metric_find("requests.server.latency.p99 "));
}

static void test_values(void) {
        const Metric *count = metric_find("requests.server.count"), *rate = metric_find(
                "requests.server.rate"),
                *p99 = metric_find("requests.server.latency.p99"), *quality = metric_find(
                        "requests.quality");
        Metrics values = {};
        const char *s;
        uint64_t n;
        double d;

        check(count && rate && p99 && quality);
        check(count->kind == METRIC_COUNTER && p99->kind == METRIC_GAUGE);
        check(streq(p99->property, "ServerLatencyP99NSec") && streq(p99->unit, "ns"));

        /* 0 is a value */
        check(metric_get_integer(count, &values, &n) && n == 0);
        check(metric_get_real(rate, &values, &d) && d < 1e-9);
        /* QUALITY_ABSENT is none */
        check(!metric_get_string(quality, &values, &s));

        values.requests.server.count = ABSENT - 1;
        values.requests.server.latency.p99 = ABSENT;
        values.requests.server.rate = NAN;
        values.requests.quality = QUALITY_EXCHANGES;
        check(metric_get_integer(count, &values, &n) && n == ABSENT - 1);
        check(!metric_get_integer(p99, &values, &n));
        check(!metric_get_real(rate, &values, &d));
        check(metric_get_string(quality, &values, &s) && streq(s, "exchanges"));
}

int main(void) {
        test_table();
        test_values();
        return EXIT_SUCCESS;
}
